"""Reads the Berkeley Function Calling Leaderboard's files (versions 3 and 4) into tasks.

The files are the official ones (gorilla, `berkeley-function-call-leaderboard/bfcl_eval/data`):
JSON lines named `BFCL_<version>_<category>.json`, answers under `possible_answer/`, function
descriptions of the multi-turn classes under `multi_turn_func_doc/`.

Multi-turn conversations become independent turns, as in the GenEnv paper's protocol.  The request
of turn k is preceded by the earlier turns' requests and reference calls, and its own reference
calls are its answer; calls are compared without being executed.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks.base import Message, Rejection, Task
from genenv_jax.benchmarks.bfcl.schemas import ground_truth_of
from genenv_jax.benchmarks.safe_parse import parse_calls

NON_LIVE = {
    "v3": ("simple", "java", "javascript", "multiple", "parallel", "parallel_multiple"),
    "v4": (
        "simple_python",
        "simple_java",
        "simple_javascript",
        "multiple",
        "parallel",
        "parallel_multiple",
    ),
}
LIVE = ("live_simple", "live_multiple", "live_parallel", "live_parallel_multiple")
RELEVANCE = ("irrelevance", "live_irrelevance", "live_relevance")
# miss_func and miss_param have turns without reference calls by design: nothing to compare.
MULTI_TURN = ("multi_turn_base", "multi_turn_long_context")

AST = "ast"  # official rule: the AST checker
STATIC_MATCH = "static_match"  # reference calls compared by the AST checker's `parallel` rule

_FUNC_DOC_FILES = {
    "GorillaFileSystem": "gorilla_file_system.json",
    "MathAPI": "math_api.json",
    "MessageAPI": "message_api.json",
    "TwitterAPI": "posting_api.json",
    "TicketAPI": "ticket_api.json",
    "TradingBot": "trading_bot.json",
    "TravelAPI": "travel_booking.json",
    "VehicleControlAPI": "vehicle_control.json",
}
_ROLES = ("system", "user", "assistant")


def categories(version: str) -> tuple[str, ...]:
    """Official names of the categories that can be loaded; ValueError for an unknown version."""
    if version not in NON_LIVE:
        raise ValueError(f"BFCL version {version!r}: expected one of {', '.join(NON_LIVE)}")
    return (*NON_LIVE[version], *LIVE, *RELEVANCE, *MULTI_TURN)


def kind_of(category: str) -> str:
    """Which rule checks a category's answers (see `ast_checker.check`)."""
    if "irrelevance" in category:
        return "irrelevance"
    if "relevance" in category:
        return "relevance"
    if "parallel" in category or category in MULTI_TURN:
        return "parallel"
    return "multiple" if "multiple" in category else "simple"


def language_of(category: str) -> str:
    """The language in which a category's calls are written."""
    if "javascript" in category:
        return "javascript"
    return "java" if "java" in category else "python"


def find_directory(version: str, data_dir: str | os.PathLike[str] | None = None) -> pathlib.Path:
    """The directory that holds `BFCL_<version>_*.json`.

    Args:
      version: "v3" or "v4".
      data_dir: that directory itself, or one that holds it as `<version>` or `bfcl/<version>`.
        None reads $GENENV_DATA, whose default is `../shared/data` beside the repository.

    Raises:
      FileNotFoundError: none of these places has the files; names the places and the remedy.
    """
    if not data_dir:
        repository = pathlib.Path(__file__).resolve().parents[2]
        data_dir = os.environ.get("GENENV_DATA") or repository.parent / "shared" / "data"
    root = pathlib.Path(data_dir)
    places = (root, root / version, root / "bfcl" / version)
    for place in places:
        if any(place.glob(f"BFCL_{version}_*.json")):
            return place
    raise FileNotFoundError(
        f"no BFCL_{version}_*.json in {', '.join(map(str, places))}; set GENENV_DATA or data_dir "
        "to a directory that holds bfcl/" + version
    )


def load(
    version: str,
    names: Sequence[str],
    data_dir: str | os.PathLike[str] | None = None,
    origin: str = "seed",
) -> list[Task]:
    """Loads categories as tasks, in the order of the files.

    Args:
      version: "v3" or "v4".
      names: official category names (`categories(version)`).
      data_dir: see `find_directory`.
      origin: `Task.origin` of what is loaded.

    Returns:
      Tasks with the official ids; turn k of a conversation is `<id>:turn<k>`.  Turns without
      reference calls are left out, and so is a conversation whose answer has another number of
      turns than its question (one in v3: multi_turn_base_154).  `Task.answer` is {"kind",
      "language", "rule", "ground_truth", "same_tools"} with BFCL's own ground truth.

    Raises:
      FileNotFoundError: a missing directory or file.
      ValueError: an unknown version or category, or a malformed record (named as file:line).
    """
    known = categories(version)
    for name in names:
        if name not in known:
            raise ValueError(
                f"BFCL {version} category {name!r}: expected one of {', '.join(known)}"
            )
    directory = find_directory(version, data_dir)
    tasks = []
    for name in names:
        read = _turns if name in MULTI_TURN else _single_turns
        tasks.extend(read(directory, version, name, origin))
    return tasks


def split_key(task_id: str) -> str:
    """What decides on which side of a split a task falls.

    The turns of one conversation share it, and so do the multi-turn categories, because
    conversation n of `multi_turn_base` and of `multi_turn_long_context` ask nearly the same.
    """
    conversation = task_id.split(":")[0]
    if conversation.startswith("multi_turn_"):
        return "multi_turn_" + conversation.rsplit("_", 1)[1]
    return conversation


def split_position(key: str) -> float:
    """A stable number in [0, 1) for a key: the head of its SHA-256, not Python's salted hash."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") / 2**64


def _records(path: pathlib.Path) -> Iterator[tuple[str, dict[str, Any]]]:
    if not path.is_file():
        raise FileNotFoundError(f"BFCL file {path} is missing")
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            where = f"{path}:{number}"
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except ValueError as error:
                raise ValueError(f"{where}: not JSON: {error}") from None
            if not isinstance(record, dict):
                raise ValueError(f"{where}: expected an object")
            yield where, record


def _field(record: Mapping[str, Any], name: str, kind: type, where: str) -> Any:
    value = record.get(name)
    if not isinstance(value, kind):
        raise ValueError(f"{where}: {name!r} is missing or not a {kind.__name__}")
    return value


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


def _check_tool(tool: Any, where: str) -> dict[str, Any]:
    if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
        raise ValueError(f"{where}: a function has no name")
    parameters = tool.get("parameters")
    if not isinstance(parameters, dict) or not isinstance(parameters.get("properties"), dict):
        raise ValueError(f"{where}: function {tool['name']} has no parameters.properties")
    if not isinstance(parameters.get("required", []), list):
        raise ValueError(f"{where}: function {tool['name']}: 'required' is not a list")
    return {**tool, "parameters": {"required": [], **parameters}}


def _answers(directory: pathlib.Path, version: str, name: str) -> dict[str, tuple[str, list[Any]]]:
    path = directory / "possible_answer" / f"BFCL_{version}_{name}.json"
    return {
        _field(record, "id", str, where): (where, _field(record, "ground_truth", list, where))
        for where, record in _records(path)
    }


def _answer_of(
    answers: Mapping[str, tuple[str, list[Any]]], task_id: str, where: str
) -> tuple[str, list[Any]]:
    if task_id not in answers:
        raise ValueError(f"{where}: no possible_answer for {task_id}")
    return answers[task_id]


def _spec(category: str, rule: str, ground_truth: Sequence[Any]) -> dict[str, Any]:
    return {
        "kind": kind_of(category),
        "language": language_of(category),
        "rule": rule,
        "ground_truth": list(ground_truth),
        "same_tools": True,
    }


def _single_turns(directory: pathlib.Path, version: str, name: str, origin: str) -> Iterator[Task]:
    checked = kind_of(name) in ("simple", "multiple", "parallel")
    answers = _answers(directory, version, name) if checked else {}
    for where, record in _records(directory / f"BFCL_{version}_{name}.json"):
        task_id = _field(record, "id", str, where)
        question = _field(record, "question", list, where)
        tools = tuple(_check_tool(tool, where) for tool in _field(record, "function", list, where))
        if len(question) != 1:
            raise ValueError(f"{where}: expected one turn, found {len(question)}")
        truth: list[Any] = []
        if checked:
            answer_at, truth = _answer_of(answers, task_id, where)
            _check_truth(truth, answer_at)
        yield Task(
            id=task_id,
            benchmark="bfcl",
            category=name,
            messages=_messages(question[0], where),
            tools=tools,
            answer=_spec(name, AST, truth),
            origin=origin,
        )


def _check_truth(truth: list[Any], where: str) -> None:
    for call in truth:
        if not isinstance(call, dict) or len(call) != 1:
            raise ValueError(f"{where}: a call is not an object with one key")
        name, options_of = next(iter(call.items()))
        if not isinstance(options_of, dict) or not all(
            isinstance(options, list) for options in options_of.values()
        ):
            raise ValueError(f"{where}: {name}: expected a list of options for each parameter")


def _turns(directory: pathlib.Path, version: str, name: str, origin: str) -> Iterator[Task]:
    documents: dict[str, list[dict[str, Any]]] = {}
    answers = _answers(directory, version, name)
    for where, record in _records(directory / f"BFCL_{version}_{name}.json"):
        conversation = _field(record, "id", str, where)
        question = _field(record, "question", list, where)
        answer_at, turns = _answer_of(answers, conversation, where)
        if len(turns) != len(question):
            continue  # which answer belongs to which request is anyone's guess
        tools: list[dict[str, Any]] = []
        for class_name in _field(record, "involved_classes", list, where):
            if class_name not in _FUNC_DOC_FILES:
                raise ValueError(f"{where}: unknown class {class_name!r}")
            if class_name not in documents:
                path = directory / "multi_turn_func_doc" / _FUNC_DOC_FILES[class_name]
                documents[class_name] = [_check_tool(tool, at) for at, tool in _records(path)]
            tools.extend(documents[class_name])
        history: tuple[Message, ...] = ()
        for index, (turn, calls) in enumerate(zip(question, turns, strict=True)):
            history += _messages(turn, where)
            if not calls:
                continue
            written, truth = _static_truth(calls, tools, f"{answer_at}, turn {index}")
            yield Task(
                id=f"{conversation}:turn{index}",
                benchmark="bfcl",
                category=name,
                messages=history,
                tools=tuple(tools),
                answer=_spec(name, STATIC_MATCH, truth),
                origin=origin,
            )
            history += ({"role": "assistant", "content": written},)


def _static_truth(
    calls: Any, tools: Sequence[Mapping[str, Any]], where: str
) -> tuple[str, list[Any]]:
    if not isinstance(calls, list) or not all(isinstance(call, str) for call in calls):
        raise ValueError(f"{where}: expected a list of call strings")
    written = f"[{', '.join(calls)}]"
    parsed = parse_calls(written, parameter_order=parameter_order(tools))
    if isinstance(parsed, Rejection):
        raise ValueError(f"{where}: reference calls do not parse: {parsed.detail}")
    truth = ground_truth_of(parsed, tools, "python", defaults_are_optional=True)
    if isinstance(truth, Rejection):
        raise ValueError(f"{where}: {truth.detail}")
    return written, truth


def parameter_order(tools: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """Order of each function's parameters, by which positional arguments are bound."""
    return {tool["name"]: tuple(tool["parameters"]["properties"]) for tool in tools}
