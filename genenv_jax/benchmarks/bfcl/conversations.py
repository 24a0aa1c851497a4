"""Reads BFCL's multi-turn conversations, and makes tasks of whole ones and of their turns.

A record holds the requests of each turn and the classes that it involves; the function descriptions are
those of the classes, in their order.  In `multi_turn_miss_func` some functions are withheld and announced
at a later turn, which has no request of its own (`populate_test_cases_with_predefined_functions` of
bfcl_eval/utils.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks.base import Message, Rejection, Task
from genenv_jax.benchmarks.bfcl import prompts
from genenv_jax.benchmarks.bfcl.backends import CLASSES, Scenario
from genenv_jax.benchmarks.bfcl.categories import CONVERSATION, TURN_STATE
from genenv_jax.benchmarks.bfcl.files import Files, answer_of, field, messages, tool
from genenv_jax.benchmarks.bfcl.multi_turn import reference_results
from genenv_jax.benchmarks.bfcl.schemas import ground_truth_of
from genenv_jax.benchmarks.safe_parse import parse_calls

_DOCUMENTS = {
    "GorillaFileSystem": "gorilla_file_system.json",
    "MathAPI": "math_api.json",
    "MessageAPI": "message_api.json",
    "TwitterAPI": "posting_api.json",
    "TicketAPI": "ticket_api.json",
    "TradingBot": "trading_bot.json",
    "TravelAPI": "travel_booking.json",
    "VehicleControlAPI": "vehicle_control.json",
}


@dataclasses.dataclass(frozen=True)
class Conversation:
    """One record.

    Attributes:
      id: official id.
      category: official name.
      where: "file:line" of the answer, for messages about it.
      scenario: classes and their initial states.
      tools: functions that are known from the beginning.
      added: functions announced at each turn.
      turns: messages of each turn; an announcement is the turn's request.
      calls: reference calls of each turn, as Python text.  One record of v3 (multi_turn_base_154)
        has another number of turns here.
    """

    id: str
    category: str
    where: str
    scenario: Scenario
    tools: tuple[Mapping[str, Any], ...]
    added: tuple[tuple[Mapping[str, Any], ...], ...]
    turns: tuple[tuple[Message, ...], ...]
    calls: tuple[tuple[str, ...], ...]


def read_conversations(files: Files, category: str) -> Iterator[Conversation]:
    """The conversations of a multi-turn category, in the order of the file.

    Raises FileNotFoundError or ValueError, naming file and line.
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
        tools: list[dict[str, Any]] = []
        for name in classes:
            if name not in CLASSES:
                raise ValueError(f"{where}: unknown class {name!r}")
            if name not in documents:
                lines = files.lines(f"multi_turn_func_doc/{_DOCUMENTS[name]}")
                documents[name] = [tool(document, at) for at, document in lines]
            tools.extend(documents[name])
        tools, added = _withheld(tools, record.get("missed_function", {}), len(question), where)
        turns = []
        for messages_of, announced in zip(question, added, strict=True):
            turn = messages(messages_of, where)
            if announced:
                turn += ({"role": "user", "content": prompts.announcement(announced)},)
            turns.append(turn)
        yield Conversation(
            id=conversation,
            category=category,
            where=answer_at,
            scenario=Scenario(
                tuple(classes),
                field(record, "initial_config", dict, where),
                category == "multi_turn_long_context",
            ),
            tools=tuple(tools),
            added=added,
            turns=tuple(turns),
            calls=tuple(map(tuple, calls)),
        )


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


def conversation_task(conversation: Conversation, origin: str) -> Task:
    """A whole conversation as one task.

    `Task.messages` are those of the first turn and `Task.tools` what is known then.  `Task.answer` has,
    beside the common keys, "scenario", "turns" (messages of each), "calls" (reference calls of each)
    and, for reports and for `canonical`, the "requests" and the names of the functions to call as
    "functions"; of a seed also the functions that are announced later, as "withheld".
    """
    written = ", ".join(call for turn in conversation.calls for call in turn)
    parsed = parse_calls(f"[{written}]", max_chars=1 << 20)
    if isinstance(parsed, Rejection):
        raise ValueError(f"{conversation.where}: reference calls do not parse: {parsed.detail}")
    withheld = [dict(entry) for added in conversation.added for entry in added]
    return Task(
        id=conversation.id,
        benchmark="bfcl",
        category=conversation.category,
        messages=conversation.turns[0],
        tools=conversation.tools,
        answer={
            "kind": CONVERSATION,
            "language": "python",
            "rule": CONVERSATION,
            "ground_truth": [],
            "same_tools": True,
            "scenario": conversation.scenario.to_json(),
            "turns": [[dict(message) for message in turn] for turn in conversation.turns],
            "calls": [list(turn) for turn in conversation.calls],
            "functions": sorted(name for call in parsed for name in call),
            **({"withheld": withheld} if withheld and origin == "seed" else {}),
        },
        origin=origin,
    )


def turn_tasks(conversation: Conversation, rule: str, origin: str) -> Iterator[Task]:
    """Each turn that has reference calls as a task of its own; turn k is `<id>:turn<k>`.

    The request is preceded by the earlier turns' requests and reference calls, and under TURN_STATE by the
    results of these.  A conversation whose answer has another number of turns than its question has
    none, since which answer belongs to which request is not known.  A turn whose reference calls a function
    that is announced only later is left out too (multi_turn_miss_func_49, turn 1).

    Args:
      conversation: the record.
      rule: STATIC_MATCH or TURN_STATE; the latter needs the executable classes.
      origin: `Task.origin`.
    """
    if len(conversation.calls) != len(conversation.turns):
        return
    results: list[list[str]] = []
    if rule == TURN_STATE:
        results = reference_results(conversation.scenario, conversation.calls)
    tools = list(conversation.tools)
    history: tuple[Message, ...] = ()
    for index, (turn, calls) in enumerate(zip(conversation.turns, conversation.calls, strict=True)):
        tools.extend(conversation.added[index])
        history += turn
        if not calls:
            continue
        known = {entry["name"] for entry in tools}
        if any(call.split("(")[0].strip() not in known for call in calls):
            continue
        written, truth = _static_truth(calls, tools, f"{conversation.where}, turn {index}")
        answer: dict[str, Any] = {
            "kind": "parallel",
            "language": "python",
            "rule": rule,
            "ground_truth": truth,
            "same_tools": True,
        }
        if rule == TURN_STATE:
            answer |= {
                "scenario": conversation.scenario.to_json(),
                "history": [list(earlier) for earlier in conversation.calls[:index]],
                "calls": list(calls),
            }
        yield Task(
            id=f"{conversation.id}:turn{index}",
            benchmark="bfcl",
            category=conversation.category,
            messages=history,
            tools=tuple(tools),
            answer=answer,
            origin=origin,
        )
        history += ({"role": "assistant", "content": written},)
        if rule == TURN_STATE:
            names = [next(iter(call)) for call in truth]
            history += (prompts.results_message(names, results[index]),)


def _static_truth(
    calls: Sequence[str], tools: Sequence[Mapping[str, Any]], where: str
) -> tuple[str, list[Any]]:
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
    return {entry["name"]: tuple(entry["parameters"]["properties"]) for entry in tools}
