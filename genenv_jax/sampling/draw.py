"""Draws tokens from logits: temperature, and a cheap exact draw."""

import dataclasses

import jax
import jax.numpy as jnp

from genenv_jax.typing import Array, PRNGKey

_BLOCK = 128  # tokens per block in the two-level draw


@dataclasses.dataclass(frozen=True)
class SamplingParams:
    """Static options of a sampler; a change to any field recompiles.

    Attributes:
      max_new_tokens: length limit of a completion, including the end token; at least 1.
      group_size: samples per prompt (g), at least 1.
      eos_ids: token ids that end a completion; the end token is part of it.
      temperature: 0 means greedy.
    """

    max_new_tokens: int
    group_size: int
    eos_ids: tuple[int, ...]
    temperature: float = 1.0


def draw(logits: Array, uniform: Array) -> tuple[Array, Array]:
    """Draws from softmax(logits) by inverting its CDF in two levels (blocks, then tokens of a block).

    One uniform number per row replaces the v Gumbel numbers of `jax.random.categorical`.  Short sums
    keep float32 accurate enough for vocabularies of 150,000.

    Args:
      logits: (..., v) float32; -inf excludes a token.
      uniform: (...) float32 in [0, 1).
    Returns:
      (...) int32 token ids, never of probability 0, and (...) float32 logsumexp(logits), which the
      draw computes anyway.
    """
    v = logits.shape[-1]
    top = jnp.max(logits, axis=-1, keepdims=True)
    weight = jnp.exp(logits - top)
    weight = jnp.pad(weight, [(0, 0)] * (weight.ndim - 1) + [(0, -v % _BLOCK)])
    weight = weight.reshape(*weight.shape[:-1], -1, _BLOCK)
    block_weight = jnp.sum(weight, axis=-1)
    block_cdf = jnp.cumsum(block_weight, axis=-1)
    target = (uniform * block_cdf[..., -1])[..., None]
    last_block = block_cdf.shape[-1] - 1
    block = jnp.minimum(jnp.sum(block_cdf <= target, axis=-1), last_block)[..., None]
    # XLA sums prefixes as a tree, so a block of weight 0 can seem to have some: never take it.
    empty = jnp.take_along_axis(block_weight, block, axis=-1) <= 0
    block = jnp.where(empty, jnp.argmax(block_weight, axis=-1)[..., None], block)
    before = jnp.where(block > 0, jnp.take_along_axis(block_cdf, jnp.maximum(block - 1, 0), axis=-1), 0.0)
    inside = jnp.take_along_axis(weight, block[..., None], axis=-2)[..., 0, :]
    offset = jnp.sum(jnp.cumsum(inside, axis=-1) <= target - before, axis=-1)
    # Rounding can put the target past the block's own sum: fall back to the block's likeliest token.
    offset = jnp.minimum(offset, _BLOCK - 1)
    drawn = jnp.take_along_axis(inside, offset[..., None], axis=-1)[..., 0]
    offset = jnp.where(drawn > 0, offset, jnp.argmax(inside, axis=-1))
    token = (block[..., 0] * _BLOCK + offset).astype(jnp.int32)
    return token, top[..., 0] + jnp.log(block_cdf[..., -1])


def next_token(logits: Array, row_keys: PRNGKey, step: Array, options: SamplingParams) -> tuple[Array, Array]:
    """Draws one token per row, and gives its log-prob under the raw policy (temperature 1).

    Args:
      logits: (b, g, v) float32.
      row_keys: (b, g) typed keys.
      step: (b, g) integers, the token's index in its completion; the draw's key is
        fold_in(row key, step).
    Returns:
      (b, g) int32 and (b, g) float32.
    """
    if options.temperature == 0.0:
        token, total = jnp.argmax(logits, axis=-1).astype(jnp.int32), None
    else:
        keys = jax.vmap(jax.vmap(jax.random.fold_in))(row_keys, step)
        uniform = jax.vmap(jax.vmap(lambda key: jax.random.uniform(key, (), jnp.float32)))(keys)
        token, total = draw(logits / options.temperature, uniform)
    if options.temperature != 1.0:
        total = jax.nn.logsumexp(logits, axis=-1)
    return token, jnp.take_along_axis(logits, token[..., None], axis=-1)[..., 0] - total
