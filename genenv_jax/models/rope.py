"""Rotary position embeddings."""

from __future__ import annotations

import jax.numpy as jnp

from genenv_jax.models.platform import target_platform
from genenv_jax.models.rope_scaling import RopeScaling, inverse_frequencies
from genenv_jax.typing import Array


def rope_tables(
    positions: Array, head_dim: int, theta: float, scaling: RopeScaling | None = None
) -> tuple[Array, Array]:
    """Cosines and sines of rotary embeddings (Su et al., 2021), in float32.

    positions: integers (b, g, t).  Returns two arrays (b, g, t, 1, h / 2).
    """
    angle = positions[..., None, None].astype(jnp.float32) * inverse_frequencies(head_dim, theta, scaling)
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    if scaling is not None and scaling.attention_factor != 1:
        cos, sin = cos * scaling.attention_factor, sin * scaling.attention_factor
    if target_platform() == "cpu":
        # XLA's CPU backend would recompute them in every layer's rotation, for every head.  It fuses no
        # elementwise work across a matrix product, and this product is exact.
        identity = jnp.eye(cos.shape[-1], dtype=cos.dtype)
        cos, sin = cos @ identity, sin @ identity
    return cos, sin


def apply_rope(x: Array, tables: tuple[Array, Array]) -> Array:
    """Rotates x (b, g, t, heads, h) in pairs (i, i + h / 2), as in Hugging Face checkpoints."""
    cos, sin = tables
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    rotated = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return rotated.astype(x.dtype)
