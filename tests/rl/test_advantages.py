"""Group-relative advantages against worked numbers."""

import numpy as np
import pytest

from genenv_jax.rl.advantages import ADVANTAGES, group_advantages, zero_variance

NAN = np.nan


@pytest.mark.parametrize(
    ("kind", "want"),  # of the rewards 0, 1, 1, 0: mean 1/2, sample variance 1/3
    [
        ("group", np.array([-0.5, 0.5, 0.5, -0.5]) / (3**-0.5 + 1e-6)),
        ("centred", [-0.5, 0.5, 0.5, -0.5]),
        ("rloo", [-2 / 3, 2 / 3, 2 / 3, -2 / 3]),
        ("maxrl", [-1.0, 1.0, 1.0, -1.0]),
    ],
)
def test_worked_numbers(kind, want):
    """Rollouts without a reward are left out of their group."""
    got = group_advantages([[0, NAN, 1, 1, NAN, 0], [NAN, 1, NAN, 1, 1, 1], [NAN] * 6], kind)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got[0], [want[0], 0, want[1], want[2], 0, want[3]], rtol=1e-6)
    assert (got[1:] == 0).all()


@pytest.mark.parametrize("kind", ADVANTAGES)
def test_equal_rewards_give_exactly_zero(kind):
    """Also where the mean of equal numbers differs from them, as for three times 0.1."""
    for value in (0.0, 0.1, 1.0):
        for group in (1, 2, 3, 7):
            got = group_advantages(np.full((2, group), value), kind)
            np.testing.assert_array_equal(got, np.zeros((2, group), np.float32))


def test_zero_variance():
    rewards = np.array([[NAN, 1.0, 1.0], [NAN, 1.0, 0.0], [NAN, NAN, NAN], [0.3, 0.3, 0.3]])
    assert zero_variance(rewards).tolist() == [True, False, True, True]
    assert zero_variance([[0.3]]).tolist() == [True]
