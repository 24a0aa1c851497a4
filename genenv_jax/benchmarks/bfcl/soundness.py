"""Is a generated conversation a sound task?  What its execution on the stateful classes can tell.

The checker compares state and results turn by turn (`multi_turn`).  So each turn of the reference is played
again in other ways, after the turns before it: without its calls, without one of them, with two of them in
the other order.  What the checker makes of these plays says whether it asks for anything, whether it asks for
what nobody wanted, and whether it refuses what is as good.  What execution and words cannot tell, such as
whether other functions or values would serve as well, is left undecided.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks.base import (
    GROUNDED,
    NOT_ASKED,
    NOT_EXECUTABLE,
    TOO_LONG,
    UNDECIDED,
    Rejection,
    Task,
)
from genenv_jax.benchmarks.bfcl import prompts, schemas
from genenv_jax.benchmarks.bfcl.backends import (
    Backends,
    Call,
    is_error,
    keys_read,
    reference,
    same_state,
    scenario,
    written,
    written_call,
)
from genenv_jax.benchmarks.bfcl.conversation_tasks import spoken, tools_of
from genenv_jax.benchmarks.bfcl.episode import MAX_OBSERVATION
from genenv_jax.benchmarks.bfcl.multi_turn import RESPONSE_MISMATCH, STATE_MISMATCH, Judge
from genenv_jax.benchmarks.grounding import judge, leaves
from genenv_jax.benchmarks.wording import fold, letters, words

BAD_STATE = "bad_state"  # an initial state that is not one of the seed's classes
NO_EFFECT = "no_effect"  # a turn changes nothing and returns nothing
ALREADY_KNOWN = "already_known"  # a turn changes nothing and returns what was returned before
REPEATED_TURN = "repeated_turn"  # a turn with the request and the calls of another one
NEEDLESS_CALL = "needless_call"  # a call without effect, whose empty result the checker asks for
OPEN_ORDER = "open_order"  # two calls of which the checker asks for one order, the request for none
_NOTHING = Call("nothing", {})  # counts as a call, does nothing and returns an error
_ORDER = frozenset(
    "then after afterwards afterward before first firstly second secondly third next finally last lastly "
    "once followed later subsequently when until thereafter sequence beforehand prior upon having "
    "1st 2nd 3rd done ready".split()
)
_LEAST_SHARED = 3  # characters of a value that two calls share
_MAX_RESULTS = 200_000  # characters that all calls return
_LONG_TEXT = 4  # words of a text that is looked for word by word
_NO_REJECTION = (GROUNDED, UNDECIDED)


def fault(task: Task) -> Rejection | None:
    """Why a generated conversation is rejected, or None.

    Reasons: BAD_STATE (a key that its class does not read, a value of another kind, a state that does not
    load), NOT_EXECUTABLE (a reference call fails), TOO_LONG (what the calls return), NO_EFFECT,
    REPEATED_TURN, ALREADY_KNOWN, NEEDLESS_CALL, OPEN_ORDER.
    """
    rejection = _state_fault(task.answer["scenario"])
    if rejection:
        return rejection
    plays = _Plays(task)
    if sum(len(result) for turn in plays.turns for result in turn.results) > _MAX_RESULTS:
        return Rejection(TOO_LONG, f"the calls return more than {_MAX_RESULTS} characters")
    told: set[tuple[str, str]] = set()
    for turn in plays.turns:
        said = (letters(turn.request), written(turn.calls))
        if said in told:
            return Rejection(REPEATED_TURN, f"turn {turn.index + 1}")
        told.add(said)
        rejection = (
            _execution_fault(turn) or _effect_fault(plays, turn) or _order_fault(plays, turn)
        )
        if rejection:
            return Rejection(rejection.reason, f"turn {turn.index + 1}: {rejection.detail}"[:200])
    return None


def grounding(task: Task) -> Rejection | str:
    """Whether the reference calls follow from what the agent reads: see `Benchmark.grounding`.

    Each call's values must be in the requests up to then, in what the calls before it returned, or in the
    initial state; what its schema lists, describes or defaults to need not be said.  So must the words of a
    longer text.  The request of its turn must have a word of a call, its values or the description of its
    function.  A call without which another one of its turn would fail follows from the state.  An argument
    that may be left out must be said, if the checker refuses the call without it.
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
                found.reason == NOT_ASKED and plays.is_needed(turn, place)
            ):
                return Rejection(found.reason, f"turn {turn.index + 1}: {found.detail}"[:200])
            unasked = _unasked(plays, turn, place, tools[call.name], f"{heard}\n{state}")
            if unasked:
                return Rejection(NOT_ASKED, f"turn {turn.index + 1}: {call.name}.{unasked}"[:200])
            decided &= found == GROUNDED
            said.append(prompts.shortened(turn.results[place], MAX_OBSERVATION))
    return GROUNDED if decided else UNDECIDED


def _call_grounding(
    request: str, call: Call, tools: Mapping[str, Any], heard: str, state: str
) -> Rejection | str:
    called = [(call.name, call.arguments)]
    described = " ".join(map(str, leaves(tools[call.name])))
    values = schemas.unlisted_values(called, [tools[call.name]])
    values = [
        value
        for value in values
        if not isinstance(value, str) or fold(value) not in fold(described)
    ]
    known = f"{described} {' '.join(map(str, leaves(dict(call.arguments))))}"
    found = judge(called, values, request, f"{heard}\n{state}", known)
    if found in _NO_REJECTION and isinstance(judge([], [], request, "", known), Rejection):
        return Rejection(NOT_ASKED, f"the request has no word of {call.name} and its values")
    for value in values:
        if isinstance(value, str) and len(words(value)) >= _LONG_TEXT and found in _NO_REJECTION:
            told = judge([], words(value), request, f"{heard}\n{state}", "")
            found = told if isinstance(told, Rejection) else found
    if found == GROUNDED and judge(called, values, request, heard, known) != GROUNDED:
        return UNDECIDED  # it is only in the state
    return found


def _unasked(plays: _Plays, turn: _Turn, place: int, tool: Mapping[str, Any], known: str) -> str:
    """An argument that may be left out, which nobody told and the checker asks for; or "".

    A number must be in the turn's own request, a text in what is known or in its parameter's description.
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
    """A turn of the reference: what is asked, the calls, what they returned."""

    index: int
    request: str
    calls: tuple[Call, ...]
    results: tuple[str, ...]


class _Plays:
    """The reference of a conversation, and its turns played otherwise."""

    def __init__(self, task: Task):
        spec = task.answer
        self._scenario, self._calls = spec["scenario"], spec["calls"]
        backends = Backends(self._scenario)
        order = backends.parameter_order()
        self.turns: list[_Turn] = []
        for index, (messages, texts) in enumerate(zip(spec["turns"], self._calls, strict=True)):
            calls = tuple(reference(texts, order))
            results = tuple(map(backends.run, calls))
            self.turns.append(_Turn(index, "\n".join(spoken(messages)), calls, results))

    def instead(self, turn: _Turn, calls: Sequence[Call]) -> tuple[list[str], str]:
        """What other calls return in a turn, and the checker's reason against them, or ""."""
        found = Judge(self._scenario)
        for earlier in self.turns[: turn.index]:
            found.run(earlier.calls)
            found.end_turn(self._calls[earlier.index])
        results = found.run(calls)
        return results, found.end_turn(self._calls[turn.index])

    def without(self, turn: _Turn, place: int) -> tuple[list[str], str]:
        """The same with one call left out."""
        return self.instead(turn, turn.calls[:place] + turn.calls[place + 1 :])

    def changes(self, turn: _Turn, place: int) -> bool:
        """Whether a call changes what the checker sees of the state."""
        before, after = Backends(self._scenario), Backends(self._scenario)
        for calls in (*(t.calls for t in self.turns[: turn.index]), turn.calls[:place]):
            for call in calls:
                before.run(call), after.run(call)
        after.run(turn.calls[place])
        return not same_state(before, after)

    def is_needed(self, turn: _Turn, place: int) -> bool:
        """Whether a call of the turn fails if this one is left out."""
        return any(map(_failed, self.without(turn, place)[0]))


def _state_fault(start: Mapping[str, Any]) -> Rejection | None:
    """BAD_STATE, if the classes do not read a state as it is meant."""
    try:
        defaults = Backends(scenario(start["classes"], {})).objects
    except ValueError:  # a class without a state of its own
        defaults = {}
    try:
        Backends(start)
        for name, config in start["config"].items():
            unread = sorted(set(config) - keys_read(name, config))
            if unread:
                return Rejection(BAD_STATE, f"{name} does not read {unread[0][:60]!r}")
            for key, value in config.items():
                if name in defaults and not _is_like(value, getattr(defaults[name], key, None)):
                    return Rejection(BAD_STATE, f"{name}.{key[:60]}: a {type(value).__name__}")
    except ValueError as error:
        return Rejection(BAD_STATE, str(error)[:200])
    return None


def _is_like(value: Any, usual: Any) -> bool:
    """Whether a value is of the kind of what is there by default; nothing stands for a text or a number."""
    if usual is None:
        return value is None or isinstance(value, str | bool | int | float)
    for kind in (bool, int | float, str, list, dict):
        if isinstance(usual, kind):
            return isinstance(value, kind) and isinstance(value, bool) == isinstance(usual, bool)
    return True


def _failed(result: str) -> bool:
    """Whether a call failed: an error, or a status that says so."""
    if is_error(result):
        return True
    try:
        value = json.loads(result)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and (
        "error" in value or (value.get("login_status") is False and "message" in value)
    )


def _tells(result: str) -> bool:
    """Whether there is anything in a result."""
    try:
        value = json.loads(result)
    except (ValueError, RecursionError):
        return result not in ("None", "")
    return any(leaf not in ("", None) for leaf in leaves(value))


def _execution_fault(turn: _Turn) -> Rejection | None:
    for call, result in zip(turn.calls, turn.results, strict=True):
        if _failed(result):
            return Rejection(NOT_EXECUTABLE, f"{call.name}: {result}")
    return None


def _effect_fault(plays: _Plays, turn: _Turn) -> Rejection | None:
    reason = plays.instead(turn, [_NOTHING])[1]
    if reason != STATE_MISMATCH and not any(map(_tells, turn.results)):
        return Rejection(NO_EFFECT, "nothing is changed, and nothing returned")
    if not reason:
        return Rejection(ALREADY_KNOWN, "nothing is changed, and all results were there before")
    for place, result in enumerate(turn.results):
        if len(turn.calls) > 1 and not _tells(result):
            others, reason = plays.without(turn, place)
            rest = turn.results[:place] + turn.results[place + 1 :]
            if reason == RESPONSE_MISMATCH and tuple(others) == rest:
                return Rejection(NEEDLESS_CALL, written_call(turn.calls[place]))
    return None


def _order_fault(plays: _Plays, turn: _Turn) -> Rejection | None:
    """OPEN_ORDER: two calls that change the state, have nothing in common, and may not change places."""
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
