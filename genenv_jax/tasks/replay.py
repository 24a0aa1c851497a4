"""Tasks of D_train that come up again, to be trained on or to be varied.

What is replayed is the task: the agent as it is now attempts it anew, so no importance weights are needed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from genenv_jax.benchmarks.base import SeedStatistics, Task


@dataclasses.dataclass
class _Entry:
    """A task with the outcome of its last attempts."""

    task: Task
    attempts: int = 0
    successes: int = 0


class TaskBuffer:
    """See the module's docstring.

    Args:
      capacity: most tasks that are kept, the newest; 0: no bound.
    """

    def __init__(self, capacity: int = 0):
        self._capacity = capacity
        self._entries: dict[str, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, task_id: str) -> SeedStatistics | None:
        """The last attempts at a task, or None where it is not in the buffer."""
        entry = self._entries.get(task_id)
        return SeedStatistics(entry.attempts, entry.successes) if entry else None

    def add(self, task: Task, attempts: int, successes: int) -> None:
        """Takes up a task with its first attempts; one that was never attempted stays out."""
        if attempts:
            self._entries[task.id] = _Entry(task, attempts, successes)
        if self._capacity and len(self._entries) > self._capacity:
            del self._entries[next(iter(self._entries))]

    def record(self, task_id: str, attempts: int, successes: int) -> None:
        """Notes new attempts at a task, if it is in the buffer; they replace the older ones."""
        entry = self._entries.get(task_id)
        if entry and attempts:
            entry.attempts, entry.successes = attempts, successes

    def choose(self, rng: np.random.Generator, count: int) -> list[Task]:
        """At most `count` different tasks, at random."""
        entries = list(self._entries.values())
        if not entries or count <= 0:
            return []
        return [entries[i].task for i in rng.permutation(len(entries))[:count]]

    def state(self) -> dict[str, list[int]]:
        """What a checkpoint keeps beside the tasks themselves, as plain JSON."""
        return {name: [e.attempts, e.successes] for name, e in self._entries.items()}

    def restore(self, state: Mapping[str, Sequence[int]], tasks: Iterable[Task]) -> None:
        """Inverse of `state`; `tasks` are those of the run's records.

        Raises ValueError where a task is not among them.
        """
        known = {task.id: task for task in tasks if task.id in state} if state else {}
        missing = [name for name in state if name not in known]
        if missing:
            raise ValueError(f"tasks.jsonl lacks {missing[0]!r}, which the checkpoint replays")
        self._entries = {name: _Entry(known[name], *counts) for name, counts in state.items()}
