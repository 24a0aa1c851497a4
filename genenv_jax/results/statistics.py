"""The protocol's statistics: numbers from curves, and differences between paired seeds.

Each run is one sample, and runs are paired by seed.  Nothing here touches files.
"""

from collections.abc import Sequence

import numpy as np
import scipy  # loads scipy.stats when it is first used
from numpy.typing import ArrayLike

EXACT_LIMIT = 16  # up to 2^16 sign assignments are enumerated
_SEED = 0  # for all resampling, so that reports are reproducible


def area_under_curve(spent: Sequence[float], scores: Sequence[float], until: float) -> float:
    """Mean height of a held-out curve: (1/R) ∫_0^R score(x) dx, by the trapezoid rule.

    R = `until` is the common range of all arms, so the area is in the score's units and arms of
    different lengths are compared over the same range.  Step 0, before training, is the first point.

    Args:
      spent: (s,), tokens, rollouts or seconds so far, ascending, the first one 0; scores: (s,).
      until: R > 0, at most spent[-1].
    Raises ValueError if the curve does not span [0, R].
    """
    x, y = np.asarray(spent, float), np.asarray(scores, float)
    if not (x.size and x[0] == 0 and 0 < until <= x[-1]):
        raise ValueError(f"a curve over {x}: expected one that spans 0 to {until:g}")
    inside = x < until
    end = np.interp(until, x, y)
    return float(np.trapezoid(np.append(y[inside], end), np.append(x[inside], until)) / until)


def sign_flip_test(differences: Sequence[float], resamples: int = 100_000) -> float:
    """p of the paired permutation test of "the differences are symmetric about 0" (Fisher 1935, §21).

    Two-sided: it is the share of sign assignments whose |Σ s_i d_i| is at least the observed |Σ d_i|.
    All 2^n are enumerated up to n = 16, so p is never below 2 / 2^n; beyond that `resamples` are drawn
    and p = (1 + hits) / (1 + resamples) (Phipson & Smyth 2010), which is never 0.

    Raises ValueError without differences, or for one that is not finite.
    """
    d = np.asarray(differences, float)
    if d.ndim != 1 or not d.size or not np.isfinite(d).all():
        raise ValueError("a sign-flip test needs at least one difference, all of them finite")
    if len(d) == 1:  # scipy refuses this; both assignments are equally extreme
        return 1.0
    scale = np.abs(d).sum() or 1.0

    def size(x: np.ndarray, axis: int) -> np.ndarray:
        return np.round(np.abs(x.sum(axis=axis)) / scale, 12)  # sums that differ only by rounding are ties

    test = scipy.stats.permutation_test(
        (d,),
        size,
        permutation_type="samples",
        alternative="greater",
        vectorized=True,
        n_resamples=2**EXACT_LIMIT if len(d) <= EXACT_LIMIT else resamples,
        batch=10_000,
        rng=_SEED,
    )
    return float(test.pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values, in the order given (Holm 1979).

    For the k-th smallest of m: max_{j ≤ k} min(1, (m − j + 1) p_(j)).  Rejecting those below 0.05 keeps
    the chance of any false rejection below 0.05, however the tests depend on each other.
    """
    p = np.asarray(p_values, float)
    order, adjusted = np.argsort(p, kind="stable"), np.empty_like(p)
    steps = np.arange(len(p), 0, -1) * p[order]
    adjusted[order] = np.maximum.accumulate(np.minimum(steps, 1.0))
    return adjusted.tolist()


def bootstrap_interval(sample: ArrayLike, resamples: int = 10_000) -> np.ndarray | None:
    """Percentile 95 % bootstrap interval of the mean over runs (Efron 1979).

    For paired differences, it is an interval of the paired mean.  With few runs it is too narrow: for 8
    normal values, it covers the mean about 90 % of the time; compare it with `t_interval`.

    Args:
      sample: (runs,), or curves (runs, s), whose intervals are pointwise.
    Returns:
      (2,) or (2, s), low and high; None for fewer than two runs, whose spread is unknown.
    """
    if len(sample) < 2:
        return None
    interval = scipy.stats.bootstrap(
        (np.asarray(sample, float),),
        np.mean,
        axis=0,
        method="percentile",
        vectorized=True,
        n_resamples=resamples,
        rng=_SEED,
    ).confidence_interval
    return np.stack([interval.low, interval.high])


def t_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float] | None:
    """mean ± t_{n−1} · s / √n (Student 1908); None for fewer than two values."""
    if len(values) < 2:
        return None
    mean, error = float(np.mean(values)), float(scipy.stats.sem(values))
    half = float(scipy.stats.t.ppf(0.5 + confidence / 2, len(values) - 1)) * error
    return mean - half, mean + half
