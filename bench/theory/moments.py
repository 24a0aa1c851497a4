"""Proposition 1: estimates of E‖g‖² from one task's rollouts, and what they say over many tasks.

With r in {0, 1}, Pr[r = 1] = p, g = (r − p) s and s = ∇ log π(y):

    E‖g‖² = p (1−p) [(1−p) S₁ + p S₀],    S₁ = E[‖s‖² | r = 1],  S₀ = E[‖s‖² | r = 0]

The paper's statement is that the bracket is a constant.  Three things follow whatever the policy is.
Where S₁ = S₀ the bracket is E‖s‖² = p S₁ + (1−p) S₀.  At p = 1/2 E‖g‖² is E‖s‖² / 4.  And where only
failures surprise the policy (S₁ much below S₀), E‖g‖² / E‖s‖² is p², which has no peak at 1/2.  So what
there is to measure is how S₁, S₀ and E‖s‖² change from task to task.

E‖g‖² is signal and noise together.  The signal is ‖E g‖² = ‖∇p‖²; for a policy of one logit, whose p is
a sigmoid, it is (p(1−p))², while E‖g‖² = p(1−p) (1 − 3 p(1−p)) has a valley at 1/2.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

_GRID = np.linspace(0.0, 1.0, 1001)
_RESAMPLES = 2000


def squared_gradient(successes: np.ndarray, score_squares: np.ndarray) -> float:
    """Unbiased estimate of E‖g‖² of single rollouts, with the unknown p in place of p̂.

    Since r² = r, E‖g‖² = E[r‖s‖²] − 2 p E[r‖s‖²] + p² E‖s‖², and each product is the mean over distinct
    rollouts (a U-statistic of order 3; Hoeffding 1948).  It may be negative.  Where p̂ stood in for p it
    would be biased: by (−1/n + O(1/n²)) of itself if ‖s‖² is constant.

    Args:
      successes: (n,), 0 or 1; n >= 3.
      score_squares: (n,), ‖∇ log π(y_i)‖².
    """
    r, c = np.asarray(successes, float), np.asarray(score_squares, float)
    n, k = r.size, r.sum()
    of_success, of_failure = (r * c).sum(), ((1 - r) * c).sum()
    first = of_success / n
    second = of_success * (k - 1) / (n * (n - 1))
    third = (of_success * (k - 1) * (k - 2) + of_failure * k * (k - 1)) / (n * (n - 1) * (n - 2))
    return float(first - 2 * second + third)


def success_variance(successes: int, attempts: int) -> float:
    """Unbiased estimate k (n−k) / (n (n−1)) of p (1−p); n >= 2."""
    return successes * (attempts - successes) / (attempts * (attempts - 1))


def bootstrapped(
    statistic: Callable[[np.ndarray], Any], count: int, seed: int
) -> list[tuple[float, float]]:
    """95 % bootstrap intervals over tasks.

    Args:
      statistic: numbers of the tasks whose indices it is given; None of a draw that says nothing.
      count: how many tasks there are.
    """
    rng = np.random.default_rng(seed)
    drawn = (statistic(rng.integers(0, count, count)) for _ in range(_RESAMPLES))
    ends = np.percentile([values for values in drawn if values is not None], (2.5, 97.5), axis=0)
    return [(float(low), float(high)) for low, high in ends.T]


def binned(
    p: np.ndarray, values: np.ndarray, edges: Sequence[float], seed: int = 0
) -> list[dict[str, Any]]:
    """Means of `values` over ranges of p, empty ranges left out; the last range includes its end.

    Returns:
      a dict each: "low" and "high", the range; "count", its tasks; "p", their mean success rate; "mean" of
      the quantity, and its "interval", None of fewer than 3 tasks.
    """
    p, values, edges = np.asarray(p, float), np.asarray(values, float), np.asarray(edges, float)
    at = np.clip(np.searchsorted(edges, p, "right") - 1, 0, edges.size - 2)
    found = []
    for i, (low, high) in enumerate(itertools.pairwise(edges)):
        here = values[at == i]
        if not here.size:
            continue
        interval = None
        if here.size >= 3:
            (interval,) = bootstrapped(lambda rows, x=here: [x[rows].mean()], here.size, seed)
        found.append(
            {
                "low": float(low), "high": float(high), "count": here.size,
                "p": float(p[at == i].mean()), "mean": float(here.mean()), "interval": interval,
            }
        )  # fmt: skip
    return found


@dataclasses.dataclass(frozen=True)
class Fit:
    """Curves fitted to many tasks; intervals are 95 % bootstrap over the tasks.

    Attributes:
      c, c_interval: of c · p(1−p): Σ y / Σ x with x the unbiased estimate of p(1−p).  It is least squares
        with weights 1/x, and consistent where p is known with an error, which plain least squares is not.
      explained: share of the variance of y over tasks that c · x explains (R²; may be negative).
      s1, s0: of p(1−p) [(1−p) s1 + p s0], at least 0, by the same weights: the module's formula, were
        S₁ and S₀ the same for all tasks.
      peak, peak_interval: where that curve is highest, in [1/3, 2/3]; above 1/2 where s0 > s1.
      square_c: of c · (p(1−p))², the same way.
      correlation: Spearman's, of y and x over tasks.
    """

    c: float
    c_interval: tuple[float, float]
    explained: float
    s1: float
    s0: float
    peak: float
    peak_interval: tuple[float, float]
    square_c: float
    correlation: float


def fit_variance_curve(
    p: np.ndarray, variance: np.ndarray, values: np.ndarray, seed: int = 0
) -> Fit | None:
    """Fits `Fit` to T tasks.

    Args:
      p: (T,) success rates, estimated from other rollouts than `values`.
      variance: (T,) unbiased estimates of p(1−p), from the same rollouts as p.
      values: (T,) what is to follow the curves.
    Returns:
      None where fewer than three tasks have both successes and failures.
    """
    from scipy.stats import spearmanr

    p, x, y = (np.asarray(a, float) for a in (p, variance, values))
    if (x > 0).sum() < 3:
        return None
    c, s1, s0, peak = _curves(p, x, y)

    def ends(rows: np.ndarray) -> tuple[float, float] | None:
        if (x[rows] > 0).sum() < 3:
            return None
        drawn_c, _, _, drawn_peak = _curves(p[rows], x[rows], y[rows])
        return drawn_c, drawn_peak

    of_c, of_peak = bootstrapped(ends, p.size, seed)
    spread = np.square(y - y.mean()).sum()
    explained = float(1 - np.square(y - c * x).sum() / spread) if spread else 0.0
    square_c = float(y.sum() / np.square(x).sum())
    rank = float(spearmanr(x, y).statistic) if spread and np.ptp(x) else 0.0
    return Fit(c, of_c, explained, s1, s0, peak, of_peak, square_c, rank)


def _curves(p: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[float, float, float, float]:
    """(c, s1, s0, peak) of `Fit`."""
    from scipy.optimize import nnls

    here = x > 0
    root = np.sqrt(x[here])
    design = root[:, None] * np.stack([1 - p[here], p[here]], axis=1)
    (s1, s0), _ = nnls(design, y[here] / root)
    peak = _GRID[np.argmax(_GRID * (1 - _GRID) * ((1 - _GRID) * s1 + _GRID * s0))]
    return float(y.sum() / x.sum()), float(s1), float(s0), float(peak) if s1 + s0 else 0.5


def spread_over_rates(
    successes: np.ndarray, attempts: int, count: int, bins: int = 10
) -> list[int]:
    """Indices of up to `count` tasks whose p̂ = successes / attempts lie as evenly as they can in [0, 1].

    Ranges of p̂ take turns; within one, tasks keep their order.
    """
    p_hat = np.asarray(successes, float) / attempts
    at = np.minimum((p_hat * bins).astype(int), bins - 1)
    ranges = [list(np.flatnonzero(at == i)) for i in range(bins)]
    chosen: list[int] = []
    while len(chosen) < count and any(ranges):
        for members in ranges:
            if members and len(chosen) < count:
                chosen.append(int(members.pop(0)))
    return sorted(chosen)


def median_ratio(
    top: Sequence[float], bottom: Sequence[float], seed: int = 0
) -> tuple[float, tuple[float, float]] | None:
    """Median over tasks of top / bottom, and its 95 % bootstrap interval; None of fewer than 3 tasks."""
    ratio = np.asarray(top, float) / np.asarray(bottom, float)
    if ratio.size < 3:
        return None
    (interval,) = bootstrapped(lambda rows: [np.median(ratio[rows])], ratio.size, seed)
    return float(np.median(ratio)), interval
