"""Connects the sampler's tokens with the episodes that worker processes play."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Mapping, Sequence

from genenv_jax.benchmarks.base import Message, Score, Task
from genenv_jax.models.language_model import LanguageModel
from genenv_jax.sampling.episodes import Row
from genenv_jax.sampling.sampler import OnCompletion
from genenv_jax.scoring.attempts import Attempt, Waiting
from genenv_jax.scoring.episodes import Episodes
from genenv_jax.scoring.requests import EPISODE_TOO_LONG, PROMPT_TOO_LONG


class Conversations:
    """Implements `sampling.episodes.Environments`.

    Args:
      model: tokenizer and chat template.
      tasks: the tasks to play; the first number of a row is an index into them.
      episodes: plays them.
      on_completion: called once per episode, when it has ended.
      waiting: makes a context that is entered while waiting for episodes.
    Attributes:
      attempts: finished attempts, by row.
    """

    def __init__(
        self,
        model: LanguageModel,
        tasks: Sequence[Task],
        episodes: Episodes,
        on_completion: OnCompletion,
        waiting: Waiting = contextlib.nullcontext,
    ):
        self._model, self._tasks = model, tasks
        self._openings: list[list[Message]] = [[]] * len(tasks)
        self._episodes, self._on_answer, self._waiting = episodes, on_completion, waiting
        self._messages: dict[Row, list[Message]] = {}
        self._answers: dict[Row, list[str]] = {}
        self._replies: dict[Row, list[str]] = collections.defaultdict(list)
        self._last: dict[Row, tuple[Sequence[int], bool]] = {}
        self.attempts: dict[Row, Attempt] = {}

    def open(self, samples: int, max_concurrent: int, longest: int) -> list[list[int]]:
        """The opening prompt of each task's episodes, as tokens.

        An episode that does not open, or whose opening does not fit, ends here; its tokens are empty.

        Args:
          samples: episodes per task.
          max_concurrent: most episodes open at a time; with more tasks than that, they are closed again.
          longest: most tokens of an opening.
        """
        prompts: list[list[int]] = []
        for start in range(0, len(self._tasks), max_concurrent):
            rows = range(start, min(start + max_concurrent, len(self._tasks)))
            for i in rows:
                self._episodes.advance((i, 0), self._tasks[i], ())
            with self._waiting():
                states = self._episodes.collect()
            for i in rows:
                state, prompt = states[i, 0], []
                if isinstance(state, list):
                    self._openings[i], prompt = state, self._model.encode_messages(state)
                    if len(prompt) > longest:
                        state, prompt = Score(0.0, False, False, PROMPT_TOO_LONG), []
                    if not prompt or len(self._tasks) > max_concurrent:
                        self._episodes.drop((i, 0))
                if not prompt:
                    for j in range(samples):
                        self.attempts[i, j] = Attempt(self._tasks[i], j, (), True, state)
                        self._on_answer(i, j, (), True)
                prompts.append(prompt)
        return prompts

    def answer(self, row: Row, tokens: Sequence[int], done: bool) -> None:
        answers = self._answers.setdefault(row, [])
        answers.append(self._model.decode(tokens))
        self._last[row] = tokens, done
        self._episodes.advance(row, self._tasks[row[0]], answers)

    def replies(self, wait: bool) -> Mapping[Row, Sequence[int] | None]:
        """See `Environments`.

        Raises ValueError if a conversation does not grow as `benchmarks.base.Episode` promises.
        """
        with self._waiting() if wait else contextlib.nullcontext():
            states = self._episodes.collect_some(wait)
        came: dict[Row, Sequence[int] | None] = {}
        for row, state in states.items():
            if isinstance(state, Score):
                self._end(row, state)
                came[row] = None
            else:
                came[row] = self._reply(row, state)
        return came

    def no_room(self, row: Row) -> None:
        self._episodes.drop(row)
        self._end(row, Score(0.0, False, False, EPISODE_TOO_LONG))

    def _reply(self, row: Row, messages: list[Message]) -> list[int]:
        before = self._messages.get(row) or self._openings[row[0]]
        n, (_, done) = len(before), self._last[row]
        new = messages[n + 1 :]
        grown = (
            messages[:n] == before
            and bool(new)
            and messages[n] == {"role": "assistant", "content": self._answers[row][-1]}
            and all(message["role"] != "assistant" for message in new)
        )
        if not grown:
            raise ValueError(
                f"the episode of task {self._tasks[row[0]].id} rewrote its conversation: expected the one "
                "before, the answer, and further messages"
            )
        self._messages[row] = messages
        self._replies[row].append("\n".join(message["content"] for message in new))
        return self._model.encode_reply(before, new, done)

    def _end(self, row: Row, score: Score) -> None:
        (i, j), (tokens, done) = row, self._last[row]
        answers, replies = tuple(self._answers[row]), tuple(self._replies.pop(row, ()))
        self.attempts[row] = Attempt(self._tasks[i], j, answers, done, score, replies)
        self._messages.pop(row, None)
        self._on_answer(i, j, tokens, done)
