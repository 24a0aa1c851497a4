"""The curriculum: what the simulator is conditioned on, and which seeds an epoch varies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from genenv_jax.benchmarks.base import SeedStatistics, Task
from genenv_jax.run.streams import Stream, rng


class Curriculum:
    """Success statistics of each seed's variations, and the choice of seeds.

    The statistics of a seed are those of the last epoch in which it was varied: the agent changes, and
    older attempts describe an agent that is gone.

    Args:
      seeds: the seed tasks.
      seeds_per_epoch: how many of them an epoch varies; 0 for all.
      seed: of the random order in which they are taken.
    """

    def __init__(self, seeds: Sequence[Task], seeds_per_epoch: int, seed: int):
        self.seeds = list(seeds)
        self.seeds_per_epoch = seeds_per_epoch or len(self.seeds)
        self._seed = seed
        self._statistics: dict[str, SeedStatistics] = {}

    def choose(self, epoch: int) -> list[Task]:
        """The seeds of an epoch.  Every seed comes up once before any comes up twice."""
        count = len(self.seeds)
        first = epoch * self.seeds_per_epoch
        places = range(first, first + self.seeds_per_epoch)
        orders = {
            lap: rng(self._seed, Stream.SEEDS, lap).permutation(count)
            for lap in {place // count for place in places}
        }
        return [self.seeds[orders[place // count][place % count]] for place in places]

    def statistics(self, seed_id: str) -> SeedStatistics:
        """How the agent fared on the latest variations of a seed."""
        return self._statistics.get(seed_id, SeedStatistics())

    def record(self, seed_id: str, attempts: int, successes: int) -> None:
        """Notes the outcome of an epoch's variations of a seed; without attempts it changes nothing."""
        if attempts:
            self._statistics[seed_id] = SeedStatistics(attempts, successes)

    def state(self) -> dict[str, list[int]]:
        """What a checkpoint keeps, as plain JSON."""
        return {key: [s.attempts, s.successes] for key, s in sorted(self._statistics.items())}

    def restore(self, state: Mapping[str, Sequence[int]]) -> None:
        """Inverse of `state`."""
        self._statistics = {key: SeedStatistics(*counts) for key, counts in state.items()}
