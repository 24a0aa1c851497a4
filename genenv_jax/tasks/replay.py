"""Tasks of D_train that come up again, to be trained on or to be varied, and which of them do.

What is replayed is the task: the agent as it is now attempts it anew, so no importance weights are needed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from genenv_jax.benchmarks.base import SeedStatistics, Task
from genenv_jax.rl import difficulty

UNIFORM, PRIORITISED = "uniform", "prioritised"


@dataclasses.dataclass
class _Entry:
    """A task with the outcome of its last attempts and the epoch that they were made in."""

    task: Task
    attempts: int = 0
    successes: int = 0
    epoch: int = 0


class TaskBuffer:
    """See the module's docstring.

    Args:
      priority: "uniform", or "prioritised": by expected learnability under the posterior of the last attempts
        and by staleness (`priorities`), solved tasks leaving the pool.
      capacity: most tasks that the pool keeps, of a uniform one the newest; 0: no bound.
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

    def __getitem__(self, task_id: str) -> SeedStatistics | None:
        """The last attempts at a task, or None where it is not in the pool."""
        entry = self._entries.get(task_id)
        return SeedStatistics(entry.attempts, entry.successes) if entry else None

    def trim(self) -> None:
        """Lets go of the oldest of too many; in a prioritised pool of the solved and the least worth."""
        if self._priority == UNIFORM:
            for name in list(self._entries)[: -self._capacity] if self._capacity else ():
                del self._entries[name]
            return
        if not self._entries:
            return
        a, b = self._posterior()
        kept = survivors(
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
            weights = priorities(
                difficulty.expected_learnability(*self._posterior()),
                [epoch - entry.epoch for entry in entries],
                staleness_share=self._staleness_share,
            )
            chosen = draw(rng, weights, count)
        return [entries[i].task for i in chosen]

    def state(self) -> dict[str, list[int]]:
        """What a checkpoint keeps beside the tasks themselves, as plain JSON."""
        return {name: [e.attempts, e.successes, e.epoch] for name, e in self._entries.items()}

    def restore(self, state: Mapping[str, Sequence[int]], tasks: Iterable[Task]) -> None:
        """Inverse of `state`; `tasks` are those of the run's records.

        Raises ValueError where a task is not among them.
        """
        known = {task.id: task for task in tasks if task.id in state} if state else {}
        missing = [name for name in state if name not in known]
        if missing:
            raise ValueError(f"tasks.jsonl lacks {missing[0]!r}, which the checkpoint replays")
        self._entries = {name: _Entry(known[name], *counts) for name, counts in state.items()}

    def _posterior(self) -> tuple[Any, Any]:
        entries = self._entries.values()
        successes = np.array([entry.successes for entry in entries], float)
        attempts = np.array([entry.attempts for entry in entries], float)
        prior = difficulty.fit_beta_prior(successes, attempts)
        return difficulty.posterior(successes, attempts, prior)


# -- which tasks come up ---------------------------------------------------------------------------------


def priorities(scores, staleness, *, staleness_share: float = 0.5, temperature: float = 1.0):
    """Replay probabilities of Prioritized Level Replay (Jiang et al., 2021, arXiv 2010.03934).

        P_i = (1 - ρ) rank_i^(-1/β) / Σ_j rank_j^(-1/β)  +  ρ c_i / Σ_j c_j

    with rank 1 for the highest score and c_i how long ago task i was last trained on; the score says
    what a task was worth then, its staleness how little that says now.  Where no task is stale, the
    second term is uniform, as in JaxUED.  Equal scores share the weights of their ranks evenly, so that
    nothing depends on the order of the pool; NaN (no score) ranks last.

    Args:
      scores: (N,) such as `difficulty.expected_learnability`.
      staleness: (N,) epochs since the last use, not negative.
      staleness_share: ρ in [0, 1] (JaxUED: 0.5).
      temperature: β > 0 (JaxUED: 1); small ones take the best only, large ones all alike.
    Returns:
      (N,) float64, which sum to 1 (empty for an empty pool).
    Raises:
      ValueError: shapes that differ, negative or infinite staleness, ρ or β out of range.
    """
    scores, staleness = np.asarray(scores, float), np.asarray(staleness, float)
    if scores.ndim != 1 or scores.shape != staleness.shape:
        raise ValueError(f"scores {scores.shape}, staleness {staleness.shape}: expected one (N,)")
    if not (np.isfinite(staleness) & (staleness >= 0)).all():
        raise ValueError("expected finite staleness of at least 0")
    if not 0.0 <= staleness_share <= 1.0:
        raise ValueError(f"staleness_share = {staleness_share!r}: expected a number in [0, 1]")
    if not temperature > 0:
        raise ValueError(f"temperature = {temperature!r}: expected a positive number")
    if not len(scores):
        return np.zeros(0)
    by_rank = np.arange(1.0, len(scores) + 1) ** (-1.0 / temperature)
    # Ties: the mean of the weights of the ranks that they take up together.
    _, group = np.unique(-np.where(np.isnan(scores), -np.inf, scores), return_inverse=True)
    shared = np.bincount(group, np.zeros(len(scores)) + 1.0)
    ends = np.cumsum(shared).astype(int)
    sums = np.diff(np.concatenate([[0.0], np.cumsum(by_rank)[ends - 1]]))
    ranked = (sums / shared)[group] / by_rank.sum()
    total = staleness.sum()
    stale = staleness / total if total > 0 else np.full(len(scores), 1.0 / len(scores))
    return (1.0 - staleness_share) * ranked + staleness_share * stale


def draw(rng: np.random.Generator, weights, count: int) -> np.ndarray:
    """`count` different indices, one after the other, each with probability ∝ weight among those left.

    By exponential clocks: item i rings after an Exponential(w_i) time, and the first ones are taken
    (Efraimidis and Spirakis, 2006).  Takes len(weights) numbers from `rng`, whatever `count` is.

    Args:
      weights: (N,) not negative, of any sum; an item of weight 0 is never drawn.
      count: how many; fewer are returned where fewer have weight.
    Returns:
      (min(count, items with weight),) int64, in the order in which they were drawn.
    Raises:
      ValueError: weights that are negative or not finite, a negative count.
    """
    weights = np.asarray(weights, float)
    if weights.ndim != 1 or not (np.isfinite(weights) & (weights >= 0)).all() or count < 0:
        raise ValueError("expected one row of finite weights and a count, all of at least 0")
    # In logarithms, since a tiny weight would overflow the time.
    with np.errstate(divide="ignore", invalid="ignore"):
        times = np.log(rng.exponential(size=len(weights))) - np.log(weights)
    times[weights == 0] = np.inf
    order = np.argsort(times, kind="stable")
    return order[: min(count, int((weights > 0).sum()))].astype(np.int64)


def survivors(means, scores, *, capacity: int, solved: float = 0.95) -> np.ndarray:
    """What stays in a pool: tasks that are not solved, and of those the `capacity` of highest score.

    Args:
      means: (N,) posterior means of p; a task whose mean is above `solved` goes.  (Of k / n, a lucky
        streak would do: at p = 0.7 four of four come up every fourth time.)
      scores: (N,) what tasks are ranked by; NaN ranks last.  Of equal ones the later (newer) stays.
      capacity: most tasks kept; 0 for no bound.
      solved: bound of the mean; 1 keeps all.
    Returns:
      (M,) int64 indices, increasing.
    Raises:
      ValueError: shapes that differ, a negative capacity.
    """
    means, scores = np.asarray(means, float), np.asarray(scores, float)
    if means.ndim != 1 or means.shape != scores.shape or capacity < 0:
        raise ValueError(
            "expected means and scores of one shape (N,), and a capacity of at least 0"
        )
    kept = np.flatnonzero(~(means > solved))  # an unknown mean is not solved
    if capacity and len(kept) > capacity:
        value = np.where(np.isnan(scores[kept]), -np.inf, scores[kept])
        kept = np.sort(kept[np.argsort(value, kind="stable")[-capacity:]])
    return kept.astype(np.int64)
