"""Draws from a softmax."""

import jax
import numpy as np
import pytest

from genenv_jax.sampling.draw import SamplingParams, draw, next_token

LAST = np.float32(1) - np.float32(2**-24)  # the largest float32 below 1
# Many draws from one distribution.
draws = jax.jit(jax.vmap(lambda logits, u: draw(logits, u)[0], in_axes=(None, 0)))
step = jax.jit(next_token, static_argnames="options")


def softmax(logits):
    weight = np.exp(logits.astype(np.float64) - logits.max())
    return weight / weight.sum()


def random_logits(v, rng, excluded=True):
    logits = rng.normal(0.0, 1.5, v).astype(np.float32)
    if excluded and v > 4:
        logits[rng.choice(v, v // 4, replace=False)] = -np.inf
    if excluded and v >= 512:
        logits[128:256] = -np.inf  # a whole block
    return logits


@pytest.mark.parametrize("v", [1, 2, 5, 128, 129, 300, 1000])
def test_the_inverse_of_the_cdf(v):
    """Exactly float64's token, except close to a step of the CDF; so draws follow the distribution."""
    rng = np.random.default_rng(v)
    logits = random_logits(v, rng)
    cdf = np.cumsum(softmax(logits))
    uniform = rng.random(20_000, np.float32)
    drawn, want = np.asarray(draws(logits, uniform)), np.searchsorted(cdf, uniform, side="right")
    assert drawn.dtype == np.int32 and np.isfinite(logits[drawn]).all()
    clear = np.abs(cdf[:, None] - uniform).min(axis=0) > 2e-6
    assert clear.mean() > 0.98
    np.testing.assert_array_equal(drawn[clear], want[clear])


@pytest.mark.parametrize("v", [1, 2, 127, 128, 129, 257, 1000])
@pytest.mark.parametrize("excluded", ["none", "first", "last", "all but one"])
def test_the_ends_of_the_unit_interval(v, excluded):
    logits = random_logits(v, np.random.default_rng(0), excluded=False)
    if v > 1 and excluded == "first":
        logits[: v // 2] = -np.inf
    if v > 1 and excluded == "last":
        logits[(v + 1) // 2 :] = -np.inf
    if v > 1 and excluded == "all but one":
        logits[np.arange(v) != v // 3] = -np.inf
    possible = np.flatnonzero(np.isfinite(logits))
    first, last = np.asarray(draws(logits, np.array([0.0, LAST], np.float32)))
    assert first == possible[0]
    assert last in possible and last < v
    assert softmax(logits)[last:].sum() < 1e-5 + softmax(logits)[last]


def test_rounding_at_the_size_of_a_real_vocabulary():
    """Of 151,936 tokens only the first ones are possible; the later blocks' sums differ in the
    last digits, but none of their tokens may be drawn."""
    v, rng = 151_936, np.random.default_rng(0)
    uniform = LAST - np.arange(64, dtype=np.float32) * np.float32(2**-24)
    for real in range(89_601, 151_000, 1_531):
        logits = np.full(v, -np.inf, np.float32)
        logits[:real] = rng.normal(0.0, 1.0, real)
        assert np.asarray(draws(logits, uniform)).max() < real


def test_extreme_logits():
    uniform = np.linspace(0, LAST, 1001, dtype=np.float32)
    logits = np.full(200, -3e38, np.float32)
    logits[[3, 150]] = 3e38  # the difference overflows
    drawn = np.asarray(draws(logits, uniform))
    assert set(drawn.tolist()) == {3, 150}
    assert abs((drawn == 3).mean() - 0.5) < 0.01
    logits = np.full(200, -200.0, np.float32)
    logits[7] = 0.0  # the others' weights underflow
    assert (np.asarray(draws(logits, uniform)) == 7).all()
    assert set(np.asarray(draws(np.full(200, 1e30, np.float32), uniform)).tolist()) == set(range(200))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_broken_logits_stay_in_range(value):
    drawn = np.asarray(draws(np.full(130, value, np.float32), np.array([0.0, 0.5, LAST])))
    assert ((drawn >= 0) & (drawn < 130)).all()


@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
def test_the_distribution_of_a_token(temperature):
    """20,000 rows with their own keys."""
    rng, n = np.random.default_rng(0), 20_000
    logits = rng.normal(0.0, 1.5, 40).astype(np.float32)
    options = SamplingParams(1, 1, (), temperature)
    keys = jax.random.split(jax.random.key(0), (1, n))
    rows = np.broadcast_to(logits, (1, n, 40))
    drawn, logprob = step(rows, keys, np.zeros((1, n), np.int32), options=options)
    drawn = np.asarray(drawn[0])
    np.testing.assert_allclose(logprob[0], np.log(softmax(logits))[drawn], atol=1e-5)  # the raw policy's
    want = softmax(logits / temperature)
    assert np.abs(np.bincount(drawn, minlength=40) / n - want).max() < 5 * 0.5 / np.sqrt(n)


def test_greedy_takes_the_first_of_the_likeliest():
    logits = np.array([[[0.0, 5.0, 5.0, 1.0]]], np.float32)
    keys = jax.random.split(jax.random.key(0), (1, 1))
    options = SamplingParams(1, 1, (), temperature=0.0)
    token, logprob = step(logits, keys, np.zeros((1, 1), np.int32), options=options)
    assert token.tolist() == [[1]]
    np.testing.assert_allclose(logprob[0, 0], np.log(softmax(logits[0, 0])[1]), rtol=1e-6)
