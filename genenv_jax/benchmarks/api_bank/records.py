"""Reads API-Bank's published files into tasks.

Tests: `history_1d76900/test-data/*.json` (removed from the repository's tree in 2023, kept in its
history).  Gold calls of levels 1 and 2 come from the dialogues below `HEAD/lv1-lv2-samples`, because the
printed calls are ambiguous; those of level 3 from `level-3.json`.  Training: `training-data/lv3-*.json`.
The training files of levels 1 and 2 are not published any more.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks import data_files
from genenv_jax.benchmarks.api_bank import lookups
from genenv_jax.benchmarks.api_bank.calls import as_text, read_gold
from genenv_jax.benchmarks.api_bank.rules import TOOL_SEARCHER
from genenv_jax.benchmarks.base import Rejection, Task
from genenv_jax.benchmarks.safe_parse import parse_json, parse_literal

CALL, RESPONSE = "call", "response"
_HISTORY = "history_1d76900"
_DIALOGUES = "HEAD/lv1-lv2-samples"
_LEVEL_3 = f"{_HISTORY}/test-data/level-3.json"
_MARKER = f"{_HISTORY}/test-data/level-1-api.json"
_DESCRIPTIONS = "API descriptions:\n"
_ARROW = "->"
_DEPTH = 64


@dataclasses.dataclass(frozen=True)
class Split:
    """One published file.

    Attributes:
      path: relative to the benchmark's directory.
      kind: CALL or RESPONSE.
      level: 1, 2 or 3.
      training: whether it is training data.
      dialogues: the directory of its dialogues; "" where there is none.
    """

    path: str
    kind: str
    level: int
    training: bool = False
    dialogues: str = ""


SPLITS = {
    "level-1-api": Split(
        f"{_HISTORY}/test-data/level-1-api.json", CALL, 1, dialogues="level-1-given-desc"
    ),
    "level-2-api": Split(
        f"{_HISTORY}/test-data/level-2-api.json", CALL, 2, dialogues="level-2-toolsearcher"
    ),
    "level-3-batch-inf": Split(f"{_HISTORY}/test-data/level-3-batch-inf.json", CALL, 3),
    "level-1-response": Split(f"{_HISTORY}/test-data/level-1-response.json", RESPONSE, 1),
    "level-2-response": Split(f"{_HISTORY}/test-data/level-2-response.json", RESPONSE, 2),
    "level-3-batch-inf-response": Split(
        f"{_HISTORY}/test-data/level-3-batch-inf-response.json", RESPONSE, 3
    ),
    "lv3-api-train": Split(f"{_HISTORY}/training-data/lv3-api-train.json", CALL, 3, True),
    "lv3-response-train": Split(
        f"{_HISTORY}/training-data/lv3-response-train.json", RESPONSE, 3, True
    ),
}


def find_directory(data_dir: str | os.PathLike[str] | None = None) -> pathlib.Path:
    """The directory that holds the files; see `data_files.find`."""
    return data_files.find("api_bank", _MARKER, data_dir, ("api-bank",))


def splits(directory: pathlib.Path) -> dict[str, list[Task]]:
    """All tasks under the names of the published files (`SPLITS`)."""
    return {name: load(directory, [name]) for name in SPLITS}


def load(
    directory: pathlib.Path, names: Sequence[str], origin: str = "seed", verify_files: bool = False
) -> list[Task]:
    """Loads splits as tasks, in the order of the files.

    Args:
      directory: what `find_directory` returns.
      names: of splits (`SPLITS`).
      origin: `Task.origin` of what is loaded.
      verify_files: compares every file that is read with the table of published files.

    Returns:
      Tasks.  `messages` is one user message, the dialogue up to the call or the reply; `tools` the API
      descriptions that come with it; `answer` {"kind": "call", "level", "name", "parameters", "types",
      "target", "sample", perhaps "exact"} (see `rules.mismatch`) or {"kind": "response", "level",
      "text", "sample"}.
      Ids are `<file>:<number>` as published: the dialogue and its turn, the sample and its call, or the
      record's index.

    Raises:
      FileNotFoundError: a missing file.
      ValueError: an unknown split, or a malformed record (named as file:record or file:line).
    """
    for name in names:
        if name not in SPLITS:
            raise ValueError(f"API-Bank split {name!r}: expected one of {', '.join(SPLITS)}")
    reader = _Reader(directory, verify_files)
    return [task for name in names for task in reader.tasks(name, origin)]


def known_apis(dialogue: str, tools: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """APIs that may be called at the end of a dialogue: those described, and those that a search found.

    Returns:
      {API: {parameter: declared type}}.  Results of searches that cannot be read are passed over.
    """
    found = {tool["name"]: _types(tool) for tool in tools}
    for line in dialogue.split("\n"):
        if not line.startswith("API-Request:") or _ARROW not in line:
            continue
        call, _, result = line.partition(_ARROW)
        if f"[{TOOL_SEARCHER}(" not in call:
            continue
        for tool in described(result):
            found[tool["name"]] = _types(tool)
    return found


def described(result: Any) -> list[dict[str, Any]]:
    """API descriptions in a search's result (text or value); [] where there are none."""
    if isinstance(result, str):
        text = result.strip()
        result = parse_literal(text, max_depth=_DEPTH)
        if isinstance(result, Rejection):
            result = parse_json(text, max_depth=_DEPTH)
    if isinstance(result, dict) and "output" in result and "input_parameters" not in result:
        result = result["output"]
    entries = result if isinstance(result, list) else [result]
    return [entry for entry in entries if is_description(entry)]


def is_description(value: Any) -> bool:
    """Whether a value describes an API: a name, and named parameters that are mappings."""
    return (
        isinstance(value, dict)
        and isinstance(value.get("name"), str)
        and isinstance(value.get("input_parameters"), dict)
        and all(
            isinstance(name, str) and isinstance(schema, dict)
            for name, schema in value["input_parameters"].items()
        )
    )


def _types(tool: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(s.get("type", "str")) for name, s in tool["input_parameters"].items()}


def _target(result: Any) -> str:
    """Name of the API that a search found: the last one (the first may be for a user's token)."""
    found = described(result)
    return found[-1]["name"] if found else ""


class _Reader:
    """Reads the files of one directory; keeps the dialogues and tables that it has read."""

    def __init__(self, directory: pathlib.Path, verify_files: bool):
        self.directory = directory
        self.verify_files = verify_files
        self._turns: dict[str, list[dict[str, Any]]] = {}
        self._tables: dict[str, Mapping[str, Mapping[str, Any]]] = {}

    def tasks(self, name: str, origin: str) -> Iterator[Task]:
        """The tasks of one split."""
        split = SPLITS[name]
        path = self._path(split.path)
        gold_samples = self._level_3() if split.level == 3 and not split.training else []
        for index, record in enumerate(_json_list(path)):
            where = f"{path}: record {index}"
            read = _Record(record, where)
            if split.level == 3:
                task_id, sample, tools, dialogue = read.level_3(name, index, split.training)
                answer = read.text("output")
            else:
                file, turn = read.text("file"), read.integer("id")
                task_id, sample = f"{name}:{file.removesuffix('.jsonl')}:{turn}", file
                tools, dialogue = read.tools(), read.dialogue()
                answer = read.text("expected_output")
            spec: dict[str, Any] = {"kind": split.kind, "level": split.level, "sample": sample}
            if split.kind == RESPONSE:
                spec["text"] = (
                    answer.strip().removeprefix("AI:").strip() if split.training else answer
                )
            elif split.training:
                spec |= _printed_call(answer, dialogue, tools, where)
            elif split.level == 3:
                gold = _Record(
                    _entry(gold_samples, read.integer("sample_id"), read.integer("api_id"), where),
                    where,
                )
                spec |= _gold_call(gold, "input", gold.mapping("output"), dialogue, tools)
            else:
                gold = _Record(self._api_turn(split.dialogues, file, turn, where), where)
                spec |= _gold_call(gold, "param_dict", gold.mapping("result"), dialogue, tools)
                exact = self._exact(spec["name"], spec["parameters"])
                if exact:
                    spec["exact"] = exact
            yield Task(
                id=task_id,
                benchmark="api_bank",
                category=name,
                messages=({"role": "user", "content": dialogue},),
                tools=tuple(tools),
                answer=spec,
                origin=origin,
            )

    def _path(self, relative: str) -> pathlib.Path:
        path = self.directory / relative
        if self.verify_files:
            data_files.verify("api_bank", self.directory, [relative])
        if not path.is_file():
            raise FileNotFoundError(f"API-Bank file {path} is missing")
        return path

    def _table(self, relative: str) -> Mapping[str, Mapping[str, Any]]:
        if relative not in self._tables:
            path = self._path(relative)
            self._tables[relative] = lookups.read_table(path, _json(path))
        return self._tables[relative]

    def _exact(self, api: str, parameters: Mapping[str, str]) -> list[str]:
        table = lookups.table_of(api)
        if table is None:
            return []
        accounts, entries = self._table(lookups.ACCOUNTS), self._table(table)
        return lookups.exact_parameters(api, parameters, accounts, entries)

    def _level_3(self) -> list[Any]:
        path = self._path(_LEVEL_3)
        samples = _json_list(path)
        for index, sample in enumerate(samples):
            if not isinstance(sample, dict) or not isinstance(sample.get("apis"), list):
                raise ValueError(f"{path}: record {index}: 'apis' is missing or not a list")
        return samples

    def _api_turn(self, directory: str, file: str, sample: int, where: str) -> Any:
        """The turn that `Sample.from_chat_history` numbers `sample`.

        Every API turn gives two samples, itself and the turn after it.  Where that is a call as well,
        the call is there twice, under two numbers (10 of level 1's 399).
        """
        relative = f"{_DIALOGUES}/{directory}/{file}"
        if relative not in self._turns:
            if pathlib.PurePosixPath(file).name != file:
                raise ValueError(f"{where}: {file!r} is not the name of a dialogue")
            turns = list(_json_lines(self._path(relative)))
            calls = [index for index, turn in enumerate(turns) if turn.get("role") == "API"]
            self._turns[relative] = [
                turn for index in calls for turn in (turns[index], (turns[index + 1 :] or [{}])[0])
            ]
        turns = self._turns[relative]
        if not 0 <= sample < len(turns) or turns[sample].get("role") != "API":
            raise ValueError(f"{where}: dialogue {file} has no API turn with the number {sample}")
        return turns[sample]


class _Record:
    """One record with checked access to its fields; errors name the place."""

    def __init__(self, record: Any, where: str):
        if not isinstance(record, dict):
            raise ValueError(f"{where}: expected an object")
        self.record = record
        self.where = where

    def _field(self, name: str, kind: type) -> Any:
        value = self.record.get(name)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ValueError(f"{self.where}: {name!r} is missing or not a {kind.__name__}")
        return value

    def text(self, name: str) -> str:
        """A field that is text."""
        return self._field(name, str)

    def integer(self, name: str) -> int:
        """A field that is a number."""
        return self._field(name, int)

    def mapping(self, name: str) -> dict[str, Any]:
        """A field that is an object."""
        return self._field(name, dict)

    def dialogue(self) -> str:
        """The input without its last line, which asks for the call or the reply."""
        return _without_order(self.text("input"), self.where)

    def tools(self) -> list[dict[str, Any]]:
        """API descriptions at the end of the instruction, one a line."""
        _, marker, lines = self.text("instruction").partition(_DESCRIPTIONS)
        if not marker:
            raise ValueError(f"{self.where}: the instruction has no API descriptions")
        return [_description(line, self.where) for line in lines.splitlines() if line.strip()]

    def level_3(
        self, name: str, index: int, training: bool
    ) -> tuple[str, str, list[dict[str, Any]], str]:
        """(task id, sample, tools, dialogue) of a level-3 record."""
        first, _, rest = self.text("input").partition("\n")
        tool = _description(first, self.where)
        dialogue = _without_order(rest, self.where)
        if training:
            # Records of one requirement follow each other; the requirement is the first line.
            return f"{name}:{index}", dialogue.split("\n", 1)[0], [tool], dialogue
        sample, call = self.integer("sample_id"), self.integer("api_id")
        return f"{name}:{sample}:{call}", str(sample), [tool], dialogue


def _without_order(text: str, where: str) -> str:
    dialogue, _, last = text.strip().rpartition("\n")
    if not last.startswith("Generate ") or not dialogue:
        raise ValueError(f"{where}: the input does not end with an order to generate")
    return dialogue.strip()


def _description(line: str, where: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{where}: an API description is not JSON: {error}") from None
    if isinstance(value, dict) and "apiCode" in value:  # level 3 names the fields otherwise
        value = {
            "name": value["apiCode"],
            "description": value.get("description", ""),
            "input_parameters": value.get("parameters"),
            "output_parameters": value.get("response"),
        }
    if not is_description(value):
        raise ValueError(f"{where}: an API description lacks its name or parameters")
    return value


def _gold_call(
    gold: _Record,
    field: str,
    result: Mapping[str, Any],
    dialogue: str,
    tools: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    name = gold.text("api_name")
    return {
        "name": name,
        "parameters": {key: as_text(value) for key, value in gold.mapping(field).items()},
        "types": known_apis(dialogue, tools).get(name, {}),
        "target": _target(result.get("output")) if name == TOOL_SEARCHER else "",
    }


def _printed_call(
    text: str, dialogue: str, tools: Sequence[Mapping[str, Any]], where: str
) -> dict[str, Any]:
    call = read_gold(text)
    if isinstance(call, Rejection):
        raise ValueError(f"{where}: the output is no call: {call.reason} {call.detail}")
    return {
        "name": call.name,
        "parameters": dict(call.arguments),
        "types": known_apis(dialogue, tools).get(call.name, {}),
        "target": "",
    }


def _entry(samples: list[Any], sample: int, call: int, where: str) -> Any:
    if not 0 <= sample < len(samples) or not 0 <= call < len(samples[sample]["apis"]):
        raise ValueError(f"{where}: level-3.json has no call {call} of sample {sample}")
    return samples[sample]["apis"][call]


def _json(path: pathlib.Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: not JSON: {error}") from None


def _json_list(path: pathlib.Path) -> list[Any]:
    value = _json(path)
    if not isinstance(value, list):
        raise ValueError(f"{path}: expected a list of records")
    return value


def _json_lines(path: pathlib.Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                value = json.loads(line)
            except ValueError as error:
                raise ValueError(f"{path}:{number}: not JSON: {error}") from None
            if not isinstance(value, dict):
                raise ValueError(f"{path}:{number}: expected an object")
            yield value
