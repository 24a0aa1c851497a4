"""A benchmark of questions from files, for users who have data and no code.

Files are JSON lines, or the parquet files that verl and the paper's authors use.

A record is one of

  {"prompt": ..., "answer": ..., "tools"?, "checker"?, "category"?, "id"?}
  {"prompt": ..., "reward_model": {"ground_truth": ...}, "tools"?, "data_source"?, "extra_info"?, ...}

in either kind of file.  The prompt is a string, or a list of messages that ends with the user's.  Tools are a
list of function descriptions for the checker `call`, or the JSON text of one.  GenEnv's
public code reads the second form (Gen-Verse/GenEnv, README.md and genenv/utils/reward_functions.py): a ground
truth may be {"answer": ...}, or the JSON text of that, and a call has "parameters".  Other columns are
ignored.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Iterator
from typing import Any

from genenv_jax.benchmarks.base import Message, Rejection, Task
from genenv_jax.benchmarks.custom.benchmark import Custom, Question
from genenv_jax.benchmarks.custom.checkers import CALL, CHECKERS, EXACT
from genenv_jax.benchmarks.options import check_choice, check_shares
from genenv_jax.benchmarks.records import read_lines
from genenv_jax.benchmarks.safe_parse import parse_json
from genenv_jax.benchmarks.subsets import stable_position
from genenv_jax.benchmarks.wording import letters

_MAX_LINE = 2**20  # characters
_ROLES = ("system", "user", "assistant")
_KEYS = ("prompt", "answer", "checker", "category", "id", "tools")
_EXPECTED = 'expected {"prompt": ..., "answer": ...}'
_REWARD = "reward_model"


@dataclasses.dataclass(kw_only=True, eq=False)
class CustomFiles(Custom):
    """The questions of one or two files, compared by a checker.

    Args, besides those of `Benchmark`:
      checker: how answers are compared, one of `checkers.CHECKERS`; a question may override it.
      instruction: the agent's system message; None: the checker's, which says how to answer.
      train: the file with the seeds.
      held_out: the file with the held-out questions; "": a share of `train`.
      seed_fraction: share of a single file's questions that become seeds, by a hash of the prompt, so the
        split depends neither on the order of the lines nor on other lines.
      data_dir: directory that relative paths start from; "": the working directory.
    """

    isolated = False  # all code that reads model output is bounded

    checker: str = EXACT
    instruction: str | None = None
    train: str = ""
    held_out: str = ""
    seed_fraction: float = 0.8
    data_dir: str | os.PathLike[str] = ""

    def __post_init__(self):
        super().__post_init__()
        check_choice("checker", self.checker, CHECKERS)
        if self.instruction is not None and not isinstance(self.instruction, str):
            raise ValueError(f"instruction = {self.instruction!r}: expected a text or None")
        check_shares(seed_fraction=self.seed_fraction)
        for option in ("train", "held_out"):
            value = getattr(self, option)
            if not isinstance(value, str) or not (value or option == "held_out"):
                raise ValueError(
                    f"{option} = {value!r}: expected a file of questions, JSON lines or .parquet"
                )

    def questions(self, split: str) -> Iterator[Question]:
        """See `Custom.questions`."""
        if self.held_out:
            yield from self._read(self.train if split == "seed" else self.held_out, split)
            return
        for question in self._read(self.train, split):
            place = stable_position(f"custom:{letters(question.prompt)}")
            if (place < self.seed_fraction) == (split == "seed"):
                yield question

    def _read(self, name: str, split: str) -> Iterator[Question]:
        return read(pathlib.Path(self.data_dir, name), self.checker, split)

    def source(self, task: Task) -> str:
        """See `Benchmark.source`: questions that differ only in signs stay in the same split."""
        return letters(self.text(task)) or task.id

    def facts(self) -> dict[str, str]:
        facts = super().facts() | {"data": self.train}
        if self.held_out:
            return facts | {"held_out": self.held_out}
        return facts | {"held_out": f"{1 - self.seed_fraction:g} of it, by a hash of the prompt"}


def read(path: pathlib.Path, checker: str, prefix: str) -> Iterator[Question]:
    """The questions in a file, in order; a file named *.parquet is read as parquet.

    Args:
      checker: the checker for records that name none.
      prefix: prefix of the ids made for records without one.

    Raises:
      FileNotFoundError: the file does not exist.
      ValueError: a record is malformed; names it as file:line (parquet: file:row), counted from 1.
    """
    records = _parquet(path) if path.suffix == ".parquet" else read_lines(path, _strictly)
    for where, record in records:
        number = where.rpartition(":")[2]
        yield _question(record, where, f"{prefix}:{number}", checker)


def _strictly(line: str) -> Any:
    """Parses a line as strict JSON: repeated keys are an error, since it is unclear which one was meant."""
    value = parse_json(line.rstrip("\r\n"), _MAX_LINE)
    if isinstance(value, Rejection):
        detail = value.detail.replace("line 1 column", "column")
        raise ValueError(f"{value.reason}: {detail}; {_EXPECTED}")
    return value


def _parquet(path: pathlib.Path) -> Iterator[tuple[str, dict[str, Any]]]:
    import pyarrow
    from pyarrow import parquet

    try:
        known = {*_KEYS, _REWARD, "data_source"}.intersection(parquet.read_schema(path).names)
        rows = parquet.read_table(path, columns=sorted(known)).to_pylist()
    except pyarrow.ArrowException as error:
        raise ValueError(f"{path}: not a parquet file that can be read: {error}") from None
    for number, row in enumerate(rows, 1):
        # Parquet columns have a value in every row: a field that a row lacks is None.
        yield f"{path}:{number}", {key: v for key, v in row.items() if v is not None}


def _question(record: dict[str, Any], where: str, name: str, checker: str) -> Question:
    """Makes a question from a record; its answer is not parsed yet."""
    of_verl = _REWARD in record and "answer" not in record
    if not of_verl and (unknown := sorted(record.keys() - set(_KEYS) - {"data_source"})):
        raise ValueError(
            f"{where}: unknown key {unknown[0]!r:.60}; expected some of {', '.join(_KEYS)}"
        )
    for key in ("prompt",) if of_verl else ("prompt", "answer"):
        if key not in record:
            raise ValueError(f"{where}: no {key}; {_EXPECTED}")
    context, prompt = _conversation(record["prompt"], where)
    checker = record.get("checker", checker)
    return Question(
        prompt=prompt,
        answer=_truth(record[_REWARD], checker, where) if of_verl else record["answer"],
        id=record.get("id", name),
        category=record.get("category", record.get("data_source", "all")),
        checker=checker,
        context=context,
        tools=_tools(record.get("tools") or (), where),
        where=where,
    )


def _tools(tools: Any, where: str) -> Any:
    """The tools of a record, not checked yet."""
    read = parse_json(tools, _MAX_LINE) if isinstance(tools, str) else tools
    if isinstance(read, Rejection):
        raise ValueError(
            f"{where}: tools: {read.reason}: {read.detail}; expected a list, or its JSON"
        )
    return _without_none(read)


def _conversation(prompt: Any, where: str) -> tuple[tuple[Message, ...], str]:
    """The messages before the last one, and the last one's text."""
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    well_formed = isinstance(messages, list) and all(
        isinstance(message, dict)
        and message.get("role") in _ROLES
        and isinstance(message.get("content"), str)
        for message in messages
    )
    *context, last = messages if well_formed and messages else [{"role": "", "content": ""}]
    if last["role"] != "user" or not last["content"].strip():
        raise ValueError(
            f"{where}: prompt {prompt!r:.60}: expected a text, or a list of messages "
            '{"role": system, user or assistant, "content": text} of which the last one is the user\'s'
        )
    return tuple({"role": m["role"], "content": m["content"]} for m in context), last[
        "content"
    ].strip()


def _truth(reward: Any, checker: str, where: str) -> Any:
    """The reference from a `reward_model` column."""
    if not isinstance(reward, dict) or "ground_truth" not in reward:
        raise ValueError(f'{where}: reward_model {reward!r:.60}: expected {{"ground_truth": ...}}')
    if reward.get("style", "rule") not in ("rule", None):
        raise ValueError(f"{where}: reward_model.style = {reward['style']!r:.60}: expected 'rule'")
    truth = reward["ground_truth"]
    if isinstance(truth, str) and truth.lstrip().startswith(("{", "[")):
        read = parse_json(truth, _MAX_LINE)
        if checker == CALL or (isinstance(read, dict) and "answer" in read):
            truth = read
    if isinstance(truth, dict) and "answer" in truth:
        truth = truth["answer"]
    return _without_none(truth) if checker == CALL else truth


def _without_none(truth: Any) -> Any:
    """Drops fields that are None: a parquet struct has the fields of all rows."""
    if isinstance(truth, list):
        return list(map(_without_none, truth))
    if not isinstance(truth, dict):
        return truth
    return {key: _without_none(value) for key, value in truth.items() if value is not None}
