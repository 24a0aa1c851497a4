"""Estimates and scores of difficulty against closed forms, quadrature, long arithmetic and simulation."""

import decimal
import itertools
import math

import numpy as np
import pytest
from scipy import stats

from genenv_jax.rl import difficulty
from genenv_jax.rl.rewards import curriculum_reward

# -- the prior ---------------------------------------------------------------------------------------


def simulated(rng, draw, tasks, attempts):
    n = rng.choice(attempts, tasks)
    p = draw(rng, tasks)
    return p, rng.binomial(n, p), n


def test_prior_of_equal_attempts_is_the_formula():
    """V = (var p̂ - m (1 - m) / n) / (1 - 1 / n) and a0 + b0 = m (1 - m) / V - 1, by hand."""
    s = np.array([0, 1, 2, 3, 4, 4, 1, 0])
    m, variance = 15 / 32, np.var(s / 4, ddof=1)
    v = (variance - m * (1 - m) / 4) / (3 / 4)
    strength = m * (1 - m) / v - 1
    a0, b0 = difficulty.fit_beta_prior(s, np.full(8, 4))
    assert (a0, b0) == pytest.approx((m * strength, (1 - m) * strength), rel=1e-12)


@pytest.mark.parametrize("attempts", [[10], [4], [1, 2, 4, 16]])
@pytest.mark.parametrize(("a", "b"), [(2.0, 2.0), (0.5, 2.0), (8.0, 4.0)])
def test_prior_is_recovered_from_many_tasks(a, b, attempts):
    rng = np.random.default_rng(0)
    _, s, n = simulated(rng, lambda r, t: r.beta(a, b, t), 20_000, attempts)
    got = difficulty.fit_beta_prior(s, n)
    assert got[0] / sum(got) == pytest.approx(a / (a + b), abs=0.01)
    assert sum(got) == pytest.approx(a + b, rel=0.12)


@pytest.mark.parametrize(("strength", "attempts"), [(100.0, [2, 64]), (0.3, [2, 64])])
def test_prior_weighs_tasks_by_what_they_tell(strength, attempts):
    """Where tasks are much alike every attempt counts, where they differ every task does.

    The mean of the prior is nearly as near to the truth as the better of the two plain means.
    """
    rng = np.random.default_rng(8)
    errors = []
    for _ in range(200):
        n = rng.choice(attempts, 40, p=[0.8, 0.2])
        s = rng.binomial(n, rng.beta(0.3 * strength, 0.7 * strength, 40))
        a0, b0 = difficulty.fit_beta_prior(s, n)
        means = np.array([a0 / (a0 + b0), s.sum() / n.sum(), (s / n).mean()])
        errors.append(np.square(means - 0.3))
    fitted, pooled, plain = np.sqrt(np.mean(errors, axis=0))
    assert max(pooled, plain) > 1.5 * min(pooled, plain)
    assert fitted < 1.2 * min(pooled, plain)


WORLDS = {
    "middling": lambda r, t: r.beta(2, 2, t),
    "skewed": lambda r, t: r.beta(0.5, 2, t),
    "bimodal": lambda r, t: r.choice([0.02, 0.98], t),
    "alike": lambda r, t: np.full(t, 0.3),
}


@pytest.mark.parametrize("attempts", [[4], [2, 4, 16]])
@pytest.mark.parametrize("world", WORLDS)
def test_shrinkage_brings_estimates_nearer_to_the_truth(world, attempts):
    """At worst as good as k / n, unlike Laplace's rule, which is worse where tasks are all or nothing."""
    rng = np.random.default_rng(1)
    errors = {"k / n": [], "fitted": [], "laplace": []}
    for _ in range(60):
        p, s, n = simulated(rng, WORLDS[world], 64, attempts)
        for name, prior in [("fitted", difficulty.fit_beta_prior(s, n)), ("laplace", (1.0, 1.0))]:
            estimate = difficulty.posterior_mean(*difficulty.posterior(s, n, prior))
            errors[name].append(np.square(estimate - p).mean())
        errors["k / n"].append(np.square(s / n - p).mean())
    rmse = {name: math.sqrt(np.mean(values)) for name, values in errors.items()}
    want = {"middling": 0.8, "skewed": 0.85, "bimodal": 1.01, "alike": 0.35}[world]
    assert rmse["fitted"] < want * rmse["k / n"], rmse
    if world == "bimodal":
        assert rmse["laplace"] > 1.5 * rmse["k / n"], rmse
    elif world != "middling":
        assert rmse["fitted"] < rmse["laplace"], rmse


@pytest.mark.parametrize(
    ("s", "n", "want"),
    [
        ([], [], (0.5, 0.5)),
        ([0, 0], [0, 0], (0.5, 0.5)),
        ([3], [4], (0.7, 0.3)),  # (3 + 1/2) / 5
        ([0, 0, 0], [4, 4, 4], (0.5 / 13, 12.5 / 13)),
        ([4, 4], [4, 4], (8.5 / 9, 0.5 / 9)),
        ([1, 0, 1], [1, 1, 1], (2.5 / 4, 1.5 / 4)),  # single attempts tell nothing of the spread
    ],
)
def test_prior_where_nothing_can_be_fitted(s, n, want):
    assert difficulty.fit_beta_prior(s, n) == pytest.approx(want, rel=1e-12)


def test_prior_where_the_variance_is_not_positive():
    """As strong as so many equal tasks can show: 1 / ρ - 1 with ρ = sqrt(2 / (T - 1)) / (n - 1)."""
    for tasks, n in [(3, 4), (9, 4), (51, 4), (51, 10)]:
        a0, b0 = difficulty.fit_beta_prior(np.full(tasks, n // 2), np.full(tasks, n))
        want = max((n - 1) / math.sqrt(2 / (tasks - 1)) - 1, difficulty.WEAKEST)
        assert (a0, b0) == pytest.approx((want / 2, want / 2), rel=1e-9)
    many = difficulty.fit_beta_prior(np.full(10_000, 5), np.full(10_000, 10))
    assert sum(many) == pytest.approx(difficulty.STRONGEST)


def test_prior_is_bounded_whatever_the_counts():
    rng = np.random.default_rng(2)
    assert sum(difficulty.fit_beta_prior([0, 4] * 50, [4] * 100)) == pytest.approx(0.1)
    for _ in range(500):
        n = rng.integers(0, 6, rng.integers(0, 8)) * rng.choice([1.0, 0.3])
        a0, b0 = difficulty.fit_beta_prior(rng.uniform(0, 1, len(n)).round() * n, n)
        assert a0 > 0
        assert b0 > 0
        assert 0.1 <= a0 + b0 + 1e-9 <= 100.1


def test_tasks_without_attempts_do_not_count():
    s, n = [1, 0, 4, 2, 0], [4, 4, 4, 4, 4]
    want = difficulty.fit_beta_prior(s, n)
    assert difficulty.fit_beta_prior([0, *s, 0], [0, *n, 0]) == want
    assert difficulty.fit_beta_prior(np.reshape(s, (1, 5)), 4) == want


@pytest.mark.parametrize(("s", "n"), [(2, 1), (-1, 3), (np.nan, 3), (1, np.inf), ([1, 2], [2, 1])])
def test_counts_that_cannot_be(s, n):
    for function in (
        difficulty.fit_beta_prior,
        difficulty.learnability,
        lambda s, n: difficulty.posterior(s, n, (1, 1)),
        lambda s, n: difficulty.corrected_learning_progress(1, 2, s, n),
    ):
        with pytest.raises(ValueError, match="0 <= successes <= attempts"):
            function(s, n)


# -- the posterior -----------------------------------------------------------------------------------


def test_posterior_is_bayes_rule():
    """Its density is proportional to prior times binomial likelihood, on a grid."""
    a, b = difficulty.posterior(3, 7, (0.7, 1.9))
    p = np.linspace(0.01, 0.99, 99)
    ratio = stats.beta.pdf(p, a, b) / (stats.beta.pdf(p, 0.7, 1.9) * stats.binom.pmf(3, 7, p))
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-10)
    a, b = difficulty.posterior([[0], [2]], [2, 4], ([1.0, 2.0], 3.0))
    np.testing.assert_array_equal(a, [[1, 2], [3, 4]])
    np.testing.assert_array_equal(b, [[5, 7], [3, 5]])


def test_posterior_moments():
    a, b = np.array([0.3, 1.0, 40.0]), np.array([2.0, 1.0, 3.0])
    np.testing.assert_allclose(difficulty.posterior_mean(a, b), stats.beta.mean(a, b), rtol=1e-12)


@pytest.mark.parametrize("parameters", [(0.0, 1.0), (1.0, -1.0), (np.inf, 1.0), (np.nan, 1.0)])
def test_distributions_that_cannot_be(parameters):
    for function in (
        difficulty.posterior_mean,
        difficulty.expected_learnability,
        lambda a, b: difficulty.posterior(1, 2, (a, b)),
    ):
        with pytest.raises(ValueError, match="positive, finite"):
            function(*parameters)


# -- the expected curriculum reward ------------------------------------------------------------------


def by_moments(a, b, alpha, beta):
    """Σ_k c_k E[p^k] in 90 digits, c_k the Taylor coefficients of exp(-β (p - α)²) about 0.

    They follow f' = 2 β (α - p) f; E[p^k] = Π_{i<k} (a + i) / (a + b + i).
    """
    with decimal.localcontext(prec=90):
        a, b, alpha, beta = (decimal.Decimal(x) for x in (a, b, alpha, beta))
        older, old = decimal.Decimal(0), (-beta * alpha * alpha).exp()
        total, moment = old, decimal.Decimal(1)
        for k in range(1, 320):
            older, old = old, 2 * beta * (alpha * old - older) / k
            moment *= (a + k - 1) / (a + b + k - 1)
            total += old * moment
        return float(total)


SIZES = [0.01, 0.5, 1.0, 1.5, 20.0, 3e3, 1e5]


@pytest.mark.parametrize(("alpha", "beta"), [(0.5, 2.0), (0.5, 4.0), (0.3, 20.0), (0.0, 12.0)])
def test_expected_reward_against_long_arithmetic(alpha, beta):
    pairs = np.array(list(itertools.product(SIZES, SIZES)))
    got = difficulty.expected_curriculum_reward(pairs[:, 0], pairs[:, 1], alpha, beta)
    want = [by_moments(a, b, alpha, beta) for a, b in pairs]
    assert np.abs(got - want).max() < (1e-4 if beta <= 4 else 5e-4)


def test_expected_reward_at_its_limits():
    """One at β = 0; the plain reward of a certain p; half of both ends' where p is 0 or 1."""
    assert difficulty.expected_curriculum_reward(0.3, 7.0, 0.5, 0.0) == pytest.approx(
        1.0, rel=1e-14
    )
    sure = difficulty.expected_curriculum_reward(3e4, 7e4, 0.5, 4.0)
    assert float(sure) == pytest.approx(float(curriculum_reward(0.3, 0.5, 4.0)), abs=3e-5)
    torn = difficulty.expected_curriculum_reward(1e-3, 1e-3, 0.2, 4.0)
    ends = curriculum_reward([0.0, 1.0], 0.2, 4.0).mean()
    assert float(torn) == pytest.approx(ends, abs=1e-3)


def test_expected_reward_of_arrays():
    a = np.array([[1.0, 2.0], [np.nan, 1.0]])
    got = difficulty.expected_curriculum_reward(a, [2.0, 1.0], 0.5, 4.0)
    mirrored = difficulty.expected_curriculum_reward([2.0, 1.0], a, 0.5, 4.0)
    assert got.shape == (2, 2)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(a))
    np.testing.assert_allclose(got, mirrored, rtol=1e-13)
    assert got[0, 0] == pytest.approx(got[0, 1], rel=1e-13)  # Beta(1, 2) and Beta(2, 1)
    many = np.linspace(0.5, 9.0, 3000)
    together = difficulty.expected_curriculum_reward(many, 2.0, 0.5, 4.0)
    np.testing.assert_array_equal(
        together[[7, 2999]], difficulty.expected_curriculum_reward(many[[7, 2999]], 2.0, 0.5, 4.0)
    )
    assert difficulty.expected_curriculum_reward([], [], 0.5, 4.0).shape == (0,)


def test_expected_reward_tells_the_uncertain_from_the_middling():
    """2 of 4 may be anything, 50 of 100 is in the middle; 0 of 2 may be better than 0 of 40."""
    a, b = difficulty.posterior([2, 50, 0, 0], [4, 100, 2, 40], (0.5, 0.5))
    two, fifty, none_of_two, none_of_forty = difficulty.expected_curriculum_reward(a, b, 0.5, 4.0)
    assert fifty > two + 0.05
    assert none_of_two > none_of_forty + 0.05


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0, 1.0, 0.5, 2.0), "positive, finite"),
        ((1.0, np.inf, 0.5, 2.0), "positive, finite"),
    ],
)
def test_expected_reward_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        difficulty.expected_curriculum_reward(*arguments)


# -- scores ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 4, 9])
@pytest.mark.parametrize("p", [0.0, 0.2, 0.5, 1.0])
def test_learnability_is_unbiased(n, p):
    """Over all outcomes with their binomial probabilities; the plug-in falls short by 1 - 1 / n."""
    s = np.arange(n + 1)
    chance = stats.binom.pmf(s, n, p)
    assert chance @ difficulty.learnability(s, n) == pytest.approx(4 * p * (1 - p), abs=1e-12)
    plug_in = chance @ (4.0 * (s / n) * (1.0 - s / n))
    assert plug_in == pytest.approx((1 - 1 / n) * 4 * p * (1 - p), abs=1e-12)


def test_learnability_of_too_few_attempts_is_unknown():
    got = difficulty.learnability([0, 1, 0, 1], [0, 1, 1, 2])
    np.testing.assert_array_equal(got, [np.nan, np.nan, np.nan, 2.0])


@pytest.mark.parametrize(("a", "b"), [(0.4, 3.0), (1.0, 1.0), (50.0, 20.0)])
def test_expected_learnability(a, b):
    want = stats.beta.expect(lambda p: 4 * p * (1 - p), (a, b))
    assert float(difficulty.expected_learnability(a, b)) == pytest.approx(want, rel=1e-7)


def test_learning_progress():
    np.testing.assert_allclose(
        difficulty.learning_progress([0.2, 0.9, 0.5], [0.5, 0.7, np.nan]), [0.3, 0.2, np.nan]
    )


@pytest.mark.parametrize(("before", "now"), [(4, 4), (3, 10), (1, 1), (1, 7)])
@pytest.mark.parametrize("p", [0.0, 0.05, 0.5, 0.9, 1.0])
def test_noise_alone_makes_no_progress(before, now, p):
    """The exact expectation over both binomials is 0 for any constant p; uncorrected it is not."""
    s0, s1 = np.arange(before + 1)[:, None], np.arange(now + 1)
    chance = stats.binom.pmf(s0, before, p) * stats.binom.pmf(s1, now, p)
    corrected = difficulty.corrected_learning_progress(s0, before, s1, now)
    assert corrected.shape == chance.shape
    assert (chance * corrected).sum() == pytest.approx(0.0, abs=1e-12)
    plain = (chance * difficulty.learning_progress(s0 / before, s1 / now)).sum()
    assert plain > (0.05 if 0.05 < p < 1 else -1e-12)


def test_progress_is_rewarded_and_coin_flips_are_not():
    """Simulated: 10 attempts an epoch; a task that moves by 0.3 against one that stays at p = 1/2."""
    rng = np.random.default_rng(4)
    coin = difficulty.corrected_learning_progress(
        rng.binomial(10, 0.5, 4000), 10, rng.binomial(10, 0.5, 4000), 10
    )
    for p0, p1 in [(0.35, 0.65), (0.6, 0.3), (0.0, 0.3)]:
        moving = difficulty.corrected_learning_progress(
            rng.binomial(10, p0, 4000), 10, rng.binomial(10, p1, 4000), 10
        )
        assert moving.mean() > 0.1
    assert abs(coin.mean()) < 4 * coin.std() / math.sqrt(4000)


def test_progress_by_hand():
    """0 of 1, then 1 of 1: |Δ| = 1; of the two orders of one success in two each has |Δ| = 1: 1 - 1."""
    assert difficulty.corrected_learning_progress(0, 1, 1, 1) == pytest.approx(0.0, abs=1e-15)
    # 0 of 2, then 2 of 2: of the 6 places for 2 successes in 4, 2 give |Δ| = 1 and 4 give 0.
    assert difficulty.corrected_learning_progress(0, 2, 2, 2) == pytest.approx(1 - 1 / 3)
    assert np.isnan(difficulty.corrected_learning_progress(0, 0, 1, 2))
    with pytest.raises(ValueError, match="whole"):
        difficulty.corrected_learning_progress(0.5, 2, 1, 2)
