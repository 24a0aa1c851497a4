"""Reads BFCL's multi-turn conversations, and makes tasks of whole ones and of their turns.

A record holds the requests of each turn and the classes that it involves; the function descriptions are
those of the classes, in their order.  In `multi_turn_miss_func` some functions are withheld and announced
at a later turn, which has no request of its own (`populate_test_cases_with_predefined_functions` of
bfcl_eval/utils.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks.base import Message, Rejection, Task
from genenv_jax.benchmarks.bfcl import prompts
from genenv_jax.benchmarks.bfcl.backends import CLASSES, Scenario, scenario
from genenv_jax.benchmarks.bfcl.categories import CONVERSATION, TURN_STATE
from genenv_jax.benchmarks.bfcl.files import Files, answer_of, messages, tool
from genenv_jax.benchmarks.bfcl.multi_turn import reference_results
from genenv_jax.benchmarks.bfcl.schemas import ground_truth_of, parameter_order
from genenv_jax.benchmarks.records import field
from genenv_jax.benchmarks.safe_parse import parse_calls

_Tools = Sequence[Mapping[str, Any]]


def read(files: Files, category: str, origin: str, rule: str) -> Iterator[Task]:
    """The conversations of a multi-turn category as tasks, in the order of the file.

    A whole conversation has the messages of its first turn and the tools that are known then; the answer of a
    seed also has the functions that are announced later, as "withheld".

    Args:
      files: where they are.
      category: official name.
      origin: `Task.origin`.
      rule: CONVERSATION makes a task of each, STATIC_MATCH and TURN_STATE make tasks of its turns.
    Raises:
      FileNotFoundError or ValueError, naming file and line.
    """
    documents: dict[str, list[dict[str, Any]]] = {}
    answers = files.answers(category)
    for where, record in files.records(category):
        conversation = field(record, "id", str, where)
        question = field(record, "question", list, where)
        answer_at, calls = answer_of(answers, conversation, where)
        for turn in calls:
            if not isinstance(turn, list) or not all(isinstance(call, str) for call in turn):
                raise ValueError(f"{answer_at}: expected a list of call strings")
        classes = field(record, "involved_classes", list, where)
        tools = _documented(files, classes, documents, where)
        tools, added = _withheld(tools, record.get("missed_function", {}), len(question), where)
        turns = []
        for messages_of, announced in zip(question, added, strict=True):
            turn = messages(messages_of, where)
            if announced:  # it is the turn's request
                turn += ({"role": "user", "content": prompts.announcement(announced)},)
            turns.append(turn)
        config = field(record, "initial_config", dict, where)
        padded = category == "multi_turn_long_context"
        written = ", ".join(call for turn in calls for call in turn)
        parsed = parse_calls(f"[{written}]", max_chars=1 << 20)
        if isinstance(parsed, Rejection):
            raise ValueError(f"{answer_at}: reference calls do not parse: {parsed.detail}")
        answer = conversation_answer(
            scenario(classes, config, padded),
            [list(turn) for turn in turns],
            [list(turn) for turn in calls],
            [name for call in parsed for name in call],
        )
        whole = Task(
            id=conversation,
            benchmark="bfcl",
            category=category,
            messages=turns[0],
            tools=tuple(tools),
            answer=answer,
            origin=origin,
        )
        if rule != CONVERSATION:
            yield from _turns(whole, added, rule, answer_at)
            continue
        withheld = [dict(entry) for announced in added for entry in announced]
        if withheld and origin == "seed":
            answer["withheld"] = withheld
        yield whole


def _documented(
    files: Files, classes: Sequence[str], documents: dict[str, list[dict[str, Any]]], where: str
) -> list[dict[str, Any]]:
    """The functions of the classes; `documents` keeps those that were read."""
    for name in classes:
        if name not in CLASSES:
            raise ValueError(f"{where}: unknown class {name!r}")
        if name not in documents:
            lines = files.lines(f"multi_turn_func_doc/{CLASSES[name]}.json")
            documents[name] = [tool(document, at) for at, document in lines]
    return [function for name in classes for function in documents[name]]


def _withheld(
    tools: list[dict[str, Any]], missed: Any, turns: int, where: str
) -> tuple[list[dict[str, Any]], tuple[tuple[dict[str, Any], ...], ...]]:
    """Functions without those that are announced later, and what is announced at each turn."""
    well_formed = isinstance(missed, dict) and all(
        turn.isdigit() and int(turn) < turns and isinstance(names, list)
        for turn, names in missed.items()
    )
    if not well_formed:
        raise ValueError(f"{where}: 'missed_function' is not an object of lists by turn")
    added: list[tuple[dict[str, Any], ...]] = [()] * turns
    for turn, names in missed.items():
        added[int(turn)] = tuple(entry for entry in tools if entry["name"] in names)
        tools = [entry for entry in tools if entry["name"] not in names]
    return tools, tuple(added)


def conversation_answer(
    start: Scenario, turns: list, calls: list[list[str]], names: Iterable[str]
) -> dict[str, Any]:
    """`Task.answer` of a whole conversation.

    Beside the common keys it has "scenario", "turns" (messages of each), "calls" (reference calls of each)
    and, for reports and for `canonical`, the names of the functions to call as "functions".
    """
    return {
        "kind": CONVERSATION,
        "language": "python",
        "rule": CONVERSATION,
        "ground_truth": [],
        "same_tools": True,
        "scenario": start,
        "turns": turns,
        "calls": calls,
        "functions": sorted(names),
    }


def _turns(whole: Task, added: Sequence[_Tools], rule: str, where: str) -> Iterator[Task]:
    """Each turn that has reference calls as a task of its own; turn k is `<id>:turn<k>`.

    The request is preceded by the earlier turns' requests and reference calls, and under TURN_STATE by the
    results of these.  A conversation whose answer has another number of turns than its question has none,
    since which answer belongs to which request is not known (multi_turn_base_154 of v3).  A turn whose
    reference calls a function that is announced only later is left out too (multi_turn_miss_func_49, turn 1).

    Args:
      whole: the conversation.
      added: functions announced at each turn.
      rule: STATIC_MATCH or TURN_STATE.
      where: of its answer, for messages about it.
    """
    spec = whole.answer
    if len(spec["calls"]) != len(spec["turns"]):
        return
    results: list[list[str]] = []
    if rule == TURN_STATE:
        results = reference_results(spec["scenario"], spec["calls"])
    tools = list(whole.tools)
    history: tuple[Message, ...] = ()
    for index, (turn, calls) in enumerate(zip(spec["turns"], spec["calls"], strict=True)):
        tools.extend(added[index])
        history += tuple(turn)
        if not calls:
            continue
        known = {entry["name"] for entry in tools}
        if any(call.split("(")[0].strip() not in known for call in calls):
            continue
        written, truth = _static_truth(calls, tools, f"{where}, turn {index}")
        answer: dict[str, Any] = {
            "kind": "parallel",
            "language": "python",
            "rule": rule,
            "ground_truth": truth,
            "same_tools": True,
        }
        if rule == TURN_STATE:
            answer |= {
                "scenario": spec["scenario"],
                "history": [list(earlier) for earlier in spec["calls"][:index]],
                "calls": list(calls),
            }
        yield Task(
            id=f"{whole.id}:turn{index}",
            benchmark=whole.benchmark,
            category=whole.category,
            messages=history,
            tools=tuple(tools),
            answer=answer,
            origin=whole.origin,
        )
        history += ({"role": "assistant", "content": written},)
        if rule == TURN_STATE:
            names = [next(iter(call)) for call in truth]
            history += (prompts.results_message(names, results[index]),)


def _static_truth(calls: Sequence[str], tools: _Tools, where: str) -> tuple[str, list[Any]]:
    written = f"[{', '.join(calls)}]"
    parsed = parse_calls(written, parameter_order=parameter_order(tools))
    if isinstance(parsed, Rejection):
        raise ValueError(f"{where}: reference calls do not parse: {parsed.detail}")
    truth = ground_truth_of(parsed, tools, "python", defaults_are_optional=True)
    if isinstance(truth, Rejection):
        raise ValueError(f"{where}: {truth.detail}")
    return written, truth


def tools_of(seed: Task) -> tuple[Mapping[str, Any], ...]:
    """All functions of a conversation, those that are announced later included."""
    return (*seed.tools, *seed.answer.get("withheld", ()))


def spoken(turn: Sequence[Message]) -> list[str]:
    """The users' messages of a turn."""
    return [message["content"] for message in turn if message["role"] == "user"]


def all_spoken(turns: Sequence[Sequence[Message]]) -> list[str]:
    """The users' messages of a conversation."""
    return [text for turn in turns for text in spoken(turn)]
