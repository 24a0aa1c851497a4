"""Where every array lives: one table from logical axis names to mesh axes."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

import flax.linen as nn
import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from genenv_jax.models.config import TransformerConfig
from genenv_jax.models.transformer import init_params
from genenv_jax.typing import Params

Rules = tuple[tuple[str, str | tuple[str, ...] | None], ...]

RULES: Rules = (
    # parameters
    ("vocab", "tensor"),
    ("embed", "fsdp"),
    ("heads", "tensor"),
    ("kv_heads", "tensor"),  # replicated where the axis does not divide them, see `logical_rules`
    ("head_dim", None),
    ("mlp", "tensor"),
    ("layers", None),
    # activations
    ("batch", ("data", "fsdp")),
    ("group", None),
    ("length", None),
    ("activation_embed", None),
)


def logical_rules(mesh: Mesh, config: TransformerConfig | None = None) -> Rules:
    """The table as it holds for one model on one mesh.

    Key/value heads are few, so where the tensor axis does not divide their number they are
    replicated instead of refused.  Without `config` the table is returned as it stands.
    """
    if config is None or config.num_kv_heads % mesh.shape["tensor"] == 0:
        return RULES
    return tuple((name, None if name == "kv_heads" else axis) for name, axis in RULES)


def logical_sharding(
    mesh: Mesh, axes: tuple[str | None, ...], config: TransformerConfig | None = None
) -> NamedSharding:
    """Sharding of an array whose axes have these logical names (None: not split).

    For example the key/value segments of a model (l, b, g, s, k, h):
    `logical_sharding(mesh, ("layers", "batch", None, None, "kv_heads", "head_dim"), config)`.
    Raises ValueError for a name that the table lacks.
    """
    known = {name for name, _ in RULES}
    if unknown := [axis for axis in axes if axis is not None and axis not in known]:
        raise ValueError(f"unknown logical axes {unknown}; expected some of {sorted(known)}")
    return NamedSharding(mesh, nn.logical_to_mesh_axes(axes, logical_rules(mesh, config)))


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Sharding of an input whose leading axis is the batch: split over "data" and "fsdp"."""
    return logical_sharding(mesh, ("batch",))


def abstract_params(config: TransformerConfig) -> Params:
    """Shapes and logical axes of the parameters, boxed in Linen's metadata; allocates nothing."""
    # Without rules Linen applies no constraint to what it initialises, whichever mesh is active.
    with nn.logical_axis_rules(()):
        return jax.eval_shape(lambda: init_params(config, jax.random.key(0)))


def param_shapes(config: TransformerConfig) -> Params:
    """The parameters' tree with a jax.ShapeDtypeStruct (float32) for each array."""
    # Unboxing under an active mesh would constrain the value, and a shape cannot be constrained.
    return jax.tree.map(
        lambda box: box.unbox(apply_constraint=False),
        abstract_params(config),
        is_leaf=lambda x: isinstance(x, nn.LogicallyPartitioned),
    )


def param_shardings(config: TransformerConfig, mesh: Mesh) -> Params:
    """Shardings of the parameters on a mesh made by `make_mesh`.

    Returns:
      The parameters' tree with a NamedSharding for each array.
    Raises:
      ValueError: a mesh axis does not divide a dimension that it splits.  Key/value heads are the
        exception: they are replicated then.
    """
    names = nn.get_partition_spec(abstract_params(config))
    shardings = nn.logical_to_mesh_sharding(names, mesh, list(logical_rules(mesh, config)))

    def check(path, shape, names, sharding):
        where = jax.tree_util.keystr(path, simple=True, separator="/")
        _check_divisible(where, shape.shape, names, sharding)

    jax.tree_util.tree_map_with_path(check, param_shapes(config), names, shardings)
    return shardings


def _check_divisible(where: str, shape: tuple[int, ...], names: PartitionSpec, sharding) -> None:
    for dim, (size, name, axes) in enumerate(zip(shape, names, sharding.spec, strict=True)):
        axes = (axes,) if isinstance(axes, str) else (axes or ())
        parts = math.prod(sharding.mesh.shape[axis] for axis in axes)
        if size % parts:
            axis = " x ".join(repr(axis) for axis in axes)
            raise ValueError(
                f"parameter {where}: dimension {dim} ({name!r}) has size {size}, which mesh axis "
                f"{axis} of size {parts} does not divide; use a size of {axis} that divides "
                f"{size}, such as {math.gcd(size, parts)}"
            )


@contextlib.contextmanager
def activate(mesh: Mesh, config: TransformerConfig | None = None) -> Iterator[Mesh]:
    """Makes `mesh` the current mesh and gives the logical names in the model their meaning.

    Trace and call jitted functions inside it.  (`with mesh:` alone is not enough: Linen then drops
    every logical constraint without a word.)  Pass `config` where the model's key/value heads may
    be fewer than the tensor axis.
    """
    with jax.set_mesh(mesh), nn.logical_axis_rules(list(logical_rules(mesh, config))):
        yield mesh
