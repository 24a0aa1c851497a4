"""Weights by coverage, by hand."""

import numpy as np

from genenv_jax.rl import weights


def test_weights_of_zero_stay():
    np.testing.assert_array_equal(weights.coverage_weights(np.zeros(2), [["a"], ["b"]], 1.0), [0, 0])


def test_a_record_is_as_rare_as_its_skills_are_on_average():
    """ "a" is in all three records, "b" in one."""
    got = weights.coverage_weights(np.ones(3), [("a",), ("a", "b"), ("a",)], 1.0)
    np.testing.assert_allclose(got, 3 * np.array([1, 2, 1]) / 4)
