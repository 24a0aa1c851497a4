"""Connects the sampler's tokens with the episodes that worker processes play."""

import collections
import contextlib
from collections.abc import Callable, Mapping, Sequence

from genenv_jax.benchmarks.base import Message, Score, Task
from genenv_jax.models.language_model import LanguageModel
from genenv_jax.sampling.sampler import Completion, Key
from genenv_jax.scoring.attempts import Attempt, Waiting
from genenv_jax.scoring.episodes import Episodes
from genenv_jax.scoring.requests import EPISODE_TOO_LONG, PROMPT_TOO_LONG


class Conversations:
    """Implements `sampling.episodes.Environments`.

    tasks: the tasks to play; the first number of a key is an index into them.
    attempts: finished attempts, by key.
    """

    def __init__(
        self,
        model: LanguageModel,
        tasks: Sequence[Task],
        episodes: Episodes,
        on_end: Callable[[], object],
        waiting: Waiting,
    ):
        self._model, self._tasks = model, tasks
        self._openings: list[list[Message]] = [[]] * len(tasks)
        self._episodes, self._on_end, self._waiting = episodes, on_end, waiting
        self._messages: dict[Key, list[Message]] = {}
        self._answers: dict[Key, list[str]] = collections.defaultdict(list)
        self._replies: dict[Key, list[str]] = collections.defaultdict(list)
        self._ended: dict[Key, bool] = {}  # whether the last answer ended by itself
        self.attempts: dict[Key, Attempt] = {}

    def open(self, samples: int, max_concurrent: int, longest: int) -> list[list[int]]:
        """The opening prompt of each task's episodes, as tokens.

        An episode that does not open, or whose opening does not fit, ends here; its tokens are empty.

        Args:
          samples: episodes per task.
          max_concurrent: maximum episodes open at a time; with more tasks than that, they are closed again.
          longest: maximum tokens of an opening.
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
                        self._on_end()
                prompts.append(prompt)
        return prompts

    def answer(self, completion: Completion) -> None:
        key = completion.key
        self._answers[key].append(self._model.decode(completion.content))
        self._ended[key] = completion.ended
        self._episodes.advance(key, self._tasks[completion.row], self._answers[key])

    def replies(self, wait: bool) -> Mapping[Key, Sequence[int] | None]:
        """See `Environments`.

        Raises ValueError if a conversation does not grow as `benchmarks.base.Episode` promises.
        """
        with self._waiting() if wait else contextlib.nullcontext():
            states = self._episodes.collect_some(wait)
        came: dict[Key, Sequence[int] | None] = {}
        for key, state in states.items():
            if isinstance(state, Score):
                self._end(key, state)
                came[key] = None
            else:
                came[key] = self._reply(key, state)
        return came

    def no_room(self, key: Key) -> None:
        self._episodes.drop(key)
        self._end(key, Score(0.0, False, False, EPISODE_TOO_LONG))

    def _reply(self, key: Key, messages: list[Message]) -> list[int]:
        before = self._messages.get(key) or self._openings[key[0]]
        n = len(before)
        new = messages[n + 1 :]
        grown = (
            messages[:n] == before
            and bool(new)
            and messages[n] == {"role": "assistant", "content": self._answers[key][-1]}
            and all(message["role"] != "assistant" for message in new)
        )
        if not grown:
            raise ValueError(
                f"the episode of task {self._tasks[key[0]].id} rewrote its conversation: expected the "
                "earlier messages, the answer, and new messages"
            )
        self._messages[key] = messages
        self._replies[key].append("\n".join(message["content"] for message in new))
        return self._model.encode_reply(before, new, self._ended[key])

    def _end(self, key: Key, score: Score) -> None:
        i, j = key
        answers, replies = tuple(self._answers[key]), tuple(self._replies.pop(key, ()))
        self.attempts[key] = Attempt(self._tasks[i], j, answers, self._ended[key], score, replies)
        self._messages.pop(key, None)
        self._on_end()
