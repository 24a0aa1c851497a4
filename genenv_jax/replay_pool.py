"""Tasks of D_train that are trained on again, and which of them come up.

What is replayed is the task: the agent as it is now attempts it anew, so no importance weights are needed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from genenv_jax.benchmarks.base import Task
from genenv_jax.rl import difficulty, replay

UNIFORM, PRIORITISED = "uniform", "prioritised"


@dataclasses.dataclass
class _Entry:
    """A task with the outcome of its last attempts and the epoch that they were made in."""

    task: Task
    attempts: int = 0
    successes: int = 0
    epoch: int = 0


class ReplayPool:
    """See the module's docstring.

    Args:
      priority: "uniform", or "prioritised": by expected learnability under the posterior of the last attempts
        and by staleness (`rl.replay.priorities`), solved tasks leaving the pool.
      capacity: most tasks that a prioritised pool keeps; 0: no bound.
      staleness_share: part of the priority that is staleness.
    """

    def __init__(self, priority: str = UNIFORM, capacity: int = 0, staleness_share: float = 0.5):
        self._priority, self._capacity = priority, capacity
        self._staleness_share = staleness_share
        self._entries: dict[str, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, task: Task, attempts: int, successes: int, epoch: int) -> None:
        """Takes up a task with its first attempts; one that was never attempted stays out."""
        if attempts:
            self._entries[task.id] = _Entry(task, attempts, successes, epoch)

    def note(self, task_id: str, attempts: int, successes: int, epoch: int) -> None:
        """Notes new attempts at a task, if it is in the pool; they replace the older ones."""
        entry = self._entries.get(task_id)
        if entry and attempts:
            entry.attempts, entry.successes, entry.epoch = attempts, successes, epoch

    def trim(self) -> None:
        """Lets go of what a prioritised pool does not keep: solved tasks, and the least worth of too many."""
        if self._priority == UNIFORM or not self._entries:
            return
        a, b = self._posterior()
        kept = replay.survivors(
            difficulty.posterior_mean(a, b),
            difficulty.expected_learnability(a, b),
            capacity=self._capacity,
        )
        names = list(self._entries)
        self._entries = {names[i]: self._entries[names[i]] for i in kept}

    def choose(self, rng: np.random.Generator, count: int, epoch: int) -> list[Task]:
        """At most `count` different tasks to train on in an epoch."""
        entries = list(self._entries.values())
        if not entries or count <= 0:
            return []
        if self._priority == UNIFORM:
            chosen = rng.permutation(len(entries))[:count]
        else:
            weights = replay.priorities(
                difficulty.expected_learnability(*self._posterior()),
                [epoch - entry.epoch for entry in entries],
                staleness_share=self._staleness_share,
            )
            chosen = replay.draw(rng, weights, count)
        return [entries[i].task for i in chosen]

    def state(self) -> dict[str, list[int]]:
        """What a checkpoint keeps beside the tasks themselves, as plain JSON."""
        return {name: [e.attempts, e.successes, e.epoch] for name, e in self._entries.items()}

    def restore(self, state: Mapping[str, Sequence[int]], tasks: Mapping[str, Task]) -> None:
        """Inverse of `state`.

        Args:
          tasks: by id; those of the run's records.
        Raises:
          ValueError: a task is not among the records.
        """
        missing = [name for name in state if name not in tasks]
        if missing:
            raise ValueError(f"tasks.jsonl lacks {missing[0]!r}, which the checkpoint replays")
        self._entries = {name: _Entry(tasks[name], *counts) for name, counts in state.items()}

    def _posterior(self) -> tuple[Any, Any]:
        entries = self._entries.values()
        successes = np.array([entry.successes for entry in entries], float)
        attempts = np.array([entry.attempts for entry in entries], float)
        prior = difficulty.fit_beta_prior(successes, attempts)
        return difficulty.posterior(successes, attempts, prior)
