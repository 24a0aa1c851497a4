"""The base class for episodes: attempts that take several answers."""

import abc
import contextlib
from collections.abc import Iterable, Sequence

from genenv_jax.benchmarks.task import STEP_LIMIT, Message, Rejection, Score
from genenv_jax.benchmarks.thoughts import after_thoughts


class Episode(abc.ABC):
    """One attempt at a task that takes several answers: a game, a conversation, a search.

    A subclass defines `take`: what follows an answer.  If the conversation only grows, the agent reads just
    the new messages; otherwise it reads the whole conversation again.  Agents are trained only on episodes
    that grow.

    Never used by two threads at once.  Deterministic: an episode whose process died is replayed from its
    answers.

    Args:
      opening: the messages that the agent reads first.
      max_turns: answers after which `stop` ends the episode; 0: no limit.
    Attributes:
      answers: the answers so far, as written; `take` receives each without its thoughts.
      result: the score once the episode has ended, else None.
    """

    def __init__(self, opening: Sequence[Message] = (), max_turns: int = 0):
        self._messages = [dict(message) for message in opening]
        self._max_turns = max_turns
        self.answers: list[str] = []
        self.result: Score | None = None

    def messages(self) -> list[Message]:
        """The conversation that the agent answers next, short enough for its prompt limit."""
        return [dict(message) for message in self._messages]

    def step(self, answer: str) -> Score | None:
        """Takes one answer.  Returns the score if the episode has ended, now or before; else None.  Total."""
        if self.result is None:
            self.answers.append(answer)
            said = after_thoughts(answer)
            refused = isinstance(said, Rejection)
            after = Score(0.0, False, False, said.reason) if refused else self.take(said)
            self._messages.append({"role": "assistant", "content": self.shown(answer)})
            if not isinstance(after, Score) and len(self.answers) == self._max_turns:
                after = self.stop()
            if isinstance(after, Score):
                self.result = after
            else:
                self._messages += map(dict, after)
        return self.result

    @abc.abstractmethod
    def take(self, answer: str) -> Score | Sequence[Message]:
        """The score if `answer` ends the episode, else the messages that follow it.  Total."""

    def shown(self, answer: str) -> str:
        """An answer as it appears in the conversation.  Default: as written."""
        return answer

    def stop(self) -> Score:
        """The score of an episode that is cut off here.  Default: reward 0, STEP_LIMIT."""
        return Score(0.0, False, True, STEP_LIMIT)

    def play(self, answers: Iterable[str]) -> Score:
        """The score after these answers, cut off by `stop` if they do not end the episode; then closes it."""
        with contextlib.closing(self):
            ends = filter(None, map(self.step, answers))
            return next(ends, None) or self.stop()

    def close(self) -> None:  # noqa: B027  most episodes hold nothing
        """Releases the episode's resources.  Default: does nothing."""
