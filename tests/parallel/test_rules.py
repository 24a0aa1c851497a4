"""The table of logical axes, and that it reaches the compiled program."""

import operator
import re
import warnings

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import traverse_util
from jax.sharding import PartitionSpec as P

from genenv_jax.models.config import TransformerConfig
from genenv_jax.models.scoring import CompletionBatch, completion_logprobs
from genenv_jax.models.transformer import init_params
from genenv_jax.parallel import rules
from genenv_jax.parallel.mesh import make_mesh
from genenv_jax.sampling import decoding
from tests import tiny


def config_of(**changes):
    return TransformerConfig.from_huggingface(tiny.config_dict(**changes))


def specs(config, mesh):
    flat = traverse_util.flatten_dict(rules.param_shardings(config, mesh), sep="/")
    return {name: sharding.spec for name, sharding in flat.items()}


def test_every_axis_of_every_parameter_is_in_the_table():
    known = {name for name, _ in rules.RULES}
    assert len(known) == len(rules.RULES)  # one line for each name
    boxes = jax.tree.leaves(
        rules.abstract_params(config_of()), is_leaf=lambda x: isinstance(x, nn.LogicallyPartitioned)
    )
    for box in boxes:
        assert set(box.names) <= known
        assert len(box.names) == box.value.ndim


@pytest.mark.parametrize(
    ("changes", "sizes", "message"),
    [
        ({"intermediate_size": 50}, (1, 2, 4),
         r"layers/mlp/down/kernel: dimension 1 \('mlp'\) has size 50, .* divides 50, such as 2"),
        ({"vocab_size": 321}, (4, 1, 2),
         r"parameter embedding: dimension 0 \('vocab'\) has size 321, .*'tensor' of size 2"),
        ({"hidden_size": 36, "head_dim": 8}, (1, 8, 1),
         r"\('embed'\) has size 36, which mesh axis 'fsdp' of size 8 .* such as 4"),
        ({}, (1, 1, 8), r"attention/o/kernel: dimension 1 \('heads'\) has size 4, .*such as 4"),
    ],
)  # fmt: skip
def test_other_indivisible_dimensions_are_explained(changes, sizes, message):
    with pytest.raises(ValueError, match=message):
        rules.param_shardings(config_of(**changes), make_mesh(*sizes))


def test_too_few_kv_heads_are_replicated_whatever_mesh_is_active():
    config, mesh = config_of(num_key_value_heads=2), make_mesh(-1, 1, 4)
    got = specs(config, mesh)
    assert got["layers/attention/k/kernel"] == P(None, "fsdp", None, None)
    assert got["layers/attention/v/bias"] == P(None, None, None)
    assert got["layers/attention/q/kernel"] == P(None, "fsdp", "tensor", None)
    with rules.activate(mesh, config_of(num_key_value_heads=4)):
        assert specs(config, mesh) == got
    with jax.set_mesh(make_mesh(8)):
        assert specs(config, mesh) == got


def test_logical_sharding():
    mesh = make_mesh(2, 2, 2)
    x = jax.device_put(jnp.zeros((8, 3)), rules.batch_sharding(mesh))
    assert x.addressable_shards[0].data.shape == (2, 3)
    assert len({str(s.index) for s in x.addressable_shards}) == 4
    axes = ("layers", "batch", "group", "length", "kv_heads", "head_dim")
    batch = ("data", "fsdp")
    assert rules.logical_sharding(mesh, axes, config_of()).spec == P(None, batch, None, None, "tensor", None)
    one = config_of(num_key_value_heads=1)
    assert rules.logical_sharding(mesh, axes, one).spec == P(None, batch, None, None, None, None)
    head, mesh = ("head_batch", "head_vocab"), make_mesh(1, 4, 2)
    assert rules.logical_sharding(mesh, head, config_of()).spec == P("data", ("tensor", "fsdp"))
    odd = config_of(vocab_size=322)  # that fsdp does not divide
    assert rules.logical_sharding(mesh, head, odd).spec == P(("data", "fsdp"), "tensor")


def lowered_gradient(config):
    """StableHLO of the gradient of some completions' log-probs."""
    shapes = ((8, 6), (8,), (8, 2, 5), (8, 2))
    batch = CompletionBatch(*(jax.ShapeDtypeStruct(shape, jnp.int32) for shape in shapes))
    # A new function each time: the constraints are decided when it is traced.
    loss = jax.jit(jax.grad(lambda params, batch: completion_logprobs(params, batch, config)[0].sum()))
    return loss.lower(rules.param_shapes(config), batch).as_text()


def constraints(text):
    """(sharding, type) of every constraint: those in the scans over layers, then the others."""
    inside, outside, function = [], [], ""
    for line in text.splitlines():
        function = line.split("@")[1] if "func.func" in line else function
        if found := re.search(r"sharding_constraint .*<@mesh, (\[.*\])> : tensor<(.*)>", line):
            (inside if function.startswith("closed_call") else outside).append(found.groups())
    return inside, outside


def test_constraints_reach_the_program_under_activate_only():
    config = TransformerConfig.from_huggingface(tiny.config_dict(), remat="full", dtype="bfloat16")
    mesh = make_mesh(2, 2, 2)
    with rules.activate(mesh, config):
        inside, outside = constraints(lowered_gradient(config))
    # Within the scan over layers, forwards and backwards: the residual stream of prompts (8, 1, 6)
    # and completions (8, 2, 4), heads, and the MLP's width.
    rows = '[{"data", "fsdp"}, {}, '
    for tokens in ("8x1x6", "8x2x4"):
        assert inside.count((rows + '{"tensor"}, {}]', f"{tokens}x32xbf16")) >= 5
        assert inside.count((rows + '{}, {"tensor"}, {}]', f"{tokens}x4x8xbf16")) >= 4
        assert inside.count((rows + '{}, {"tensor"}]', f"{tokens}x48xbf16")) >= 2
    # Kernels have the compute type on the shard, before anything is gathered; gradients too.
    assert inside.count(('[{"fsdp"}, {"tensor"}]', "32x48xbf16")) >= 12
    assert not [kind for _, kind in inside if kind.endswith("f32")]
    # The two ends: a part of the embedding's width, and a part of the vocabulary, for all rows.
    assert outside.count(('[{"data"}, {}, {}, {"fsdp"}]', "8x1x6x32xbf16")) == 2
    assert outside.count(('[{"data"}, {}, {"tensor", "fsdp"}]', "8x10x320xf32")) == 2
    assert ('[{}, {"tensor", "fsdp"}]', "32x320xf32") in outside

    assert constraints(lowered_gradient(config)) == ([], [])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        with mesh, nn.logical_axis_rules(rules.RULES):  # the legacy context: Linen is blind to it
            assert constraints(lowered_gradient(config)) == ([], [])


def test_decoding_rules():
    mesh = make_mesh(2, 2, 2)

    def spec(axes, **changes):
        return nn.logical_to_mesh_axes(axes, list(rules.decoding_rules(mesh, config_of(**changes))))

    assert spec(("embed", "mlp")) == P(None, ("tensor", "fsdp"))
    assert spec(("mlp", "embed")) == P(("tensor", "fsdp"), None)
    assert spec(("embed", "heads", "head_dim")) == P("fsdp", "tensor", None)
    assert spec(("projection_batch", "projection_embed")) == P("data", "fsdp")
    assert spec(("batch", "kv_heads"), num_key_value_heads=1) == P(("data", "fsdp"), None)
    # Where the width does not divide, weights are gathered as in training.
    assert spec(("embed", "mlp"), intermediate_size=50) == P("fsdp", "tensor")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_copies_of_the_parameters(dtype):
    config = TransformerConfig.from_huggingface(tiny.config_dict(), dtype=dtype)
    params = jax.tree.map(lambda x: jnp.ones(x.shape, x.dtype), rules.param_shapes(config))

    def copies(params):
        cast = rules.cast_params(params, config)
        with rules.decoding(config):
            return cast, rules.stored_params(cast, config)

    cast, laid_out = jax.jit(copies)(params)
    bits = {"uint16"} if dtype == "bfloat16" else set()
    assert {x.dtype.name for x in jax.tree.leaves(cast)} == {dtype} | bits
    mesh = make_mesh(2, 2, 2)
    shardings = rules.param_shardings(config, mesh)
    with rules.activate(mesh, config):
        cast, laid_out = jax.jit(copies)(jax.device_put(params, shardings))
    assert jax.tree.all(jax.tree.map(lambda x, s: x.sharding.is_equivalent_to(s, x.ndim), cast, shardings))
    assert laid_out["layers"]["mlp"]["up"]["kernel"].addressable_shards[0].data.shape == (2, 32, 12)
    assert laid_out["layers"]["attention"]["o"]["kernel"].addressable_shards[0].data.shape == (2, 2, 8, 16)


@pytest.mark.parametrize(("unrolled", "dtype"), [(False, "uint16"), (True, "bfloat16")])
def test_narrow_operands_are_of_kernels_alone(unrolled, dtype):
    """In a loop over layers, CPUs read their bits; the head is not in the loop."""
    options = {"matmul_dtype": "bfloat16", "unroll_layers": unrolled}
    config = TransformerConfig.from_huggingface(tiny.config_dict(), **options)
    params = jax.tree.map(lambda x: jnp.ones(x.shape, x.dtype), rules.param_shapes(config))
    kinds = {}
    for path, x in jax.tree_util.tree_leaves_with_path(rules.cast_params(params, config)):
        kinds.setdefault(x.dtype.name, set()).add(path[-1].key)
    assert kinds == {dtype: {"kernel"}, "bfloat16": {"kernel"}, "float32": {"bias", "embedding", "scale"}}


def test_norms_that_add_one_stay_in_float32():
    """Casting them would give the sampler other factors than the trainer's."""
    config = TransformerConfig.from_huggingface(tiny.config_dict("gemma3_text"), dtype="bfloat16")
    params = jax.tree.map(lambda x: jnp.ones(x.shape, x.dtype), rules.param_shapes(config))
    leaves = jax.tree_util.tree_leaves_with_path(rules.cast_params(params, config))
    assert {x.dtype.name for path, x in leaves if path[-1].key == "scale"} == {"float32"}
    assert all(x.dtype.name != "float32" for path, x in leaves if path[-1].key != "scale")


def test_what_has_its_dtype_is_not_copied():
    config = TransformerConfig.from_huggingface(tiny.config_dict())
    params = jax.tree.map(lambda x: jnp.ones(x.shape, x.dtype), rules.param_shapes(config))
    assert jax.tree.all(jax.tree.map(operator.is_, decoding.prepare(params, config=config).params, params))


def test_parameters_initialised_on_the_mesh():
    """Each device makes its own part; the values do not depend on the mesh."""
    config, mesh = config_of(num_key_value_heads=1), make_mesh(2, 2, 2)

    def init(key):
        return nn.unbox(init_params(config, key))

    want = jax.jit(init)(jax.random.key(0))
    shardings = rules.param_shardings(config, mesh)
    with rules.activate(mesh, config):
        got = jax.jit(init, out_shardings=shardings)(jax.random.key(0))
    assert got["layers"]["mlp"]["up"]["kernel"].addressable_shards[0].data.shape == (2, 16, 24)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), got, want)
