"""The agent's tasks of an epoch: a mixture of fresh tasks, base data and tasks of D_train."""

import dataclasses
from collections.abc import Sequence

from genenv_jax.benchmarks.base import Task
from genenv_jax.run.streams import Stream, rng
from genenv_jax.tasks.generation import Generation, TaskBatch
from genenv_jax.tasks.replay import TaskBuffer


@dataclasses.dataclass
class Item:
    """A task to attempt, its generation if it is fresh, and how often the agent attempted and solved it."""

    task: Task
    generation: Generation | None = None
    attempts: int = 0
    successes: int = 0


class Mixture:
    """See the module's docstring.

    The counts depend on the number of generations requested, not of those accepted, so a simulator that
    writes few valid tasks does not starve the agent.

    seeds: the base data.
    asked: generations requested per epoch.
    buffer: tasks of D_train; filled only if some are replayed.
    most: tasks per epoch if all generations are accepted.
    """

    def __init__(
        self,
        seeds: Sequence[Task],
        asked: int,
        base_share: float,
        replay_share: float,
        buffer: TaskBuffer,
        seed: int,
    ):
        fresh_share = 1.0 - base_share - replay_share
        self._seeds, self._buffer, self._seed = list(seeds), buffer, seed
        self._base = round(asked * base_share / fresh_share)
        self._replayed = round(asked * replay_share / fresh_share)
        self._replays = replay_share > 0
        self.asked, self.most = asked, asked + self._base + self._replayed

    def draw(self, epoch: int, batch: TaskBatch) -> list[Item]:
        """The epoch's items in random order."""
        draws = rng(self._seed, Stream.MIXTURE, epoch)
        base = draws.permutation(len(self._seeds))[: self._base]
        items = [Item(g.task, g) for g in batch.accepted]
        items += [Item(self._seeds[i]) for i in base]
        items += [Item(task) for task in self._buffer.choose(draws, self._replayed)]
        return [items[i] for i in draws.permutation(len(items))]

    def record(self, batch: TaskBatch) -> None:
        """Adds an epoch's fresh tasks to the buffer, if tasks are replayed."""
        if self._replays:
            for g in batch.accepted:
                self._buffer.add(g.task, g.attempts, g.successes)
