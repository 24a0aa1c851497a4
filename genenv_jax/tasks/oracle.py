"""The upper bound: tasks from the benchmark's own generator, at the agent's frontier.

It uses knowledge that no simulator has.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from genenv_jax.benchmarks.base import Benchmark, Task
from genenv_jax.run.streams import Stream, rng
from genenv_jax.tasks.generation import TaskBatch
from genenv_jax.tasks.mixture import Item
from genenv_jax.tasks.seeds import LatestStatistics
from genenv_jax.tasks.sources import TaskSource


class OracleTasks(TaskSource):
    """Tasks at the difficulties where the agent's success rate crosses alpha.

    Each difficulty's rate is that of the latest attempts at it, or 1/2 before the first.  The tasks are
    split between the two neighbouring difficulties on either side of alpha, so that the expected success
    rate is alpha; a tenth is spread evenly over all difficulties, to keep their rates up to date.
    """

    def __init__(self, benchmark: Benchmark, alpha: float, per_epoch: int, seed: int):
        self._benchmark, self._alpha = benchmark, alpha
        self._per_epoch, self._seed = per_epoch, seed
        self.statistics = LatestStatistics()

    def tasks(self, epoch: int) -> TaskBatch:
        draws = rng(self._seed, Stream.ORACLE, epoch)
        names = list(self._benchmark.difficulties)
        rates = [self.statistics[name].success_rate for name in names]
        rates = np.array([0.5 if rate is None else rate for rate in rates])
        shares = 0.9 * frontier_shares(rates, self._alpha) + 0.1 / len(names)
        drawn = draws.choice(len(names), self._per_epoch, p=shares / shares.sum())
        tasks = [
            self._benchmark.draw(draws, names[which], f"oracle-{epoch + 1}-{i}")
            for i, which in enumerate(drawn)
        ]
        return TaskBatch.of_tasks(tasks)

    def record(self, batch: TaskBatch, items: Sequence[Item]) -> None:
        """See `TaskSource`; outcomes are grouped by difficulty, which is the task's category."""
        self.statistics.record((g.task.category, g.attempts, g.successes) for g in batch.generations)

    def state(self) -> dict[str, list[int]]:
        return self.statistics.state()

    def restore(self, state: dict[str, list[int]], tasks: Iterable[Task]) -> None:
        self.statistics.restore(state)


def frontier_shares(rates: np.ndarray, alpha: float) -> np.ndarray:
    """Shares of the difficulties, in ascending order, that give a mean success rate of alpha.

    Args:
      rates: (D,) success rates; need not be strictly decreasing.
    Returns:
      (D,) shares that sum to 1.  If no two neighbours bracket alpha, the difficulty closest to it gets
      everything.
    """
    shares = np.zeros(len(rates))
    for low in range(len(rates) - 1):
        if rates[low] >= alpha >= rates[low + 1] and rates[low] > rates[low + 1]:
            part = (alpha - rates[low + 1]) / (rates[low] - rates[low + 1])
            shares[low], shares[low + 1] = part, 1.0 - part
            return shares
    shares[np.argmin(np.abs(rates - alpha))] = 1.0
    return shares
