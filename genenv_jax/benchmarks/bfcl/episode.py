"""Conversations as episodes, scored by the official rules (`multi_turn`).

`ShortenedEpisode` is for evaluation: it shortens and drops old messages, so that any conversation fits into
one prompt.  `GrowingEpisode` is for training: messages never change once shown, answers are kept verbatim,
and results are bounded when added.  An answer beyond the bounds ends the episode with its own reason.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks.base import EMPTY, Episode, Message, Rejection, Score, Task
from genenv_jax.benchmarks.bfcl import fitting, prompts
from genenv_jax.benchmarks.bfcl.backends import Backends, Call, as_calls, decode, reference, written
from genenv_jax.benchmarks.bfcl.conversation_tasks import tools_of
from genenv_jax.benchmarks.bfcl.multi_turn import MAX_STEPS, Judge, spared_reward
from genenv_jax.benchmarks.calls import MAX_CALLS
from genenv_jax.benchmarks.grounding import leaves
from genenv_jax.benchmarks.safe_parse import MAX_CHARS, check_text
from genenv_jax.benchmarks.task import FORCE_TERMINATED, TOO_LONG, TOO_MANY_CALLS
from genenv_jax.benchmarks.thoughts import after_thoughts
from genenv_jax.benchmarks.tools import read_tool_calls

ABOUT = "conversations only grow; answers, calls and results are bounded"
END_OF_TURN = "Done."  # an answer without a call
MAX_ANSWER = 8_192  # characters per answer in training
MAX_ANSWER_CALLS = 40  # calls per answer in training
MAX_OBSERVATION = 2_000  # characters of results per answer in training; more is shortened
_MAX_CALLS = 160  # calls per episode in training


class _Conversation(Episode):
    """One conversation.  It ends at the first failed turn, which decides the verdict.

    An answer that does not decode into calls ends the turn.  `form` is the call format of the chat template
    that shows the tools; "": the text shows them.
    """

    def __init__(self, task: Task, opening: Sequence[Message], form: str):
        super().__init__(opening)
        self._task, self._spec, self._form = task, task.answer, form
        self._judge = Judge(self._spec["scenario"])
        self._turn, self._step = 0, 0

    def read(self, answer: str, max_calls: int) -> list[Call] | Rejection:
        """The calls in an answer, by the official decoder or else in a form of the chat templates."""
        calls = decode(answer, max_calls)
        if not self._form or not isinstance(calls, Rejection):
            return calls
        found = read_tool_calls(answer, tools_of(self._task))
        return found if isinstance(found, Rejection) else as_calls(found)

    def run(self, calls: Sequence[Call], max_chars: int) -> list[Message]:
        """Executes calls; returns the messages with their results, of about `max_chars` characters."""
        results = self._judge.run(calls)
        if self._form:
            return fitting.tool_messages(results, max_chars)
        return [fitting.results_message([call.name for call in calls], results, max_chars)]

    def next_turn(self) -> Score | Sequence[Message]:
        """Ends the turn; returns the next turn's messages, or the score."""
        turns, references = self._spec["turns"], self._spec["calls"]
        if self._turn < len(references) and (reason := self._judge.end_turn(references[self._turn])):
            return self.end(reason)
        self._turn, self._step = self._turn + 1, 0
        if self._turn < len(turns):
            return turns[self._turn]
        return self.end("" if len(turns) == len(references) else FORCE_TERMINATED)

    def end(self, reason: str) -> Score:
        """The score of a conversation that ends here for `reason` ("" for a success)."""
        return Score(float(not reason), not reason, True, reason, self.detail())

    def detail(self) -> dict[str, Any]:
        """What reports show about the conversation."""
        turns, steps = len(self._spec["calls"]), len(self.answers)
        return {"turns": turns, "passed_turns": self._turn, "steps": steps}


class ShortenedEpisode(_Conversation):
    """A conversation in prompts of bounded length; shortening never affects the verdict."""

    def __init__(self, task: Task, form: str = ""):
        super().__init__(task, task.messages, form)

    def messages(self) -> list[Message]:
        if self._form:
            return prompts.template_messages(self._task, self._form, self._messages)
        return prompts.agent_messages(self._task, log=self._messages)

    def shown(self, answer: str) -> str:
        """Without its thoughts, and shortened: a broken answer can have any length and content."""
        said = after_thoughts(answer)
        return prompts.readable(said) if isinstance(said, str) else ""

    def take(self, answer: str) -> Score | Sequence[Message]:
        calls = self.read(answer, MAX_CALLS)
        if isinstance(calls, Rejection) or not calls:
            return self.next_turn()
        results = self.run(calls, fitting.RESULTS_CHARS)
        self._step += 1
        if self._step > MAX_STEPS:
            # Aborted; the official evaluator detects this only by the number of turns.
            last = self._turn == len(self._spec["turns"]) - 1
            return self.next_turn() if last else self.end(FORCE_TERMINATED)
        return results


class GrowingEpisode(_Conversation):
    """It also ends at an answer that is not text, at one over a limit, and at a turn's 21st with calls."""

    def __init__(self, task: Task, form: str = ""):
        opening = prompts.template_messages(task, form) if form else prompts.agent_messages(task)
        super().__init__(task, opening, form)
        self._calls = 0

    def take(self, answer: str) -> Score | Sequence[Message]:
        rejection = check_text(answer, MAX_ANSWER)
        if rejection and rejection.reason != EMPTY:
            return self.end(rejection.reason, valid=False)
        calls = self.read(answer, MAX_CHARS)
        if isinstance(calls, Rejection) and calls.reason == TOO_LONG:  # `read_calls` counts them
            return self.end(TOO_MANY_CALLS, valid=False)
        if isinstance(calls, Rejection) or not calls:
            following = self.next_turn()
            return following if isinstance(following, Score) else fitting.merged(following)
        self._step += 1
        self._calls += len(calls)
        if len(calls) > MAX_ANSWER_CALLS or self._calls > _MAX_CALLS:
            return self.end(TOO_MANY_CALLS, valid=False)
        if self._step > MAX_STEPS:
            return self.end(FORCE_TERMINATED)
        return fitting.merged(self.run(calls, MAX_OBSERVATION))

    def end(self, reason: str, valid: bool = True) -> Score:
        """The score.  In a success, as many unneeded calls are free as there are needed ones.

        If the others cost nothing, calling every read-only function would pay.
        """
        needed = sum(map(len, self._spec["calls"]))
        spared = spared_reward(self._calls, needed, free=needed)
        detail = self.detail() | {"calls": self._calls}
        return Score(0.0 if reason else spared, not reason, valid, reason, detail)


def reference_answers(spec: Mapping[str, Any]) -> list[str]:
    """The reference calls of a conversation, as the answers of an agent that cannot look ahead.

    The calls of a turn form one answer, except that a call goes into the next answer if one of its values
    appears only in the results of earlier calls.  An answer without a call ends each turn.

    Raises ValueError if the initial state does not load or a call does not parse.
    """
    backends = Backends(spec["scenario"])
    order = backends.parameter_order()
    answers, read = [], ""
    for turn, calls in zip(spec["turns"], spec["calls"], strict=False):
        read += "\n".join(message["content"] for message in turn)
        steps: list[list[Call]] = [[]]
        unread = ""
        for call in reference(calls, order):
            values = [str(value) for value in leaves(dict(call.arguments))]
            late = any(value not in read and value in unread for value in values)
            if (late and len(steps) < MAX_STEPS) or len(steps[-1]) == MAX_ANSWER_CALLS:
                steps.append([])
                read, unread = read + unread, ""
            steps[-1].append(call)
            unread += backends.run(call)[:MAX_OBSERVATION]
        read += unread
        answers += [written(step) for step in steps if step]
        answers.append(END_OF_TURN)
    return answers
