"""The tabular agent: its gradient, its optimisers, and what a curriculum does under each."""

import numpy as np
import pytest

from bench.theory import tabular

SMALL = tabular.World(tools=2, right=0.5, mistaken=0.3, others=1)


def softmax(logits):
    e = np.exp(logits - logits.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def test_beliefs_at_the_start():
    p = softmax(tabular.World().logits())
    np.testing.assert_allclose(p[:, 0], 0.42)
    np.testing.assert_allclose(p[:, 1], 0.5)
    np.testing.assert_allclose(p[:, 2:], 0.08 / 3)
    assert tabular.accuracy(p, 3) == pytest.approx((0.42 + 0.42**2 + 0.42**3) / 3)


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


def test_steps_of_plain_descent_scale_with_the_gradient_and_adams_do_not():
    """Tasks of six calls only: a gradient many times smaller than that of single calls."""
    short, long = (
        tabular.World(right=0.5, mistaken=0.4, depths=depths)
        for depths in ((1.0,) + (0.0,) * 5, (0.0,) * 5 + (1.0,))
    )
    gains = {}
    for optimizer, rate in ((tabular.SGD, 5.0), (tabular.ADAM, 0.05)):
        for name, world in (("short", short), ("long", long)):
            curve = tabular.simulate(world, False, optimizer, rate, steps=3, tasks=400)
            gains[optimizer, name] = curve[-1] - curve[0]
    assert min(gains.values()) > 0
    ratio = {o: gains[o, "short"] / gains[o, "long"] for o in (tabular.SGD, tabular.ADAM)}
    assert ratio[tabular.SGD] > 5 and ratio[tabular.ADAM] < 2


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


def test_draws_repeat_and_unknown_optimisers_are_refused():
    curves = [tabular.simulate(SMALL, True, tabular.ADAM, 0.1, seed=s, steps=6) for s in (1, 1, 2)]
    assert curves[0].tolist() == curves[1].tolist() != curves[2].tolist()
    with pytest.raises(ValueError, match="optimizer 'lion': expected 'adam' or 'sgd'"):
        tabular.simulate(SMALL, False, "lion", 0.1)
