"""Log-probabilities of completions against plain passes over whole sequences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from genenv_jax.models import scoring
from genenv_jax.models.scoring import completion_logprobs, score_completions, token_logprobs
from tests.sampling.small_model import CONFIG, full_logits, log_softmax, make_batch, make_params

B, G, P, C = 3, 2, 5, 4
PROMPTS = np.array([5, 1, 3])
LENGTHS = np.array([[4, 2], [1, 0], [3, 4]])


@pytest.fixture(scope="module")
def params():
    return make_params()


@pytest.fixture(scope="module")
def want(params):
    """Log-probs and entropies (B, G, C) in float64, each row as one sequence of its own."""
    batch = make_batch(PROMPTS, LENGTHS)
    logp, entropy = np.zeros((B, G, C)), np.zeros((B, G, C))
    for i, j in np.ndindex(B, G):
        row = [*batch.prompts[i, : PROMPTS[i]], *batch.completions[i, j, : LENGTHS[i, j]]]
        logits = full_logits(params, [row + [7] * (P + C - len(row))])[0]
        for t in range(LENGTHS[i, j]):
            at = log_softmax(logits[PROMPTS[i] + t - 1])
            logp[i, j, t] = at[batch.completions[i, j, t]]
            entropy[i, j, t] = -(np.exp(at) * at).sum()
    return logp, entropy


@pytest.mark.parametrize("chunk", [24, 7])  # of 24 tokens: one chunk, and four with padding
def test_against_full_passes(params, want, chunk, monkeypatch):
    monkeypatch.setattr(scoring, "logit_chunk", lambda config: chunk)
    with jax.numpy_dtype_promotion("strict"):
        run = jax.jit(lambda *args: completion_logprobs(*args, CONFIG))  # traced anew
        got = run(params, make_batch(PROMPTS, LENGTHS))
    for name, a, b in zip(("log-probs", "entropies"), got, want, strict=True):
        assert a.shape == (B, G, C) and a.dtype == jnp.float32
        np.testing.assert_allclose(a, b, atol=1e-5, err_msg=name)
        assert (np.asarray(a)[np.asarray(make_batch(PROMPTS, LENGTHS).mask) == 0] == 0).all()
    assert want[1].max() > 1


def test_padding_makes_no_difference(params):
    batch = make_batch(PROMPTS, LENGTHS)
    other = batch._replace(prompts=batch.prompts.copy(), completions=batch.completions.copy())
    other.prompts[np.arange(P) >= PROMPTS[:, None]] = 3
    other.completions[np.arange(C) >= LENGTHS[..., None]] = 3
    assert (other.completions != batch.completions).any()
    got, same = (score_completions(params, x, CONFIG) for x in (other, batch))
    np.testing.assert_array_equal(got, same)


def test_completions_of_one_token(params, want):
    batch = make_batch(PROMPTS, LENGTHS)
    short = batch._replace(completions=batch.completions[..., :1], completion_lengths=np.minimum(LENGTHS, 1))
    np.testing.assert_allclose(score_completions(params, short, CONFIG), want[0][..., :1], atol=1e-5)


def test_gradients_in_chunks(params, monkeypatch):
    """Recomputed chunk by chunk in the backward pass, they equal those of one chunk."""
    weight = np.random.default_rng(1).normal(size=(2, B, G, C)).astype(np.float32)

    def gradient(chunk):
        monkeypatch.setattr(scoring, "logit_chunk", lambda config: chunk)

        def total(params):
            logp, entropy = completion_logprobs(params, make_batch(PROMPTS, LENGTHS), CONFIG)
            return jnp.sum(logp * weight[0] + entropy * weight[1])

        return jax.jit(jax.grad(total))(params)

    got, want = gradient(7), gradient(24)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4, rtol=1e-4), got, want)
    assert all(jnp.abs(leaf).max() > 0.1 for leaf in jax.tree.leaves(want["layers"]["mlp"]))


@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_log_probs_and_entropies_and_their_gradients(scale):
    """Against log_softmax and its own gradient, also where one token has nearly all of the mass."""
    rng = np.random.default_rng(0)
    logits = jnp.asarray(rng.normal(0.0, scale, (5, 7, 40)), jnp.float32)
    tokens = jnp.asarray(rng.integers(0, 40, (5, 7)))
    weights = jnp.asarray(rng.normal(size=(2, 5, 7)), jnp.float32)

    def plain(logits, tokens):
        logp = jax.nn.log_softmax(logits)
        chosen = jnp.take_along_axis(logp, tokens[..., None], axis=-1)[..., 0]
        return chosen, -jnp.sum(jnp.exp(logp) * logp, axis=-1)

    def total(f):
        return lambda x: sum(jnp.sum(w * y) for w, y in zip(weights, f(x, tokens), strict=True))

    for got, want in zip(token_logprobs(logits, tokens), plain(logits, tokens), strict=True):
        np.testing.assert_allclose(got, want, atol=2e-5)
    got, want = (jax.grad(total(f))(logits) for f in (token_logprobs, plain))
    np.testing.assert_allclose(got, want, atol=1e-5)
