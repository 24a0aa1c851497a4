"""A prompt computed once and shared by its group gives what separate full passes give."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from genenv_jax.models.config import TransformerConfig, Window
from genenv_jax.models.transformer import KVSegment, Transformer, keys_at
from genenv_jax.parallel.rules import param_shapes

B, G, P, C = 2, 3, 5, 4  # prompts, continuations, tokens of the longest prompt, of a continuation
PROMPT = np.array([5, 3])  # real tokens of each prompt


_SLOW = [pytest.param(remat, marks=pytest.mark.slow) for remat in ("none", "full", "dots")]


@pytest.fixture(scope="module", params=["offload", *_SLOW])
def model(request):
    config = TransformerConfig(
        vocab_size=50, hidden_size=16, intermediate_size=24, num_layers=2, num_heads=4,
        num_kv_heads=2, head_dim=4, qkv_bias=True, remat=request.param,
        window=Window(3, (False, True), 100.0),
    )  # fmt: skip
    rng = np.random.default_rng(1)  # much faster than compiling the initialisers
    params = jax.tree.map(
        lambda x: jnp.asarray(rng.normal(0.0, 0.5, x.shape), x.dtype), param_shapes(config)
    )
    return Transformer(config), params


def tokens():
    rng = np.random.default_rng(2)
    prompt = rng.integers(0, 50, (B, 1, P), dtype=np.int32)
    return prompt, rng.integers(0, 50, (B, G, C), dtype=np.int32)


def shared(model, params, prompt, completion):
    """Hidden states (b, g, c, d): the prompt once, then the continuations over it."""
    positions = jnp.broadcast_to(jnp.arange(P), prompt.shape)
    _, segment = model.apply({"params": params}, prompt, positions)
    places = keys_at(jnp.arange(P), PROMPT[:, None])[:, None, None]
    positions = jnp.broadcast_to(PROMPT[:, None, None] + jnp.arange(C), completion.shape)
    hidden, _ = model.apply({"params": params}, completion, positions, (segment,), (places,))
    return hidden


def separate(model, params, prompt, completion):
    """The same, each row as one unpadded sequence of its own."""
    rows = []
    for b in range(B):
        start = np.broadcast_to(prompt[b, :, : PROMPT[b]], (G, PROMPT[b]))
        row = np.concatenate([start, completion[b]], axis=1)[:, None]
        positions = jnp.broadcast_to(jnp.arange(row.shape[-1]), row.shape)
        hidden, _ = model.apply({"params": params}, row, positions)
        rows.append(hidden[:, 0, PROMPT[b] :])
    return jnp.stack(rows)


def test_hidden_states_and_gradients(model):
    model, params = model
    weight = np.random.default_rng(3).normal(size=(B, G, C, 16)).astype(np.float32)

    def run(forward):
        def scalar(params):
            hidden = forward(model, params, *tokens())
            return jnp.sum(hidden * weight) / weight.size, hidden

        return jax.jit(jax.grad(scalar, has_aux=True))(params)

    grads, hidden = run(shared)
    expected_grads, expected = run(separate)
    np.testing.assert_allclose(hidden, expected, atol=1e-5)

    def compare(where, got, want):
        np.testing.assert_allclose(got, want, atol=1e-5, err_msg=str(where))

    jax.tree_util.tree_map_with_path(compare, grads, expected_grads)
    for leaf in jax.tree.leaves(grads["layers"]):  # far above the tolerance
        assert float(jnp.abs(leaf).max()) > 1e-4


def test_token_by_token_over_two_segments(model):
    """Decoding: a shared prompt segment and a segment of the tokens so far."""
    model, params = model
    prompt, completion = tokens()
    want = jax.jit(shared, static_argnums=0)(model, params, prompt, completion)
    apply = jax.jit(model.apply)
    positions = jnp.broadcast_to(jnp.arange(P), prompt.shape)
    _, past = apply({"params": params}, prompt, positions)
    prompt_places = keys_at(jnp.arange(P), PROMPT[:, None])[:, None, None]
    start = jnp.asarray(PROMPT)[:, None, None, None]
    shape = (past.k.shape[0], B, G, C, *past.k.shape[4:])
    k, v = jnp.full(shape, 3.0), jnp.full(shape, 3.0)  # what is masked is not zero
    for step in range(C):
        so_far = keys_at(start + jnp.arange(C), start + step)
        hidden, new = apply(
            {"params": params},
            completion[:, :, step : step + 1],
            jnp.broadcast_to(PROMPT[:, None, None] + step, (B, G, 1)),
            (past, KVSegment(k, v)),
            (prompt_places, so_far),
        )
        k, v = (
            k.at[:, :, :, step].set(new.k[:, :, :, 0]),
            v.at[:, :, :, step].set(new.v[:, :, :, 0]),
        )
        np.testing.assert_allclose(hidden[:, :, 0], want[:, :, step], atol=1e-5)


def test_no_implicit_promotion(model):
    model, params = model
    with jax.numpy_dtype_promotion("strict"):
        shapes = jax.eval_shape(lambda: shared(model, params, *map(jnp.asarray, tokens())))
    assert shapes.shape == (B, G, C, 16)
