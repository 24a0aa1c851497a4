"""Theorem 1: exact mis-ranking against simulation, enumeration and the bounds."""

import fractions
import itertools
import math

import numpy as np
import pytest

from bench.theory import ranking
from genenv_jax.rl.rewards import curriculum_reward


def by_enumeration(p1, p2, n, alpha):
    """Every (k₁, k₂) with its probability; distances in exact fractions."""
    alpha = fractions.Fraction(str(alpha))
    pmf = lambda p: [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]  # noqa: E731
    total = 0.0
    for (i, a), (j, b) in itertools.product(enumerate(pmf(p1)), enumerate(pmf(p2))):
        d1, d2 = (abs(fractions.Fraction(k, n) - alpha) for k in (i, j))
        total += a * b * (d1 >= d2)
    return total


@pytest.mark.parametrize("n", [1, 5, 16])
@pytest.mark.parametrize("alpha", [0.5, 0.3, 0.0])
def test_mis_ranking_is_that_of_the_enumeration(n, alpha):
    for p1, p2 in [(0.5, 0.9), (0.4, 0.1), (0.62, 0.3), (0.0, 1.0), (0.5, 0.5)]:
        found = ranking.misranking(p1, p2, n, alpha)
        assert found == pytest.approx(by_enumeration(p1, p2, n, alpha), abs=1e-12)


def test_mis_ranking_is_that_of_the_reward_in_simulation():
    rng = np.random.default_rng(0)
    draws, alpha, beta = 200_000, 0.5, 2.0
    for p1, p2, n in [(0.5, 0.8, 8), (0.35, 0.1, 16), (0.6, 0.25, 31)]:
        first, second = (
            curriculum_reward(rng.binomial(n, p, draws) / n, alpha, beta) for p in (p1, p2)
        )
        rate = (first <= second + 1e-12).mean()
        exact = float(ranking.misranking(p1, p2, n, alpha))
        assert abs(rate - exact) < 4 * math.sqrt(exact * (1 - exact) / draws)


def test_both_bounds_hold_and_the_theorem_s_is_the_looser():
    for alpha, n in itertools.product((0.5, 0.3), (1, 4, 32, 128, 512)):
        p1, p2 = np.meshgrid(np.linspace(0, 1, 21), np.linspace(0, 1, 21))
        gap = np.abs(p2 - alpha) - np.abs(p1 - alpha)
        here = gap > 1e-9
        exact = ranking.misranking(p1[here], p2[here], n, alpha)
        sharper, paper = (f(gap[here], n) for f in (ranking.half_gap_bound, ranking.bound))
        assert (exact <= sharper + 1e-12).all() and (sharper <= paper).all()


def test_measured_groups_are_counted():
    first = np.array([1, 0, 1, 1, 0, 0, 1, 1, 1])  # groups of 2: one half, all, none, all
    second = np.array([1, 1, 1, 0, 0, 0, 1, 0])  # all, half, none, half
    found = ranking.measure(first, second, 2)
    assert (found.n, found.trials, found.mistakes) == (2, 4, 3)
    assert found.rate == 0.75 and found.interval[0] < 0.75 < found.interval[1]


def test_uncertain_rates_widen_the_exact_rate():
    exact = float(ranking.misranking(0.5, 0.8, 16))
    few = ranking.uncertain_misranking((16, 32), (26, 32), 16)
    many = ranking.uncertain_misranking((5000, 10_000), (8000, 10_000), 16)
    assert few[0] < many[0] < exact < many[1] < few[1]
    assert many[1] - many[0] < 0.03


def test_pairs_have_the_gaps_that_are_wanted_and_share_no_task():
    p = [0.5, 0.52, 0.1, 0.8, 0.95, 0.4, 0.3]
    pairs = ranking.choose_pairs(p, (0.1, 0.3, 0.4))
    gaps = [abs(p[j] - 0.5) - abs(p[i] - 0.5) for i, j in pairs]
    np.testing.assert_allclose(gaps, (0.1, 0.3, 0.4), atol=0.05)
    assert len({task for pair in pairs for task in pair}) == 6
    assert ranking.choose_pairs([0.0, 0.0, 0.0], (0.1, 0.4)) == []
