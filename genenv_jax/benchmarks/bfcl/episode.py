"""Conversations as training episodes: the messages only grow, and what an answer may do is bounded.

The verdict is the official one (`multi_turn`).  Unlike `multi_turn.ConversationEpisode`, which shortens and
drops what is old so that any conversation fits into one prompt, nothing that was shown changes: each answer
stands as it was given, and what follows it is bounded when it is added.  An answer beyond the bounds ends the
episode, with a reason of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks.base import EMPTY, Message, Rejection, Score, Task
from genenv_jax.benchmarks.bfcl import prompts
from genenv_jax.benchmarks.bfcl.backends import Backends, Call, Scenario, decode, reference
from genenv_jax.benchmarks.bfcl.limits import Limits
from genenv_jax.benchmarks.bfcl.multi_turn import MAX_STEPS, Judge
from genenv_jax.benchmarks.grounding import leaves
from genenv_jax.benchmarks.safe_parse import MAX_CHARS, check_text
from genenv_jax.benchmarks.task import FORCE_TERMINATED, TOO_MANY_CALLS

ABOUT = "conversations only grow; answers, calls and results are bounded"
END_OF_TURN = "Done."  # an answer without a call


class GrowingEpisode:
    """One conversation with an agent; implements `genenv_jax.benchmarks.base.Episode`.

    It ends at the first turn that fails, at an answer that is no text or beyond the limits, or with the
    21st answer of a turn that has calls.

    Args:
      task: a task whose rule is "conversation".
      limits: of prompts, answers and what comes back.
    """

    def __init__(self, task: Task, limits: Limits):
        self._spec, self._limits = task.answer, limits
        self._judge = Judge(Scenario.from_json(self._spec["scenario"]))
        self._messages = prompts.agent_messages(task, limits.prompt_tool_chars, limits.prompt_chars)
        self._turn, self._step, self._steps, self._calls = 0, 0, 0, 0
        self._score: Score | None = None

    def messages(self) -> list[Message]:
        """See `Episode.messages`: those before, the last answer as it was given, what came back."""
        return [dict(message) for message in self._messages]

    def step(self, answer: str) -> Score | None:
        """See `Episode.step`.  An answer that does not decode into calls ends the turn."""
        if self._score is not None:
            return self._score
        self._steps += 1
        rejection = check_text(answer, self._limits.episode_answer_chars)
        if rejection and rejection.reason != EMPTY:
            return self._end(rejection.reason, valid=False)
        self._messages.append({"role": "assistant", "content": answer})
        calls = decode(answer, MAX_CHARS, self._limits.depth, MAX_CHARS)
        if isinstance(calls, Rejection) or not calls:
            return self._next_turn()
        self._step += 1
        self._calls += len(calls)
        if len(calls) > self._limits.answer_calls or self._calls > self._limits.episode_calls:
            return self._end(TOO_MANY_CALLS, valid=False)
        if self._step > MAX_STEPS:
            return self._end(FORCE_TERMINATED)
        names, results = [call.name for call in calls], self._judge.run(calls)
        self._add(prompts.results_message(names, results, self._limits.observation_chars))
        return None

    def close(self) -> None:
        """See `Episode.close`: there is nothing to free."""

    def _add(self, *messages: Message) -> None:
        self._messages += prompts.merged(messages)

    def _next_turn(self) -> Score | None:
        turns, references = self._spec["turns"], self._spec["calls"]
        if self._turn < len(references):
            reason = self._judge.end_turn(references[self._turn])
            if reason:
                return self._end(reason)
        self._turn, self._step = self._turn + 1, 0
        if self._turn < len(turns):
            self._add(*turns[self._turn])
            return None
        return self._end("" if len(turns) == len(references) else FORCE_TERMINATED)

    def _end(self, reason: str, valid: bool = True) -> Score:
        """The score.  A success has reward for as many needless calls as there are needed ones.

        Of n calls where the reference has r, each beyond 2r costs 1 / (r + 1): the rules accept any number of
        calls beside those that were needed, so that calling every function that only looks would pay.
        """
        needed = sum(map(len, self._spec["calls"]))
        spared = max(0.0, 1.0 - max(0, self._calls - 2 * needed) / (needed + 1))
        detail = {
            "turns": len(self._spec["calls"]),
            "passed_turns": self._turn,
            "steps": self._steps,
            "calls": self._calls,
        }
        self._score = Score(0.0 if reason else spared, not reason, valid, reason, detail)
        return self._score


def play(task: Task, answers: Sequence[str], limits: Limits) -> Score | None:
    """The score of an episode that is given these answers; None where they do not end it."""
    episode, score = GrowingEpisode(task, limits), None
    for answer in answers:
        score = episode.step(answer)
        if score is not None:
            break
    return score


def reference_answers(spec: Mapping[str, Any], limits: Limits) -> list[str]:
    """The reference calls of a conversation as the answers of an agent that could not look ahead.

    The calls of a turn are one answer, but for a call with a value that only a result of the calls before it
    shows: it goes into the next answer.  Then an answer without a call ends the turn.

    Raises ValueError where the initial state does not load or a call does not parse.
    """
    backends = Backends(Scenario.from_json(spec["scenario"]))
    order = backends.parameter_order()
    answers, read = [], ""
    for turn, calls in zip(spec["turns"], spec["calls"], strict=False):
        read += "\n".join(message["content"] for message in turn)
        steps: list[list[Call]] = [[]]
        unread = ""
        for call in reference(calls, order):
            values = [str(value) for value in leaves(dict(call.arguments))]
            late = any(value not in read and value in unread for value in values)
            if (late and len(steps) < MAX_STEPS) or len(steps[-1]) == limits.answer_calls:
                steps.append([])
                read, unread = read + unread, ""
            steps[-1].append(call)
            unread += backends.run(call)[: limits.observation_chars]
        read += unread
        answers += [written(step) for step in steps if step]
        answers.append(END_OF_TURN)
    return answers


def written(calls: Sequence[Call]) -> str:
    """Reference calls as an agent writes them, every argument named."""
    return f"[{', '.join(map(written_call, calls))}]"


def written_call(call: Call) -> str:
    """One call, every argument named."""
    return f"{call.name}({', '.join(f'{key}={value!r}' for key, value in call.arguments.items())})"
