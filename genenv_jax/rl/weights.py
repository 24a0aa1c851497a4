"""Coverage weights for the simulator's generations.

Without them, the kinds of task that the agent solves half of the time crowd out the others.

Pure NumPy on the host, in float64.
"""

import collections
from collections.abc import Collection, Hashable, Sequence

import numpy as np


def coverage_weights(weights, skills: Sequence[Collection[Hashable]], coverage: float) -> np.ndarray:
    """w_i times the mean of share(s)^-c over the record's skills s, normalised to a mean of 1.

    share(s) is the share of records that ask for skill s, so records with common skills count less.  c = 0
    changes nothing.  If every record asks for one skill, c = 1 gives all skills the same weight in the
    update, and RWR regresses on a distribution that is uniform over the skills present: inverse-frequency
    weights, as in count-based exploration (with 1/N as the bonus).

    Args:
      weights: (N,), nonnegative, with mean 1; N is at least 1.
      skills: (N,) skills of each record, at least one and without duplicates.
      coverage: c, at least 0.
    Returns:
      (N,) float64.
    """
    weights = np.asarray(weights, float)
    counts = collections.Counter(skill for of in skills for skill in of)
    rarity = [np.mean([(len(skills) / counts[s]) ** coverage for s in of]) for of in skills]
    weighed = weights * np.array(rarity)
    return weighed * (weights.sum() / weighed.sum())
