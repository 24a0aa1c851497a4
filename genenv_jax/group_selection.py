"""Which groups of rollouts the agent is trained on."""

from __future__ import annotations

import numpy as np

from genenv_jax.rl.advantages import zero_variance

ALL, INFORMATIVE, FRONTIER = "all", "informative", "frontier"


def select_groups(
    how: str, rewards: np.ndarray, successes: np.ndarray, keep: int, alpha: float
) -> np.ndarray:
    """Indices of the groups to train on, ascending.

    Args:
      how: "all"; "informative": those whose rewards are not all equal, as DAPO's dynamic sampling
        (arXiv 2503.14476) and prime-rl's gate keep them; "frontier": the `keep` groups whose measured
        success rate is closest to alpha, as SFL (arXiv 2408.15099) chooses levels.
      rewards: (T, g).
      successes: (T, g) bool.
      keep: most groups that "frontier" takes.
      alpha: target success rate.
    """
    if how == ALL:
        return np.arange(len(rewards))
    if how == INFORMATIVE:
        return np.flatnonzero(~zero_variance(rewards))
    distance = np.abs(np.asarray(successes, float).mean(axis=1) - alpha)
    return np.sort(np.argsort(distance, kind="stable")[:keep])
