"""How hard a task is for the agent, and what that is worth: estimates and scores.

An estimate from k successes of n attempts is noisy where n is small: at n = 4 its standard error is a
quarter.  The Bayesian estimates here share strength between tasks through a Beta prior that is fitted to
all of them; the scores say what training on a task of a given difficulty is worth.

Pure NumPy and SciPy on the host, in float64, elementwise over arrays that broadcast.  A pair (a, b) is a
Beta distribution of the success rate p, in which a and b count like past successes and failures.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from genenv_jax.rl.rewards import curriculum_reward, success_rate

Beta = tuple[np.ndarray, np.ndarray]

# Bounds of a fitted prior's strength a0 + b0, in attempts.  Below the lower one a posterior is as good as
# k / n; above the upper one a prior would outvote a hundred attempts of the task itself.
WEAKEST, STRONGEST = 0.1, 100.0
# The strength where nothing can be fitted: as much as one attempt.
FALLBACK = 1.0

_QUANTILES = 512  # of a Beta distribution, over which an expectation is taken


# -- estimates ---------------------------------------------------------------------------------------


def fit_beta_prior(successes, attempts) -> tuple[float, float]:
    """The Beta distribution of success rates over tasks, fitted by moments.

    With m the weighted mean of p̂_i = s_i / n_i, S = Σ w_i (p̂_i - m)², W = Σ w_i,
    C = Σ (w_i / n_i)(1 - w_i / W) and D = Σ w_i (1 - w_i / W), the over-dispersion
    ρ = 1 / (a0 + b0 + 1) has the moment estimate

        ρ = (S / (m (1 - m)) - C) / (D - C),

    which for equal attempts is V / (m (1 - m)) with V = (var p̂ - m (1 - m) / n) / (1 - 1 / n), the
    variance of p̂ less what binomial noise adds.  Weights w_i = n_i / (1 + ρ (n_i - 1)), first with ρ = 0
    and then with the ρ found (Kleinman, 1973, "Proportions with extraneous variance", JASA 68).

    What the data cannot say is bounded:
      * ρ is at least sqrt(2 / (T - 1)) / (D / C - 1) for T tasks, its standard error with w_i = n_i
        where all tasks are equally hard (S / (m (1 - m)) is then about χ² of T - 1 degrees).  So a
        variance that comes out at or below zero means "as equal as T tasks can show" rather than
        "equal", and few tasks make a weak prior whatever their variance.
      * a0 + b0 is within [WEAKEST, STRONGEST].
      * Where nothing can be fitted (fewer than two tasks, none with two attempts, or all attempts alike)
        the prior is the weak one of strength FALLBACK about (s + 1/2) / (n + 1) of all attempts, which
        is Beta(1/2, 1/2) without any.

    Args:
      successes, attempts: of each task, any shape; tasks without attempts are left out.  Counts may be
        discounted, and so fractional.
    Returns:
      (a0, b0), both positive and finite.
    Raises:
      ValueError: counts that are not finite, negative, or more successes than attempts.
    """
    s, n = _counts(successes, attempts)
    s, n = s[n > 0], n[n > 0]
    p_hat = success_rate(s, n)
    pooled = (s.sum() + 0.5) / (n.sum() + 1.0)
    weak = FALLBACK * pooled, FALLBACK * (1.0 - pooled)
    if len(s) < 2 or s.sum() <= 0 or s.sum() >= n.sum():
        return float(weak[0]), float(weak[1])
    rho, floor = 0.0, None
    for _ in range(4):
        w = n / np.maximum(1.0 + rho * (n - 1.0), 1e-12)
        rest = 1.0 - w / w.sum()
        mean = (w * p_hat).sum() / w.sum()
        scatter = (w * np.square(p_hat - mean)).sum() / (mean * (1.0 - mean))
        noise, spread = (w / n * rest).sum(), (w * rest).sum()
        if spread <= noise * (1.0 + 1e-9):  # one attempt a task says nothing of their variance
            return float(weak[0]), float(weak[1])
        if floor is None:
            floor = min(math.sqrt(2.0 / (len(s) - 1)) / (spread / noise - 1.0), 1.0)
        rho = float(np.clip((scatter - noise) / (spread - noise), floor, 1.0))
    strength = float(np.clip(1.0 / rho - 1.0, WEAKEST, STRONGEST))
    return float(strength * mean), float(strength * (1.0 - mean))


def posterior(successes, attempts, prior) -> Beta:
    """(a0 + s, b0 + n - s): the Beta distribution of p after s successes in n attempts.

    Args:
      successes, attempts: arrays that broadcast with those of the prior.
      prior: (a0, b0), numbers for all tasks or an array for each.
    Raises:
      ValueError: counts that are not finite, negative, or more successes than attempts; a prior that is
        not positive.
    """
    s, n = _counts(successes, attempts)
    a0, b0 = _beta(prior)
    return a0 + s, b0 + (n - s)


def posterior_mean(a, b) -> np.ndarray:
    """a / (a + b), the expectation of p under Beta(a, b)."""
    a, b = _beta((a, b))
    return a / (a + b)


# -- scores ------------------------------------------------------------------------------------------


def expected_curriculum_reward(a, b, alpha: float, beta: float) -> np.ndarray:
    """E[exp(-β (p - α)²)] for p ~ Beta(a, b): the α-curriculum reward (Eq. 3) of an uncertain p.

    The plain reward of k / n takes a lucky k for the truth; this one averages over what p may be: over
    `_QUANTILES` equally likely quantiles, which is exact within 1e-4 for β up to 4, and 5e-4 up to 100.

    Args:
      a, b: positive arrays that broadcast; NaN where unknown.
      alpha, beta: of the reward.
    Returns:
      float64 in [0, 1]; NaN where a or b is.
    Raises:
      ValueError: a or b not positive or infinite.
    """
    a, b = _beta((a, b), nan=True)
    shares = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
    p = stats.beta.ppf(shares, a[..., None], b[..., None])
    return curriculum_reward(p, alpha, beta).mean(axis=-1)


def learnability(successes, attempts) -> np.ndarray:
    """4 s (n - s) / (n (n - 1)): the unbiased estimate of 4 p (1 - p), in [0, n / (n - 1)].

    The plug-in 4 p̂ (1 - p̂) has expectation (1 - 1 / n) 4 p (1 - p).  NaN where n < 2: one attempt does
    not tell 0 from 1/4, and unknown is not worthless; `expected_learnability` has an answer there.
    Source: SFL (Rutherford et al., 2024, arXiv 2408.15099) for p (1 - p), with the usual correction.
    """
    s, n = _counts(successes, attempts)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(n > 1, 4.0 * s * (n - s) / (n * (n - 1.0)), np.nan)


def expected_learnability(a, b) -> np.ndarray:
    """E[4 p (1 - p)] = 4 a b / ((a + b)(a + b + 1)) for p ~ Beta(a, b)."""
    a, b = _beta((a, b))
    return 4.0 * (a / (a + b)) * (b / (a + b + 1.0))


def learning_progress(p_before, p_now) -> np.ndarray:
    """|p_now - p_before|: what has changed, for better or worse, is being learned or forgotten.

    Source: TSCL (Matiisen et al., 2017, arXiv 1707.00183), there the slope of a score.  Noise counts as
    progress: a task of constant p has the expectation sqrt(2 p (1 - p) (1/n + 1/n') / π) or so, which
    `corrected_learning_progress` takes off.
    """
    return np.abs(np.asarray(p_now, float) - np.asarray(p_before, float))


def corrected_learning_progress(
    successes_before, attempts_before, successes_now, attempts_now
) -> np.ndarray:
    """|Δp̂| less its expectation if nothing had changed, so that noise alone earns nothing on average.

    Without change, and given that s of all n + n' attempts succeeded, the successes now are
    hypergeometric whatever p is (the conditioning of Fisher's exact test).  So

        |Δp̂| - E[|Δp̂| | s, n, n'],   the expectation over Hypergeometric(n + n', s, n')

    has expectation exactly 0 for a task of constant p, a coin flip as well as a certainty.  It may be
    negative: clipping it at 0 would pay for noise again, so clip (if at all) after averaging.

    Args:
      successes_before, attempts_before, successes_now, attempts_now: whole numbers, which broadcast.
    Returns:
      float64 in (-1, 1); NaN where either has no attempts.
    Raises:
      ValueError: counts that are not whole, negative, or more successes than attempts.
    """
    before, now = _counts(successes_before, attempts_before), _counts(successes_now, attempts_now)
    s0, n0, s1, n1 = np.broadcast_arrays(*before, *now)
    counts = np.stack([n0.ravel(), n1.ravel(), (s0 + s1).ravel()], axis=1)
    if (counts % 1).any() or (s1 % 1).any():
        raise ValueError("learning progress: expected whole numbers of successes and attempts")
    unique, inverse = np.unique(counts.astype(np.int64), axis=0, return_inverse=True)
    chance = np.array([_chance_progress(*map(int, row)) for row in unique])
    progress = learning_progress(success_rate(s0, n0), success_rate(s1, n1))
    return progress - chance[inverse.reshape(-1)].reshape(progress.shape)


# -- parts -------------------------------------------------------------------------------------------


def _counts(successes, attempts) -> tuple[np.ndarray, np.ndarray]:
    """Both as float64 of one shape; ValueError where they cannot be counts."""
    s, n = np.broadcast_arrays(np.asarray(successes, float), np.asarray(attempts, float))
    if not (np.isfinite(s) & np.isfinite(n) & (s >= 0) & (s <= n)).all():
        raise ValueError("expected finite counts with 0 <= successes <= attempts")
    return s, n


def _beta(parameters, *, nan: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """(a, b) as float64; ValueError where one is not positive and finite (or NaN, if that is allowed)."""
    a, b = parameters
    a, b = np.asarray(a, float), np.asarray(b, float)
    for x in (a, b):
        if not ((x > 0) & (x < np.inf) | (np.isnan(x) if nan else False)).all():
            raise ValueError("expected positive, finite parameters of a Beta distribution")
    return a, b


def _chance_progress(before: int, now: int, successes: int) -> float:
    """E|x / now - (successes - x) / before| for x ~ Hypergeometric(before + now, successes, now)."""
    if not before or not now:
        return math.nan
    x = np.arange(max(0, successes - before), min(now, successes) + 1)
    probability = stats.hypergeom.pmf(x, before + now, successes, now)
    return float((probability * np.abs(x / now - (successes - x) / before)).sum())
