"""Checks by execution on the stateful classes whether a generated conversation is a sound task.

Each turn of the reference is replayed in variants, after the turns before it: without its calls, without one
of them, with two of them swapped.  The checker's verdicts (`multi_turn`) on these show whether it requires
anything, whether it requires something that nobody asked for, and whether it rejects equally good answers.
What execution and wording cannot show, such as whether other functions would also do, is left undecided.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks import base
from genenv_jax.benchmarks.base import Rejection, Task
from genenv_jax.benchmarks.bfcl import backends, schemas
from genenv_jax.benchmarks.bfcl.backends import Call
from genenv_jax.benchmarks.bfcl.conversation_tasks import spoken, tools_of
from genenv_jax.benchmarks.bfcl.episode import MAX_OBSERVATION
from genenv_jax.benchmarks.bfcl.fitting import shortened
from genenv_jax.benchmarks.bfcl.multi_turn import RESPONSE_MISMATCH, STATE_MISMATCH, Judge
from genenv_jax.benchmarks.grounding import judge, leaves
from genenv_jax.benchmarks.wording import fold, letters, words

BAD_STATE = "bad_state"  # an initial state that does not fit the seed's classes
NO_EFFECT = "no_effect"  # a turn changes nothing and returns nothing
ALREADY_KNOWN = "already_known"  # a turn changes nothing and returns only earlier results
REPEATED_TURN = "repeated_turn"  # a turn with the same request and calls as another one
NEEDLESS_CALL = "needless_call"  # a call without effect, whose empty result the checker requires
OPEN_ORDER = "open_order"  # the checker requires an order of two calls that the request does not
_NOTHING = Call("nothing", {})  # counts as a call, does nothing and returns an error
_ORDER = frozenset(
    "then after afterwards afterward before first firstly second secondly third next finally last lastly "
    "once followed later subsequently when until thereafter sequence beforehand prior upon having "
    "1st 2nd 3rd done ready".split()
)
_LEAST_SHARED = 3  # least characters of a value shared by two calls
_MAX_RESULTS = 200_000  # characters of all results


def fault(task: Task) -> Rejection | None:
    """Why a generated conversation is rejected, or None.

    Reasons: BAD_STATE (a key that its class does not read, a value of the wrong kind, a state that does not
    load), NOT_EXECUTABLE (a reference call fails), TOO_LONG (the results), NO_EFFECT, REPEATED_TURN,
    ALREADY_KNOWN, NEEDLESS_CALL, OPEN_ORDER.
    """
    if rejection := _state_fault(task.answer["scenario"]):
        return rejection
    plays = _Plays(task)
    if sum(len(result) for turn in plays.turns for result in turn.results) > _MAX_RESULTS:
        return Rejection(base.TOO_LONG, f"the calls return more than {_MAX_RESULTS} characters")
    told: set[tuple[str, str]] = set()
    for turn in plays.turns:
        said = (letters(turn.request), backends.written(turn.calls))
        if said in told:
            return Rejection(REPEATED_TURN, f"turn {turn.index + 1}")
        told.add(said)
        failing = [pair for pair in zip(turn.calls, turn.results, strict=True) if _failed(pair[1])]
        if failing:
            call, result = failing[0]
            rejection = Rejection(base.NOT_EXECUTABLE, f"{call.name}: {result}")
        else:
            rejection = _effect_fault(plays, turn) or _order_fault(plays, turn)
        if rejection:
            return Rejection(rejection.reason, f"turn {turn.index + 1}: {rejection.detail}"[:200])
    return None


def grounding(task: Task) -> Rejection | str:
    """Whether the reference calls follow from what the agent reads; see `Benchmark.grounding`.

    Each call's values must appear in the requests so far, in earlier results or in the initial state, but not
    defaults and texts that its schema lists or describes.  The request of a call's turn must have a
    word of the call, its values or its function's description.  A call that another call of its turn needs to
    succeed follows from the state.  An optional argument must be stated if the checker needs it.
    """
    plays = _Plays(task)
    tools = {tool["name"]: tool for tool in tools_of(task)}
    state = json.dumps(task.answer["scenario"]["config"], ensure_ascii=False)
    said, decided = [], True
    for turn in plays.turns:
        said.append(turn.request)
        for place, call in enumerate(turn.calls):
            heard = "\n".join(said)
            found = _call_grounding(turn.request, call, tools, heard, state)
            if isinstance(found, Rejection) and not (
                found.reason == base.NOT_ASKED and plays.is_needed(turn, place)
            ):
                return Rejection(found.reason, f"turn {turn.index + 1}: {found.detail}"[:200])
            if unasked := _unasked(plays, turn, place, tools[call.name], f"{heard}\n{state}"):
                return Rejection(base.NOT_ASKED, f"turn {turn.index + 1}: {call.name}.{unasked}"[:200])
            decided &= found == base.GROUNDED
            said.append(shortened(turn.results[place], MAX_OBSERVATION))
    return base.GROUNDED if decided else base.UNDECIDED


def _call_grounding(
    request: str, call: Call, tools: Mapping[str, Any], heard: str, state: str
) -> Rejection | str:
    called = [(call.name, call.arguments)]
    described = " ".join(map(str, leaves(tools[call.name])))
    values = schemas.values_to_state(called, [tools[call.name]])
    known = fold(described)
    values = [v for v in values if not isinstance(v, str) or fold(v) not in known]
    known = f"{described} {' '.join(map(str, leaves(dict(call.arguments))))}"
    found = judge(called, [values], request, f"{heard}\n{state}", known)
    if not isinstance(found, Rejection) and isinstance(judge([], [], request, "", known), Rejection):
        return Rejection(base.NOT_ASKED, f"the request shares no word with {call.name} and its values")
    if found == base.GROUNDED and judge(called, [values], request, heard, known) != base.GROUNDED:
        return base.UNDECIDED  # found only in the state
    return found


def _unasked(plays: _Plays, turn: _Turn, place: int, tool: Mapping[str, Any], known: str) -> str:
    """An optional argument that was never stated but that the checker requires; or "".

    A number must be in the turn's own request, a text in `known` or in its parameter's description.
    """
    call = turn.calls[place]
    for name, value in call.arguments.items():
        if name in tool["parameters"]["required"]:
            continue
        described = tool["parameters"]["properties"].get(name, {})
        context = turn.request
        if isinstance(value, str):
            context = "\n".join([known, *map(str, leaves(described))])
        if isinstance(judge([], [value], "", context, ""), Rejection):
            rest = {key: entry for key, entry in call.arguments.items() if key != name}
            calls = list(turn.calls)
            calls[place] = Call(call.name, rest)
            if plays.instead(turn, calls)[1]:
                return name
    return ""


@dataclasses.dataclass(frozen=True)
class _Turn:
    """A turn of the reference: the request, the calls and their results."""

    index: int
    request: str
    calls: tuple[Call, ...]
    results: tuple[str, ...]


class _Plays:
    """The reference of a conversation, and variants of its turns."""

    def __init__(self, task: Task):
        spec = task.answer
        self._scenario, self._calls = spec["scenario"], spec["calls"]
        made = backends.Backends(self._scenario)
        order = made.parameter_order()
        self.turns: list[_Turn] = []
        for index, (messages, texts) in enumerate(zip(spec["turns"], self._calls, strict=True)):
            calls = tuple(backends.reference(texts, order))
            results = tuple(map(made.run, calls))
            self.turns.append(_Turn(index, "\n".join(spoken(messages)), calls, results))

    def instead(self, turn: _Turn, calls: Sequence[Call]) -> tuple[list[str], str]:
        """Plays other calls in a turn: their results, and the checker's reason to reject them or ""."""
        found = Judge(self._scenario)
        for earlier in self.turns[: turn.index]:
            found.run(earlier.calls)
            found.end_turn(self._calls[earlier.index])
        results = found.run(calls)
        return results, found.end_turn(self._calls[turn.index])

    def without(self, turn: _Turn, place: int) -> tuple[list[str], str]:
        """Like `instead`, with one call left out."""
        return self.instead(turn, turn.calls[:place] + turn.calls[place + 1 :])

    def changes(self, turn: _Turn, place: int) -> bool:
        """Whether a call changes the state that the checker sees."""
        before, after = backends.Backends(self._scenario), backends.Backends(self._scenario)
        for calls in (*(t.calls for t in self.turns[: turn.index]), turn.calls[:place]):
            for call in calls:
                before.run(call), after.run(call)
        after.run(turn.calls[place])
        return not backends.same_state(before, after)

    def is_needed(self, turn: _Turn, place: int) -> bool:
        """Whether a call of the turn fails if this one is left out."""
        return any(map(_failed, self.without(turn, place)[0]))


def _state_fault(start: Mapping[str, Any]) -> Rejection | None:
    """BAD_STATE if the classes do not read all of the state as intended."""
    try:
        defaults = backends.Backends(backends.scenario(start["classes"], {})).objects
        backends.Backends(start)
        for name, config in start["config"].items():
            if unread := sorted(set(config) - backends.keys_read(name, config)):
                return Rejection(BAD_STATE, f"{name} does not read {unread[0][:60]!r}")
            for key, value in config.items():
                if not _is_like(value, getattr(defaults[name], key, None)):
                    return Rejection(BAD_STATE, f"{name}.{key[:60]}: a {type(value).__name__}")
    except ValueError as error:
        return Rejection(BAD_STATE, str(error)[:200])
    return None


def _is_like(value: Any, usual: Any) -> bool:
    """Whether a value has the kind of its default; a default of None allows None, a text or a number."""
    if usual is None:
        return value is None or isinstance(value, str | bool | int | float)
    for kind in (bool, int | float, str, list, dict):
        if isinstance(usual, kind):
            return isinstance(value, kind) and isinstance(value, bool) == isinstance(usual, bool)
    return True


def _failed(result: str) -> bool:
    """Whether a call failed: an error, or a status that reports failure."""
    if backends.is_error(result):
        return True
    try:
        value = json.loads(result)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and (
        "error" in value or (value.get("login_status") is False and "message" in value)
    )


def _tells(result: str) -> bool:
    """Whether a result contains anything."""
    try:
        value = json.loads(result)
    except (ValueError, RecursionError):
        return result not in ("None", "")
    return any(leaf not in ("", None) for leaf in leaves(value))


def _effect_fault(plays: _Plays, turn: _Turn) -> Rejection | None:
    reason = plays.instead(turn, [_NOTHING])[1]
    if reason != STATE_MISMATCH and not any(map(_tells, turn.results)):
        return Rejection(NO_EFFECT, "the calls change nothing and return nothing")
    if not reason:
        return Rejection(ALREADY_KNOWN, "the calls change nothing, and all results were known before")
    for place, result in enumerate(turn.results):
        if len(turn.calls) > 1 and not _tells(result):
            others, reason = plays.without(turn, place)
            rest = turn.results[:place] + turn.results[place + 1 :]
            if reason == RESPONSE_MISMATCH and tuple(others) == rest:
                return Rejection(NEEDLESS_CALL, backends.written([turn.calls[place]]))
    return None


def _order_fault(plays: _Plays, turn: _Turn) -> Rejection | None:
    """OPEN_ORDER: two calls change the state, have nothing in common, but must not be swapped."""
    if len(turn.calls) < 2 or _ORDER & set(words(turn.request)):
        return None
    changing = [
        place
        for place in range(len(turn.calls))
        if plays.changes(turn, place) and not plays.is_needed(turn, place)
    ]
    for one, other in itertools.pairwise(changing):
        calls = list(turn.calls)
        calls[one], calls[other] = calls[other], calls[one]
        if _values(calls[one]) & _values(calls[other]):
            continue
        results, reason = plays.instead(turn, calls)
        if reason and not any(map(_failed, results)):
            return Rejection(OPEN_ORDER, f"{turn.calls[one].name}, {turn.calls[other].name}")
    return None


def _values(call: Call) -> set[str]:
    texts = (fold(str(leaf)) for leaf in leaves(dict(call.arguments)))
    return {text for text in texts if len(text) >= _LEAST_SHARED}
