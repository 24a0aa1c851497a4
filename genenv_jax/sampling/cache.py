"""The key/value caches of sampling: their layout on each backend, and everything that writes to them.

A cache is one `CacheSegment` with all layers in it, or a tuple of one a layer.  Which of the two, and
how keys lie, is decided here and nowhere else:

    scanned layers (TPUs, GPUs)   one array; layers read it, and the step's keys are appended once after
                                  all of them, so that the scan carries no copy of it
    unrolled layers (CPUs)        an array a layer, with the tokens last in the keys: read there in half
                                  the time that tokens before features take
"""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from genenv_jax.models.attention_decode import CacheSegment
from genenv_jax.models.config import TransformerConfig
from genenv_jax.models.transformer import KVSegment
from genenv_jax.typing import Array

Cache = CacheSegment | tuple[CacheSegment, ...]


def per_layer(config: TransformerConfig) -> bool:
    """Whether a cache is a tuple with a segment for each layer."""
    return config.unroll_layers


def empty(config: TransformerConfig, rows: int, group: int, length: int) -> Cache:
    """A cache of zeros for `length` tokens of (rows, group) sequences."""
    shape = (config.num_layers, rows, group, length, config.num_kv_heads, config.head_dim)
    zeros = jnp.zeros(shape, config.dtype)
    return from_segment(KVSegment(zeros, zeros), config)


def from_segment(segment: KVSegment, config: TransformerConfig) -> Cache:
    """A prefill's keys and values (l, b, g, s, k, h), laid out for reading."""
    if per_layer(config):
        return tuple(
            _lay_out(KVSegment(segment.k[i], segment.v[i]), time_last=True)
            for i in range(config.num_layers)
        )
    return shard(_lay_out(segment, time_last=False))


def _lay_out(segment: KVSegment, time_last: bool) -> CacheSegment:
    k, v = segment.k.swapaxes(-3, -2), segment.v.swapaxes(-3, -2)
    return CacheSegment(k.swapaxes(-2, -1) if time_last else k, v, time_last)


def shard(cache: Cache) -> Cache:
    """Splits a cache by rows and key/value heads."""

    def constrain(x: Array) -> Array:
        layers = ("layers",) * (x.ndim - 5)
        return nn.with_logical_constraint(x, (*layers, "batch", "group", "kv_heads", None, None))

    return jax.tree.map(constrain, cache)


def length(cache: Cache) -> int:
    """How many tokens a sequence's part of the cache holds."""
    return (cache[0] if isinstance(cache, tuple) else cache).v.shape[-2]


def append(cache: Cache, new: KVSegment | tuple[KVSegment, ...], column: Array, x: Array) -> Cache:
    """Writes one token's keys and values (b, g, 1, k, h), of each layer, at a column.

    Args:
      column: () int32.
      x: any result of the step that has read the cache.
    """
    if not isinstance(cache, tuple):
        return shard(_write(cache, new, column))
    # To write in place XLA must know that all reading comes first.  It takes no notice of the program's
    # order, only of data: so the column depends on a result of the reading (0 is added, or 1 to a
    # step that has gone to NaN anyway).  Without it every layer's cache is copied at every step.
    result = x.reshape(-1)[0]
    column = column + (result != result).astype(column.dtype)
    return tuple(_write(part, kv, column) for part, kv in zip(cache, new, strict=True))


def _write(cache: CacheSegment, new: KVSegment, column: Array) -> CacheSegment:
    new = _lay_out(new, cache.time_last)
    return jax.tree.map(
        lambda x, token, axis: jax.lax.dynamic_update_slice_in_dim(x, token, column, axis),
        cache,
        new,
        _token_axes(cache),
    )


def insert(cache: Cache, part: Cache, rows: Array) -> Cache:
    """Replaces rows (n,) of the batch axis by those of `part`, which has n of them."""

    def put(x: Array, new: Array) -> Array:
        every_layer = (slice(None),) * (x.ndim - 5)
        return x.at[(*every_layer, rows)].set(new)

    return shard(jax.tree.map(put, cache, part))


def take_columns(cache: Cache, columns: Array) -> Cache:
    """The cache with the tokens at `columns` (s,), in that order."""
    segments = cache if isinstance(cache, tuple) else (cache,)
    taken = tuple(
        jax.tree.map(lambda x, axis: jnp.take(x, columns, axis=axis), s, _token_axes(s))
        for s in segments
    )
    return shard(taken if isinstance(cache, tuple) else taken[0])


def _token_axes(cache: CacheSegment) -> CacheSegment:
    """Where the tokens are in each array of a segment."""
    last = cache.v.ndim - 1
    return cache.replace(k=last if cache.time_last else last - 1, v=last - 1)
