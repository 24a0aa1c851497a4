"""Fills arrays on devices block by block, so that the host never holds more than one block."""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

from genenv_jax.typing import Array

Index = tuple[slice, ...]
Reader = Callable[[Index], np.ndarray]

_WHOLE_BYTES = 1 << 22  # a shard up to this size is one block
_BLOCK_BYTES = 1 << 26  # one block on all local devices, counting equal parts once
_SHARDS = PartitionSpec("shard")


def fill(
    read: Reader,
    shape: tuple[int, ...],
    dtype: np.dtype,
    sharding: Sharding | None,
    *,
    stacked: bool,
    row_axis: int,
) -> Array:
    """Builds an array from `read`; this process reads each of its own parts once.

    Each shard is allocated on its device first.  Its blocks are read, copied to the device and written
    into place one at a time, so the host holds one block and never a whole shard.

    Args:
      read: returns the part of the array at an index of bounded slices, in any float dtype.
      shape, dtype: of the array.
      sharding: where the array lives, partly on devices of this process; None: on the default device,
        uncommitted.
      stacked: axis 0 is the layer; a block of a large array holds one layer.
      row_axis: the axis along which a layer is cut into blocks.
    """
    if sharding is None:
        with jax.set_mesh(None):  # ignore the current mesh, if any
            blocks = _blocks(shape, dtype, 1, stacked, row_axis)
            return _fill_shards(read, shape, dtype, [(0,) * len(shape)], None, blocks)
    indices = sharding.addressable_devices_indices_map(shape)
    starts = [tuple(s.indices(n)[0] for s, n in zip(index, shape, strict=True)) for index in indices.values()]
    shard = sharding.shard_shape(shape)
    blocks = _blocks(shard, dtype, len(set(starts)), stacked, row_axis)
    # A mesh of the local devices: every process fills its own shards independently.
    mesh = Mesh(np.asarray(list(indices), dtype=object), ("shard",))
    with jax.set_mesh(mesh):
        local = _fill_shards(read, shard, dtype, starts, mesh, blocks)
    pieces = {piece.device: piece.data for piece in local.addressable_shards}
    return jax.make_array_from_single_device_arrays(shape, sharding, [pieces[d] for d in indices])


def _blocks(
    shard: tuple[int, ...], dtype: np.dtype, copies: int, stacked: bool, row_axis: int
) -> list[Index]:
    """Index blocks of a shard, in disk order; a block spans the same part of `copies` shards."""
    whole = tuple(slice(0, n) for n in shard)
    if math.prod(shard) * dtype.itemsize <= _WHOLE_BYTES:
        return [whole]
    rows = shard[row_axis]
    row_bytes = math.prod(shard[stacked:]) // rows * dtype.itemsize
    step = max(1, _BLOCK_BYTES // (copies * row_bytes))
    blocks = []
    for layer in range(shard[0] if stacked else 1):
        for row in range(0, rows, step):
            block = list(whole)
            if stacked:
                block[0] = slice(layer, layer + 1)
            block[row_axis] = slice(row, min(row + step, rows))
            blocks.append(tuple(block))
    return blocks


def _fill_shards(
    read: Reader,
    shard: tuple[int, ...],
    dtype: np.dtype,
    starts: list[tuple[int, ...]],
    mesh: Mesh | None,
    blocks: list[Index],
) -> Array:
    """Fills the shards that begin at `starts`, one per device of the mesh, joined along axis 0."""
    if len(blocks) == 1:
        return _bring(lambda index: read(index).astype(dtype), blocks[0], starts, mesh)
    place = None if mesh is None else NamedSharding(mesh, _SHARDS)
    local = jnp.zeros((len(starts) * shard[0], *shard[1:]), dtype, device=place)
    write = _block_writer(mesh)
    for block in blocks:
        offset = np.asarray([s.start for s in block], np.int32)
        local = write(local, _bring(read, block, starts, mesh), offset)
        local.block_until_ready()  # otherwise blocks could queue up on the host
    return local


def _bring(read: Reader, block: Index, starts: list[tuple[int, ...]], mesh: Mesh | None) -> Array:
    """Copies one block of every shard to its device; the blocks are joined along axis 0."""
    parts: dict[tuple[int, ...], np.ndarray] = {}
    for start in starts:
        if start not in parts:  # otherwise another device already has this part
            index = (slice(n + s.start, n + s.stop) for n, s in zip(start, block, strict=True))
            parts[start] = read(tuple(index))
    if mesh is None:
        return jax.device_put(parts[starts[0]])
    pieces = [jax.device_put(parts[s], d) for s, d in zip(starts, mesh.devices, strict=True)]
    size = [s.stop - s.start for s in block]
    shape = (len(starts) * size[0], *size[1:])
    return jax.make_array_from_single_device_arrays(shape, NamedSharding(mesh, _SHARDS), pieces)


@functools.cache
def _block_writer(mesh: Mesh | None) -> Callable[[Array, Array, np.ndarray], Array]:
    """Returns write(shards, block, offset), which puts a block of every shard in place, without a copy."""

    def update(shard: Array, block: Array, offset: Array) -> Array:
        return jax.lax.dynamic_update_slice(shard, block, tuple(offset))

    def update_bits(shard: Array, block: Array, offset: Array) -> Array:
        kind = f"uint{8 * shard.dtype.itemsize}"
        bits = (jax.lax.bitcast_convert_type(x, kind) for x in (shard, block))
        return jax.lax.bitcast_convert_type(update(*bits, offset), shard.dtype)

    def write(shard: Array, block: Array, offset: Array) -> Array:
        block = block.astype(shard.dtype)
        # Plain integers on CPUs, which move bfloat16 through float32, five times more slowly.  On other
        # platforms integers would cost a copy of the shard.
        return jax.lax.platform_dependent(shard, block, offset, cpu=update_bits, default=update)

    if mesh is not None:
        specs = (_SHARDS, _SHARDS, PartitionSpec())
        write = jax.shard_map(write, mesh=mesh, in_specs=specs, out_specs=_SHARDS)
    return jax.jit(write, donate_argnums=0)
