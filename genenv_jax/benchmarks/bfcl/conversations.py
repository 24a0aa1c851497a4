"""Whole conversations: the simulator's format, soundness checks and scoring.

It has the same functions as `turns`, for tasks that are played in episodes.  A simulator writes one JSON
object in the form of `_EXAMPLE`; "state" has the initial state of each stateful class, as the data set's
`initial_config`.  The classes and their functions are the seed's.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks import base
from genenv_jax.benchmarks.base import Message, Rejection, SeedStatistics, Task, chat
from genenv_jax.benchmarks.bfcl import backends, prompts, soundness
from genenv_jax.benchmarks.bfcl.backends import Call
from genenv_jax.benchmarks.bfcl.conversation_tasks import all_spoken, conversation_answer, spoken, tools_of
from genenv_jax.benchmarks.bfcl.episode import END_OF_TURN, MAX_ANSWER, MAX_ANSWER_CALLS, TOO_MANY_CALLS
from genenv_jax.benchmarks.bfcl.fitting import shortened
from genenv_jax.benchmarks.bfcl.schemas import ground_truth_of, parameter_order
from genenv_jax.benchmarks.bfcl.soundness import BAD_STATE
from genenv_jax.benchmarks.safe_parse import check_text, parse_calls, parse_json, repeats_argument
from genenv_jax.benchmarks.success_record import success_record
from genenv_jax.benchmarks.tools import python_call

TOO_MANY_TURNS = "too_many_turns"
EMPTY_TURN = "empty_turn"  # a turn without a request or without calls

_RULES = """\
You write training tasks for an agent that serves a user by calling functions. A task is a conversation: \
the user's requests, turn by turn, and the calls that serve each. You are shown one task and how well the \
agent does on tasks like it. Write one new task: a variation, not a copy. Change the situation, the initial \
state, the values, the wording, the functions that are called and, if you like, the number of turns.

Reply with one JSON object and nothing else, in this form:
{example}
"state" is the initial state of the classes ({classes}), with the keys that the task has; what you leave \
out has its default. Of 1 to {turns} turns each has a request and its correct calls; {calls} calls in all at \
most. Strings inside the calls stand in single quotes.

The calls are executed, on your state, one turn after the other. Each must run without an error. Every turn \
must change something, or find out what was not known before. Every value in a call must be in the requests \
up to then, or in what the calls before it returned. What a turn asks for must be asked for in words: not by \
naming its functions, and so that no other calls, and no other order of them, would serve as well (say what \
comes first, and what then)."""
_TURN = {"request": "what the user wants first", "calls": "[name(parameter='value'), second_name(count=2)]"}
_EXAMPLE = {"state": {"ClassName": {"key": "value"}}, "turns": [_TURN]}
_HEADING_CHARS = 100  # total, of the headings in the simulator's message
_MAX_TURNS = 8
_MAX_REQUEST = 1_200  # characters per turn
_MAX_CALLS = 40  # in all turns
_MAX_STATE = 8_192  # characters of the initial state as JSON


def write(task: Task, same_tools: bool = True) -> str:
    """The inverse of `read`, if every turn of the task has calls; else requests without calls are joined.

    State keys that the class does not read are left out.
    """
    spec = task.answer
    scenario = spec["scenario"]
    order = backends.Backends(scenario).parameter_order()
    turns, waiting = [], []
    for messages, calls in zip(spec["turns"], spec["calls"], strict=False):
        waiting += [said for said in spoken(messages) if not prompts.is_announcement(said)]
        if calls:
            request = "\n".join(waiting).strip()
            turns.append({"request": request, "calls": backends.written(backends.reference(calls, order))})
            waiting = []
    state = {
        name: {key: value for key, value in config.items() if key in read}
        for name, config in scenario["config"].items()
        if name in scenario["classes"] and (read := backends.keys_read(name, config))
    }
    return json.dumps({"state": state, "turns": turns}, ensure_ascii=False)


def read(text: str, seed: Task) -> Task | Rejection:
    """Reads a conversation from a generation, with the classes and all functions of `seed`.  Total.

    Rejections: NOT_TEXT, TOO_DEEP, UNPARSABLE (the JSON), BAD_STATE (a class that the seed lacks),
    TOO_MANY_TURNS, EMPTY_TURN, TOO_MANY_CALLS, BAD_ANSWER (calls that do not decode or do not fit their
    functions).
    """
    value = parse_json(text, len(text))
    if isinstance(value, Rejection):
        return value
    if not _has_keys(value, "state", "turns") or not isinstance(value["turns"], list):
        return Rejection(base.UNPARSABLE, 'expected {"state": {...}, "turns": [...]}')
    scenario = seed.answer["scenario"]
    if rejection := _state_fault(value["state"], scenario["classes"]):
        return rejection
    if len(value["turns"]) > _MAX_TURNS:
        return Rejection(TOO_MANY_TURNS, f"{len(value['turns'])} turns, limit {_MAX_TURNS}")
    if not value["turns"]:
        return Rejection(EMPTY_TURN, "no turns")
    tools = tools_of(seed)
    turns, calls = [], []
    for index, turn in enumerate(value["turns"]):
        found = _turn(turn, tools)
        if isinstance(found, Rejection):
            return Rejection(found.reason, f"turn {index + 1}: {found.detail}"[:200])
        turns.append([{"role": "user", "content": found[0]}])
        calls.append(found[1])
    count = sum(map(len, calls))
    if count > _MAX_CALLS:
        return Rejection(TOO_MANY_CALLS, f"{count} calls, limit {_MAX_CALLS}")
    answer = conversation_answer(
        {**scenario, "config": value["state"]},
        turns,
        [[python_call(call.name, call.arguments) for call in turn] for turn in calls],
        [call.name for turn in calls for call in turn],
    )
    return dataclasses.replace(seed, messages=tuple(turns[0]), tools=tools, answer=answer)


def _state_fault(state: Any, classes: Sequence[str]) -> Rejection | None:
    if not isinstance(state, dict) or not all(isinstance(of, dict) for of in state.values()):
        return Rejection(BAD_STATE, "expected an object of objects")
    unknown = next((name for name in state if name not in classes), None)
    if unknown is not None:
        return Rejection(BAD_STATE, f"class {unknown[:60]!r}: expected {', '.join(classes)}")
    size = len(json.dumps(state, ensure_ascii=False))
    if size > _MAX_STATE:
        return Rejection(base.TOO_LONG, f"a state of {size} characters, limit {_MAX_STATE}")
    return None


def _turn(turn: Any, tools: Sequence[Mapping[str, Any]]) -> tuple[str, list[Call]] | Rejection:
    if not _has_keys(turn, "request", "calls") or not all(isinstance(part, str) for part in turn.values()):
        return Rejection(base.UNPARSABLE, 'expected {"request": "...", "calls": "[...]"}')
    request = turn["request"].strip()
    if not any(map(str.isalnum, request)):
        return Rejection(EMPTY_TURN, "no request")
    if rejection := check_text(request, _MAX_REQUEST):
        return Rejection(rejection.reason, f"request: {rejection.detail}")
    calls = parse_calls(turn["calls"], MAX_ANSWER, parameter_order=parameter_order(tools))
    if isinstance(calls, Rejection):
        reason = EMPTY_TURN if not turn["calls"].strip() else base.BAD_ANSWER
        return Rejection(reason, f"{calls.reason}: {calls.detail}")
    if not calls:
        return Rejection(EMPTY_TURN, "no calls")
    if len(calls) > MAX_ANSWER_CALLS:
        return Rejection(TOO_MANY_CALLS, f"{len(calls)} calls, limit {MAX_ANSWER_CALLS}")
    if repeats_argument(turn["calls"]):
        return Rejection(base.BAD_ANSWER, "an argument is given twice")
    truth = ground_truth_of(calls, tools, "python", defaults_are_optional=True)
    if isinstance(truth, Rejection):
        return Rejection(base.BAD_ANSWER, truth.detail)
    return request, backends.as_calls(calls)


def _has_keys(value: Any, *keys: str) -> bool:
    return isinstance(value, dict) and set(value) == set(keys)


def simulator_messages(seed: Task, statistics: SeedStatistics) -> list[Message]:
    """Asks for one variation of a conversation, given its state, calls and the agent's record."""
    system = _RULES.format(
        example=json.dumps(_EXAMPLE),
        classes=", ".join(seed.answer["scenario"]["classes"]),
        turns=_MAX_TURNS,
        calls=_MAX_CALLS,
    )
    record = success_record(statistics)
    least = len(prompts.tool_text(tools_of(seed), 0))
    space = prompts.MAX_CHARS - len(system) - len(record) - _HEADING_CHARS
    task = f"Task:\n{shortened(write(seed), max(0, space - least))}"
    space = max(0, min(prompts.MAX_TOOL_CHARS, space - len(task)))
    functions = f"Functions, one a line:\n{prompts.tool_text(tools_of(seed), space)}"
    return chat(system, functions, task, record)


def agent_answer(task: Task) -> str:
    """The reference as text for `score`: the answers of each turn, as JSON."""
    spec = task.answer
    order = backends.Backends(spec["scenario"]).parameter_order()
    turns = [[backends.reference(calls, order)] if calls else [] for calls in spec["calls"]]
    turns = [[*map(backends.written, steps), END_OF_TURN] for steps in turns]
    return json.dumps(turns, ensure_ascii=False)


def requests(task: Task) -> list[tuple[str, list[str]]]:
    """The request of each turn with the names of its calls."""
    turns, calls = task.answer["turns"], task.answer["calls"]
    return [
        ("\n".join(spoken(turn)), sorted(call.split("(")[0].strip() for call in of))
        for turn, of in zip(turns, calls, strict=False)
    ]


def meanings(task: Task) -> list[str]:
    """All calls, however divided into turns; executes nothing."""
    order = parameter_order(tools_of(task))
    calls = (backends.reference(of, order) for of in task.answer["calls"] if of)
    return [json.dumps([backends.written(of) for of in calls])]


def text(task: Task) -> str:
    """All requests."""
    return "\n".join(all_spoken(task.answer["turns"]))


def fault(task: Task) -> Rejection | None:
    """See `soundness.fault`; conversations of the data set are not checked."""
    return soundness.fault(task) if task.origin == "generated" else None


grounding = soundness.grounding
