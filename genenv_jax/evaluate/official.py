"""Writes and reads answers in the official evaluators' files; `Benchmark.official_row` says which exist."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks.base import Benchmark, Task
from genenv_jax.benchmarks.records import read_lines
from genenv_jax.benchmarks.thoughts import after_thoughts
from genenv_jax.run.jsonl import write_jsonl
from genenv_jax.sampling.sampler import Completion
from genenv_jax.scoring.attempts import Attempt, ChatModel


def write_official(
    benchmark: Benchmark, attempts: Sequence[Sequence[Attempt]], directory: pathlib.Path
) -> None:
    """Writes each task's first attempt, without thoughts, as the official evaluator reads it.

    directory: made if there is something to write.
    """
    files: dict[str, list[dict[str, Any]]] = {}
    for first, *_ in attempts:
        said = [after_thoughts(answer) for answer in first.answers]
        texts = [text if isinstance(text, str) else "" for text in said]
        if found := benchmark.official_row(first.task, texts):
            files.setdefault(found[0], []).append(found[1])
    for name, rows in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        write_jsonl(directory / name, rows)


def read_official(
    benchmark: Benchmark, tasks: Sequence[Task], path: pathlib.Path
) -> tuple[dict[str, str], int]:
    """Reads the answers in a file, or in all .json and .jsonl files below a directory.

    Returns:
      task id to answer, for those of `tasks` that are there, and how many lines are for other tasks.
    Raises:
      FileNotFoundError: no such file, or none in the directory.
      ValueError: a line that cannot be read, named as file:line, or a task's second answer.
    """
    files = sorted(p for p in path.rglob("*.json*") if p.is_file()) if path.is_dir() else [path]
    if not files:
        raise FileNotFoundError(f"{path}: expected .json or .jsonl files in it")
    by_id, others = {task.id: task for task in tasks}, 0
    answers: dict[str, str] = {}
    for file in files:
        for where, row in read_lines(file):
            try:
                found = benchmark.read_official(row, by_id)
            except ValueError as error:
                raise ValueError(f"{where}: {error}") from None
            if found is None:
                others += 1
            elif found[0] in answers:
                raise ValueError(f"{where}: a second answer to {found[0]}: expected one")
            else:
                answers[found[0]] = found[1]
    return answers, others


class Recorded(ChatModel):
    """The recorded answers as a chat model that answers `tasks` in their order, a conversation as a whole."""

    samples, max_concurrent, transcripts = 1, 1, True

    def __init__(self, tasks: Sequence[Task], answers: Mapping[str, str]):
        self._texts = [answers[task.id] for task in tasks]

    def answer(self, conversations, on_completion, turn=None) -> None:
        for i, text in enumerate(self._texts):
            on_completion(Completion(i, 0, text, True))
