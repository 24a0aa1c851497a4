"""Group-relative advantages (Shao et al., 2024, DeepSeekMath, section 4.1)."""

from __future__ import annotations

import numpy as np


def group_advantages(rewards: np.ndarray, *, scale: str = "std", eps: float = 1e-6) -> np.ndarray:
    """A_ij = (r_ij - mean_j r_ij) / (std_j r_ij + eps), within each row.

    Args:
      rewards: (tasks, g) rewards of each task's g rollouts; NaN marks a rollout without a reward, which is
        left out of its group's mean and deviation.
      scale: "std" divides by the group's sample standard deviation (torch.std; verl's default, used by the
        paper's configuration); "none" does not (Liu et al., 2025, Dr. GRPO).
    Returns:
      (tasks, g) float32; zero in groups whose rewards are all equal, and for rollouts without a reward.
    Raises:
      ValueError: unknown `scale`.
    """
    rewards = np.asarray(rewards, np.float64)
    if np.isnan(rewards).any():
        rows = [_without_gaps(row, scale, eps) for row in rewards]
        return np.stack(rows).astype(np.float32)
    centred = rewards - rewards.mean(axis=1, keepdims=True)
    centred[zero_variance(rewards)] = 0.0  # the mean of equal numbers may be off by rounding
    if scale == "none":
        return centred.astype(np.float32)
    if scale != "std":
        raise ValueError(f"agent.advantage_scale = {scale!r}: expected 'std' or 'none'")
    if rewards.shape[1] < 2:
        return np.zeros(rewards.shape, np.float32)
    std = rewards.std(axis=1, ddof=1, keepdims=True)
    return (centred / (std + eps)).astype(np.float32)


def _without_gaps(row: np.ndarray, scale: str, eps: float) -> np.ndarray:
    there, result = ~np.isnan(row), np.zeros(row.shape)
    if there.any():
        some = group_advantages(row[None, there], scale=scale, eps=eps)
        result[there] = some[0]
    return result


def zero_variance(rewards: np.ndarray) -> np.ndarray:
    """(tasks,) bool: True for groups whose rollouts all have the same reward, so they carry no gradient.

    Rollouts without a reward (NaN) are ignored.
    """
    rewards = np.asarray(rewards, np.float64)
    there = ~np.isnan(rewards)
    least = rewards.min(axis=1, initial=np.inf, where=there)
    return least >= rewards.max(axis=1, initial=-np.inf, where=there)
