"""How every array is sharded: one table from logical axis names to mesh axes."""

import contextlib
import functools
import math
from collections.abc import Iterator

import flax.linen as nn
import jax
from flax import traverse_util
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

from genenv_jax.models.config import TransformerConfig
from genenv_jax.models.platform import target_platform
from genenv_jax.models.transformer import abstract_params, param_shapes
from genenv_jax.typing import Array, Params

Rules = tuple[tuple[str, str | tuple[str, ...] | None], ...]

RULES: Rules = (
    # parameters
    ("vocab", "tensor"),
    ("embed", "fsdp"),
    ("heads", "tensor"),
    ("kv_heads", "tensor"),  # replicated if the axis does not divide them, see `logical_rules`
    ("cache_heads", "tensor"),  # see `cache_heads`
    ("head_dim", None),
    ("mlp", "tensor"),
    ("layers", None),
    ("rank", None),  # of adapters
    # activations
    ("batch", ("data", "fsdp")),
    ("group", None),
    ("length", None),
    ("activation_embed", None),
    ("residual_length", "tensor"),  # between sub-layers, where tokens are independent
    ("projection_batch", ("data", "fsdp")),  # at projections, which decoding splits differently
    ("projection_embed", None),
    # At the embedding and the head, each device has all rows of its fsdp group and a part of the table.
    ("head_batch", "data"),
    ("head_vocab", ("tensor", "fsdp")),
    ("lookup_embed", "fsdp"),
)


def logical_rules(mesh: Mesh, config: TransformerConfig) -> Rules:
    """The rules for one model on one mesh.

    Key/value heads are few, so if the tensor axis does not divide their number, they are replicated
    rather than refused.  If "tensor" and "fsdp" together do not divide the vocabulary, logits are
    split over "tensor" alone.
    """
    changes: dict[str, str | tuple[str, ...] | None] = {}
    if config.num_kv_heads % mesh.shape["tensor"]:
        changes["kv_heads"] = None
    if _cache_heads(mesh, config) % mesh.shape["tensor"]:
        changes["cache_heads"] = None
    if config.vocab_size % (mesh.shape["tensor"] * mesh.shape["fsdp"]):
        changes |= {"head_vocab": "tensor", "head_batch": ("data", "fsdp"), "lookup_embed": None}
    return tuple((dict(RULES) | changes).items())


def decoding_rules(mesh: Mesh, config: TransformerConfig) -> Rules:
    """The rules for decoding steps, in which weights stay in place and activations are exchanged.

    A step has one token per row, so activations are a thousandth of the weights.  The MLP is split over
    "tensor" and "fsdp" by its width.  Attention projections stay split by the model's width, and their
    products are summed over "fsdp".  Only activation rows are gathered, and the decoding copy of the
    weights takes no more memory than a shard in the compute dtype.
    """
    parts = mesh.shape["tensor"] * mesh.shape["fsdp"]
    if config.intermediate_size % parts or config.vocab_size % parts:
        return logical_rules(mesh, config)  # gather weights layer by layer, as in training
    rules = dict(logical_rules(mesh, config))
    changes = {"projection_batch": "data", "projection_embed": "fsdp"}
    # The first rule takes the mesh axis: an array split by "mlp" is not split by "embed".
    return (("mlp", ("tensor", "fsdp")), *((rules | changes).items()))


def logical_sharding(mesh: Mesh, axes: tuple[str | None, ...], config: TransformerConfig) -> NamedSharding:
    """Sharding of an array whose axes have these logical names (None: not split).

    For example, for a model's key/value segments (l, b, g, s, k, h):
    `logical_sharding(mesh, ("layers", "batch", None, None, "kv_heads", "head_dim"), config)`.
    """
    return NamedSharding(mesh, nn.logical_to_mesh_axes(axes, logical_rules(mesh, config)))


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Sharding of an input whose leading axis is the batch, split over "data" and "fsdp"."""
    return NamedSharding(mesh, nn.logical_to_mesh_axes(("batch",), RULES))


def param_shardings(config: TransformerConfig, mesh: Mesh) -> Params:
    """Shardings of the parameters on a mesh made by `make_mesh`.

    Returns:
      The parameter tree with a NamedSharding for each array.
    Raises:
      ValueError: a mesh axis does not divide a dimension that it splits.  Key/value heads are an
        exception: they are then replicated.
    """
    names = nn.get_partition_spec(abstract_params(config))
    shardings = nn.logical_to_mesh_sharding(names, mesh, list(logical_rules(mesh, config)))

    jax.tree_util.tree_map_with_path(_check_divisible, param_shapes(config), names, shardings)
    return shardings


def _check_divisible(path, x: jax.ShapeDtypeStruct, names: PartitionSpec, sharding: NamedSharding) -> None:
    where = jax.tree_util.keystr(path, simple=True, separator="/")
    for dim, (size, name, axes) in enumerate(zip(x.shape, names, sharding.spec, strict=True)):
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
def activate(mesh: Mesh, config: TransformerConfig) -> Iterator[None]:
    """Makes `mesh` the current mesh and maps the model's logical names to its axes.

    Trace and call jitted functions inside this context.  (`with mesh:` alone is not enough: Linen then
    silently drops every logical constraint.)
    """
    with jax.set_mesh(mesh), nn.logical_axis_rules(list(logical_rules(mesh, config))):
        yield


def current_mesh() -> AbstractMesh | None:
    """The mesh set by `activate`, also while tracing; None outside it."""
    mesh = jax.sharding.get_abstract_mesh()
    return None if mesh.empty or not nn.get_logical_axis_rules() else mesh


def batch_shards() -> int:
    """Number of shards of the batch axis on the current mesh; 1 if none is active."""
    mesh = current_mesh()
    return 1 if mesh is None else mesh.shape["data"] * mesh.shape["fsdp"]


def cache_heads(config: TransformerConfig) -> int:
    """Number of key/value heads in the sampling cache.

    If the tensor axis is a multiple of the model's key/value heads, heads are repeated, so that each device
    keeps only the one that its queries read.
    """
    mesh = current_mesh()
    return config.num_kv_heads if mesh is None else _cache_heads(mesh, config)


def _cache_heads(mesh: Mesh | AbstractMesh, config: TransformerConfig) -> int:
    tensor, heads = mesh.shape["tensor"], config.num_kv_heads
    return heads if tensor % heads else max(tensor, heads)


def decoding(config: TransformerConfig) -> contextlib.AbstractContextManager:
    """Applies `decoding_rules` to what is traced inside; does nothing if no mesh is active."""
    mesh = current_mesh()
    if mesh is None:
        return contextlib.nullcontext()
    return nn.logical_axis_rules(list(decoding_rules(mesh, config)))


def cast_params(params: Params, config: TransformerConfig) -> Params:
    """Casts the parameters, shard by shard, to the dtypes they are used in; the others are not copied.

    The model casts each parameter at use anyway, so results do not change.  On CPUs, bfloat16 kernels that a
    loop over layers reads become their bits (uint16), as XLA's CPU backend slices bfloat16 layers in float32,
    for which it makes a float32 copy of all of them.
    """
    flat = traverse_util.flatten_dict(params)
    wrong = {path: x for path, x in flat.items() if x.dtype != _used_dtype(path, config)}
    if wrong:
        cast = _cast(traverse_util.unflatten_dict(wrong), config)
        flat |= traverse_util.flatten_dict(cast)
    return traverse_util.unflatten_dict(flat)


@functools.partial(jax.jit, static_argnames="config")  # jit would copy arrays returned unchanged
def _cast(params: Params, config: TransformerConfig) -> Params:
    flat = traverse_util.flatten_dict(params)
    cast = {path: _as_used(x, _used_dtype(path, config)) for path, x in flat.items()}
    return stored_params(traverse_util.unflatten_dict(cast), config)


def _as_used(x: Array, dtype: str) -> Array:
    if dtype == "uint16":
        return jax.lax.bitcast_convert_type(x.astype("bfloat16"), dtype)
    return x.astype(dtype)


def _used_dtype(path: tuple[str, ...], config: TransformerConfig) -> str:
    if path[-1] == "scale" and config.norm_offset:
        return "float32"  # `RMSNorm` adds 1 to it in float32
    if path[-1] != "kernel":
        return config.dtype
    in_loop = path[0] == "layers" and not config.unroll_layers
    as_bits = in_loop and config.operand_dtype == "bfloat16" and target_platform() == "cpu"
    return "uint16" if as_bits else config.operand_dtype


def stored_params(params: Params, config: TransformerConfig) -> Params:
    """Shards the parameters, their gradient or any part of such a tree by the rules in force.

    Except within `decoding`, that is how the parameters are stored.  Otherwise the use of a parameter would
    decide how its update is sharded, and moments would be exchanged instead of parameters.  Unchanged if no
    mesh is active.
    """
    if current_mesh() is None:
        return params
    names = traverse_util.flatten_dict(nn.get_partition_spec(abstract_params(config)))
    flat = traverse_util.flatten_dict(params)
    return traverse_util.unflatten_dict(
        {path: nn.with_logical_constraint(leaf, names[path]) for path, leaf in flat.items()}
    )
