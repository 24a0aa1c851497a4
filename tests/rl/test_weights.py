"""Weights by coverage, and advantages within seeds: by hand, by properties, by simulation."""

import numpy as np
import pytest

from genenv_jax.rl import weights

NAN = np.nan


def table(rng, seeds=40, n=6):
    mask = rng.random((seeds, n)) < 0.7
    return np.where(
        mask, rng.random((seeds, n)), rng.choice([NAN, np.inf, 1e300], (seeds, n))
    ), mask


@pytest.mark.parametrize("given", [[0.1, 0.2], [[0.1]], [NAN], [np.inf]])
def test_records_that_cannot_be(given):
    with pytest.raises(ValueError, match="expected one shape|not finite"):
        weights.coverage_weights(given, [["a"]], 1.0)
    with pytest.raises(ValueError, match="no skill"):
        weights.coverage_weights([1.0, 1.0], [["a"], []], 1.0)


def test_coverage_makes_skills_alike():
    """Three of four records ask for "a" alone: full coverage gives each skill half of the weight."""
    kinds, plain = [["a"], ["b"], ["a"], ["a"]], np.array([0.5, 1.0, 2.0, 0.5])
    np.testing.assert_array_equal(weights.coverage_weights(plain, kinds, 0.0), plain)
    flat = weights.coverage_weights(np.ones(4), kinds, 1.0)
    np.testing.assert_allclose(flat, [2 / 3, 2, 2 / 3, 2 / 3])
    got = weights.coverage_weights(plain, kinds, 0.5)
    by_hand = plain / np.sqrt([0.75, 0.25, 0.75, 0.75])
    np.testing.assert_allclose(got, by_hand / by_hand.mean())
    np.testing.assert_array_equal(
        weights.coverage_weights(np.zeros(2), [["a"], ["b"]], 1.0), [0, 0]
    )


def test_a_record_is_as_rare_as_its_skills_are_on_average():
    """ "a" is in all three records, "b" in one."""
    got = weights.coverage_weights(np.ones(3), [("a",), ("a", "b"), ("a",)], 1.0)
    np.testing.assert_allclose(got, 3 * np.array([1, 2, 1]) / 4)


def test_coverage_is_the_fixed_point_of_uniform_skills():
    """A simulator over skills that takes each update's weighted records as its new distribution, all of
    equal reward: with coverage it comes to the uniform one, without it stays where it was."""
    rng, start = np.random.default_rng(2), np.array([0.7, 0.2, 0.07, 0.03])
    ends = []
    for coverage in (0.0, 0.5):
        policy = start
        for _ in range(20):
            kinds = rng.choice(4, 20_000, p=policy)
            weighed = weights.coverage_weights(np.ones(20_000), kinds[:, None], coverage)
            policy = np.bincount(kinds, weighed, 4) / weighed.sum()
        ends.append(policy)
    np.testing.assert_allclose(ends[0], start, atol=0.05)
    np.testing.assert_allclose(ends[1], 0.25, atol=0.02)


# -- GRPO within seeds -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rewards", "mask"),
    [([0.1], [1]), ([[0.1, 0.2]], [[1]]), ([[NAN]], [[1]]), ([[np.inf, 0.0]], [[1, 0]])],
)
def test_tables_that_cannot_be(rewards, mask):
    with pytest.raises(ValueError, match="expected one shape|not finite"):
        weights.seed_group_advantages(rewards, mask)


def test_advantages_by_hand():
    rewards = [[1.0, 0.0, 0.5, NAN], [0.2, NAN, NAN, NAN], [NAN] * 4]
    mask = [[1, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]]
    got = weights.seed_group_advantages(rewards, mask)
    np.testing.assert_allclose(got, [[0.5, -0.5, 0, 0], [0] * 4, [0] * 4], atol=1e-15)
    # Invalid ones at -1/2: means 1/4, -1.3/4 and -1/2.
    got = weights.seed_group_advantages(rewards, mask, invalid_reward=-0.5)
    want = [[0.75, -0.25, 0.25, -0.75], [0.525, -0.175, -0.175, -0.175], [0] * 4]
    np.testing.assert_allclose(got, want, atol=1e-15)


def test_those_not_present_have_no_part():
    """Neither an advantage nor a say in the mean, with and without a reward for the invalid."""
    rewards = [[1.0, 0.0, 0.9, NAN, NAN]]
    mask, present = [[1, 1, 1, 0, 0]], [[1, 1, 0, 1, 0]]
    got = weights.seed_group_advantages(rewards, mask, present=present)
    np.testing.assert_allclose(got, [[0.5, -0.5, 0, 0, 0]])
    got = weights.seed_group_advantages(rewards, mask, invalid_reward=-0.4, present=present)
    np.testing.assert_allclose(got, [[0.8, -0.2, 0, -0.6, 0]])


@pytest.mark.parametrize("invalid_reward", [None, 0.0, -1.0])
def test_advantages_sum_to_nothing_in_every_seed(invalid_reward):
    rewards, mask = table(np.random.default_rng(3))
    got = weights.seed_group_advantages(rewards, mask, invalid_reward=invalid_reward)
    assert np.isfinite(got).all()
    np.testing.assert_allclose(got.sum(axis=1), 0.0, atol=1e-12)
    offset = np.where(mask, rewards, 0) + np.arange(len(rewards))[:, None]
    if invalid_reward is None:
        np.testing.assert_allclose(weights.seed_group_advantages(offset, mask), got, atol=1e-12)
        assert (got[~mask] == 0).all()


@pytest.mark.parametrize("value", [0.1, 0.7, 1.0])
@pytest.mark.parametrize("n", [1, 3, 7])
def test_equal_rewards_give_exactly_zero(value, n):
    got = weights.seed_group_advantages(np.full((2, n), value), np.ones((2, n)))
    np.testing.assert_array_equal(got, np.zeros((2, n)))


def test_advantages_point_the_way_that_a_seed_s_baseline_leaves_open():
    """A two-armed policy per seed, seeds of very different levels: the mean of A ∇log π is that of the
    true gradient times (n - 1) / n (the own sample is in the baseline), and less noisy than without."""
    rng = np.random.default_rng(4)
    n, level, gain, q = 4, np.array([0.1, 0.9]), 0.2, 0.3
    action = rng.random((2, 100_000, n)) < q
    reward = level[:, None, None] + gain * action
    score = action - q  # d log π / d logit
    advantage = weights.seed_group_advantages(reward.reshape(-1, n), np.ones((200_000, n))).reshape(
        reward.shape
    )
    gradient = (advantage * score).mean(axis=(1, 2))
    np.testing.assert_allclose(gradient, gain * q * (1 - q) * (n - 1) / n, rtol=0.01)
    assert (advantage * score).var() < 0.1 * (reward * score).var()


def test_refused_settings():
    with pytest.raises(ValueError, match="invalid_reward"):
        weights.seed_group_advantages([[0.1]], [[1]], invalid_reward=0.5)
    with pytest.raises(ValueError, match="invalid_reward"):
        weights.seed_group_advantages([[0.1]], [[1]], invalid_reward=NAN)
    with pytest.raises(ValueError, match="present has shape"):
        weights.seed_group_advantages([[0.1]], [[1]], present=[[1, 1]])
