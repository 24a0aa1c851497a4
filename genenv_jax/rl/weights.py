"""Weights and advantages of the simulator's generations within each seed.

Some seeds make harder tasks than others whatever the simulator does.  Compared over all seeds, a
generation is rewarded for its seed; compared within its seed, for what the simulator made of it.

Arrays are (S, n): n generations of each of S seeds.  Pure NumPy on the host, in float64.
"""

from __future__ import annotations

import math

import numpy as np


def within_seed_weights(rewards, mask, temperature: float) -> np.ndarray:
    """w_sj = m_s softmax_j(λ R_sj) over the m_s used generations of seed s: RWR within each seed.

    The weights of a seed sum to how many of its generations are used.  So their mean over all used
    records is 1, as that of `rewards.rwr_weights`, and no seed counts more for being of a middling
    difficulty by itself.  A seed with one used generation gives it weight 1.

    Args:
      rewards: (S, n); where not used, anything (NaN, too).
      mask: (S, n), nonzero where a generation is used.
      temperature: λ; 0 weighs all alike.
    Returns:
      (S, n) float64, 0 where not used.
    Raises:
      ValueError: shapes that differ, or a used reward that is not finite.
    """
    rewards, used = _table(rewards, mask)
    exponent = np.where(used, temperature * np.where(used, rewards, 0.0), -np.inf)
    highest = exponent.max(axis=1, keepdims=True, initial=-np.inf)
    shifted = exponent - np.where(np.isfinite(highest), highest, 0.0)
    raw = np.exp(shifted)
    total = raw.sum(axis=1, keepdims=True)
    return raw * used.sum(axis=1, keepdims=True) / np.where(total > 0, total, 1.0)


def seed_group_advantages(
    rewards, mask, *, invalid_reward: float | None = None, present=None
) -> np.ndarray:
    """A_sj = R_sj - mean_j R_sj within each seed, without division by a deviation.

    The simulator's part of prime-rl's hierarchical GRPO: a proposal is compared with the others from the
    same seed only.  Without the division, seeds whose proposals are all much the same do not get the
    loudest gradient.  The sum over a seed is 0.

    Args:
      rewards: (S, n); where not valid, anything (NaN, too).
      mask: (S, n), nonzero where a generation is valid and has a reward.
      invalid_reward: None: invalid generations have no part and advantage 0.  A number, at most 0: it is
        their reward, so writing nonsense is worse than any task (R_env >= 0), also where a seed has
        one valid generation only.
      present: (S, n), nonzero for those that can take part at all, by default all.  For others, such as
        the initial simulator's in a mixture, the advantage is 0 even with an `invalid_reward`.
    Returns:
      (S, n) float64; exactly 0 in a seed whose rewards are all equal, or of one generation.
    Raises:
      ValueError: shapes that differ, a valid reward that is not finite, a positive `invalid_reward`.
    """
    valid = np.asarray(mask) != 0
    if present is not None:
        if np.shape(present) != valid.shape:
            raise ValueError(f"present has shape {np.shape(present)}, mask {valid.shape}")
        present = np.asarray(present) != 0
        valid = valid & present
    rewards, valid = _table(rewards, valid)
    counted = valid
    if invalid_reward is not None:
        if not -math.inf < invalid_reward <= 0:
            raise ValueError(f"invalid_reward = {invalid_reward!r}: expected at most 0")
        rewards = np.where(valid, rewards, invalid_reward)
        counted = np.ones_like(valid) if present is None else present
    rewards = np.where(counted, rewards, 0.0)
    mean = rewards.sum(axis=1, keepdims=True) / np.maximum(counted.sum(axis=1, keepdims=True), 1)
    highest = np.where(counted, rewards, -np.inf).max(axis=1, keepdims=True, initial=-np.inf)
    lowest = np.where(counted, rewards, np.inf).min(axis=1, keepdims=True, initial=np.inf)
    # The mean of equal numbers is rounded.
    return np.where(counted & (highest > lowest), rewards - mean, 0.0)


def _table(rewards, mask) -> tuple[np.ndarray, np.ndarray]:
    """(S, n) float64 rewards and bool mask; ValueError where they do not fit or a used one is unknown."""
    rewards, used = np.asarray(rewards, float), np.asarray(mask) != 0
    if rewards.ndim != 2 or rewards.shape != used.shape:
        raise ValueError(
            f"rewards {rewards.shape} and mask {used.shape}: expected one shape (S, n)"
        )
    if not np.isfinite(rewards[used]).all():
        raise ValueError("a generation that is used has a reward that is not finite")
    return rewards, used
