"""Rotary position embeddings."""

from __future__ import annotations

import jax.numpy as jnp

from genenv_jax.typing import Array


def rope_tables(positions: Array, head_dim: int, theta: float) -> tuple[Array, Array]:
    """Cosines and sines of rotary embeddings (Su et al., 2021), in float32.

    positions: integers (b, g, t).  Returns two arrays (b, g, t, 1, h / 2).
    """
    frequency = theta ** (-jnp.arange(0, head_dim, 2, dtype=jnp.float32) / head_dim)
    angle = positions[..., None, None].astype(jnp.float32) * frequency
    return jnp.cos(angle), jnp.sin(angle)


def apply_rope(x: Array, tables: tuple[Array, Array]) -> Array:
    """Rotates (b, g, t, heads, h); the pairs are (i, i + h / 2), as in Hugging Face checkpoints."""
    cos, sin = tables
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    rotated = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return rotated.astype(x.dtype)
