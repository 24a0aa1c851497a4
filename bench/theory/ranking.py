"""Theorem 1: how often R_env ranks two tasks wrongly when their success rates are counted in n rollouts.

R_env(p̂) = exp(−β (p̂ − α)²) falls with |p̂ − α|, so for any β > 0

    R_env(p̂₁) <= R_env(p̂₂)   if and only if   |p̂₁ − α| >= |p̂₂ − α|

and everything here is about distances.  A tie counts as a mistake, as in the theorem.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

# Of k − α n, so that 1/4 and 3/4 are equally far from 1/2, and 2/10 and 6/10 from 0.4.
_ROUNDING = 1e-9


def misranking(p1, p2, n: int, alpha: float = 0.5) -> np.ndarray:
    """Pr[|k₁/n − α| >= |k₂/n − α|] of independent k_i ~ Binomial(n, p_i), exactly.

    Args:
      p1, p2: success rates, scalars or arrays of one shape.
      n: rollouts of each.
    Returns:
      an array of that shape.
    """
    from scipy.stats import binom

    p1, p2 = (np.asarray(p, float)[..., None] for p in (p1, p2))
    k = np.arange(n + 1)
    distance = np.abs(k - alpha * n)
    # The k₁ at least this far from α n: an end piece on either side.
    below = np.floor(alpha * n - distance + _ROUNDING)
    above = np.ceil(alpha * n + distance - _ROUNDING)
    far = binom.cdf(below, n, p1) + binom.sf(above - 1, n, p1)
    far = np.where(below >= above, 1.0, far)  # the pieces meet, so every k₁ is
    return np.clip((binom.pmf(k, n, p2) * far).sum(axis=-1), 0.0, 1.0)


def bound(gap, n) -> np.ndarray:
    """4 exp(−(2/9) gap² n), Theorem 1; gap = |p₂ − α| − |p₁ − α|.  Above 1 it says nothing."""
    return 4 * np.exp(-2 / 9 * np.square(gap) * np.asarray(n, float))


def half_gap_bound(gap, n) -> np.ndarray:
    """4 exp(−(1/2) gap² n): the theorem's own argument with halves of the gap in place of thirds.

    If both |p̂_i − p_i| < gap/2, then |p̂₁ − α| < |p₁ − α| + gap/2 = |p₂ − α| − gap/2 < |p̂₂ − α|, so the
    ranking is right; Hoeffding's inequality bounds either failing by 2 exp(−2 n (gap/2)²).
    """
    return 4 * np.exp(-np.square(gap) * np.asarray(n, float) / 2)


def informative_from(gap: float, rate: float = 2 / 9) -> int:
    """The smallest n at which 4 exp(−rate · gap² n) is below 1; gap > 0."""
    return math.floor(math.log(4) / (rate * gap * gap)) + 1


class Measured(NamedTuple):
    """Mis-rankings counted in real rollouts, ties among them.  interval: Clopper and Pearson's, 95 %."""

    n: int
    trials: int
    mistakes: int
    rate: float
    interval: tuple[float, float]


def measure(successes1: np.ndarray, successes2: np.ndarray, n: int, alpha: float = 0.5) -> Measured:
    """Counts mis-rankings of two tasks in groups of n rollouts.

    Each rollout is in one group at most, so the trials of one n are independent and the interval is
    exact.  Those of different n share rollouts.

    Args:
      successes1, successes2: (m,), 0 or 1 in the order in which they were drawn; task 1 is the one
        whose success rate is nearer to alpha.
      n: size of the groups, at most m.
    """
    from scipy.stats import binomtest

    trials = min(len(successes1), len(successes2)) // n
    first, second = (
        np.abs(np.asarray(s, float)[: trials * n].reshape(trials, n).sum(1) - alpha * n)
        for s in (successes1, successes2)
    )
    mistakes = int((first >= second - _ROUNDING).sum())
    ends = binomtest(mistakes, trials).proportion_ci(0.95, method="exact")
    interval = float(ends.low), float(ends.high)
    return Measured(n, trials, mistakes, mistakes / trials, interval)


def uncertain_misranking(
    counts1: tuple[int, int],
    counts2: tuple[int, int],
    n: int,
    alpha: float = 0.5,
    draws: int = 400,
    seed: int = 0,
) -> tuple[float, float]:
    """2.5 and 97.5 % quantiles of `misranking` where the success rates are themselves estimates.

    Rates are drawn from their posteriors Beta(k + 1/2, n − k + 1/2) (Jeffreys' prior).

    counts1, counts2: (successes, rollouts) of each task.
    """
    rng = np.random.default_rng(seed)
    p1, p2 = (rng.beta(k + 0.5, m - k + 0.5, draws) for k, m in (counts1, counts2))
    low, high = np.percentile(misranking(p1, p2, n, alpha), (2.5, 97.5))
    return float(low), float(high)


def choose_pairs(
    p: Sequence[float], gaps: Sequence[float], alpha: float = 0.5
) -> list[tuple[int, int]]:
    """For each wanted gap two tasks (nearer, farther) whose distances to alpha differ by about it.

    No task is in two pairs.  Of equally good pairs the one is taken whose nearer task is nearest to
    alpha.  Pairs that miss their gap by more than 0.05 are left out.
    """
    distance = np.abs(np.asarray(p, float) - alpha)
    free, pairs = set(range(len(distance))), []
    # Large gaps first: they need tasks at the ends, of which there are few.
    for gap in sorted(gaps, reverse=True):
        ranked = (
            (abs(distance[j] - distance[i] - gap) + 0.1 * distance[i], i, j)
            for i, j in itertools.permutations(sorted(free), 2)
            if abs(distance[j] - distance[i] - gap) <= 0.05
        )
        best = min(ranked, default=None)
        if best:
            pairs.append((best[1], best[2]))
            free -= set(best[1:])
    return pairs[::-1]
