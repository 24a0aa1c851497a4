"""Scores multi-turn conversations by the official state and response rules.

The rules are those of `multi_turn_checker` (bfcl_eval/eval_checker/multi_turn_eval) and of the loop around
it (`inference_multi_turn_prompting`, bfcl_eval/model_handler/base_handler.py).  The agent and the reference
each have their own objects.  A turn ends with an answer that does not decode into calls.  Then its reference
calls are executed, and
  1. the agent must have made a call, if there are reference calls;
  2. all public attributes of the agent's objects must equal the reference's;
  3. the agent's results of all turns so far must include each result of the turn's reference calls
     (as often as it occurs, in any order).
Turns without reference calls are not checked.
"""

import collections
import hashlib
from collections.abc import Sequence

from genenv_jax.benchmarks import base
from genenv_jax.benchmarks.base import Rejection, Score, Task
from genenv_jax.benchmarks.bfcl import backends
from genenv_jax.benchmarks.bfcl.backends import Call
from genenv_jax.benchmarks.bfcl.schemas import parameter_order
from genenv_jax.benchmarks.safe_parse import parse_json
from genenv_jax.benchmarks.task import FORCE_TERMINATED

# Official limit: after this many executed answers, another answer with calls ends the turn.
MAX_STEPS = 20
EMPTY_TURN = "empty_turn_model_response"
STATE_MISMATCH = "instance_state_mismatch"
RESPONSE_MISMATCH = "execution_response_mismatch"
_MAX_TRANSCRIPT = 131_072  # characters of all answers of a conversation as one text


class Judge:
    """Executes the agent's and the reference's calls side by side and compares them turn by turn."""

    def __init__(self, scenario: backends.Scenario):
        self._agent, self._reference = backends.Backends(scenario), backends.Backends(scenario)
        self._results: collections.Counter[bytes] = collections.Counter()
        self._called = False

    def replay(self, calls: Sequence[str]) -> None:
        """Executes reference calls on both sides, as history."""
        self._agent.run_reference(calls)
        self._reference.run_reference(calls)

    def run(self, calls: Sequence[Call]) -> list[str]:
        """Executes the agent's calls in the current turn; returns one result per call."""
        results = []
        for call in calls:
            results.append(self._agent.run(call))
            self._results[_digest(results[-1])] += 1
            self._called = True
        return results

    def end_turn(self, reference: Sequence[str]) -> str:
        """Executes the turn's reference calls; returns why the turn fails, or ""."""
        called, self._called = self._called, False
        expected = [_digest(result) for result in self._reference.run_reference(reference)]
        if not reference:
            return ""
        if not called:
            return EMPTY_TURN
        if not backends.same_state(self._agent, self._reference):
            return STATE_MISMATCH
        return RESPONSE_MISMATCH if collections.Counter(expected) - self._results else ""


def _digest(result: str) -> bytes:
    """A hash in place of a result: there may be thousands of results of many kilobytes each."""
    return hashlib.sha256(result.encode("utf-8", "surrogatepass")).digest()


def score_transcript(task: Task, answer: str) -> Score:
    """Scores a whole conversation from the JSON of the official result files.

    That is a list of turns, each a list of answers as text; a number of turns unlike the reference's counts
    as aborted.
    """
    turns = parse_json(answer, _MAX_TRANSCRIPT)
    if isinstance(turns, Rejection):
        return Score(0.0, False, False, turns.reason)
    well_formed = isinstance(turns, list) and all(
        isinstance(steps, list) and all(isinstance(step, str) for step in steps) for steps in turns
    )
    if not well_formed:
        return Score(0.0, False, False, base.UNPARSABLE)
    decoded = []
    for steps in turns:
        read = map(backends.decode, steps)
        decoded.append([calls for calls in read if calls and not isinstance(calls, Rejection)])
        if len(decoded[-1]) > MAX_STEPS + 1:
            return Score(0.0, False, True, FORCE_TERMINATED)
    spec = task.answer
    detail = {"turns": len(spec["calls"]), "passed_turns": 0, "steps": sum(map(len, decoded))}
    if len(turns) != len(spec["calls"]):
        return Score(0.0, False, True, FORCE_TERMINATED, detail)
    judge = Judge(spec["scenario"])
    for index, (steps, reference) in enumerate(zip(decoded, spec["calls"], strict=True)):
        for calls in steps:
            judge.run(calls)
        if reason := judge.end_turn(reference):
            return Score(0.0, False, True, reason, detail | {"passed_turns": index})
    return Score(1.0, True, True, "", detail | {"passed_turns": len(turns)})


def score_turn(task: Task, answer: str) -> Score:
    """Scores one turn alone, after the reference calls of the earlier turns.

    The state rule is as above; the response rule uses only this turn's results.  Both accept any number of
    extra calls, so each unneeded call costs reward (`spared_reward`), but not success.
    """
    spec = task.answer
    calls = backends.decode(answer, parameter_order=parameter_order(task.tools))
    if isinstance(calls, Rejection):
        known = (base.NOT_TEXT, base.TOO_LONG, base.EMPTY)
        return Score(0.0, False, False, calls.reason if calls.reason in known else "decoder_failed")
    if spec["calls"] and not calls:
        return Score(0.0, False, True, EMPTY_TURN)
    judge = Judge(spec["scenario"])
    for earlier in spec["history"]:
        judge.replay(earlier)
    judge.run(calls)
    reason = judge.end_turn(spec["calls"])
    spared = spared_reward(len(calls), len(spec["ground_truth"]))
    return Score(0.0 if reason else spared, not reason, True, reason)


def spared_reward(made: int, needed: int, free: int = 0) -> float:
    """The reward left after more calls than needed: each costs 1 / (needed + 1), after `free` extra ones."""
    return max(0.0, 1.0 - max(0, made - needed - free) / (needed + 1))


def reference_results(scenario: backends.Scenario, turns: Sequence[Sequence[str]]) -> list[list[str]]:
    """Results of executing each turn's reference calls in order."""
    made = backends.Backends(scenario)
    return [made.run_reference(calls) for calls in turns]
