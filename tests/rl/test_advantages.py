"""Group-relative advantages against worked numbers."""

import statistics

import numpy as np
import pytest

from genenv_jax.rl.advantages import group_advantages, zero_variance

REWARDS = np.array([[0.0, 1.0, 1.0, 0.25], [1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 1.0]])


def test_std():
    want = [
        [(r - statistics.mean(row)) / (statistics.stdev(row) + 1e-6) for r in row]
        for row in REWARDS
    ]
    got = group_advantages(REWARDS)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, atol=1e-6)


def test_none_only_centres():
    got = group_advantages(REWARDS, scale="none")
    np.testing.assert_allclose(got, REWARDS - REWARDS.mean(axis=1, keepdims=True), atol=1e-7)


@pytest.mark.parametrize("scale", ["std", "none"])
@pytest.mark.parametrize("value", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("group", [1, 2, 3, 7])
def test_equal_rewards_give_exactly_zero(scale, value, group):
    """Also where the mean of equal numbers is not that number, as for three times 0.1."""
    got = group_advantages(np.full((2, group), value), scale=scale)
    np.testing.assert_array_equal(got, np.zeros((2, group), np.float32))


def test_zero_variance():
    assert zero_variance(REWARDS).tolist() == [False, True, False]
    assert zero_variance([[0.3]]).tolist() == [True]


def test_unknown_scale():
    with pytest.raises(ValueError, match=r"agent\.advantage_scale = 'mean'.*'std' or 'none'"):
        group_advantages(REWARDS, scale="mean")


@pytest.mark.parametrize("scale", ["std", "none"])
def test_rollouts_without_a_reward_are_left_out(scale):
    nan = np.nan
    got = group_advantages([[0.0, nan, 1.0, 0.25], [nan, 1.0, nan, 1.0], [nan] * 4], scale=scale)
    want = group_advantages([[0.0, 1.0, 0.25]], scale=scale)[0]
    np.testing.assert_allclose(got[0], [want[0], 0, want[1], want[2]], atol=1e-7)
    assert (got[1:] == 0).all()
    rewards = np.array([[nan, 1.0, 1.0], [nan, 1.0, 0.0], [nan, nan, nan], [nan, nan, 1.0]])
    assert zero_variance(rewards).tolist() == [True, False, True, True]
