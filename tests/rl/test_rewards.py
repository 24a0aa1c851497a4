"""The simulator's reward against worked numbers."""

import math

import numpy as np
import pytest

from genenv_jax.rl import rewards


def test_success_rate():
    assert [rewards.success_rate(k, 4) for k in (0, 3, 4)] == [0.0, 0.75, 1.0]
    assert math.isnan(rewards.success_rate(0, 0))


def test_curriculum_reward():
    """exp(-2 (p - 1/2)²) at p = 0, 1/4, 1/2, 1 by hand: exp(-1/2), exp(-1/8), 1, exp(-1/2)."""
    got = rewards.curriculum_reward([0.0, 0.25, 0.5, 1.0, np.nan], 0.5, 2.0)
    np.testing.assert_allclose(got, [0.60653066, 0.88249690, 1.0, 0.60653066, np.nan], atol=1e-8)
    assert rewards.curriculum_reward(0.9, 0.6, 5.0) == pytest.approx(math.exp(-0.45))


@pytest.mark.parametrize("n", [4, 5, 8, 10, 20, 30, 40])
@pytest.mark.parametrize("percent", [0, 10, 15, 20, 25, 35])
def test_difficulty_filter(n, percent):
    """|k / n - 0.5| <= k_min, decided in integers; 0.5 - 7 / 20 is more than 0.15 in floats."""
    for k in range(n + 1):
        want = abs(2 * k - n) * 50 <= n * percent
        assert bool(rewards.difficulty_filter(k / n, 0.5, percent / 100)) == want, f"{k} of {n}"


def test_difficulty_filter_of_arrays():
    got = rewards.difficulty_filter([np.nan, 0.0, 0.39, 0.4, 0.5, 0.6, 0.61, 1.0], 0.5, 0.1)
    np.testing.assert_array_equal(got, [False, False, False, True, True, True, False, False])
    assert not rewards.difficulty_filter(np.nan, 0.5, 1.0)
    assert rewards.difficulty_filter(0.5, 0.5, 0.0)


def test_rwr_weights():
    """exp(1), exp(1/2), exp(0) over their mean (e + √e + 1) / 3."""
    got = rewards.rwr_weights([1.0, 0.5, 0.0], 1.0)
    np.testing.assert_allclose(got, [1.519441, 0.921588, 0.558971], atol=1e-6)
    sharp = rewards.rwr_weights([1.0, 0.5, 0.0], 2.0)
    np.testing.assert_allclose(sharp[0] / sharp[1], math.e, rtol=1e-12)
    assert rewards.rwr_weights([0.3, 0.3], 7.0).tolist() == [1.0, 1.0]
    assert rewards.rwr_weights([0.1, 0.9], 0.0).tolist() == [1.0, 1.0]


def test_rwr_weights_do_not_overflow():
    np.testing.assert_allclose(rewards.rwr_weights([0.0, 1.0], 1e4), [0.0, 2.0], atol=1e-12)
    assert rewards.rwr_weights([], 1.0).size == 0


def test_effective_sample_size():
    assert rewards.effective_sample_size([2.0] * 5) == pytest.approx(5.0)
    assert rewards.effective_sample_size([1.0, 0.0, 0.0]) == pytest.approx(1.0)
    assert rewards.effective_sample_size([3.0, 1.0]) == pytest.approx(16 / 10)
    assert rewards.effective_sample_size([]) == 0.0
