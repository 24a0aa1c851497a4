"""Keeps rows on their devices: treats the batch axis as the equal parts (shards) that a mesh splits it into.

A batch of n rows for b slots has n / parts rows for each part, in order of the parts.  So each part reads
and writes only its own slots, and no keys or values move between devices.  Without a mesh there is one part.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from genenv_jax.parallel import rules
from genenv_jax.typing import Array


def places(slots: np.ndarray, batch_size: int, count: int) -> np.ndarray:
    """Places in a batch of `count` rows for rows of these slots (m,); -1 where the slot's part is full.

    batch_size: number of slots.
    """
    parts = rules.batch_shards()
    part, room = slots // (batch_size // parts), count // parts
    before = np.cumsum(part[:, None] == np.arange(parts), axis=0)
    rank = before[np.arange(len(part)), part] - 1
    return np.where(rank < room, part * room + rank, -1)


def free_places(free: np.ndarray, count: int, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Up to `most` places in a batch of `count` rows, spread over the parts, and the free slot of each.

    free: (b,) bool.
    """
    slots = np.flatnonzero(free)
    at = places(slots, len(free), count)
    slots, at = slots[at >= 0], at[at >= 0]
    chosen = np.argsort(at % (count // rules.batch_shards()), kind="stable")[:most]
    return at[chosen], slots[chosen]


def local(slots: Array, batch_size: int) -> Array:
    """Slots (n,) of a batch, renumbered within their parts; `batch_size` stays out of range."""
    parts = rules.batch_shards()
    part = jnp.arange(slots.shape[0]) // (slots.shape[0] // parts)
    return slots - part * (batch_size // parts)


def mapped(function: Callable[..., Any], in_axes: tuple[int, ...], out_axes: int) -> Callable[..., Any]:
    """Applies `function` to each part separately.  The axes give the batch axis, as in `jax.vmap`."""
    parts = rules.batch_shards()
    if parts == 1:
        return function

    def split(tree: Any, axis: int) -> Any:
        return jax.tree.map(lambda x: x.reshape(*x.shape[:axis], parts, -1, *x.shape[axis + 1 :]), tree)

    def run(*args: Any) -> Any:
        args = tuple(split(arg, axis) for arg, axis in zip(args, in_axes, strict=True))
        out = jax.vmap(function, in_axes, out_axes)(*args)
        return jax.tree.map(lambda x: x.reshape(*x.shape[:out_axes], -1, *x.shape[out_axes + 2 :]), out)

    return run


def put_rows(x: Array, slots: Array, new: Array) -> Array:
    """x (b, ...) with rows `new` (n, ...) written to slots (n,), numbered within their parts."""
    return mapped(lambda x, slots, new: x.at[slots].set(new), (0, 0, 0), 0)(x, slots, new)


def take_rows(x: Array, slots: Array) -> Array:
    """The rows (n, ...) of x (b, ...) in slots (n,), numbered within their parts."""
    return mapped(lambda x, slots: x.at[slots].get(mode="clip"), (0, 0), 0)(x, slots)
