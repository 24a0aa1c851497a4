"""Seed tasks: which of them an epoch varies, and how the agent fared on their variations."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks.base import Benchmark, SeedStatistics, Task, skills
from genenv_jax.benchmarks.success_record import ALIKE, RECENT
from genenv_jax.run.streams import Stream, rng
from genenv_jax.tasks.generation import TaskBatch
from genenv_jax.tasks.sources import TaskSource


def shuffled_epochs(seed: int, stream: Stream, size: int, first: int, count: int) -> list[int]:
    """Item indices at positions `first` to `first + count` of an endless sequence of `size` items.

    Each pass over the items has its own random order, so every item comes up once before any does twice.
    """
    places = [divmod(place, size) for place in range(first, first + count)]
    orders = {lap: rng(seed, stream, lap).permutation(size) for lap in {lap for lap, _ in places}}
    return [int(orders[lap][index]) for lap, index in places]


class SeedTasks:
    """The seed tasks in the order in which epochs vary them.

    per_epoch: tasks varied per epoch; 0: all.
    """

    def __init__(self, tasks: Sequence[Task], per_epoch: int, seed: int):
        self.tasks, self.per_epoch = list(tasks), per_epoch or len(tasks)
        self._seed = seed

    def choose(self, epoch: int) -> list[Task]:
        """The seed tasks of an epoch."""
        n = self.per_epoch
        order = shuffled_epochs(self._seed, Stream.SEEDS, len(self.tasks), epoch * n, n)
        return [self.tasks[i] for i in order]


class SeedSource(TaskSource):
    """The seed tasks themselves, in their order, for GRPO without a simulator."""

    def __init__(self, seeds: SeedTasks):
        self._seeds = seeds

    def tasks(self, epoch: int) -> TaskBatch:
        return TaskBatch.of_tasks(self._seeds.choose(epoch))


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


class SuccessRecords:
    """What the simulator is told about the agent's success, for each seed.

    This is the latest record of the seed and its variations.  Failing that, it is the last epoch's record of
    tasks that need one of the seed's skills, or else of all tasks.  A run seldom visits a seed of a large
    data set twice, so most prompts would state nothing otherwise.
    """

    def __init__(self, benchmark: Benchmark):
        self._benchmark, self._own = benchmark, LatestStatistics()
        self._recent: list[tuple[list[str], int, int]] = []  # of the last epoch: skills, attempts, successes

    def of(self, seed: Task) -> SeedStatistics:
        """The statistics that the prompt for a seed states."""
        if (own := self._own[seed.id]).attempts:
            return own
        needed = set(skills(self._benchmark, seed))
        alike = [entry for entry in self._recent if not needed.isdisjoint(entry[0])]
        at, found = (ALIKE, alike) if alike else (RECENT, self._recent)
        if not found:
            return own
        return SeedStatistics(sum(n for _, n, _ in found), sum(k for _, _, k in found), at)

    def record(self, outcomes: Iterable[tuple[str, Task, int, int]]) -> None:
        """Records an epoch's (id of the seed or "", attempted task, attempts, successes)."""
        outcomes = [outcome for outcome in outcomes if outcome[2]]
        self._own.record((seed, n, k) for seed, _, n, k in outcomes if seed)
        if outcomes:
            self._recent = [(skills(self._benchmark, task), n, k) for _, task, n, k in outcomes]

    def state(self) -> dict[str, Any]:
        """The state to checkpoint, as plain JSON."""
        return {"own": self._own.state(), "recent": self._recent}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Inverse of `state`."""
        self._own.restore(state["own"])
        self._recent = [(list(names), n, k) for names, n, k in state["recent"]]
