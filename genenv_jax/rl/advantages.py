"""Advantages of a task's rollouts, from the rewards of its group alone."""

from collections.abc import Callable

import numpy as np

# Each maps the rewards (n,) of a group, not all equal, to advantages.
ADVANTAGES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    # By the sample standard deviation (torch.std; verl's default), as in GRPO (Shao et al., 2024).
    "group": lambda r: (r - r.mean()) / (r.std(ddof=1) + 1e-6),
    # Without it, as in Dr. GRPO (Liu et al., 2025).
    "centred": lambda r: r - r.mean(),
    # Minus the mean of the others (Ahmadian et al., 2024, RLOO).
    "rloo": lambda r: (r - r.mean()) * len(r) / (len(r) - 1),
    # By the mean, which is positive: the rarer a success, the more it counts (Tajwar et al., 2026, MaxRL).
    "maxrl": lambda r: (r - r.mean()) / r.mean(),
}


def group_advantages(rewards: np.ndarray, kind: str = "group") -> np.ndarray:
    """Advantages within each row, by a rule of `ADVANTAGES`.

    Args:
      rewards: (tasks, g) rewards of each task's g rollouts; NaN marks a rollout without a reward, which is
        left out of its group.
    Returns:
      (tasks, g) float32; zero in groups whose rewards are all equal, and for rollouts without a reward.
    """
    rewards = np.asarray(rewards, np.float64)
    result = np.zeros(rewards.shape, np.float32)
    for i in np.flatnonzero(~zero_variance(rewards)):
        there = ~np.isnan(rewards[i])
        result[i, there] = ADVANTAGES[kind](rewards[i, there])
    return result


def zero_variance(rewards: np.ndarray) -> np.ndarray:
    """(tasks,) bool: True for groups whose rollouts all have the same reward, so they carry no gradient.

    Rollouts without a reward (NaN) are ignored.
    """
    rewards = np.asarray(rewards, np.float64)
    there = ~np.isnan(rewards)
    least = rewards.min(axis=1, initial=np.inf, where=there)
    return least >= rewards.max(axis=1, initial=-np.inf, where=there)
