"""Seed tasks: which of them an epoch varies, and how the agent fared on their variations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from genenv_jax.benchmarks.base import SeedStatistics, Task
from genenv_jax.run.streams import Stream, rng


def shuffled_epochs(seed: int, stream: Stream, size: int, first: int, count: int) -> list[int]:
    """Positions `first` to `first + count` of an endless sequence of `size` items.

    Each pass over the items has its own random order, so every item comes up once before any does twice.

    Args:
      seed: the run's seed.
      stream: random stream of the orders.
    Returns:
      item indices.
    """
    places = [divmod(place, size) for place in range(first, first + count)]
    orders = {lap: rng(seed, stream, lap).permutation(size) for lap in {lap for lap, _ in places}}
    return [int(orders[lap][index]) for lap, index in places]


class SeedTasks:
    """The seed tasks in the order in which epochs vary them.

    Args:
      tasks: at least one.
      per_epoch: tasks varied per epoch; 0: all.
      seed: seed of the random order.
    """

    def __init__(self, tasks: Sequence[Task], per_epoch: int, seed: int):
        self.tasks, self.per_epoch = list(tasks), per_epoch or len(tasks)
        self._seed = seed

    def choose(self, epoch: int) -> list[Task]:
        """The seed tasks of an epoch."""
        n = self.per_epoch
        order = shuffled_epochs(self._seed, Stream.SEEDS, len(self.tasks), epoch * n, n)
        return [self.tasks[i] for i in order]


class LatestStatistics:
    """The agent's success by name (a seed task, a difficulty), in the last epoch that attempted it.

    Older attempts are dropped, since the agent has changed since.
    """

    def __init__(self):
        self._latest: dict[str, SeedStatistics] = {}

    def __getitem__(self, name: str) -> SeedStatistics:
        """The latest statistics of a name; zero attempts if there were none."""
        return self._latest.get(name, SeedStatistics())

    def record(self, outcomes: Iterable[tuple[str, int, int]]) -> None:
        """Records an epoch's (name, attempts, successes), summed by name; names without attempts stay."""
        counts: dict[str, list[int]] = {}
        for name, attempts, successes in outcomes:
            count = counts.setdefault(name, [0, 0])
            count[0] += attempts
            count[1] += successes
        for name, (attempts, successes) in counts.items():
            if attempts:
                self._latest[name] = SeedStatistics(attempts, successes)

    def state(self) -> dict[str, list[int]]:
        """The state to checkpoint, as plain JSON."""
        return {name: [s.attempts, s.successes] for name, s in sorted(self._latest.items())}

    def restore(self, state: Mapping[str, Sequence[int]]) -> None:
        """Inverse of `state`."""
        self._latest = {name: SeedStatistics(*counts) for name, counts in state.items()}
