"""A decoding step's attention over laid-out caches, against the plain attention over segments."""

import jax.numpy as jnp
import numpy as np
import pytest

from genenv_jax.models.attention import attend
from genenv_jax.models.attention_decode import CacheSegment, decode_attention

B, G, N, K, H = 2, 3, 4, 2, 8


def draw(rng, *shape, dtype="float32"):
    return jnp.asarray(rng.normal(size=shape), dtype)


def laid_out(k, v, time_last):
    """(b, g, s, k, h) -> heads before tokens."""
    k, v = k.swapaxes(2, 3), v.swapaxes(2, 3)
    return CacheSegment(k.swapaxes(3, 4) if time_last else k, v, time_last)


@pytest.mark.parametrize("time_last", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("group", [G, 1])
def test_against_plain_attention(time_last, dtype, group):
    """A prompt that the group shares, rows' own tokens of different lengths, and the new token."""
    rng = np.random.default_rng(0)
    q, k, v = (draw(rng, B, group, 1, heads, H, dtype=dtype) for heads in (N, K, K))
    prompt = [draw(rng, B, 1, 7, K, H, dtype=dtype) for _ in range(2)]
    own = [draw(rng, B, group, 5, K, H, dtype=dtype) for _ in range(2)]
    prompt_mask = jnp.arange(7) < jnp.array([7, 3])[:, None, None, None]
    lengths = jnp.asarray(rng.integers(0, 6, (B, group, 1, 1)))  # a row may have cached nothing yet
    own_mask = jnp.arange(5) < lengths
    itself = jnp.ones((1, 1, 1, 1), bool)
    want = attend(q, [(*prompt, prompt_mask), (*own, own_mask), (k, v, itself)])
    past = [(laid_out(*prompt, time_last), prompt_mask), (laid_out(*own, time_last), own_mask)]
    got = decode_attention(q, k, v, past)
    assert got.shape == (B, group, 1, N, H) and got.dtype == q.dtype
    np.testing.assert_allclose(
        np.asarray(got, np.float32),
        np.asarray(want, np.float32),
        atol=1e-6 if dtype == "float32" else 2e-2,
    )


def test_what_is_masked_makes_no_difference():
    rng = np.random.default_rng(1)
    q, k, v = (draw(rng, B, G, 1, heads, H) for heads in (N, K, K))
    keys, values = (draw(rng, B, G, 5, K, H) for _ in range(2))
    mask = (jnp.arange(5) < jnp.array([[0], [2], [5]]))[None, :, None]  # (1, g, 1, s)
    other = [jnp.where(mask.reshape(1, G, 5, 1, 1), x, 50.0) for x in (keys, values)]
    got = decode_attention(q, k, v, [(laid_out(keys, values, True), mask)])
    same = decode_attention(q, k, v, [(laid_out(*other, True), mask)])
    np.testing.assert_array_equal(got, same)
    first = jnp.broadcast_to(v[:, :1].repeat(N // K, axis=3), (B, 1, 1, N, H))
    np.testing.assert_allclose(got[:, :1], first, atol=1e-6)  # nothing cached: itself alone
