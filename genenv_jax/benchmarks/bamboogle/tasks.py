"""Reads Bamboogle's 125 questions, each with its two sub-questions, into tasks.

The file is comp-gap's `data/bamboogle.json`, the copy that has the sub-questions.  Two other published
copies have the same questions and answers.
"""

import pathlib
from typing import Any

from genenv_jax.benchmarks import data_files
from genenv_jax.benchmarks.base import Task
from genenv_jax.benchmarks.records import field, read_list

FILE = "comp-gap-public__bamboogle.json"
TEST = "test"
TWO_HOPS, ONE_HOP = "two_hops", "one_hop"  # categories


def find_directory(data_dir: data_files.PathLike | None = None) -> pathlib.Path:
    """The directory that holds the file; see `data_files.find`."""
    return data_files.find("bamboogle", FILE, data_dir)


def splits(directory: pathlib.Path) -> dict[str, list[Task]]:
    """All tasks by official split name: {"test": 125 tasks}."""
    return {TEST: load(directory)}


def load(directory: pathlib.Path, origin: str = "eval", verify_files: bool = False) -> list[Task]:
    """All questions, in the order of the file, with ids `bamboogle_1` ...

    `Task.answer` is {"answers": [...], "steps": [{"question", "answers"}, {"question", "answers"}]}.  Raises
    FileNotFoundError, or ValueError naming a malformed record.
    """
    if verify_files:
        data_files.verify("bamboogle", directory, [FILE])
    tasks = []
    for index, (where, entry) in enumerate(read_list(directory / FILE), 1):
        pairs = [(_text(entry, f"Q{n}", where), _texts(entry, f"A{n}", where)) for n in (1, 2)]
        steps = [{"question": question, "answers": answers} for question, answers in pairs]
        question, answer = (_text(entry, name, where) for name in ("Question", "Answer"))
        tasks.append(make_task(f"bamboogle_{index}", question, [answer], steps, origin=origin))
    return tasks


def make_task(
    task_id: str, question: str, answers: list[str], steps: list[dict[str, Any]], **fields: Any
) -> Task:
    """A task from one question; `steps` are its sub-questions ([] for a one-hop question)."""
    return Task(
        id=task_id,
        benchmark="bamboogle",
        category=TWO_HOPS if steps else ONE_HOP,
        messages=({"role": "user", "content": question},),
        answer={"answers": answers, "steps": steps},
        **fields,
    )


def sub_tasks(task: Task) -> list[Task]:
    """The sub-questions of a task as one-hop tasks, with ids `<id>:1` and `<id>:2`."""
    return [
        make_task(f"{task.id}:{n}", step["question"], step["answers"], [], origin=task.origin)
        for n, step in enumerate(task.answer["steps"], 1)
    ]


def _text(entry: dict[str, Any], name: str, where: str) -> str:
    text = field(entry, name, str, where).strip()
    if not text:
        raise ValueError(f"{where}: {name!r} is empty")
    return text


def _texts(entry: dict[str, Any], name: str, where: str) -> list[str]:
    values = field(entry, name, list, where)
    if not values or not all(isinstance(value, str) for value in values):
        raise ValueError(f"{where}: {name!r} is not a list of texts")
    # One entry contains two answers.
    return [part.strip() for text in values for part in text.split("|")]
