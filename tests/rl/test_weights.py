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


def test_weights_of_zero_stay():
    np.testing.assert_array_equal(weights.coverage_weights(np.zeros(2), [["a"], ["b"]], 1.0), [0, 0])


def test_a_record_is_as_rare_as_its_skills_are_on_average():
    """ "a" is in all three records, "b" in one."""
    got = weights.coverage_weights(np.ones(3), [("a",), ("a", "b"), ("a",)], 1.0)
    np.testing.assert_allclose(got, 3 * np.array([1, 2, 1]) / 4)
