"""Attention of a decoding step: one query per row over caches laid out for reading.

A step reads every key and value once and computes little, so the layout determines its speed:

    keys    ([l,] b, g or 1, k, s, h), or (..., k, h, s) if `time_last`
    values  ([l,] b, g or 1, k, s, h)

Heads come before tokens, so that both products are plain batched ones.  A cache whose group axis is 1
is read once for all rows of a group.
"""

from collections.abc import Sequence
from typing import TypeVar

import flax.struct
import jax
import jax.numpy as jnp

from genenv_jax.typing import Array

Tree = TypeVar("Tree")


@flax.struct.dataclass
class CacheSegment:
    """Keys (rotated) and values of a run of tokens, laid out as in the module docstring.

    Inside one layer, the leading layer axis is absent.
    """

    k: Array
    v: Array
    time_last: bool = flax.struct.field(pytree_node=False, default=False)


def repeat_heads(tree: Tree, heads: int) -> Tree:
    """Repeats each head of keys or values (..., k, h) in place, up to `heads` heads."""
    return jax.tree.map(lambda x: jnp.repeat(x, heads // x.shape[-2], axis=-2), tree)


def decode_attention(q: Array, k: Array, v: Array, past: Sequence[tuple[CacheSegment, Array]]) -> Array:
    """Attention of one new token per row to the caches and itself, under one softmax.

    The parts share only the softmax's maximum and sum, as in `attention.attend`.

    Args:
      q: (b, g, 1, n, h).
      k, v: (b, g, 1, k, h), of the same token.
      past: caches (b, g or 1, k, s, h), possibly with heads repeated as in `rules.cache_heads`, each with a
        boolean mask that broadcasts to (b, g, 1, s).
    Returns:
      (b, g, 1, n, h) in q's dtype; scores and softmax are float32.
    """
    b, g, _, n, h = q.shape
    heads = past[0][0].v.shape[-3]
    k, v = repeat_heads((k, v), heads)
    q = q.reshape(b, g, heads, n // heads, h) * h**-0.5
    own = jnp.sum(
        q.astype(jnp.float32) * k.reshape(b, g, heads, 1, h).astype(jnp.float32), axis=-1, keepdims=True
    )
    parts, top = [], own
    for cache, mask in past:
        shared = cache.k.shape[1] == 1
        queries = q.swapaxes(1, 2) if shared else q
        shape = queries.shape[:-1]
        batch = (b, heads) if shared else (b * g, heads)
        keys = cache.k.reshape(*batch, *cache.k.shape[-2:])
        scores = jnp.einsum(
            "xkqh,xkhs->xkqs" if cache.time_last else "xkqh,xksh->xkqs",
            queries.reshape(*batch, -1, h),
            keys,
            preferred_element_type=jnp.float32,
        ).reshape(*shape, -1)
        # (b, g, 1, s) -> the axes of the scores, (b, k, g, q, s) or (b, g, k, q, s)
        mask = mask[:, None] if shared else mask[:, :, :, None]
        scores = jnp.where(mask, scores, jnp.finfo(jnp.float32).min)
        highest = jnp.max(scores, axis=-1, keepdims=True)
        top = jnp.maximum(top, highest.swapaxes(1, 2) if shared else highest)
        parts.append((scores, cache.v.reshape(*batch, -1, h), shared))
    weight = jnp.exp(own - top)
    total, weighted = weight, weight * v.reshape(b, g, heads, 1, h).astype(jnp.float32)
    for scores, values, shared in parts:
        weights = jnp.exp(scores - (top.swapaxes(1, 2) if shared else top))
        part = jnp.sum(weights, axis=-1, keepdims=True)
        out = weights.astype(q.dtype).reshape(*values.shape[:2], -1, weights.shape[-1]) @ values
        out = out.reshape(*weights.shape[:-1], h).astype(jnp.float32)
        total = total + (part.swapaxes(1, 2) if shared else part)
        weighted = weighted + (out.swapaxes(1, 2) if shared else out)
    return (weighted / total).astype(q.dtype).reshape(b, g, 1, n, h)
