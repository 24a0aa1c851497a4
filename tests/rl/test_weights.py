"""Weights by coverage, by hand."""

import numpy as np

from genenv_jax.rl import weights


def test_a_record_is_as_rare_as_its_skills_are_on_average():
    """ "a" is in all three records, "b" in one."""
    got = weights.coverage_weights(np.ones(3), [("a",), ("a", "b"), ("a",)], 1.0)
    np.testing.assert_allclose(got, 3 * np.array([1, 2, 1]) / 4)
