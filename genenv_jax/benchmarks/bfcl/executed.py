"""Executed multi-turn tasks from text: reference answers, one turn's answer, whole transcripts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from genenv_jax.benchmarks.base import (
    EMPTY,
    NOT_EXECUTABLE,
    NOT_TEXT,
    TOO_LONG,
    UNPARSABLE,
    Rejection,
    Score,
    Task,
)
from genenv_jax.benchmarks.bfcl import multi_turn
from genenv_jax.benchmarks.bfcl.backends import (
    Backends,
    Call,
    Scenario,
    decode,
    is_error,
    reference,
)
from genenv_jax.benchmarks.bfcl.categories import TURN_STATE
from genenv_jax.benchmarks.bfcl.conversations import parameter_order
from genenv_jax.benchmarks.bfcl.episode import END_OF_TURN, written
from genenv_jax.benchmarks.bfcl.limits import Limits
from genenv_jax.benchmarks.safe_parse import parse_json


def reference_answer(spec: Mapping[str, Any]) -> str:
    """The reference of a turn as an agent writes it; of a conversation the transcript as JSON."""
    order = Backends(Scenario.from_json(spec["scenario"])).parameter_order()
    if spec["rule"] == TURN_STATE:
        return written(reference(spec["calls"], order))
    turns = [
        [written(reference(calls, order)), END_OF_TURN] if calls else [END_OF_TURN]
        for calls in spec["calls"]
    ]
    return json.dumps(turns, ensure_ascii=False)


def score_answer(task: Task, answer: str, limits: Limits) -> Score:
    """Verdict on the answer to a turn of its own; positional arguments are bound by the tools."""
    order = parameter_order(task.tools)
    calls = decode(answer, limits.answer_chars, limits.depth, limits.calls, order)
    if isinstance(calls, Rejection):
        known = (NOT_TEXT, TOO_LONG, EMPTY)
        return Score(0.0, False, False, calls.reason if calls.reason in known else "decoder_failed")
    return multi_turn.score_turn(task, calls)


def score_transcript(task: Task, answer: str, limits: Limits) -> Score:
    """Verdict on a whole conversation from JSON: a list of turns, each a list of answers as text."""
    turns = parse_json(answer, limits.conversation_chars, limits.depth)
    if isinstance(turns, Rejection):
        return Score(0.0, False, False, turns.reason)
    well_formed = isinstance(turns, list) and all(
        isinstance(steps, list) and all(isinstance(step, str) for step in steps) for steps in turns
    )
    if not well_formed:
        return Score(0.0, False, False, UNPARSABLE)
    decoded = []
    for steps in turns:
        executed = [calls for step in steps if (calls := _executable(step, limits))]
        if len(executed) > multi_turn.MAX_STEPS + 1:
            return Score(0.0, False, True, multi_turn.FORCE_TERMINATED)
        decoded.append(executed)
    return multi_turn.score_conversation(task, decoded)


def _executable(step: str, limits: Limits) -> list[Call]:
    calls = decode(step, limits.answer_chars, limits.depth, limits.calls)
    return [] if isinstance(calls, Rejection) else calls


def written_calls(text: str) -> list[str]:
    """A written reference answer as the text of its calls, for `Task.answer`."""
    text = text.strip("`\n ")
    return [text.removeprefix("[").removesuffix("]")]


def execution_problem(spec: Mapping[str, Any]) -> Rejection | None:
    """NOT_EXECUTABLE if a reference call does not run on the state that its history leaves."""
    scenario = Scenario.from_json(spec["scenario"])
    results = multi_turn.reference_results(scenario, [*spec["history"], spec["calls"]])[-1]
    failed = next((result for result in results if is_error(result)), None)
    return Rejection(NOT_EXECUTABLE, failed[:200]) if failed is not None else None
