"""The episodes that one process holds open, by key.

Nothing here imports JAX, since it runs in worker processes.
"""

import contextlib
from collections.abc import Hashable, Sequence

from genenv_jax.benchmarks.base import Benchmark, Episode, Message, Score, Task


class OpenEpisodes:
    """Advances episodes by the answers given so far.

    An episode that is not open here (its process was lost, or it is new) is played from the start, since it
    depends only on its task and its answers.
    """

    def __init__(self, benchmark: Benchmark):
        self._benchmark = benchmark
        self._open: dict[Hashable, tuple[Episode, int]] = {}

    def advance(self, key: Hashable, task: Task, answers: Sequence[str]) -> list[Message] | Score:
        """Plays the answers that an episode has not received yet.

        Returns:
          the conversation to answer next, or the score of an episode that has ended, which is then closed.
        """
        # Not in `_open` while it plays, so that an episode that raises is not continued.
        episode, taken = self._open.pop(key, (None, 0))
        if episode is None:
            episode = self._benchmark.episode(task)
        try:
            for answer in answers[taken:]:
                score = episode.step(answer)
                if score is not None:
                    episode.close()
                    return score
            messages = episode.messages()
        except BaseException:
            with contextlib.suppress(Exception):  # report the first error
                episode.close()
            raise
        self._open[key] = episode, len(answers)
        return messages

    def drop(self, key: Hashable) -> None:
        """Closes an episode before its end; does nothing if it is not open."""
        episode, _ = self._open.pop(key, (None, 0))
        if episode is not None:
            episode.close()
