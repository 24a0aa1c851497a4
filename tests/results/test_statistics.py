"""Each statistic against a computation of another kind: closed forms, quadrature, scipy, enumeration."""

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, stats

from genenv_jax.results import statistics as s

CURVE = ([0, 100, 250, 400], [0.2, 0.5, 0.4, 0.7])


def test_the_area_is_that_of_quadrature():
    for until in (37.0, 100.0, 301.5, 400.0):
        area, _ = integrate.quad(
            lambda r: float(np.interp(r, *CURVE)), 0, until, points=[100, 250], limit=200
        )
        assert s.area_under_curve(*CURVE, until) == pytest.approx(area / until, rel=1e-9)


@pytest.mark.parametrize(
    ("curve", "until"),
    [
        (([10, 20], [0, 1]), 15),  # no step 0
        (([0, 20], [0, 1]), 25),  # beyond the end
        (([0, 20], [0, 1]), 0),
        (([], []), 10),
    ],
)
def test_a_curve_that_does_not_span_the_range_is_refused(curve, until):
    with pytest.raises(ValueError):
        s.area_under_curve(*curve, until)


@pytest.mark.parametrize("n", [1, 3, 8, 11])
def test_the_sign_flip_test_is_the_share_of_all_sign_assignments(n):
    d = np.random.default_rng(n).normal(0.4, 1, n)
    signs = np.array(list(itertools.product((1, -1), repeat=n)))
    assert s.sign_flip_test(d) == pytest.approx(np.mean(np.abs(signs @ d) >= abs(d.sum()) - 1e-12), abs=1e-12)


def test_ties_by_rounding_count():
    # ±0.1 ±0.2 ±0.3: the sums 0.6 and -0.6, and by rounding not quite 0.
    assert s.sign_flip_test([0.1, 0.2, -0.3]) == 1.0
    assert s.sign_flip_test([0.0, 0.0]) == 1.0
    assert s.sign_flip_test([0.7, 0.0, 0.0]) == 1.0


def test_many_differences_are_drawn_and_agree_with_the_normal_limit():
    d = np.random.default_rng(5).normal(0.2, 1, 60)
    p = s.sign_flip_test(d, resamples=40_000)
    assert p == pytest.approx(2 * stats.norm.sf(abs(d.sum()) / math.sqrt((d**2).sum())), abs=0.015)
    assert s.sign_flip_test([1.0] * 30, resamples=500) == pytest.approx(1 / 501)
    assert s.sign_flip_test(d, resamples=40_000) == p  # drawn from a seed


@pytest.mark.parametrize("bad", [[], [math.nan], [[1.0]]])
def test_a_sign_flip_test_of_nothing_is_refused(bad):
    with pytest.raises(ValueError):
        s.sign_flip_test(bad)


def test_holm_by_hand_and_by_its_definition():
    assert s.holm([0.01, 0.04]) == [0.02, 0.04]
    assert s.holm([0.04, 0.03]) == [0.06, 0.06]  # monotone
    assert s.holm([0.7, 0.6, 0.9]) == [1, 1, 1]
    assert s.holm([]) == []
    rng = np.random.default_rng(1)
    for _ in range(50):
        p = rng.random(5) ** 3
        adjusted = s.holm(p)
        for level in (0.01, 0.05, 0.2):  # the step-down procedure rejects the same
            rejected = set()
            for rank, i in enumerate(np.argsort(p)):
                if p[i] > level / (5 - rank):
                    break
                rejected.add(int(i))
            assert rejected == {i for i, q in enumerate(adjusted) if q <= level}


def test_the_bootstrap_interval_is_that_of_all_resamples():
    d = np.array([0.1, 0.4, 0.35, 0.2])
    means = [np.mean(x) for x in itertools.product(d, repeat=4)]  # all 256 resamples
    found = s.bootstrap_interval(d, resamples=100_000)
    assert found == pytest.approx(np.percentile(means, (2.5, 97.5)), abs=0.013)
    assert s.bootstrap_interval([0.5]) is None and s.bootstrap_interval(np.ones((1, 4))) is None
    assert tuple(s.bootstrap_interval([0.5] * 3)) == (0.5, 0.5)


def test_the_t_interval():
    x = [0.31, 0.35, 0.29, 0.4, 0.33]
    expected = stats.ttest_1samp(x, 0).confidence_interval(0.9)
    assert s.t_interval(x, 0.9) == pytest.approx((expected.low, expected.high))
    assert s.t_interval([1.0]) is None
