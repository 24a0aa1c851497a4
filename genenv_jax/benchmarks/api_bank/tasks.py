"""Reads API-Bank's published files into tasks.

Tests: `history_1d76900/test-data/*.json` (removed from the repository's tree in 2023, kept in its
history).  Gold calls of levels 1 and 2 come from the dialogues in `HEAD/lv1-lv2-samples`, because the
printed calls are ambiguous; those of level 3 come from `level-3.json`.  Training:
`training-data/lv3-*.json`.  The training files of levels 1 and 2 are no longer published.
"""

import dataclasses
import json
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks import data_files
from genenv_jax.benchmarks.api_bank.calls import read_gold
from genenv_jax.benchmarks.base import Rejection, Task
from genenv_jax.benchmarks.records import field, read_json, read_lines, read_list
from genenv_jax.benchmarks.safe_parse import parse_json, parse_literal
from genenv_jax.benchmarks.task import Tools

CALL, RESPONSE = "call", "response"
CALL_PREFIX = "API-Request: "
TOOL_SEARCHER = "ToolSearcher"
ACCOUNTS = "HEAD/init_database/Account.json"
_HISTORY = "history_1d76900"
_DIALOGUES = "HEAD/lv1-lv2-samples"
_LEVEL_3 = f"{_HISTORY}/test-data/level-3.json"
_DESCRIPTIONS = "API descriptions:\n"
_ARROW = "->"
_Table = Mapping[str, Mapping[str, Any]]  # entries by key
# APIs that look up an entry by its content or time.
_LOOK_UP = re.compile("(?:Modify|Delete|Query)(Agenda|Reminder)")


@dataclasses.dataclass(frozen=True)
class Split:
    """One published file."""

    name: str  # the file's, without its extension
    kind: str  # CALL or RESPONSE
    level: int  # 1, 2 or 3
    dialogues: str = ""  # the directory of its dialogues; "" if there is none
    training: bool = False  # whether it is training data

    @property
    def path(self) -> str:
        """Path relative to the benchmark's directory."""
        return f"{_HISTORY}/{'training' if self.training else 'test'}-data/{self.name}.json"

    @property
    def pool(self) -> str:
        """Equal for splits made from the same dialogues."""
        return f"level-{self.level}{'-train' if self.training else ''}"


SPLITS = {
    split.name: split
    for split in (
        Split("level-1-api", CALL, 1, "level-1-given-desc"),
        Split("level-2-api", CALL, 2, "level-2-toolsearcher"),
        Split("level-3-batch-inf", CALL, 3),
        Split("level-1-response", RESPONSE, 1),
        Split("level-2-response", RESPONSE, 2),
        Split("level-3-batch-inf-response", RESPONSE, 3),
        Split("lv3-api-train", CALL, 3, training=True),
        Split("lv3-response-train", RESPONSE, 3, training=True),
    )
}


def find_directory(data_dir: data_files.PathLike | None = None) -> pathlib.Path:
    """The directory that holds the files; see `data_files.find`."""
    return data_files.find("api_bank", SPLITS["level-1-api"].path, data_dir, ("api-bank",))


def splits(directory: pathlib.Path) -> dict[str, list[Task]]:
    """All tasks by the name of their published file (`SPLITS`)."""
    return {name: load(directory, [name]) for name in SPLITS}


def load(
    directory: pathlib.Path, names: Sequence[str], origin: str = "seed", verify_files: bool = False
) -> list[Task]:
    """Loads splits (`SPLITS`) as tasks, in the order of the files.

    Returns:
      Tasks.  `messages` is one user message: the dialogue up to the call or the reply.  `tools` holds the
      API descriptions given with it.  `answer` is {"kind": "call", "level", "sample", "name", "parameters",
      "types", "target", optionally "exact"} (see `scoring.mismatch`) or {"kind": "response", "level",
      "sample", "text"}.
      Ids are `<file>:<number>` as published: the dialogue and its turn, the sample and its call, or the
      record's index.

    Raises:
      FileNotFoundError: a missing file.
      ValueError: a malformed record (named as file:record or file:line).
    """
    reader = _Reader(directory, verify_files)
    return [task for name in names for task in reader.tasks(SPLITS[name], origin)]


def call_spec(
    name: str, parameters: Mapping[str, Any], dialogue: str, tools: Tools, target: str = ""
) -> dict[str, Any]:
    """The form of a gold call for `scoring.mismatch`: values as text, with the parameters' declared types."""
    return {
        "name": name,
        "parameters": {key: str(value) for key, value in parameters.items()},
        "types": types_of(known_apis(dialogue, tools).get(name, {})),
        "target": target,
    }


def known_apis(dialogue: str, tools: Tools) -> dict[str, Mapping[str, Any]]:
    """APIs by name that may be called at the end of a dialogue: those described and those found in it."""
    found = {tool["name"]: tool for tool in tools}
    for line in dialogue.split("\n"):
        call, arrow, result = line.partition(_ARROW)
        if arrow and call.startswith(CALL_PREFIX.strip()) and f"[{TOOL_SEARCHER}(" in call:
            found |= {tool["name"]: tool for tool in described(result)}
    return found


def described(result: Any) -> list[dict[str, Any]]:
    """API descriptions in a search result (text or value); [] if there are none."""
    if isinstance(result, str):
        text = result.strip()
        result = parse_literal(text)
        if isinstance(result, Rejection):
            result = parse_json(text)
    if isinstance(result, dict) and "output" in result and "input_parameters" not in result:
        result = result["output"]
    entries = result if isinstance(result, list) else [result]
    return [entry for entry in entries if is_description(entry)]


def is_description(value: Any) -> bool:
    """Whether a value describes an API: a name and named parameters, each a mapping."""
    match value:
        case {"name": str(), "input_parameters": dict(parameters)}:
            pairs = parameters.items()
            return all(isinstance(name, str) and isinstance(schema, dict) for name, schema in pairs)
    return False


def types_of(tool: Mapping[str, Any]) -> dict[str, str]:
    """The declared types of an API's parameters; {} without a description."""
    parameters = tool.get("input_parameters", {})
    return {name: str(schema.get("type", "str")) for name, schema in parameters.items()}


def table_of(api: str) -> str | None:
    """Path of the published table in which an API looks up its entry, or None."""
    found = _LOOK_UP.fullmatch(api)
    return f"HEAD/init_database/{found[1]}.json" if found else None


def exact_parameters(parameters: Mapping[str, str], accounts: _Table, entries: _Table) -> list[str]:
    """Parameters of a gold call that must be equal for the call to find its entry: ["content"] or [].

    The official checks of agenda and reminder calls compare `content` loosely, but they execute the API
    first, which finds the entry by *equal* content or equal time.  If the entry's time differs from the
    gold call's, only the exact content finds it.

    `accounts` is {user: {"token", ...}}, `entries` {key: {"username", "content", "time", ...}} of its table.
    """
    if not {"token", "content", "time"} <= set(parameters):
        return []
    owners = [user for user, entry in accounts.items() if entry.get("token") == parameters["token"]]
    for entry in entries.values():
        same = {name: entry.get(name) == parameters[name] for name in ("content", "time")}
        if owners and entry.get("username") == owners[0] and any(same.values()):
            return [] if same["time"] else ["content"]
    return []


class _Reader:
    """Reads the files of one directory and caches its dialogues and tables."""

    def __init__(self, directory: pathlib.Path, verify_files: bool):
        self._directory = directory
        self._verify_files = verify_files
        self._turns: dict[str, list[dict[str, Any]]] = {}
        self._tables: dict[str, _Table] = {}

    def tasks(self, split: Split, origin: str) -> Iterator[Task]:
        """The tasks of one split."""
        gold_samples: list[list[Any]] = []  # the calls of each
        if split.level == 3 and not split.training:
            samples = read_list(self._path(_LEVEL_3))
            gold_samples = [field(sample, "apis", list, at) for at, sample in samples]
        for index, (where, record) in enumerate(read_list(self._path(split.path))):
            if split.level == 3:
                tool, _, text = field(record, "input", str, where).partition("\n")
                tools, answer = [_description(tool, where)], field(record, "output", str, where)
            else:
                text, answer = (field(record, k, str, where) for k in ("input", "expected_output"))
                instruction = field(record, "instruction", str, where)
                _, marker, lines = instruction.partition(_DESCRIPTIONS)
                if not marker:
                    raise ValueError(f"{where}: the instruction has no API descriptions")
                tools = [_description(of, where) for of in lines.splitlines() if of.strip()]
            # The last line asks for the call or the reply.
            dialogue, _, last = text.strip().rpartition("\n")
            if not last.startswith("Generate ") or not dialogue:
                raise ValueError(f"{where}: the input does not end with an order to generate")
            dialogue = dialogue.strip()
            if split.training:
                # Records of one requirement are adjacent; the requirement is the first line.
                place, sample = str(index), dialogue.split("\n", 1)[0]
            elif split.level == 3:
                number, turn = (field(record, k, int, where) for k in ("sample_id", "api_id"))
                place, sample = f"{number}:{turn}", str(number)
            else:
                sample, turn = field(record, "file", str, where), field(record, "id", int, where)
                place = f"{sample.removesuffix('.jsonl')}:{turn}"
            spec: dict[str, Any] = {"kind": split.kind, "level": split.level, "sample": sample}
            if split.kind == RESPONSE:
                said = answer.strip().removeprefix("AI:").strip()
                spec["text"] = said if split.training else answer
            elif split.training:
                call = read_gold(answer)
                if isinstance(call, Rejection):
                    raise ValueError(f"{where}: the output is not a call: {call.reason} {call.detail}")
                spec |= call_spec(call.name, call.arguments, dialogue, tools)
            elif split.level == 3:
                if not 0 <= number < len(gold_samples) or not 0 <= turn < len(gold_samples[number]):
                    raise ValueError(f"{where}: level-3.json has no call {turn} of sample {number}")
                gold = gold_samples[number][turn]
                spec |= _gold_call(gold, ("input", "output"), dialogue, tools, where)
            else:
                gold = self._api_turn(split.dialogues, sample, turn, where)
                spec |= _gold_call(gold, ("param_dict", "result"), dialogue, tools, where)
                if table := table_of(spec["name"]):
                    accounts, entries = self._table(ACCOUNTS), self._table(table)
                    if exact := exact_parameters(spec["parameters"], accounts, entries):
                        spec["exact"] = exact
            yield Task(
                id=f"{split.name}:{place}",
                benchmark="api_bank",
                category=split.name,
                messages=({"role": "user", "content": dialogue},),
                tools=tuple(tools),
                answer=spec,
                origin=origin,
            )

    def _path(self, relative: str) -> pathlib.Path:
        if self._verify_files:
            data_files.verify("api_bank", self._directory, [relative])
        return self._directory / relative

    def _table(self, relative: str) -> _Table:
        if relative not in self._tables:
            path = self._path(relative)
            rows = read_json(path)
            if not isinstance(rows, dict) or not all(isinstance(r, dict) for r in rows.values()):
                raise ValueError(f"{path}: expected an object of objects")
            self._tables[relative] = rows
        return self._tables[relative]

    def _api_turn(self, directory: str, file: str, sample: int, where: str) -> dict[str, Any]:
        """The turn that `Sample.from_chat_history` numbers `sample`.

        Every API turn yields two samples: itself and the next turn.  If the next turn is also a call, that
        call appears twice under two numbers (10 of level 1's 399).
        """
        relative = f"{_DIALOGUES}/{directory}/{file}"
        if relative not in self._turns:
            if pathlib.PurePosixPath(file).name != file:
                raise ValueError(f"{where}: {file!r} is not the name of a dialogue")
            turns = [turn for _, turn in read_lines(self._path(relative))]
            calls = [index for index, turn in enumerate(turns) if turn.get("role") == "API"]
            self._turns[relative] = [t for i in calls for t in (turns[i], (turns[i + 1 :] or [{}])[0])]
        turns = self._turns[relative]
        if not 0 <= sample < len(turns) or turns[sample].get("role") != "API":
            raise ValueError(f"{where}: dialogue {file} has no API turn with the number {sample}")
        return turns[sample]


def _gold_call(gold: Any, fields: tuple[str, str], dialogue: str, tools: Tools, where: str) -> dict[str, Any]:
    """A call from the published dialogues; `fields` names its parameters and result."""
    api = field(gold, "api_name", str, where)
    parameters, result = (field(gold, name, dict, where) for name in fields)
    target = ""
    if api == TOOL_SEARCHER and (found := described(result.get("output"))):
        target = found[-1]["name"]  # the first may be the API for a user's token
    return call_spec(api, parameters, dialogue, tools, target)


def _description(line: str, where: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{where}: an API description is not JSON: {error}") from None
    if isinstance(value, dict) and "apiCode" in value:  # level 3 uses other field names
        value = {
            "name": value["apiCode"],
            "description": value.get("description", ""),
            "input_parameters": value.get("parameters"),
            "output_parameters": value.get("response"),
        }
    if not is_description(value):
        raise ValueError(f"{where}: an API description lacks its name or parameters")
    return value
