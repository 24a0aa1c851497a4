"""Verdicts on multi-turn conversations by the official state and response rules, and their episodes.

The rules are those of `multi_turn_checker` (bfcl_eval/eval_checker/multi_turn_eval) and of the loop around
it (`inference_multi_turn_prompting`, bfcl_eval/model_handler/base_handler.py).  The agent and the reference
each have their own objects.  In a turn the agent writes calls, sees their results, writes more, until an
answer does not decode into calls.  Then the turn's reference calls are executed, and
  1. the agent must have made a call, if there are reference calls;
  2. all public attributes of the agent's objects must equal the reference's;
  3. each result of the turn's reference calls must be among the agent's results of all turns so far
     (each as often as it occurs, in any order).
Turns without reference calls are not checked.
"""

from __future__ import annotations

import collections
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks.base import Message, Rejection, Score, Task
from genenv_jax.benchmarks.bfcl import prompts
from genenv_jax.benchmarks.bfcl.backends import Backends, Call, Scenario, decode, same_state
from genenv_jax.benchmarks.task import FORCE_TERMINATED

MAX_STEPS = (
    20  # official limit: the answer after so many executed ones ends the turn if it has calls
)
EMPTY_TURN = "empty_turn_model_response"
STATE_MISMATCH = "instance_state_mismatch"
RESPONSE_MISMATCH = "execution_response_mismatch"


class Judge:
    """Executes the agent's and the reference's calls side by side and compares them turn by turn.

    Args:
      scenario: what both start from.
    """

    def __init__(self, scenario: Scenario):
        self._agent, self._reference = Backends(scenario), Backends(scenario)
        self._results: collections.Counter[bytes] = collections.Counter()
        self._called = False

    def replay(self, calls: Sequence[str]) -> list[str]:
        """Executes reference calls on both sides, as the history of what follows; returns results."""
        self._agent.run_reference(calls)
        return self._reference.run_reference(calls)

    def run(self, calls: Sequence[Call]) -> list[str]:
        """Executes the agent's calls in the current turn; returns one result a call."""
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
        if not same_state(self._agent, self._reference):
            return STATE_MISMATCH
        if collections.Counter(expected) - self._results:
            return RESPONSE_MISMATCH
        return ""


def _digest(result: str) -> bytes:
    """Stands for a result, of which there may be thousands of many kilobytes each."""
    return hashlib.sha256(result.encode("utf-8", "surrogatepass")).digest()


def score_conversation(task: Task, turns: Sequence[Sequence[Sequence[Call]]]) -> Score:
    """Verdict on a whole conversation: the calls of each step of each turn.

    A conversation with another number of turns than the reference is one that was broken off.
    """
    spec = task.answer
    detail = {"turns": len(spec["calls"]), "passed_turns": 0, "steps": sum(map(len, turns))}
    if len(turns) != len(spec["calls"]):
        return Score(0.0, False, True, FORCE_TERMINATED, detail)
    judge = Judge(Scenario.from_json(spec["scenario"]))
    for index, (steps, reference) in enumerate(zip(turns, spec["calls"], strict=True)):
        for calls in steps:
            judge.run(calls)
        reason = judge.end_turn(reference)
        if reason:
            return Score(0.0, False, True, reason, detail | {"passed_turns": index})
    return Score(1.0, True, True, "", detail | {"passed_turns": len(turns)})


def score_turn(task: Task, calls: Sequence[Call]) -> Score:
    """Verdict on one turn alone, after the reference calls of the turns before it.

    The state rule as above; the response rule with the results of this turn only.  Both rules accept any
    number of calls beside those that were needed, so that calling every function that only looks would
    often do.  The verdict stays theirs, but of n calls where the reference has r, each of the n − r
    needless ones costs 1 / (r + 1) of the reward: it is max(0, 1 − max(0, n − r) / (r + 1)) for a success.
    """
    spec = task.answer
    if spec["calls"] and not calls:
        return Score(0.0, False, True, EMPTY_TURN)
    judge = Judge(Scenario.from_json(spec["scenario"]))
    for earlier in spec["history"]:
        judge.replay(earlier)
    judge.run(calls)
    reason = judge.end_turn(spec["calls"])
    needed = len(spec["ground_truth"])
    spared = max(0.0, 1.0 - max(0, len(calls) - needed) / (needed + 1))
    return Score(0.0 if reason else spared, not reason, True, reason)


def reference_results(scenario: Scenario, turns: Sequence[Sequence[str]]) -> list[list[str]]:
    """Results of executing the reference calls of each turn in order."""
    backends = Backends(scenario)
    return [backends.run_reference(calls) for calls in turns]


class ConversationEpisode:
    """One conversation with an agent; implements `genenv_jax.benchmarks.base.Episode`.

    The conversation ends at the first turn that fails, which decides the verdict.

    Args:
      task: a task whose rule is "conversation".
      max_tool_chars, max_chars: space in the prompt (`prompts.agent_messages`); the verdict never
        depends on what is shortened.
      answer_chars, depth, max_calls: limits on an answer, see `backends.decode`.
    """

    def __init__(
        self,
        task: Task,
        *,
        max_tool_chars: int,
        max_chars: int,
        answer_chars: int,
        depth: int,
        max_calls: int,
    ):
        self._task = task
        self._judge = Judge(Scenario.from_json(task.answer["scenario"]))
        self._space = (max_tool_chars, max_chars)
        self._limits = (answer_chars, depth, max_calls)
        self._turn, self._step, self._steps = 0, 0, 0
        self._log: list[Message] = list(task.messages)
        self._score: Score | None = None

    def messages(self) -> list[Message]:
        """See `Episode.messages`."""
        return prompts.agent_messages(self._task, *self._space, self._log)

    def step(self, answer: str) -> Score | None:
        """See `Episode.step`.  An answer that does not decode into calls ends the turn."""
        if self._score is not None:
            return self._score
        self._steps += 1
        calls = decode(answer, *self._limits)
        # A broken answer may be of any length and hold anything; the agent needs only its beginning.
        shown = answer if isinstance(answer, str) else ""
        self._log.append({"role": "assistant", "content": prompts.readable(shown)})
        if isinstance(calls, Rejection) or not calls:
            self._score = self._next_turn()
            return self._score
        results = self._judge.run(calls)
        self._log.append(prompts.results_message([call.name for call in calls], results))
        self._step += 1
        if self._step > MAX_STEPS:
            # Broken off; the official evaluator sees that only by the number of turns.
            last = self._turn == len(self._task.answer["turns"]) - 1
            self._score = self._next_turn() if last else self._end(FORCE_TERMINATED)
        return self._score

    def _next_turn(self) -> Score | None:
        spec = self._task.answer
        turns, references = spec["turns"], spec["calls"]
        if self._turn < len(references):
            reason = self._judge.end_turn(references[self._turn])
            if reason:
                return self._end(reason)
        self._turn, self._step = self._turn + 1, 0
        if self._turn < len(turns):
            self._log.extend(turns[self._turn])
            return None
        return self._end("" if len(turns) == len(references) else FORCE_TERMINATED)

    def _end(self, reason: str) -> Score:
        detail: Mapping[str, Any] = {
            "turns": len(self._task.answer["calls"]),
            "passed_turns": self._turn,
            "steps": self._steps,
        }
        return Score(float(not reason), not reason, True, reason, detail)

    def close(self) -> None:
        """See `Episode.close`: there is nothing to free."""
