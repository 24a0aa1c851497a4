"""Tasks that outgrow the seeds: accepted tasks of earlier epochs replace seed tasks.

A variation of a variation moves further from the data set than a variation of a seed, one step at a time
(POET, arXiv 1901.01753; ACCEL, 2203.01302; eva, 2411.00062).  The tasks to vary are drawn at random.  Their
variations go through the same verification as any generation, including decontamination.  A task that no
attempt has solved is not varied, since it may have no solution.
"""

import dataclasses
from collections.abc import Callable, Sequence

from genenv_jax.benchmarks.base import Task
from genenv_jax.run.streams import Stream, rng
from genenv_jax.settings import Settings, within
from genenv_jax.tasks.generation import Generation, TaskBatch
from genenv_jax.tasks.replay import TaskBuffer

_CAPACITY = 512  # maximum tasks kept to choose from


@dataclasses.dataclass(frozen=True)
class GrowthConfig(Settings):
    """`config.curriculum.growth`.

    Attributes:
      share: share of an epoch's seed tasks that are replaced by accepted tasks of earlier epochs.
    """

    share: float = within(0.0, 0, 1)


class Growth(TaskBuffer):
    """See the module's docstring; holds the tasks of earlier epochs.

    A task is judged by the latest attempts at its variations, or at the task itself until it has been
    varied.

    fits: whether the simulator's prompt has room for a task.
    """

    def __init__(self, config: GrowthConfig, fits: Callable[[Task], bool], seed: int):
        super().__init__(_CAPACITY)
        self._share, self._fits, self._seed = config.share, fits, seed

    def contexts(self, epoch: int, seeds: Sequence[Task]) -> list[Task]:
        """The epoch's contexts: `seeds`, with the last ones replaced by tasks of earlier epochs."""
        draws = rng(self._seed, Stream.GROWTH, epoch)
        grown = self.choose(draws, int(self._share * len(seeds)))
        return [*seeds[: len(seeds) - len(grown)], *grown]

    def record(self, batch: TaskBatch) -> None:
        """Records the outcome of an epoch."""
        if not self._share:
            return
        variations: dict[str, list[Generation]] = {}
        for g in batch.generations:
            if g.attempts:
                variations.setdefault(g.seed.id, []).append(g)
        for parent, tried in variations.items():
            self.update(parent, sum(g.attempts for g in tried), sum(g.successes for g in tried))
        for g in batch.accepted:
            if g.successes and self._fits(g.task):
                self.add(g.task, g.attempts, g.successes)
