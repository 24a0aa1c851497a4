"""Weights by coverage, and advantages within seeds: by hand, by properties, by simulation."""

import numpy as np
import pytest

from genenv_jax.rl import weights

NAN = np.nan


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
