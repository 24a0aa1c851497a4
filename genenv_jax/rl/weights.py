"""Weights and advantages of the simulator's generations: within groups, by coverage, within each seed.

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


def group_weights(rewards, groups: Sequence[Hashable], temperature: float) -> np.ndarray:
    """w_i = m_g softmax_{j in g}(λ R_j) over the m_g records of i's group g: RWR within each group.

    The weights of a group sum to how many records it has.  So their mean is 1, as that of
    `rewards.rwr_weights`, and no group counts more for being of a middling difficulty by itself.  A group of
    one record gives it weight 1.

    Args:
      rewards: (N,).
      groups: (N,), the seed or the kind of task of each record.
      temperature: λ; 0 weighs all alike.
    Returns:
      (N,) float64.
    Raises:
      ValueError: shapes that differ, or a reward that is not finite.
    """
    rewards, places = _records(rewards, groups)
    if not rewards.size:
        return rewards
    highest = np.full(places.max() + 1, -np.inf)
    np.maximum.at(highest, places, temperature * rewards)
    raw = np.exp(temperature * rewards - highest[places])
    return raw * (np.bincount(places) / np.bincount(places, raw))[places]


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
    weights, _ = _records(weights, range(len(skills)))
    if not all(len(of) for of in skills):
        raise ValueError("a record has no skill: expected at least one")
    counts = collections.Counter(skill for of in skills for skill in of)
    rarity = [np.mean([(len(skills) / counts[s]) ** coverage for s in of]) for of in skills]
    weighed = weights * np.array(rarity)
    total = weighed.sum()
    return weighed * (weights.sum() / total) if total > 0 else weighed


def _records(values, groups: Sequence[Hashable]) -> tuple[np.ndarray, np.ndarray]:
    """(N,) float64 values and the number of each one's group, from 0."""
    values, numbers = np.asarray(values, float), {}
    places = np.array([numbers.setdefault(group, len(numbers)) for group in groups], int)
    if values.shape != places.shape:
        raise ValueError(f"values {values.shape}, groups {places.shape}: expected one shape (N,)")
    if not np.isfinite(values).all():
        raise ValueError("a record has a value that is not finite")
    return values, places


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
