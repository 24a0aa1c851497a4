"""The tabular agent: its gradient, its optimisers, and what a curriculum does under each."""

import numpy as np
import pytest

from bench.theory import tabular

SMALL = tabular.World(tools=2, right=0.5, mistaken=0.3, others=1)


def softmax(logits):
    e = np.exp(logits - logits.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("depth", [1, 2])
def test_the_gradient_is_right_in_the_mean(depth):
    """E[Σ A ∂log p] is (1 − 1/group) times the gradient of the success rate, by central differences."""
    logits, group = SMALL.logits() + np.array([[0.3, 0, 0], [0, -0.2, 0]]), 4

    def rate(at):  # of uniform tools
        return softmax(at)[:, 0].mean() ** depth

    expected = np.zeros_like(logits)
    for place in np.ndindex(logits.shape):
        up, down = logits.copy(), logits.copy()
        up[place] += 1e-5
        down[place] -= 1e-5
        expected[place] = (rate(up) - rate(down)) / 2e-5
    expected *= (1 - 1 / group) / depth  # it is a mean over calls
    rng, p = np.random.default_rng(0), softmax(logits)
    depths = np.full(20_000, depth)
    drawn = tabular.policy_gradient(p, depths, group, rng)
    np.testing.assert_allclose(drawn, expected, atol=0.003)
    assert np.abs(expected).max() > 0.03


def test_a_perfect_curriculum_helps_plain_descent_and_not_adam():
    means = {
        (optimizer, curriculum): np.mean(
            [
                tabular.simulate(tabular.World(), curriculum, optimizer, rate, seed=seed)
                for seed in range(2)
            ]
        )
        for optimizer, rate in ((tabular.SGD, 10.0), (tabular.ADAM, 0.1))
        for curriculum in (False, True)
    }
    assert means[tabular.SGD, True] > 1.5 * means[tabular.SGD, False]
    assert means[tabular.ADAM, True] < 1.1 * means[tabular.ADAM, False]
