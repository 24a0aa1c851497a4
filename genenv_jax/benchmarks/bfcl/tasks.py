"""Loads tasks from the Berkeley Function Calling Leaderboard's files (versions 3 and 4)."""

from collections.abc import Iterator, Sequence
from typing import Any

from genenv_jax.benchmarks import data_files
from genenv_jax.benchmarks.base import Task
from genenv_jax.benchmarks.bfcl import categories, conversation_tasks
from genenv_jax.benchmarks.bfcl.files import Files, answer_of, find_directory, tool, turns_of
from genenv_jax.benchmarks.records import field


def load(
    version: str,
    names: Sequence[str],
    data_dir: data_files.PathLike | None = None,
    origin: str = "seed",
    rule: str = categories.STATIC_MATCH,
    verify_files: bool = False,
) -> list[Task]:
    """Loads categories as tasks, in the order of the files.

    Args:
      names: official names of the version's categories (`categories.names`).
      rule: rule for the multi-turn categories: CONVERSATION gives whole conversations, STATIC_MATCH and
        TURN_STATE each turn on its own (see `conversation_tasks`).

    Returns:
      Tasks with the official ids; turn k of a conversation is `<id>:turn<k>`.  `Task.answer` is {"kind",
      "language", "rule", "ground_truth", "same_tools"} with BFCL's own ground truth, plus what the
      multi-turn rules need.

    Raises:
      FileNotFoundError: a missing directory or file.
      ValueError: a malformed record (named as file:line), or a file that differs from the published one.
    """
    files = Files(version, find_directory(version, data_dir), verify_files)
    found: list[Task] = []
    for name in names:
        if name in categories.MULTI_TURN:
            found += conversation_tasks.read(files, name, origin, rule)
        else:
            found += _single_turns(files, name, origin)
    return found


def splits(directory: data_files.PathLike, version: str = "v4") -> dict[str, list[Task]]:
    """All tasks of a version by category, with `Task.origin` "eval"; `directory`: see `find_directory`.

    The multi-turn categories appear as whole conversations under their official names, and as
    independent turns, compared statically, under `<category>_turns`.
    """
    found = {}
    for name in categories.names(version):
        found[name] = load(version, [name], directory, "eval", categories.CONVERSATION)
        if name in categories.MULTI_TURN:
            found[f"{name}_turns"] = load(version, [name], directory, "eval", categories.STATIC_MATCH)
    return found


def split_key(task_id: str) -> str:
    """The key that assigns a task to one side of a split.

    The turns of a conversation share it, across all multi-turn categories, which ask nearly the same.
    """
    conversation = task_id.split(":")[0]
    if conversation.startswith("multi_turn_"):
        return "multi_turn_" + conversation.rsplit("_", 1)[1]
    return conversation


def _single_turns(files: Files, name: str, origin: str) -> Iterator[Task]:
    kind, language = categories.kind_of(name), categories.language_of(name)
    checked = kind in ("simple", "multiple", "parallel")
    answers = files.answers(name) if checked else {}
    for where, record in files.records(name):
        task_id = field(record, "id", str, where)
        turns = turns_of(record, where)
        tools = tuple(tool(entry, where) for entry in field(record, "function", list, where))
        if len(turns) != 1:
            raise ValueError(f"{where}: expected one turn, found {len(turns)}")
        truth: list[Any] = []
        if checked:
            answer_at, truth = answer_of(answers, task_id, where)
            _check_truth(truth, answer_at)
        yield Task(
            id=task_id,
            benchmark="bfcl",
            category=name,
            messages=turns[0],
            tools=tools,
            answer=categories.specification(kind, language, categories.AST, truth),
            origin=origin,
        )


def _check_truth(truth: list[Any], where: str) -> None:
    for call in truth:
        if not isinstance(call, dict) or len(call) != 1:
            raise ValueError(f"{where}: a call is not an object with one key")
        ((name, options_of),) = call.items()
        if not isinstance(options_of, dict) or not all(
            isinstance(options, list) for options in options_of.values()
        ):
            raise ValueError(f"{where}: {name}: expected a list of options for each parameter")
