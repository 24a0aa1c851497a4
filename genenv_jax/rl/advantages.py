"""Group-relative advantages (Shao et al., 2024, DeepSeekMath, section 4.1)."""

from __future__ import annotations

import numpy as np


def group_advantages(
    rewards: np.ndarray, *, scale: str = "std", ddof: int = 1, eps: float = 1e-6
) -> np.ndarray:
    """A_ij = (r_ij - mean_j r_ij) / (std_j r_ij + eps), within each row.

    Args:
      rewards: (tasks, g) rewards of the g rollouts of each task; NaN where there is none: such a rollout is
        left out of its group's mean and deviation.
      scale: "std" divides by the group's standard deviation (verl's default, used by the paper's
        configuration); "none" does not (Liu et al., 2025, Dr. GRPO).
      ddof: 1 for the sample standard deviation (torch.std), 0 for the population's.
    Returns:
      (tasks, g) float32; zero in a group whose rewards are all equal, and where there is none.
    Raises:
      ValueError for another `scale`.
    """
    rewards = np.asarray(rewards, np.float64)
    if np.isnan(rewards).any():
        rows = [_without_gaps(row, scale, ddof, eps) for row in rewards]
        return np.stack(rows).astype(np.float32)
    centred = rewards - rewards.mean(axis=1, keepdims=True)
    centred[zero_variance(rewards)] = 0.0  # the mean of equal numbers is rounded
    if scale == "none":
        return centred.astype(np.float32)
    if scale != "std":
        raise ValueError(f"agent.advantage_scale = {scale!r}: expected 'std' or 'none'")
    if rewards.shape[1] <= ddof:
        return np.zeros(rewards.shape, np.float32)
    std = rewards.std(axis=1, ddof=ddof, keepdims=True)
    return (centred / (std + eps)).astype(np.float32)


def _without_gaps(row: np.ndarray, scale: str, ddof: int, eps: float) -> np.ndarray:
    there, result = ~np.isnan(row), np.zeros(row.shape)
    if there.any():
        some = group_advantages(row[None, there], scale=scale, ddof=ddof, eps=eps)
        result[there] = some[0]
    return result


def zero_variance(rewards: np.ndarray) -> np.ndarray:
    """(tasks,) bool: groups whose rollouts all earned the same, so that they carry no gradient.

    Rollouts without a reward (NaN) do not count.
    """
    rewards = np.asarray(rewards, np.float64)
    there = ~np.isnan(rewards)
    least = rewards.min(axis=1, initial=np.inf, where=there)
    return least >= rewards.max(axis=1, initial=-np.inf, where=there)


def turn_advantages(
    rewards: np.ndarray,
    actions: np.ndarray,
    discount: float,
    *,
    scale: str = "std",
    ddof: int = 1,
) -> np.ndarray:
    """Advantages of episodes' tokens, in which a turn counts by the return from there on.

    The return from turn t of T is G_t = γ^(T - 1 - t) R (Sutton and Barto, 2018, section 3.3, with a reward
    at the end alone), compared with the returns from all turns of the group's episodes, as Shao et al., 2024,
    section 4.1.3, compare the rewards of steps.

    Args:
      rewards: (tasks, g), R of each episode; NaN where there is none.
      actions: (tasks, g, c) bool, the tokens of its answers; a run of them is a turn.
      discount: γ.
      scale, ddof: as in `group_advantages`.
    Returns:
      (tasks, g, c) float32, 0 at the other tokens.
    """
    before = np.pad(actions, [(0, 0), (0, 0), (1, 0)])[..., :-1]
    turn = np.cumsum(actions & ~before, axis=-1) - 1  # of each token
    last = turn.max(axis=-1, initial=0)
    result = np.zeros(actions.shape, np.float32)
    for i, (row, turns) in enumerate(zip(np.asarray(rewards, np.float64), last, strict=True)):
        left = turns[:, None] - np.arange(turns.max() + 1)
        returns = np.where(left >= 0, discount ** np.maximum(left, 0) * row[:, None], np.nan)
        flat = group_advantages(returns.reshape(1, -1), scale=scale, ddof=ddof)
        by_turn = flat.reshape(returns.shape)
        result[i] = np.take_along_axis(by_turn, np.maximum(turn[i], 0), axis=1)
    return np.where(actions, result, 0.0).astype(np.float32)
