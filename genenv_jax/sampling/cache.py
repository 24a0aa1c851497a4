"""The key/value caches of sampling: their layout on each backend, and everything that writes to them.

A cache is one `CacheSegment` holding all layers, or a tuple with one segment per layer.  This module
alone decides which, and how keys are laid out:

    scanned layers (TPUs, GPUs)   one array; layers read it, and the step's keys are appended once, after
                                  the last layer, so that the scan carries no copy of the cache
    unrolled layers (CPUs)        one array per layer, with tokens as the last axis of the keys: CPUs read
                                  that in half the time of tokens before features
"""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from genenv_jax.models.attention_decode import CacheSegment, repeat_heads
from genenv_jax.models.config import TransformerConfig
from genenv_jax.models.transformer import KVSegment
from genenv_jax.parallel import rules
from genenv_jax.sampling import parts
from genenv_jax.typing import Array

Cache = CacheSegment | tuple[CacheSegment, ...]


def per_layer(config: TransformerConfig) -> bool:
    """Whether a cache is a tuple with one segment per layer."""
    return config.unroll_layers


def empty(config: TransformerConfig, rows: int, group: int, length: int) -> Cache:
    """A cache of zeros for `length` tokens of (rows, group) sequences."""
    shape = (config.num_layers, rows, group, length, rules.cache_heads(config), config.head_dim)
    zeros = jnp.zeros(shape, config.dtype)
    return from_segment(KVSegment(zeros, zeros), config)


def from_segment(segment: KVSegment, config: TransformerConfig) -> Cache:
    """Lays out a prefill's keys and values (l, b, g, s, k, h) for reading."""
    segment = repeat_heads(segment, rules.cache_heads(config))
    if per_layer(config):
        return tuple(
            _lay_out(KVSegment(segment.k[i], segment.v[i]), time_last=True) for i in range(config.num_layers)
        )
    return shard(_lay_out(segment, time_last=False))


def _lay_out(segment: KVSegment, time_last: bool) -> CacheSegment:
    k, v = segment.k.swapaxes(-3, -2), segment.v.swapaxes(-3, -2)
    return CacheSegment(k.swapaxes(-2, -1) if time_last else k, v, time_last)


def shard(cache: Cache) -> Cache:
    """Shards a cache by rows and key/value heads."""

    def constrain(x: Array) -> Array:
        layers = ("layers",) * (x.ndim - 5)
        return nn.with_logical_constraint(x, (*layers, "batch", "group", "cache_heads", None, None))

    return jax.tree.map(constrain, cache)


def length(cache: Cache) -> int:
    """How many tokens per sequence the cache holds."""
    return (cache[0] if isinstance(cache, tuple) else cache).v.shape[-2]


def _batch_axis(cache: Cache) -> int:
    """The batch axis of each array in a cache."""
    return 0 if isinstance(cache, tuple) else 1


def append(cache: Cache, new: KVSegment | tuple[KVSegment, ...], column: Array, x: Array) -> Cache:
    """Writes one token's keys and values (b, g, 1, k, h) of each layer to a column.

    Args:
      column: () int32.
      x: any result of the step that read the cache.
    """
    if not isinstance(cache, tuple):
        return shard(_write(cache, new, column))
    # To write in place, XLA must know that all reads come first.  It ignores program order and sees only
    # data dependencies, so the column is made to depend on a result of the reads (this adds 0, or 1 if
    # the step is NaN anyway).  Without it, every layer's cache is copied at every step.
    result = x.reshape(-1)[0]
    column = column + (result != result).astype(column.dtype)
    return tuple(_write(part, kv, column) for part, kv in zip(cache, new, strict=True))


def _write(cache: CacheSegment, new: KVSegment, column: Array) -> CacheSegment:
    new = _lay_out(repeat_heads(new, cache.v.shape[-3]), cache.time_last)
    return jax.tree.map(
        lambda x, token, axis: jax.lax.dynamic_update_slice_in_dim(x, token, column, axis),
        cache,
        new,
        _token_axes(cache),
    )


def insert(cache: Cache, part: Cache, slots: Array) -> Cache:
    """Replaces rows of the batch axis with those of `part`; slots (n,) count within their `parts`."""
    axis = _batch_axis(cache)

    def put(cache: Cache, part: Cache, slots: Array) -> Cache:
        at = (*(slice(None),) * axis, slots)
        return jax.tree.map(lambda x, new: x.at[at].set(new), cache, part)

    return shard(parts.mapped(put, (axis, axis, 0), axis)(cache, part, slots))


def take_columns(cache: Cache, columns: Array) -> Cache:
    """The cache with only the tokens at `columns` (s,), in that order."""
    segments = cache if isinstance(cache, tuple) else (cache,)
    taken = tuple(
        jax.tree.map(lambda x, axis: jnp.take(x, columns, axis=axis), s, _token_axes(s)) for s in segments
    )
    return shard(taken if isinstance(cache, tuple) else taken[0])


def _token_axes(cache: CacheSegment) -> CacheSegment:
    """The token axis of each array in a segment."""
    last = cache.v.ndim - 1
    return cache.replace(k=last if cache.time_last else last - 1, v=last - 1)


def read_rows(cache: Cache, slots: Array, lanes: Array) -> KVSegment:
    """The cached tokens of some rows, as context for their next tokens.

    slots, lanes: (n,) int32, a row's index on the batch axis, within its part (`parts`), and the group axis.
    Returns keys and values (l, n, 1, s, k, h) with the cache's heads.
    """
    axis = _batch_axis(cache)

    def take(cache: Cache, slots: Array, lanes: Array) -> Cache:
        at = (*(slice(None),) * axis, slots, lanes)
        return jax.tree.map(lambda x: x.at[at].get(mode="clip"), cache)

    rows = parts.mapped(take, (axis, 0, 0), axis)(cache, slots, lanes)
    if isinstance(rows, tuple):
        k, v = (jnp.stack(layers) for layers in zip(*((x.k, x.v) for x in rows), strict=True))
        if rows[0].time_last:
            k = k.swapaxes(-2, -1)
    else:
        k, v = rows.k, rows.v
    return KVSegment(*(x.swapaxes(-3, -2)[:, :, None] for x in (k, v)))


def write_rows(cache: Cache, new: KVSegment, slots: Array, lanes: Array, columns: Array) -> Cache:
    """Writes new tokens of some rows at the given columns.

    new: keys and values (l, n, 1, w, k, h).  slots, lanes: (n,), as in `read_rows`.  columns: (n, w); tokens
    whose column is beyond the cache are dropped.
    """
    new = repeat_heads(new, jax.tree.leaves(cache)[0].shape[-3])
    axes = (_batch_axis(cache), 1, 0, 0, 0)
    write = parts.mapped(_write_rows, axes, axes[0])
    return shard(write(cache, new, slots, lanes, columns))


def _write_rows(cache, new, slots, lanes, columns) -> Cache:
    slots, lanes = slots[:, None], lanes[:, None]
    k, v = new.k[:, :, 0], new.v[:, :, 0]
    if isinstance(cache, tuple):
        written = []
        for part, keys, values in zip(cache, k, v, strict=True):
            at = (slots, lanes, slice(None))
            last = (*at, slice(None), columns) if part.time_last else (*at, columns)
            written.append(part.replace(k=part.k.at[last].set(keys), v=part.v.at[*at, columns].set(values)))
        return tuple(written)
    at = (slice(None), slots, lanes, slice(None), columns)
    k, v = (jnp.moveaxis(x, 0, 2) for x in (k, v))  # separated indices come first: (n, w, l, k, h)
    return cache.replace(k=cache.k.at[at].set(k), v=cache.v.at[at].set(v))


def widen(cache: Cache, length: int) -> Cache:
    """Pads the cache to `length` tokens; cached tokens keep their columns."""

    def pad(x: Array, axis: int) -> Array:
        return jnp.pad(x, [(0, length - n if i == axis else 0) for i, n in enumerate(x.shape)])

    segments = cache if isinstance(cache, tuple) else (cache,)
    padded = tuple(jax.tree.map(pad, s, _token_axes(s)) for s in segments)
    return shard(padded if isinstance(cache, tuple) else padded[0])
