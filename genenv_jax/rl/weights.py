"""Weights by coverage and advantages within each seed, of the simulator's generations.

Some seeds make harder tasks than others whatever the simulator does.  Compared over all seeds, a
generation is rewarded for its seed; compared within its seed, for what the simulator made of it.  The
same holds of kinds of task: compared over all kinds, the kinds that the agent solves half of the time
crowd out the others.

Pure NumPy on the host, in float64.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Collection, Hashable, Sequence

import numpy as np


def coverage_weights(
    weights, skills: Sequence[Collection[Hashable]], coverage: float
) -> np.ndarray:
    """w_i times the mean of share(s)^-c over the record's skills s, normalised to a mean of 1.

    share(s) is the share of the records that ask for s.  So a record counts less, the more common its skills
    are.  c = 0 changes nothing.  Where every record asks for one skill, under c = 1 all skills have the same
    weight in the update, and the distribution that RWR regresses on is uniform over those that are there:
    inverse-frequency weights, as of count-based exploration (with 1/N for the bonus).

    Args:
      weights: (N,) of mean 1, at least 0.
      skills: (N,), of each record at least one, none of them twice.
      coverage: c, at least 0.
    Returns:
      (N,) float64.
    Raises:
      ValueError: shapes that differ, a record without a skill, or a weight that is not finite.
    """
    weights = np.asarray(weights, float)
    if weights.shape != (len(skills),):
        raise ValueError(f"weights {weights.shape}, {len(skills)} records: expected one shape (N,)")
    if not np.isfinite(weights).all():
        raise ValueError("a record has a weight that is not finite")
    if not all(len(of) for of in skills):
        raise ValueError("a record has no skill: expected at least one")
    counts = collections.Counter(skill for of in skills for skill in of)
    rarity = [np.mean([(len(skills) / counts[s]) ** coverage for s in of]) for of in skills]
    weighed = weights * np.array(rarity)
    total = weighed.sum()
    return weighed * (weights.sum() / total) if total > 0 else weighed


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
