"""Tasks of D_train that are used again, to train on or to vary.

Only the task is replayed: the current agent attempts it anew, so no importance weights are needed.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from genenv_jax.benchmarks.base import SeedStatistics, Task


class TaskBuffer:
    """See the module's docstring.

    capacity: how many of the newest tasks to keep; 0: no bound.
    """

    def __init__(self, capacity: int = 0):
        self._capacity = capacity
        self._entries: dict[str, tuple[Task, SeedStatistics]] = {}  # with the latest attempts

    def __getitem__(self, task_id: str) -> SeedStatistics | None:
        """The latest attempts at a task, or None if it is not in the buffer."""
        _, statistics = self._entries.get(task_id, (None, None))
        return statistics

    def add(self, task: Task, attempts: int, successes: int) -> None:
        """Adds a task with its first attempts; a task that was never attempted is not added."""
        if attempts:
            self._entries[task.id] = task, SeedStatistics(attempts, successes)
        if self._capacity and len(self._entries) > self._capacity:
            del self._entries[next(iter(self._entries))]

    def update(self, task_id: str, attempts: int, successes: int) -> None:
        """Replaces the recorded attempts at a task by newer ones, if it is in the buffer."""
        if task_id in self._entries and attempts:
            task, _ = self._entries[task_id]
            self._entries[task_id] = task, SeedStatistics(attempts, successes)

    def choose(self, rng: np.random.Generator, count: int) -> list[Task]:
        """At most `count` distinct tasks, drawn at random."""
        tasks = [task for task, _ in self._entries.values()]
        if not tasks or count <= 0:
            return []
        return [tasks[i] for i in rng.permutation(len(tasks))[:count]]

    def state(self) -> dict[str, list[int]]:
        """The state to checkpoint besides the tasks themselves, as plain JSON."""
        return {name: [s.attempts, s.successes] for name, (_, s) in self._entries.items()}

    def restore(self, state: Mapping[str, Sequence[int]], tasks: Iterable[Task]) -> None:
        """Inverse of `state`; `tasks` are the tasks in the run's records.

        Raises ValueError if one of the state's tasks is not among them.
        """
        known = {task.id: task for task in tasks if task.id in state} if state else {}
        missing = [name for name in state if name not in known]
        if missing:
            raise ValueError(f"tasks.jsonl lacks {missing[0]!r}, which the checkpoint replays")
        self._entries = {name: (known[name], SeedStatistics(*counts)) for name, counts in state.items()}
