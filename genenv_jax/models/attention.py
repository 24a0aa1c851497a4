"""Attention over several key/value segments, some of them shared by a group of rows."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from genenv_jax.typing import Array

Segment = tuple[Array, Array, Array]  # keys, values, mask


def causal_attention(
    q: Array, k: Array, v: Array, past: list[Segment], implementation: str = "xla"
) -> Array:
    """New tokens attend to the past segments and, causally, to themselves.

    Args:
      q: (b, g, t, n, h).
      k, v: (b, g, t, k, h), of the same tokens.
      past: earlier segments as `attend` takes them.
      implementation: of the kernel, see `TransformerConfig.attention`.
    Returns:
      (b, g, t, n, h).
    """
    del implementation
    t = q.shape[2]
    causal = jnp.tril(jnp.ones((1, 1, t, t), bool))
    return attend(q, [*past, (k, v, causal)])


def attend(q: Array, segments: list[tuple[Array, Array, Array]]) -> Array:
    """Grouped-query attention over several key/value segments under one softmax.

    Each segment is a plain batched matrix product in the layout that suits it, and the segments meet
    in the softmax's maximum and sum only, so that their scores are never concatenated or transposed:
        softmax([s1, s2]) @ [v1; v2] = (e1 @ v1 + e2 @ v2) / (Σe1 + Σe2),   ei = exp(si - max(s1, s2))

    Args:
      q: (b, g, t, n, h).
      segments: (keys, values, mask) each; keys and values (b, g or 1, s, k, h), mask boolean and
        broadcastable to (b, g, t, s), true where a query may look.  Every query may look somewhere.
    Returns:
      (b, g, t, n, h), in q's dtype; scores and softmax are float32.
    """
    b, g, t, n, h = q.shape
    k = segments[0][0].shape[3]
    q = q.reshape(b, g, t, k, n // k, h) * h**-0.5
    parts, tops = [], []
    for keys, values, mask in segments:
        s = keys.shape[2]
        mask = jnp.broadcast_to(mask, (b, *mask.shape[1:3], s))
        if keys.shape[1] == 1:  # shared by the group, whose rows then join the query axis
            layout, batch = (0, 3, 1, 4, 2, 5), (b, k)
            mask = mask[:, None, :, None]
        else:
            layout, batch = (0, 1, 3, 4, 2, 5), (b * g, k)
            mask = mask[:, :, None, None]
        queries = q.transpose(layout)
        rows = queries.shape[:-1]
        keys, values = (x.reshape(-1, s, k, h).swapaxes(1, 2) for x in (keys, values))
        scores = jnp.einsum(
            "...qh,...sh->...qs",
            queries.reshape(*batch, -1, h),
            keys,
            preferred_element_type=jnp.float32,
        ).reshape(*rows, s)
        scores = jnp.where(mask, scores, jnp.finfo(jnp.float32).min)
        inverse = tuple(layout.index(axis) for axis in range(6))
        top = jax.lax.stop_gradient(jnp.max(scores, axis=-1, keepdims=True))
        tops.append(top.transpose(inverse))
        parts.append((scores, values, batch, layout, inverse))
    top = functools.reduce(jnp.maximum, tops)
    weighted, total = 0.0, 0.0
    for scores, values, batch, layout, inverse in parts:
        weights = jnp.exp(scores - top.transpose(layout))
        total = total + jnp.sum(weights, axis=-1, keepdims=True).transpose(inverse)
        out = weights.astype(q.dtype).reshape(*batch, -1, weights.shape[-1]) @ values
        weighted = weighted + out.reshape(*weights.shape[:-1], h).transpose(inverse).astype(
            jnp.float32
        )
    return (weighted / total).astype(q.dtype).reshape(b, g, t, n, h)
