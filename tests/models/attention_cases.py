"""Inputs of attention, and the comparison of two implementations with their gradients."""

import jax
import jax.numpy as jnp
import numpy as np

from genenv_jax.models.attention import SlidingWindow, causal_attention
from genenv_jax.models.attention_sharding import SharedPast


def make_past(*, s, lengths=None, kv=2, h=8, b=2, dtype="float32", seed=0):
    """A segment (keys, values, mask) that a group shares; lengths run from 1 to s."""
    rng = np.random.default_rng(seed)
    lengths = np.linspace(1, s, b).astype(int) if lengths is None else np.asarray(lengths)
    k, v = (jnp.asarray(rng.normal(size=(b, 1, s, kv, h)), dtype) for _ in range(2))
    return k, v, jnp.asarray(np.arange(s) < lengths[:, None])[:, None, None]


def make_inputs(*, g, t, s, lengths=None, n=4, kv=2, h=8, b=2, dtype="float32", seed=0):
    """q, k, v and the list of past segments: none where s = 0."""
    rng = np.random.default_rng(seed + 100)
    q, k, v = (jnp.asarray(rng.normal(size=(b, g, t, m, h)), dtype) for m in (n, kv, kv))
    past = [make_past(s=s, lengths=lengths, kv=kv, h=h, b=b, dtype=dtype, seed=seed)] if s else []
    return q, k, v, past


def with_shared_past(kernel):
    """A kernel that takes a `SharedPast`, as a function of a list of at most one segment."""

    def run(q, k, v, past):
        shared = [SharedPast(keys[:, 0], values[:, 0], mask[:, 0, 0]) for keys, values, mask in past]
        return kernel(q, k, v, shared[0] if shared else None)

    return run


def with_window(implementation, size, local):
    """Causal attention in a layer with a window: a row's tokens follow its prompt's, whatever its padding."""

    def run(q, k, v, past):
        segments, places = [], []
        for keys, values, mask in past:
            place = jnp.where(mask, jnp.cumsum(mask, axis=-1) - 1, -1)
            ago = mask.sum(-1, keepdims=True) + jnp.arange(q.shape[2])[:, None] - place
            segments.append((keys, values, mask & ((ago < size) | ~local)))
            places.append(place)
        return causal_attention(q, k, v, segments, implementation, SlidingWindow(local, size, places))

    return run


def forward_and_gradients(function, q, k, v, past):
    """Output, and the gradients of a random functional of it for q, k, v and the past's pairs."""
    direction = np.random.default_rng(5).normal(size=q.shape).astype(np.float32)

    def scalar(q, k, v, pairs):
        out = function(q, k, v, [(*pair, mask) for pair, (_, _, mask) in zip(pairs, past, strict=True)])
        return jnp.sum(out.astype(jnp.float32) * direction), out

    pairs = [segment[:2] for segment in past]
    grads, out = jax.jit(jax.grad(scalar, argnums=(0, 1, 2, 3), has_aux=True))(q, k, v, pairs)
    return out, grads


def assert_equal_with_gradients(got, want, inputs):
    """Equal in float32 to 1e-5; in bfloat16 as near to float32 as the rounding of inputs allows.

    For bfloat16 both are compared with `want` in float32 on the same (rounded) inputs: the error of
    `got` may be at most twice that of `want`, or three units in the last place of the largest value.
    """
    q, k, v, past = inputs
    out, grads = forward_and_gradients(got, q, k, v, past)
    assert out.dtype == q.dtype and out.shape == q.shape
    got_leaves = jax.tree.leaves((out, grads))
    want_leaves = jax.tree.leaves(forward_and_gradients(want, q, k, v, past))
    assert len(got_leaves) == len(want_leaves) == 4 + 2 * len(past)
    if q.dtype == jnp.float32:
        for a, b in zip(got_leaves, want_leaves, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * max(1.0, float(jnp.abs(b).max())))
            assert float(jnp.abs(b).max()) > 1e-2  # far above the tolerance
        return
    exact = jax.tree.map(lambda x: x.astype(jnp.float32) if x.dtype == q.dtype else x, (q, k, v, past))
    exact_leaves = jax.tree.leaves(forward_and_gradients(want, *exact))
    for a, b, c in zip(got_leaves, want_leaves, exact_leaves, strict=True):
        assert a.dtype == b.dtype
        error, usual = (float(jnp.abs(x.astype(jnp.float32) - c).max()) for x in (a, b))
        assert error <= max(2 * usual, 3 * 2.0**-8 * float(jnp.abs(c).max())), (error, usual)
