"""The key/value caches of sampling: their layout on each backend, and everything that writes to them.

A cache is a tuple of segments.  This module alone decides which, and how keys are laid out:

    scanned layers (TPUs, GPUs)   one segment per kind of layer; layers read it, and the step's keys are
                                  appended once, after the last layer, so that the scan carries no copy of
                                  the cache
    unrolled layers (CPUs)        one segment per layer, with tokens as the last axis of the keys: CPUs read
                                  that in half the time of tokens before features

The kinds are layers that see all tokens, then layers with a sliding window ("local"), whose segments have
no more columns than the window.  What is written at step i lies in column i mod n, until it is replaced.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from genenv_jax.models.attention_decode import CacheSegment, repeat_heads
from genenv_jax.models.config import TransformerConfig
from genenv_jax.models.layers import KVSegment
from genenv_jax.parallel import rules
from genenv_jax.sampling import parts
from genenv_jax.typing import Array

Cache = tuple[CacheSegment, ...]


def per_layer(config: TransformerConfig) -> bool:
    """Whether a cache has one segment per layer."""
    return config.unroll_layers


def empty(config: TransformerConfig, rows: int, group: int, length: int, bounded: bool = True) -> Cache:
    """A cache of zeros for `length` tokens of (rows, group) sequences.

    bounded: whether local layers keep only what their window needs.  `write_rows` needs a cache that has
      replaced nothing.
    """

    def zeros(local: bool) -> CacheSegment:
        layers = () if per_layer(config) else (config.local_layers.count(local),)
        tokens = columns(config, local, length) if bounded else length
        x = jnp.zeros(
            (*layers, rows, group, tokens, rules.cache_heads(config), config.head_dim), config.dtype
        )
        return _lay_out(KVSegment(x, x), time_last=per_layer(config))

    return shard(tuple(zeros(local) for local in _segments(config)))


def from_prompts(segment: KVSegment, ends: Array, config: TransformerConfig) -> Cache:
    """Lays out a prefill's keys and values (l, b, 1, p, k, h); the prompts end at `ends` (b,)."""
    segment = repeat_heads(segment, rules.cache_heads(config))
    kinds = tuple(
        _last_tokens(kv, ends, columns(config, local, segment.k.shape[3]))
        for local, kv in zip(config.layer_kinds, by_kind(segment, config), strict=True)
    )
    last = per_layer(config)
    return shard(tuple(_lay_out(kv, time_last=last) for kv in _by_segment(kinds, config)))


def _last_tokens(kv: KVSegment, ends: Array, length: int) -> KVSegment:
    """The tokens that `length` columns hold after `ends` (b,) tokens."""
    if length == kv.k.shape[3]:
        return kv
    tokens = (ends - 1)[:, None] - _age(ends, length)
    take = jax.vmap(lambda x, at: jnp.take(x, at, axis=2, mode="clip"), (1, 0), 1)
    return jax.tree.map(lambda x: take(x, tokens), kv)


def _lay_out(segment: KVSegment, time_last: bool) -> CacheSegment:
    k, v = segment.k.swapaxes(-3, -2), segment.v.swapaxes(-3, -2)
    return CacheSegment(k.swapaxes(-2, -1) if time_last else k, v, time_last)


def places(
    cache: Cache, config: TransformerConfig, start: Array, count: Array, step: Array | None = None
) -> tuple[Array, ...]:
    """The position of the token in each column, for each kind of layer: (..., length) int32; -1: none.

    Wanted are the newest `count` (...) tokens, at the positions from `start` (...) on.  `step`: how many
    tokens were written; `count` if None.
    """
    step = count if step is None else step

    def of(length: int) -> Array:
        index = (count - 1)[..., None] - _age(step, length)
        return jnp.where(index >= 0, start[..., None] + index, -1)

    return tuple(map(of, lengths(cache, config)))


def _age(step: Array, length: int) -> Array:
    """How many tokens ago each column was written, 0 for the last of `step` (...): (..., length) int32."""
    return jnp.mod(step[..., None] - 1 - jnp.arange(length), length)


def _segments(config: TransformerConfig) -> tuple[bool, ...]:
    """For each segment of a cache, whether its layers are local."""
    return config.local_layers if per_layer(config) else config.layer_kinds


def columns(config: TransformerConfig, local: bool, length: int) -> int:
    """How many columns a layer has for `length` tokens."""
    return min(length, config.window.size) if local else length


def by_kind(kv: KVSegment, config: TransformerConfig) -> tuple[KVSegment, ...]:
    """Keys and values (l, ...) of all layers, separately for each kind of layer."""
    if len(config.layer_kinds) == 1:
        return (kv,)
    return tuple(jax.tree.map(lambda x: x[np.array(at)], kv) for at in config.layers_by_kind)  # noqa: B023


def _by_segment(kinds: tuple[KVSegment, ...], config: TransformerConfig) -> tuple[KVSegment, ...]:
    """The same for each segment of a cache."""
    if not per_layer(config):
        return kinds
    return tuple(
        jax.tree.map(lambda x: x[i], kinds[config.layer_kinds.index(local)])  # noqa: B023
        for local, i in zip(config.local_layers, config.index_in_kind, strict=True)
    )


def shard(cache: Cache) -> Cache:
    """Shards a cache by rows and key/value heads."""

    def constrain(x: Array) -> Array:
        layers = ("layers",) * (x.ndim - 5)
        return nn.with_logical_constraint(x, (*layers, "batch", "group", "cache_heads", None, None))

    return jax.tree.map(constrain, cache)


def lengths(cache: Cache, config: TransformerConfig) -> tuple[int, ...]:
    """How many columns each kind of layer has."""
    of = dict(zip(_segments(config), (_length(segment) for segment in cache), strict=True))
    return tuple(of[local] for local in config.layer_kinds)


def _length(segment: CacheSegment) -> int:
    return segment.v.shape[-2]


def _batch_axis(cache: Cache) -> int:
    """The batch axis of each array in a cache."""
    return cache[0].v.ndim - 5


def append(
    cache: Cache, new: KVSegment | tuple[KVSegment, ...], step: Array, x: Array, config: TransformerConfig
) -> Cache:
    """Writes one token's keys and values (b, g, 1, k, h) of each layer to column step mod n.

    Args:
      new: of all layers; or of each, if a cache has one segment per layer.
      step: () int32.
      x: any result of the step that read the cache.
    """
    if not per_layer(config):
        return shard(
            tuple(_write(part, kv, step) for part, kv in zip(cache, by_kind(new, config), strict=True))
        )
    # To write in place, XLA must know that all reads come first.  It ignores program order and sees only
    # data dependencies, so the column is made to depend on a result of the reads (this adds 0, or 1 if
    # the step is NaN anyway).  Without it, every layer's cache is copied at every step.
    result = x.reshape(-1)[0]
    step = step + (result != result).astype(step.dtype)
    return tuple(_write(part, kv, step) for part, kv in zip(cache, new, strict=True))


def _write(cache: CacheSegment, new: KVSegment, step: Array) -> CacheSegment:
    new = _lay_out(repeat_heads(new, cache.v.shape[-3]), cache.time_last)
    column = jnp.mod(step, _length(cache))
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


def resize(cache: Cache, length: int, step: Array, config: TransformerConfig) -> Cache:
    """The cache after `step` tokens with another number of columns; the newest tokens are kept.

    Columns that hold no token afterwards are undefined.
    """

    def take(segment: CacheSegment, local: bool) -> CacheSegment:
        old, new = _length(segment), columns(config, local, length)
        if old == new:
            return segment
        taken = jnp.mod(step - 1 - _age(step, new), old)
        return jax.tree.map(lambda x, axis: jnp.take(x, taken, axis=axis), segment, _token_axes(segment))

    return shard(tuple(map(take, cache, _segments(config))))


def _token_axes(cache: CacheSegment) -> CacheSegment:
    """The token axis of each array in a segment."""
    last = cache.v.ndim - 1
    return cache.replace(k=last if cache.time_last else last - 1, v=last - 1)


def read_rows(cache: Cache, slots: Array, lanes: Array, config: TransformerConfig) -> tuple[KVSegment, ...]:
    """The cached tokens of some rows, as context for their next tokens.

    slots, lanes: (n,) int32, a row's index on the batch axis, within its part (`parts`), and the group axis.
    Returns keys and values (l, n, 1, s, k, h) with the cache's heads, for each kind of layer.
    """
    axis = _batch_axis(cache)

    def take(cache: Cache, slots: Array, lanes: Array) -> Cache:
        at = (*(slice(None),) * axis, slots, lanes)
        return jax.tree.map(lambda x: x.at[at].get(mode="clip"), cache)

    rows = parts.mapped(take, (axis, 0, 0), axis)(cache, slots, lanes)
    if per_layer(config):
        rows = tuple(
            jax.tree.map(lambda *x: jnp.stack(x), *(rows[i] for i in layers))
            for layers in config.layers_by_kind
        )
    return tuple(_given(kind) for kind in rows)


def _given(kind: CacheSegment) -> KVSegment:
    """Keys and values (l, n, 1, s, k, h) of a segment (l, n, k, s, h)."""
    k = kind.k.swapaxes(-2, -1) if kind.time_last else kind.k
    return KVSegment(*(x.swapaxes(-3, -2)[:, :, None] for x in (k, kind.v)))


def write_rows(
    cache: Cache,
    new: tuple[KVSegment, ...],
    slots: Array,
    lanes: Array,
    start: Array,
    count: Array,
    config: TransformerConfig,
) -> Cache:
    """Writes new tokens of some rows.

    new: keys and values (l, n, 1, w, k, h) for each kind of layer.  slots, lanes: (n,), as in `read_rows`.
    start: (n,), how many tokens a row has already.  count: (n,), how many of the w tokens are written.
    """
    new = repeat_heads(new, cache[0].v.shape[-3])
    axis = _batch_axis(cache)
    write = parts.mapped(_write_rows, (axis, axis, 0, 0, 0, 0), axis)
    return shard(write(cache, _by_segment(new, config), slots, lanes, start, count))


def _write_rows(cache, new, slots, lanes, start, count) -> Cache:
    slots, lanes, start, count = (x[:, None] for x in (slots, lanes, start, count))

    def write(part: CacheSegment, kv: KVSegment) -> CacheSegment:
        n, token = _length(part), jnp.arange(kv.v.shape[-3])
        # Column n is dropped: of tokens for one column only the newest is written.
        written = (token < count) & (token >= count - n)
        column = jnp.where(written, jnp.mod(start + token, n), n)
        layers = (slice(None),) * (part.v.ndim - 5)
        k, v = (jnp.moveaxis(x[*layers, :, 0], range(len(layers)), range(2, 2 + len(layers))) for x in kv)
        at = (*layers, slots, lanes, slice(None))  # separated indices come first: (n, w, [l,] k, h)
        last = (*at, slice(None), column) if part.time_last else (*at, column)
        return part.replace(k=part.k.at[last].set(k), v=part.v.at[*at, column].set(v))

    return tuple(map(write, cache, new))


def widen(cache: Cache, length: int, config: TransformerConfig) -> Cache:
    """Pads the cache to `length` tokens.  A segment that grows must not have replaced any token yet."""

    def pad(segment: CacheSegment, local: bool) -> CacheSegment:
        more = columns(config, local, length) - _length(segment)

        def end(x: Array, axis: int) -> Array:
            return jnp.pad(x, [(0, more if i == axis else 0) for i in range(x.ndim)])

        return jax.tree.map(end, segment, _token_axes(segment))

    return shard(tuple(map(pad, cache, _segments(config))))
