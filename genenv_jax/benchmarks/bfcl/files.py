"""Reads the lines of BFCL's files; errors name the file and line.

The files are the official ones (gorilla, `berkeley-function-call-leaderboard/bfcl_eval/data`): JSON lines
named `BFCL_<version>_<category>.json`, answers under `possible_answer/`, function descriptions of the
multi-turn classes under `multi_turn_func_doc/`.
"""

import dataclasses
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

from genenv_jax.benchmarks import data_files
from genenv_jax.benchmarks.base import Message
from genenv_jax.benchmarks.records import field, read_lines

_ROLES = ("system", "user", "assistant")


def find_directory(version: str, data_dir: data_files.PathLike | None = None) -> pathlib.Path:
    """The directory that holds `BFCL_<version>_*.json`.

    `data_dir`: the directory itself, or one that contains it as `<version>` or `bfcl/<version>`; see
    `data_files.find`, also for what it raises.
    """
    return data_files.find("bfcl", f"BFCL_{version}_*.json", data_dir, subdirectories=[version])


@dataclasses.dataclass(frozen=True)
class Files:
    """The files of one version; `verify`: compare each file read with the table of published files."""

    version: str
    directory: pathlib.Path
    verify: bool = False

    def lines(self, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """("file:line", record) for each record of the file `path`, relative to the directory.

        Raises FileNotFoundError for a missing file, ValueError for a malformed line or a file that differs
        from the published one.
        """
        if self.verify:
            data_files.verify("bfcl", self.directory, [path], f"{self.version}/")
        return read_lines(self.directory / path)

    def records(self, category: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Records of a category; see `lines`."""
        return self.lines(f"BFCL_{self.version}_{category}.json")

    def answers(self, category: str) -> dict[str, tuple[str, list[Any]]]:
        """("file:line", ground truth) by record id."""
        return {
            field(record, "id", str, where): (where, field(record, "ground_truth", list, where))
            for where, record in self.lines(f"possible_answer/BFCL_{self.version}_{category}.json")
        }


def turns_of(record: Any, where: str) -> list[tuple[Message, ...]]:
    """The messages of each turn of a question; ValueError, naming `where`, also if the first asks nothing."""
    turns = [_messages(turn, where) for turn in field(record, "question", list, where)]
    if not turns or not any(message["content"].strip() for message in turns[0]):
        raise ValueError(f"{where}: the first turn of 'question' has no request")
    return turns


def _messages(turn: Any, where: str) -> tuple[Message, ...]:
    well_formed = isinstance(turn, list) and all(
        isinstance(message, dict)
        and message.get("role") in _ROLES
        and isinstance(message.get("content"), str)
        for message in turn
    )
    if not well_formed:
        raise ValueError(f"{where}: a turn of 'question' is not a list of messages")
    return tuple({"role": m["role"], "content": m["content"]} for m in turn)


def tool(record: Any, where: str) -> dict[str, Any]:
    """A function description with "required" filled in; a ValueError names `where`."""
    if not isinstance(record, dict) or not isinstance(record.get("name"), str):
        raise ValueError(f"{where}: a function has no name")
    parameters = record.get("parameters")
    if not isinstance(parameters, dict) or not isinstance(parameters.get("properties"), dict):
        raise ValueError(f"{where}: function {record['name']} has no parameters.properties")
    if not isinstance(parameters.get("required", []), list):
        raise ValueError(f"{where}: function {record['name']}: 'required' is not a list")
    return {**record, "parameters": {"required": [], **parameters}}


def answer_of(answers: Mapping[str, Any], task_id: str, where: str) -> tuple[str, list[Any]]:
    """An entry of `Files.answers`; raises a ValueError naming `where` if there is none."""
    if task_id not in answers:
        raise ValueError(f"{where}: no possible_answer for {task_id}")
    return answers[task_id]
