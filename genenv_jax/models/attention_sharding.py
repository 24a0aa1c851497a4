"""Attention kernels on a mesh: each device computes its own batch rows and heads."""

import math
from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from genenv_jax.typing import Array


class SharedPast(NamedTuple):
    """Earlier tokens visible to all rows of a group, such as their prompt.

    k, v: (b, s, k, h).  valid: (b, s) bool, false at padding.
    """

    k: Array
    v: Array
    valid: Array


Kernel = Callable[[Array, Array, Array, SharedPast | None], Array]


def run_per_device(kernel: Kernel, q: Array, k: Array, v: Array, past: SharedPast | None) -> Array:
    """Runs a kernel that the compiler cannot partition on each device's part of the arguments.

    Arguments are split by the logical names "batch", "heads" and "kv_heads" under the current mesh and
    rules (`parallel.rules.activate`).  If key/value heads are replicated and query heads are not, each
    device picks the key/value heads that its query heads read.  An axis that does not divide its
    dimension does not split it: devices then repeat the work, with the same result.

    Args:
      kernel: maps (q, k, v, past) to (b, g, t, n, h), independently for each row and key/value head.
      q: (b, g, t, n, h).
      k, v: (b, g, t, k, h).
      past: shared by the group, or None.
    Returns:
      (b, g, t, n, h).
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or mesh.size == 1:
        return kernel(q, k, v, past)
    n, kv = q.shape[3], k.shape[3]
    batch = _mesh_axes("batch", q.shape[0])
    heads, kv_heads = _mesh_axes("heads", n), _mesh_axes("kv_heads", kv)
    if kv_heads != heads:
        kv_heads = None
    parts = 1 if heads is None else math.prod(mesh.shape[axis] for axis in heads)

    def local(q, k, v, past):
        if heads != kv_heads:
            first = jax.lax.axis_index(heads) * (n // parts)
            k, v = (_heads_read(x, first, n // parts, n // kv) for x in (k, v))
            if past is not None:
                picked = (_heads_read(x, first, n // parts, n // kv) for x in past[:2])
                past = SharedPast(*picked, past.valid)
        return kernel(q, k, v, past)

    queries = PartitionSpec(batch, None, None, heads)
    pairs = PartitionSpec(batch, None, None, kv_heads)
    shared = PartitionSpec(batch, None, kv_heads)
    past_specs = None if past is None else SharedPast(shared, shared, PartitionSpec(batch))
    return jax.shard_map(
        local,
        in_specs=(queries, pairs, pairs, past_specs),
        out_specs=queries,
        check_vma=False,  # Pallas calls do not declare along which axes their results vary
    )(q, k, v, past)


def _mesh_axes(name: str, size: int) -> tuple[str, ...] | None:
    """Axes of the current mesh that split a dimension of this logical name; None if there are none."""
    axes = nn.logical_to_mesh_axes((name,))[0]
    if not isinstance(axes, str | tuple):
        return None
    axes = (axes,) if isinstance(axes, str) else axes
    mesh = jax.sharding.get_abstract_mesh()
    return None if size % math.prod(mesh.shape[axis] for axis in axes) else axes


def _heads_read(x: Array, first: Array, count: int, group: int) -> Array:
    """Key/value heads (..., k', h) read by query heads first, ..., first + count - 1.

    Each key/value head of x (..., k, h) serves `group` query heads.
    """
    if group % count == 0:
        return jax.lax.dynamic_slice_in_dim(x, first // group, 1, axis=-2)
    return jnp.take(x, (first + jnp.arange(count)) // group, axis=-2)  # one per query head
