"""The protocol's statistics: curves to numbers, and numbers of paired seeds to differences.

A run is a sample; a seed is its pairing.  Nothing here knows of files.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy import stats

EXACT_LIMIT = 16  # up to 2^16 sign assignments are enumerated
_SLACK = 1e-12  # relative: sums that differ by rounding are ties


def _curve(rollouts: Sequence[float], scores: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Checked arrays (s,); of points at equal rollouts (an epoch without tasks) the last one stays."""
    x, y = np.asarray(rollouts, float), np.asarray(scores, float)
    if x.ndim != 1 or x.shape != y.shape or not x.size:
        raise ValueError(f"a curve of shapes {x.shape} and {y.shape}: expected two equal lists")
    if not (np.isfinite(x).all() and np.isfinite(y).all()) or (np.diff(x) < 0).any():
        raise ValueError("a curve's rollouts must not fall, and all its numbers must be finite")
    last = np.append(np.diff(x) > 0, True)
    return x[last], y[last]


def value_at(rollouts: Sequence[float], scores: Sequence[float], at: float) -> float:
    """The curve's score after `at` rollouts, interpolated linearly.

    Args:
      rollouts: (s,), not falling; scores: (s,).
      at: within [rollouts[0], rollouts[-1]].
    Raises:
      ValueError: `at` is outside: nothing is extrapolated.
    """
    x, y = _curve(rollouts, scores)
    if not x[0] <= at <= x[-1]:
        raise ValueError(f"{at:g} rollouts are outside of the curve's {x[0]:g} to {x[-1]:g}")
    return float(np.interp(at, x, y))


def area_under_curve(rollouts: Sequence[float], scores: Sequence[float], until: float) -> float:
    """Mean height of a held-out curve: (1/R) ∫_0^R score(r) dr, by the trapezoid rule.

    R = `until` is the common range of all arms, so the area is in the score's units and arms of
    different lengths are compared over the same rollouts.  Step 0, before training, is the first point.

    Args:
      rollouts: (s,), total rollouts so far, not falling, the first one 0; scores: (s,).
      until: R > 0, at most rollouts[-1].
    Raises:
      ValueError: the curve does not span [0, R].
    """
    x, y = _curve(rollouts, scores)
    if x[0] != 0 or until <= 0:
        raise ValueError(
            f"a curve from {x[0]:g} to {until:g} rollouts: expected one from 0 upwards"
        )
    end = value_at(x, y, until)
    inside = x < until
    return float(np.trapezoid(np.append(y[inside], end), np.append(x[inside], until)) / until)


def rollouts_to_threshold(
    rollouts: Sequence[float], scores: Sequence[float], threshold: float, until: float = math.inf
) -> float | None:
    """Rollouts at which the curve first reaches the threshold, interpolated linearly.

    The curve is read up to `until` rollouts.  None where it stays below: the run is censored there.
    """
    x, y = _curve(rollouts, scores)
    above = np.flatnonzero(y >= threshold)
    if not above.size:
        return None
    i = int(above[0])
    if i == 0:
        crossing = float(x[0])
    else:
        share = (threshold - y[i - 1]) / (y[i] - y[i - 1])
        crossing = float(x[i - 1] + share * (x[i] - x[i - 1]))
    return crossing if crossing <= until else None


def restricted_mean(crossings: Sequence[float | None], until: float) -> float:
    """Mean of min(T, R): censored runs count as R, so it is a lower bound of the mean of T.

    The restricted mean survival time with horizon R = `until` (Royston & Parmar 2013), whose estimate
    is this plain mean as long as all runs are followed up to R.
    """
    return float(np.mean([until if c is None else min(c, until) for c in crossings]))


@dataclasses.dataclass(frozen=True)
class SignFlip:
    """Result of a sign-flip test: the mean difference, its two-sided p, and how that was reckoned.

    assignments: 2^n where all were enumerated (`exact`), else how many were drawn.
    """

    mean: float
    p: float
    exact: bool
    assignments: int


def sign_flip_test(
    differences: Sequence[float], resamples: int = 100_000, seed: int = 0
) -> SignFlip:
    """Paired permutation test of "the differences are symmetric about 0" (Fisher 1935, §21).

    Two-sided: p is the share of sign assignments whose |Σ s_i d_i| is at least the observed |Σ d_i|.
    All 2^n are enumerated up to n = 16, so p is never below 2 / 2^n; beyond that `resamples` are drawn
    and p = (1 + hits) / (1 + resamples) (Phipson & Smyth 2010), which is never 0.

    Raises:
      ValueError: no differences, or one that is not finite.
    """
    d = np.asarray(differences, float)
    if d.ndim != 1 or not d.size or not np.isfinite(d).all():
        raise ValueError("a sign-flip test needs at least one difference, all of them finite")
    observed = abs(d.sum()) - _SLACK * np.abs(d).sum()
    if len(d) <= EXACT_LIMIT:
        sums = np.zeros(1)
        for value in d:
            sums = np.concatenate([sums + value, sums - value])
        p, count, exact = float(np.mean(np.abs(sums) >= observed)), len(sums), True
    else:
        rng, hits, left = np.random.default_rng(seed), 0, resamples
        while left:
            rows = min(left, 10_000)
            sums = (2.0 * rng.integers(0, 2, (rows, len(d))) - 1.0) @ d
            hits, left = hits + int((np.abs(sums) >= observed).sum()), left - rows
        p, count, exact = (1 + hits) / (1 + resamples), resamples, False
    return SignFlip(float(d.mean()), p, exact, count)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values, in the order given (Holm 1979).

    Of the k-th smallest of m: max_{j ≤ k} min(1, (m − j + 1) p_(j)).  Rejecting those below 0.05 keeps
    the chance of any false rejection below 0.05, whatever the dependence.
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, largest = [0.0] * len(order), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


Interval = tuple[float, float]


def bootstrap_interval(
    values: Sequence[float],
    statistic: Callable[..., np.ndarray] = np.mean,
    resamples: int = 10_000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Interval | None:
    """Percentile bootstrap interval over runs (Efron 1979).

    Of paired differences it is an interval of the paired mean.  `statistic(samples, axis=1)` maps
    (resamples, n) to (resamples,).  With few runs it is too narrow: of 8 normal values the 95 % interval
    of the mean covers it about 90 % of the time; `t_interval` is the one to compare it with.

    Returns None for fewer than two values, about whose spread nothing is known.
    """
    x = np.asarray(values, float)
    if len(x) < 2:
        return None
    rows = np.random.default_rng(seed).integers(0, len(x), (resamples, len(x)))
    tail = 50.0 * (1.0 - confidence)
    low, high = np.percentile(statistic(x[rows], axis=1), (tail, 100.0 - tail))
    return float(low), float(high)


def bootstrap_band(
    values: np.ndarray, resamples: int = 2000, confidence: float = 0.95, seed: int = 0
) -> np.ndarray | None:
    """Pointwise percentile intervals (2, s) of the mean of curves (runs, s); None for one run."""
    if len(values) < 2:
        return None
    rows = np.random.default_rng(seed).integers(0, len(values), (resamples, len(values)))
    # Means as a product with counts: (resamples, runs) @ (runs, s).
    counts = np.stack([(rows == i).sum(axis=1) for i in range(len(values))], axis=1)
    tail = 50.0 * (1.0 - confidence)
    return np.percentile(counts @ values / len(values), (tail, 100.0 - tail), axis=0)


def standard_error(values: Sequence[float]) -> float | None:
    """s / √n with the sample standard deviation s (n − 1); None for fewer than two values."""
    x = np.asarray(values, float)
    return float(x.std(ddof=1) / math.sqrt(len(x))) if len(x) > 1 else None


def t_interval(values: Sequence[float], confidence: float = 0.95) -> Interval | None:
    """mean ± t_{n−1} · s / √n (Student 1908); None for fewer than two values."""
    error = standard_error(values)
    if error is None:
        return None
    half = float(stats.t.ppf(0.5 + confidence / 2, len(values) - 1)) * error
    mean = float(np.mean(values))
    return mean - half, mean + half


def interquartile_mean(values: Sequence[float]) -> float:
    """Mean of the middle half: ⌊n/4⌋ values fall off at each end.

    The IQM of Agarwal et al. 2021 (arXiv 2108.13264, rliable's `aggregate_iqm`).
    """
    return float(stats.trim_mean(np.asarray(values, float), 0.25, axis=None))


def probability_of_improvement(x: Sequence[float], y: Sequence[float]) -> float:
    """P(X > Y) + P(X = Y) / 2 over all pairs of runs of two arms: U / (n m) of Mann and Whitney.

    Agarwal et al. 2021 (arXiv 2108.13264, rliable's `probability_of_improvement`), for one task.  It
    ignores the pairing of seeds.
    """
    a, b = np.asarray(x, float)[:, None], np.asarray(y, float)[None, :]
    if not a.size or not b.size:
        raise ValueError("the probability of improvement needs runs of both arms")
    return float(np.mean((a > b) + 0.5 * (a == b)))


def improvement_interval(
    x: Sequence[float],
    y: Sequence[float],
    resamples: int = 2000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Interval | None:
    """Percentile interval of `probability_of_improvement`: both arms' runs are drawn anew, apart.

    The stratified bootstrap of rliable, for one task.  None where an arm has fewer than two runs.
    """
    a, b = np.asarray(x, float), np.asarray(y, float)
    if len(a) < 2 or len(b) < 2:
        return None
    rng = np.random.default_rng(seed)
    # P over resamples is a product of counts with the table of comparisons.
    table = (a[:, None] > b[None, :]) + 0.5 * (a[:, None] == b[None, :])
    left = rng.multinomial(len(a), np.full(len(a), 1 / len(a)), resamples) / len(a)
    right = rng.multinomial(len(b), np.full(len(b), 1 / len(b)), resamples) / len(b)
    drawn = np.einsum("ri,ij,rj->r", left, table, right)
    tail = 50.0 * (1.0 - confidence)
    low, high = np.percentile(drawn, (tail, 100.0 - tail))
    return float(low), float(high)


def conditional_value_at_risk(values: Sequence[float], share: float = 0.2) -> float:
    """CVaR: the mean of the lowest `share` of the values, the last of them counted in part.

    With m = share · n: (Σ of the ⌊m⌋ lowest + (m − ⌊m⌋) · the next) / m, which is (1/share) ∫_0^share of
    the quantile function (Rockafellar & Uryasev 2000); over tasks as in arXiv 2408.15099.

    Args:
      values: success of tasks, or of strata; at least one.
      share: in (0, 1].
    """
    x = np.sort(np.asarray(values, float))
    if not x.size or not 0 < share <= 1:
        raise ValueError(
            f"CVaR of {x.size} values at {share}: expected some, and a share in (0, 1]"
        )
    weights = np.clip(share * len(x) - np.arange(len(x)), 0.0, 1.0)
    return float(weights @ x / weights.sum())
