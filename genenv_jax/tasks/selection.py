"""Which groups of rollouts the agent is trained on."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from genenv_jax.rl.advantages import zero_variance


@dataclasses.dataclass(frozen=True)
class All:
    """All of them.

    Attributes:
      oversampling: how many batches' worth of groups are chosen from at a time.
    """

    oversampling: int = 1

    def choose(self, rewards: np.ndarray, successes: np.ndarray) -> np.ndarray:
        """Indices of the groups to train on, ascending.

        rewards, successes: (T, g); NaN where a rollout has no verdict.
        """
        return np.arange(len(rewards))


@dataclasses.dataclass(frozen=True)
class Informative(All):
    """Those whose rewards are not all equal; batches are filled up with the next ones.

    As DAPO's dynamic sampling (arXiv 2503.14476) and prime-rl's filter keep them.
    """

    def choose(self, rewards: np.ndarray, successes: np.ndarray) -> np.ndarray:
        """See `All.choose`."""
        return np.flatnonzero(~zero_variance(rewards))


@dataclasses.dataclass(frozen=True)
class Frontier(All):
    """One in `oversampling` groups: those whose measured success rate is closest to `alpha`.

    As SFL (arXiv 2408.15099) chooses levels.
    """

    alpha: float = 0.5

    def choose(self, rewards: np.ndarray, successes: np.ndarray) -> np.ndarray:
        """See `All.choose`."""
        keep = math.ceil(len(rewards) / self.oversampling)
        judged = np.maximum((~np.isnan(successes)).sum(axis=1), 1)
        distance = np.abs(np.nansum(successes, axis=1) / judged - self.alpha)
        return np.sort(np.argsort(distance, kind="stable")[:keep])


def make_selection(groups: str, oversampling: int, alpha: float) -> All:
    """The selection that `config.agent.groups` names.

    Args:
      groups: "all", "informative" or "frontier".
      oversampling: of "frontier".
      alpha: target success rate.
    """
    if groups == "frontier":
        return Frontier(oversampling, alpha)
    return {"all": All, "informative": Informative}[groups]()
