"""Proposition 1's estimators, against policies and numbers whose moments are computed in full."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bench.theory.gradients import group_gradients, make_task_gradients
from bench.theory.moments import (
    binned,
    fit_variance_curve,
    median_ratio,
    spread_over_rates,
    squared_gradient,
    success_variance,
)
from genenv_jax.models.config import TransformerConfig
from genenv_jax.models.scoring import CompletionBatch, score_completions
from genenv_jax.parallel.rules import param_shapes

LOGITS = np.array([0.9, -0.4, 0.3, -1.2])
WINS = np.array([1.0, 0.0, 1.0, 0.0])


def bandit():
    """π and the scores of each arm of a softmax bandit, by the textbook: e_a − π."""
    pi = np.exp(LOGITS) / np.exp(LOGITS).sum()
    return pi, np.eye(4) - pi


def logprob(params, arm):
    # Two leaves, so that norms have to be taken over the tree.
    logits = jnp.concatenate([params["first"], params["second"]])
    return jax.nn.log_softmax(logits)[arm]


def params():
    return {"first": jnp.float32(LOGITS[:1]), "second": jnp.float32(LOGITS[1:])}


def test_the_estimates_are_unbiased_by_enumeration_of_all_groups():
    """All 4^4 groups of four rollouts with their probabilities: expectations are exact."""
    pi, scores = bandit()
    p = pi @ WINS
    squares = np.square(scores).sum(1)
    true_square = pi @ (np.square(WINS - p) * squares)
    true_signal = np.square((pi * (WINS - p)) @ scores).sum()
    groups = np.array(list(itertools.product(range(4), repeat=4)))
    chance = pi[groups].prod(1)
    measure = jax.jit(jax.vmap(lambda arms, r: group_gradients(logprob, params(), arms, r), (0, 0)))
    blocks = groups.reshape(-1, 2, 2)
    found = measure(blocks, jnp.float32(WINS[blocks]))
    assert chance @ np.asarray(found.signal_square, float) == pytest.approx(true_signal, rel=1e-4)
    estimates = [squared_gradient(WINS[g], squares[g]) for g in groups]
    assert chance @ np.array(estimates) == pytest.approx(true_square, rel=1e-9)
    # With p̂ in place of p it is off, so that the correction is seen to matter.
    r = WINS[groups]
    plug_in = (np.square(r - r.mean(1, keepdims=True)) * squares[groups]).mean(1)
    assert abs(chance @ plug_in / true_square - 1) > 0.1
    variances = [success_variance(int(k), 4) for k in r.sum(1)]
    assert chance @ np.array(variances) == pytest.approx(p * (1 - p), rel=1e-9)


def decoder():
    """A small decoder's configuration and random weights."""
    config = TransformerConfig(
        vocab_size=50, hidden_size=16, intermediate_size=24, num_layers=1, num_heads=4,
        num_kv_heads=2, head_dim=4, qkv_bias=True, remat="none",
    )  # fmt: skip
    rng = np.random.default_rng(1)  # much faster than compiling the initialisers
    weights = jax.tree.map(
        lambda x: jnp.asarray(rng.normal(0.0, 0.3, x.shape), jnp.float32), param_shapes(config)
    )
    return config, weights


def test_a_decoder_s_gradients_are_those_of_its_log_probs():
    """Against one plain jax.grad of the scoring function for each rollout."""
    config, weights = decoder()
    rng = np.random.default_rng(1)
    prompt, completions = rng.integers(0, 50, 6), rng.integers(0, 50, (2, 3, 5))
    lengths = np.array([[5, 2, 1], [4, 5, 3]])
    rewards = np.array([[1, 0, 0], [1, 1, 0]], np.float32)
    found = make_task_gradients(config)(weights, prompt, np.int32(4), completions, lengths, rewards)
    reference = jax.jit(
        jax.value_and_grad(lambda w, batch: score_completions(w, batch, config).sum())
    )
    scores, logprobs = [], []
    for tokens, length in zip(completions.reshape(-1, 5), lengths.ravel(), strict=True):
        batch = CompletionBatch(prompt[None], np.array([4]), tokens[None, None], length[None, None])
        value, gradient = reference(weights, batch)
        scores.append(np.concatenate([np.ravel(x) for x in jax.tree.leaves(gradient)]))
        logprobs.append(float(value))
    scores, r = np.array(scores), rewards.ravel()
    np.testing.assert_allclose(found.logprobs.ravel(), logprobs, rtol=1e-5)
    np.testing.assert_allclose(found.score_squares.ravel(), np.square(scores).sum(1), rtol=1e-4)
    blocks = [
        ((r[i : i + 3] - r[i : i + 3].mean())[:, None] * scores[i : i + 3]).sum(0) / 2
        for i in (0, 3)
    ]
    np.testing.assert_allclose(found.signal_square, blocks[0] @ blocks[1], rtol=1e-3)


def simulated(tasks, s1, s0, seed=0, attempts=256):
    """p, variance and values of tasks whose E‖g‖² follows two constants, with noise."""
    rng = np.random.default_rng(seed)
    true = rng.uniform(0.02, 0.98, tasks)
    k = rng.binomial(attempts, true)
    values = true * (1 - true) * ((1 - true) * s1 + true * s0) * rng.gamma(20, 1 / 20, tasks)
    return k / attempts, np.array([success_variance(int(i), attempts) for i in k]), values


def test_the_fit_finds_the_curve_that_the_tasks_follow():
    flat = fit_variance_curve(*simulated(300, 5.0, 5.0))
    assert flat.c_interval[0] < 5.0 < flat.c_interval[1] and flat.c == pytest.approx(5, rel=0.05)
    assert flat.peak_interval[0] <= 0.5 <= flat.peak_interval[1]
    assert flat.explained > 0.6 and flat.correlation > 0.7
    tilted = fit_variance_curve(*simulated(300, 1.0, 9.0))
    assert tilted.s1 == pytest.approx(1, abs=0.4) and tilted.s0 == pytest.approx(9, rel=0.1)
    grid = np.linspace(0, 1, 10_001)
    best = grid[np.argmax(grid * (1 - grid) * (1 - grid + 9 * grid))]
    assert tilted.peak == pytest.approx(best, abs=0.02) and tilted.peak_interval[0] > 0.55


def test_the_fit_is_left_out_where_nothing_is_solved_sometimes():
    assert fit_variance_curve(np.zeros(9), np.zeros(9), np.zeros(9)) is None


def test_ranges_hold_the_means_of_their_tasks():
    p = np.array([0.0, 0.05, 0.3, 0.35, 0.3, 1.0])
    bins = binned(p, np.arange(6.0), (0, 0.1, 0.3, 0.9, 1.0))
    assert [(b["low"], b["count"], b["mean"]) for b in bins] == [
        (0, 2, 0.5),
        (0.3, 3, 3.0),
        (0.9, 1, 5.0),
    ]
    assert bins[0]["interval"] is None
    low, high = bins[1]["interval"]
    assert low <= 3.0 <= high
    assert bins[1]["p"] == pytest.approx(0.95 / 3)


def test_tasks_of_all_success_rates_are_chosen():
    successes = np.array([0] * 50 + [5, 16, 16, 31, 32])
    chosen = spread_over_rates(successes, 32, 8)
    assert {50, 51, 52, 53, 54} <= set(chosen) and len(chosen) == 8 == len(set(chosen))
    assert spread_over_rates(successes, 32, 999) == list(range(55))


def test_the_ratio_of_failures_to_successes_is_a_median():
    value, (low, high) = median_ratio([2.0, 4.0, 90.0], [1.0, 1.0, 1.0])
    assert value == 4 and low >= 2 and high <= 90
    assert median_ratio([1.0], [1.0]) is None
