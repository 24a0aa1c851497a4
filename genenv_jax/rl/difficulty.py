"""How hard a task is for the agent, and what that is worth: estimates and scores.

An estimate from k successes of n attempts is noisy where n is small: at n = 4 its standard error is a
quarter.  The Bayesian estimates here share strength between tasks through a Beta prior that is fitted to
all of them; the scores say what training on a task of a given difficulty is worth.

Pure NumPy and SciPy on the host, in float64, elementwise over arrays that broadcast.  A pair (a, b) is a
Beta distribution of the success rate p, in which a and b count like past successes and failures.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from scipy import stats

from genenv_jax.rl.rewards import success_rate

Beta = tuple[np.ndarray, np.ndarray]

# Bounds of a fitted prior's strength a0 + b0, in attempts.  Below the lower one a posterior is as good as
# k / n; above the upper one a prior would outvote a hundred attempts of the task itself.
WEAKEST, STRONGEST = 0.1, 100.0
# The strength where nothing can be fitted: as much as one attempt.
FALLBACK = 1.0

# Nodes of the quadrature at most, and how many matrices of them are decomposed at once.
_MOST_NODES, _AT_ONCE = 256, 1024


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


def forget(counts, forgetting: float, prior) -> Beta:
    """(1 - l) (a, b) + l (a0, b0): what is still believed of an agent that has been trained since.

    Before an epoch's attempts are added: `posterior(s, n, forget(counts, l, prior))` is the update
    a <- (1 - l) a + l a0 + s, b <- (1 - l) b + l b0 + n - s of BOTS (arXiv 2510.26374) with explicit
    evidence only.  With n attempts every time, a + b tends to a0 + b0 + n / l.

    Args:
      counts: (a, b) as they were.
      forgetting: l in [0, 1]: 0 keeps everything, 1 returns to the prior.
      prior: (a0, b0), numbers or arrays that broadcast.
    Raises:
      ValueError: l outside [0, 1]; a, b, a0 or b0 not positive.
    """
    if not 0.0 <= forgetting <= 1.0:
        raise ValueError(f"forgetting = {forgetting!r}: expected a number in [0, 1]")
    (a, b), (a0, b0) = _beta(counts), _beta(prior)
    return (1.0 - forgetting) * a + forgetting * a0, (1.0 - forgetting) * b + forgetting * b0


def posterior_mean(a, b) -> np.ndarray:
    """a / (a + b), the expectation of p under Beta(a, b)."""
    a, b = _beta((a, b))
    return a / (a + b)


# -- scores ------------------------------------------------------------------------------------------


def expected_curriculum_reward(a, b, alpha: float, beta: float) -> np.ndarray:
    """E[exp(-β (p - α)²)] for p ~ Beta(a, b): the α-curriculum reward (Eq. 3) of an uncertain p.

    The plain reward of k / n takes a lucky k for the truth; this one averages over what p may be.

    Gauss-Jacobi quadrature on [0, 1] with the Beta density as weight: nodes and weights are the
    eigenvalues and the squared first components of the eigenvectors of the tridiagonal matrix of the
    Jacobi polynomials' recurrence (Golub and Welsch, 1969), which needs no normalising constant and so
    neither overflows nor cancels.  The number of nodes follows from β by the error bound for functions
    that are analytic within an ellipse.  Relative error within 1e-10 for a and b from 0.01 to 1e5, where
    the result is above 1e-10; below, the error is that of 1e-10.

    Args:
      a, b: positive arrays that broadcast; NaN where unknown.
      alpha, beta: of the reward; β >= 0.
    Returns:
      float64 in [0, 1]; NaN where a or b is.
    Raises:
      ValueError: a or b not positive or infinite, α not finite, β negative or so large that 256 nodes
        will not do (some 5,000 with α in [0, 1]).
    """
    if not (math.isfinite(alpha) and math.isfinite(beta) and beta >= 0):
        raise ValueError(f"alpha = {alpha!r}, beta = {beta!r}: expected finite numbers, beta >= 0")
    nodes = _node_count(float(alpha), float(beta))
    a, b = np.broadcast_arrays(*_beta((a, b), nan=True))
    # Counts repeat: each pair once.
    pairs, inverse = np.unique(np.stack([a.ravel(), b.ravel()], 1), axis=0, return_inverse=True)
    values = np.full(len(pairs), np.nan)
    known = np.flatnonzero(np.isfinite(pairs).all(axis=1))
    for start in range(0, len(known), _AT_ONCE):
        some = known[start : start + _AT_ONCE]
        points, weights = _gauss_jacobi(pairs[some, 0], pairs[some, 1], nodes)
        values[some] = (weights * np.exp(-beta * np.square(points - alpha))).sum(axis=1)
    return np.minimum(values, 1.0)[inverse.reshape(-1)].reshape(a.shape)


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


def regret(p_reference, p) -> np.ndarray:
    """max(p_reference - p, 0): how far the agent is behind a reference on the same task, in [0, 1].

    Source: PAIRED (Dennis et al., 2020, arXiv 2012.02096), whose antagonist is the reference here: the
    agent at its start, a frozen or larger model, or a solver (p_reference = 1).  A task that nobody can
    solve has no regret.
    """
    return np.maximum(np.asarray(p_reference, float) - np.asarray(p, float), 0.0)


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


@functools.cache
def _node_count(alpha: float, beta: float) -> int:
    """Gauss nodes for exp(-β (p - α)²) on [0, 1]: to 1e-11 of the larger of its minimum and 1e-10.

    A function that is bounded by M in the ellipse of foci 0 and 1 and parameter ρ is within
    2 M ρ^-d / (ρ - 1) of a polynomial of degree d (Trefethen, 2013, "Approximation Theory and
    Approximation Practice", Theorem 8.2).  n nodes are exact for degree 2 n - 1, and their weights are
    positive with sum 1, so they err by twice that at most, under any density.  Here
    log M = β (ρ - 1/ρ)² / 16, whatever α: the imaginary part is at most (ρ - 1/ρ) / 4.
    """
    rho = np.geomspace(1.05, 1e3, 400)
    farthest = beta * max(alpha * alpha, (1.0 - alpha) * (1.0 - alpha))
    wanted = math.log(4e11) + min(farthest, math.log(1e10)) - np.log(1.0 - 1.0 / rho)
    nodes = (beta * np.square(rho - 1.0 / rho) / 16.0 + wanted) / (2.0 * np.log(rho))
    count = math.ceil(nodes.min())
    if count > _MOST_NODES:
        raise ValueError(f"beta = {beta!r}: too sharp a reward for {_MOST_NODES} nodes")
    return max(count, 4)


def _gauss_jacobi(a: np.ndarray, b: np.ndarray, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """(pairs, nodes) points and weights for the densities Beta(a, b); the weights of a pair sum to 1."""
    a, b, k = a[:, None], b[:, None], np.arange(1, nodes, dtype=float)
    s = a + b
    matrix = np.zeros((len(a), nodes, nodes))
    at = np.arange(nodes)
    # The recurrence of the Jacobi polynomials, moved from [-1, 1] to [0, 1] by hand, which spares the
    # cancellation of (1 + x) / 2 where the mass is at 0.
    matrix[:, 0, 0] = (a / s)[:, 0]
    numerator = 2.0 * k * k + 2.0 * k * (s - 1.0) + a * (s - 2.0)
    matrix[:, at[1:], at[1:]] = numerator / ((2.0 * k + s - 2.0) * (2.0 * k + s))
    # k = 1 apart: at a + b = 1 the general form is 0 / 0.
    first = (a / s) * (b / s) / (s + 1.0)
    j = k[1:]
    rest = (j / (2.0 * j + s - 3.0)) * ((j + s - 2.0) / (2.0 * j + s - 1.0))
    rest *= ((j + a - 1.0) / (2.0 * j + s - 2.0)) * ((j + b - 1.0) / (2.0 * j + s - 2.0))
    matrix[:, at[1:], at[:-1]] = np.sqrt(np.concatenate([first, rest], axis=1))
    points, vectors = np.linalg.eigh(matrix)  # reads the lower triangle only
    return points, np.square(vectors[:, 0, :])


def _chance_progress(before: int, now: int, successes: int) -> float:
    """E|x / now - (successes - x) / before| for x ~ Hypergeometric(before + now, successes, now)."""
    if not before or not now:
        return math.nan
    x = np.arange(max(0, successes - before), min(now, successes) + 1)
    probability = stats.hypergeom.pmf(x, before + now, successes, now)
    return float((probability * np.abs(x / now - (successes - x) / before)).sum())
