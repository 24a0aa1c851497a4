"""Reads BFCL's multi-turn conversations and turns them, whole or turn by turn, into tasks.

A record holds the requests of each turn and the involved classes; the functions are those of the classes, in
that order.  In `multi_turn_miss_func` some functions are withheld and announced at a later turn, which has no
request of its own (`populate_test_cases_with_predefined_functions` of bfcl_eval/utils.py).
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks.base import Message, Rejection, Task
from genenv_jax.benchmarks.bfcl import prompts
from genenv_jax.benchmarks.bfcl.backends import CLASSES, Scenario, scenario
from genenv_jax.benchmarks.bfcl.categories import CONVERSATION, TURN_STATE, specification
from genenv_jax.benchmarks.bfcl.files import Files, answer_of, tool, turns_of
from genenv_jax.benchmarks.bfcl.fitting import results_message
from genenv_jax.benchmarks.bfcl.multi_turn import reference_results
from genenv_jax.benchmarks.bfcl.schemas import ground_truth_of, parameter_order
from genenv_jax.benchmarks.records import field
from genenv_jax.benchmarks.safe_parse import parse_calls
from genenv_jax.benchmarks.task import Tools


def read(files: Files, category: str, origin: str, rule: str) -> Iterator[Task]:
    """The conversations of a multi-turn category as tasks, in the order of the file.

    `rule` CONVERSATION gives one task per conversation, with the messages of its first turn and the tools
    known at that point; its answer lists the functions announced later as "withheld".  STATIC_MATCH and
    TURN_STATE give one task per turn.  Raises FileNotFoundError or ValueError, naming file and line.
    """
    documents: dict[str, list[dict[str, Any]]] = {}
    answers = files.answers(category)
    for where, record in files.records(category):
        conversation = field(record, "id", str, where)
        turns = turns_of(record, where)
        answer_at, calls = answer_of(answers, conversation, where)
        for turn in calls:
            if not isinstance(turn, list) or not all(isinstance(call, str) for call in turn):
                raise ValueError(f"{answer_at}: expected a list of call strings")
        classes = field(record, "involved_classes", list, where)
        tools = _documented(files, classes, documents, where)
        tools, added = _withheld(tools, record.get("missed_function", {}), len(turns), where)
        for index, announced in enumerate(added):
            if announced:  # it is the turn's request
                turns[index] += ({"role": "user", "content": prompts.announcement(announced)},)
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
        if withheld := [dict(entry) for announced in added for entry in announced]:
            answer["withheld"] = withheld
        yield whole


def _documented(
    files: Files, classes: Sequence[str], documents: dict[str, list[dict[str, Any]]], where: str
) -> list[dict[str, Any]]:
    """The functions of the classes; `documents` caches those already read."""
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
    """Functions known from the start, and those announced at each turn."""
    well_formed = isinstance(missed, dict) and all(
        turn.isdecimal() and int(turn) < turns and isinstance(names, list) for turn, names in missed.items()
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

    Besides the common keys it has "scenario", "turns" (messages per turn), "calls" (reference calls per turn)
    and, for reports and `canonical`, "functions" (names of the functions to call).
    """
    more = {"scenario": start, "turns": turns, "calls": calls, "functions": sorted(names)}
    return specification(CONVERSATION, "python", CONVERSATION, [], **more)


def _turns(whole: Task, added: Sequence[Tools], rule: str, where: str) -> Iterator[Task]:
    """Makes each turn with reference calls a task of its own; turn k is `<id>:turn<k>`.

    The request follows the earlier turns' requests and reference calls, and under TURN_STATE also their
    results.  Conversations whose question and answer differ in the number of turns are skipped, because
    answers cannot be assigned to requests (multi_turn_base_154 of v3).  A turn is skipped too if its
    reference calls a function that is announced only later (multi_turn_miss_func_49, turn 1).

    `added`: functions announced at each turn; `where`: location of the answer, for error messages.
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
        written = f"[{', '.join(calls)}]"
        parsed = parse_calls(written, parameter_order=parameter_order(tools))
        if isinstance(parsed, Rejection):
            raise ValueError(f"{where}, turn {index}: reference calls do not parse: {parsed.detail}")
        truth = ground_truth_of(parsed, tools, "python", defaults_are_optional=True)
        if isinstance(truth, Rejection):
            raise ValueError(f"{where}, turn {index}: {truth.detail}")
        answer = specification("parallel", "python", rule, truth)
        if rule == TURN_STATE:
            answer |= {
                "scenario": spec["scenario"],
                "history": [list(earlier) for earlier in spec["calls"][:index]],
                "calls": list(calls),
            }
        task_id = f"{whole.id}:turn{index}"
        yield dataclasses.replace(whole, id=task_id, messages=history, tools=tuple(tools), answer=answer)
        history += ({"role": "assistant", "content": written},)
        if rule == TURN_STATE:
            names = [next(iter(call)) for call in truth]
            history += (results_message(names, results[index]),)


def tools_of(seed: Task) -> tuple[Mapping[str, Any], ...]:
    """All functions of a conversation, including those announced later."""
    return (*seed.tools, *seed.answer.get("withheld", ()))


def spoken(turn: Sequence[Message]) -> list[str]:
    """The user's messages in a turn."""
    return [message["content"] for message in turn if message["role"] == "user"]


def all_spoken(turns: Sequence[Sequence[Message]]) -> list[str]:
    """The user's messages in a conversation."""
    return [text for turn in turns for text in spoken(turn)]
