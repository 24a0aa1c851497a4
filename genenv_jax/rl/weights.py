"""Weights by coverage of the simulator's generations.

Compared over all kinds of task, the kinds that the agent solves half of the time crowd out the others.

Pure NumPy on the host, in float64.
"""

from __future__ import annotations

import collections
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
