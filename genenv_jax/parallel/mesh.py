"""The device mesh: data parallel, fully sharded data parallel and tensor parallel."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import jax
from jax.sharding import AxisType, Mesh

from genenv_jax.settings import Settings

AXES = ("data", "fsdp", "tensor")
_MOST_ASSUMED = 1_024  # each takes host memory


@dataclasses.dataclass(frozen=True)
class MeshConfig(Settings):
    """`config.mesh`: sizes of the mesh's axes, see `make_mesh`; -1 takes what the others leave.

    Attributes:
      data: replicas of the parameters, each with a part of a batch.
      fsdp: shards of both the batch and the parameters.
      tensor: shards of heads, MLP width and vocabulary.
    """

    data: int = 1
    fsdp: int = -1
    tensor: int = 1


def assume_devices(mesh: Mapping[str, int]) -> None:
    """Gives JAX, before it starts, another machine's devices: as many CPU devices as a mesh needs.

    mesh: sizes by axis; one of -1 counts as 1.
    Raises ValueError for a mesh of more than 1,024 devices.
    """
    needed = math.prod(max(1, mesh[axis]) for axis in AXES)
    if needed > _MOST_ASSUMED:
        raise ValueError(f"config.mesh: {needed:,} devices, expected at most {_MOST_ASSUMED:,} in a dry run")
    jax.config.update("jax_platforms", "cpu")
    if needed > 1:
        jax.config.update("jax_num_cpu_devices", needed)


def make_mesh(
    data: int = -1, fsdp: int = 1, tensor: int = 1, devices: Sequence[jax.Device] | None = None
) -> Mesh:
    """Arranges devices in a mesh with the axes ("data", "fsdp", "tensor"), all of type Auto.

    Args:
      data, fsdp, tensor: sizes, see `MeshConfig`; `tensor` should stay within fast links.
      devices: the devices to use; all by default.  Those of a topology description work too.
    Raises:
      ValueError: a size is neither -1 nor positive, two are -1, or the product of the sizes is not the
        number of devices.
    """
    devices = list(jax.devices() if devices is None else devices)
    sizes = dict(zip(AXES, (data, fsdp, tensor), strict=True))
    text = ", ".join(f"{axis}={size}" for axis, size in sizes.items())
    for axis, size in sizes.items():
        if size < 1 and size != -1:
            raise ValueError(f"mesh axis {axis!r} has size {size!r}; expected a positive int or -1")
    inferred = [axis for axis, size in sizes.items() if size == -1]
    if len(inferred) > 1:
        raise ValueError(f"mesh ({text}): only one axis may be -1, but {inferred} are")
    known = math.prod(size for size in sizes.values() if size != -1)
    if inferred:
        if not devices or len(devices) % known:
            raise ValueError(
                f"mesh ({text}): the other axes multiply to {known}, which does not divide the "
                f"{len(devices)} devices, so {inferred[0]!r} cannot be inferred"
            )
        sizes[inferred[0]] = len(devices) // known
    elif known != len(devices):
        raise ValueError(
            f"mesh ({text}) needs {known} devices, but there are {len(devices)}; set one axis to "
            "-1 to infer it; --dry_run --device_memory=GIB is about another machine"
        )
    return jax.make_mesh(
        tuple(sizes.values()), AXES, axis_types=(AxisType.Auto,) * len(AXES), devices=devices
    )
