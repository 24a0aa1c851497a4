"""Loading in blocks: the same parameters for any block, family, type and place, within a block's memory."""

import collections
import math
import re

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax.sharding import NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

from genenv_jax.models import huggingface
from genenv_jax.models.config import TransformerConfig
from genenv_jax.models.huggingface import streaming
from genenv_jax.models.huggingface.layouts import LAYOUTS, flat_shapes, transpose
from genenv_jax.models.huggingface.tensors import Tensor
from genenv_jax.parallel import rules
from genenv_jax.parallel.mesh import make_mesh
from tests import tiny
from tests.commands import command

BLOCK = 2_048


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks so small that every matrix of a tiny model takes several, the last one shorter."""
    monkeypatch.setattr(streaming, "_WHOLE_BYTES", 100)
    monkeypatch.setattr(streaming, "_BLOCK_BYTES", BLOCK)


@pytest.fixture
def reads(monkeypatch):
    """(elements read by key, largest read)"""
    counts, largest = collections.Counter(), [0]
    original = Tensor.read

    def counting(self, region):
        x = original(self, region)
        counts[self.key] += x.size
        largest[0] = max(largest[0], x.size)
        return x

    monkeypatch.setattr(Tensor, "read", counting)
    return counts, largest


def write(tmp_path, **changes):
    path = tiny.write_model(tmp_path / "model", tokenizer=False, **changes)
    return path, TransformerConfig.from_huggingface(huggingface.read_config(path))


def expected(config, tensors, dtype=np.float32):
    """Parameters straight from the tensors, by whole transposes and reshapes."""
    params = {}
    for name, shape in flat_shapes(config).items():
        layout = LAYOUTS[name]
        parts = [tensors[key] for key in layout.keys(config.num_layers)]
        parts = [x.T if layout.swapped else x for x in parts]
        params[name] = (np.stack(parts) if layout.stacked else parts[0]).reshape(shape)
    return {name: x.astype(dtype) for name, x in params.items()}


def assert_equal(params, want):
    flat = {jax.tree_util.keystr(k, simple=True, separator="/"): v
            for k, v in jax.tree_util.tree_leaves_with_path(params)}  # fmt: skip
    assert flat.keys() == want.keys()
    for name, x in flat.items():
        assert x.dtype == want[name].dtype, name
        np.testing.assert_array_equal(x, want[name], err_msg=name)


FAMILIES = [
    ("qwen2", {"tie_word_embeddings": True}),
    ("qwen3", {"attention_bias": True}),
    ("llama", {"mlp_bias": True, "attention_bias": True, "num_key_value_heads": 4}),
    ("gemma3_text", {}),
]


@pytest.mark.parametrize(("family", "changes"), FAMILIES)
@pytest.mark.parametrize("sizes", [None, (2, 2, 2), (1, 8, 1)])
@pytest.mark.usefixtures("small_blocks")
def test_any_family_and_mesh(tmp_path, reads, family, changes, sizes):
    path, config = write(tmp_path, family=family, shards=2, **changes)
    tensors = tiny.random_tensors(huggingface.read_config(path))
    shardings = sizes and rules.param_shardings(config, make_mesh(*sizes))
    params = huggingface.load_params(path, config, shardings)
    assert_equal(params, expected(config, tensors))
    if shardings:
        assert jax.tree.map(lambda x: x.sharding, params) == shardings
    else:
        assert not any(x.committed for x in jax.tree.leaves(params))
    counts, largest = reads
    assert counts == {key: x.size for key, x in tensors.items()}  # everything, exactly once
    assert largest[0] <= BLOCK // 4


@pytest.mark.usefixtures("small_blocks")
def test_any_sharding(tmp_path):
    """Also within a head, over layers, and on one device of many."""
    path, config = write(tmp_path)
    want = expected(config, tiny.random_tensors(tiny.config_dict()))
    mesh = make_mesh(2, 2, 2)
    specs = {4: P("data", None, "fsdp", "tensor"), 3: P("data", "fsdp", "tensor"), 2: P("data")}
    places = [
        lambda x: NamedSharding(mesh, specs.get(x.ndim, P())),
        lambda x: SingleDeviceSharding(jax.devices()[5]),
    ]
    for place in places:
        shardings = jax.tree.map(place, rules.param_shapes(config))
        with rules.activate(mesh, config):  # must not disturb the reading
            params = huggingface.load_params(path, config, shardings)
        assert_equal(params, want)
        assert jax.tree.map(lambda x: x.sharding, params) == shardings


@pytest.mark.parametrize(("param_dtype", "small"), [("float32", False), ("bfloat16", True)])
def test_each_tensor_may_have_its_own_type(tmp_path, request, param_dtype, small):
    if small:
        request.getfixturevalue("small_blocks")
    path, config = write(tmp_path)
    kinds = [np.float32, ml_dtypes.bfloat16, np.float16]
    tensors = {
        key: (x * np.float32(1 / 3)).astype(kinds[n % 3])
        for n, (key, x) in enumerate(tiny.random_tensors(tiny.config_dict()).items())
    }
    (path / "model.safetensors").unlink()
    tiny.save_tensors(path / "model.safetensors", tensors)
    params = huggingface.load_params(path, config, param_dtype=param_dtype)
    assert {x.dtype for x in jax.tree.leaves(params)} == {jnp.dtype(param_dtype)}
    exact = {key: x.astype(np.float32) for key, x in tensors.items()}
    assert_equal(params, expected(config, exact, jnp.dtype(param_dtype)))


@pytest.mark.usefixtures("small_blocks")
def test_adapters_are_no_part_of_a_checkpoint(tmp_path):
    from genenv_jax.models.lora import LoraConfig

    path, config = write(tmp_path)
    with_adapters = TransformerConfig.from_huggingface(huggingface.read_config(path), lora=LoraConfig(rank=2))
    params = huggingface.load_params(path, with_adapters)
    assert_equal(params, expected(config, tiny.random_tensors(tiny.config_dict())))


@pytest.mark.parametrize("sizes", [None, (2, 2, 2)])
@pytest.mark.usefixtures("small_blocks")
def test_faults_are_named_in_any_block(tmp_path, sizes):
    """A value that is not finite, and a tied head that is not the embedding."""
    path, config = write(tmp_path, tie_word_embeddings=True)
    shardings = sizes and rules.param_shardings(config, make_mesh(*sizes))
    tensors = tiny.random_tensors(tiny.config_dict(tie_word_embeddings=True))
    head = tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].copy()
    tiny.write_weights(path, tensors)
    huggingface.load_params(path, config, shardings)
    head[-1, -1] += 1
    tiny.write_weights(path, tensors)
    with pytest.raises(ValueError, match=r"model\.safetensors: lm_head\.weight differs .* tie_word"):
        huggingface.load_params(path, config, shardings)
    key = "model.layers.1.mlp.down_proj.weight"
    del tensors["lm_head.weight"]
    tensors[key][-1, -1] = np.nan
    tiny.write_weights(path, tensors)
    with pytest.raises(ValueError, match=rf"{key} holds NaN or infinity"):
        huggingface.load_params(path, config, shardings)


def test_file_that_changes_under_the_reader(tmp_path, monkeypatch):
    path, config = write(tmp_path)
    file = path / "model.safetensors"
    original = Tensor.read

    def truncating(self, region):
        file.write_bytes(file.read_bytes()[:-1])
        return original(self, region)

    monkeypatch.setattr(Tensor, "read", truncating)
    with pytest.raises(ValueError, match=r"model\.safetensors: .* cannot be read"):
        huggingface.load_params(path, config)


def compiled_write(mesh, shard, block, kinds):
    """Memory analysis of the program that puts a block into place on every device; and a shard's bytes."""
    place = None if mesh is None else NamedSharding(mesh, P("shard"))
    everywhere = None if mesh is None else NamedSharding(mesh, P())
    n = 1 if mesh is None else mesh.size
    block_kind, kind = kinds
    with jax.set_mesh(mesh):
        program = streaming._block_writer(mesh).lower(
            jax.ShapeDtypeStruct((n * shard[0], *shard[1:]), kind, sharding=place),
            jax.ShapeDtypeStruct((n * block[0], *block[1:]), block_kind, sharding=place),
            jax.ShapeDtypeStruct((len(shard),), jnp.int32, sharding=everywhere),
        )
        return program.compile().memory_analysis(), math.prod(shard) * jnp.dtype(kind).itemsize


KINDS = [("bfloat16", "bfloat16"), ("bfloat16", "float32"), ("float32", "bfloat16")]


@pytest.mark.parametrize("devices", [None, 8])
@pytest.mark.parametrize("kinds", KINDS)
def test_blocks_are_written_in_place(devices, kinds):
    """The result reuses the shards' memory, and no second copy is made."""
    mesh = devices and jax.sharding.Mesh(np.asarray(jax.devices()[:devices]), ("shard",))
    memory, size = compiled_write(mesh, (6, 256, 128), (1, 256, 128), kinds)
    assert memory.alias_size_in_bytes == size
    assert memory.temp_size_in_bytes <= size / 6 + 4_096


@pytest.mark.parametrize("kinds", KINDS)
def test_blocks_are_written_in_place_on_tpus(kinds):
    pytest.importorskip("libtpu")
    from jax.experimental import topologies

    mesh = jax.sharding.Mesh(np.asarray(topologies.get_topology_desc("v5e:2x2", "tpu").devices), ("shard",))
    for shard, block in (
        [(6, 256, 1_024), (1, 256, 1_024)],
        [(6, 256, 28, 128), (1, 256, 5, 128)],  # heads
        [(256, 3_000), (256, 700)],  # an untied head, cut along its vocabulary
    ):
        memory, size = compiled_write(mesh, shard, block, kinds)
        assert memory.alias_size_in_bytes >= size
        assert memory.temp_size_in_bytes < size / 10


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(127, 513), (128, 512), (300, 1_100), (0, 3)])
def test_transpose(dtype, shape):
    x = (np.arange(math.prod(shape)) % 1_009).reshape(shape).astype(dtype)
    got = transpose(x)
    assert got.flags.c_contiguous and got.dtype == x.dtype
    np.testing.assert_array_equal(got, x.T)
    np.testing.assert_array_equal(transpose(np.asfortranarray(x)), x.T)


@pytest.mark.slow
def test_memory_beyond_the_shards(tmp_path):
    """0.5B parameters in a process of its own; a second copy of the largest leaf would be 0.25 GiB."""
    done = command("bench/load_weights.py", "--shape=Qwen2.5-0.5B", f"--directory={tmp_path}", "--fsdp=1")
    assert done.returncode == 0, done.stderr
    rows = [re.split(r" *\| *", line) for line in done.stdout.splitlines() if line.startswith("|")]
    result = dict(zip(rows[0], rows[-1], strict=True))
    assert abs(float(result["shards, GiB"]) - 0.92) < 0.01, done.stdout
    assert float(result["beyond shards, GiB"]) < 0.2, done.stdout
    assert not list(tmp_path.iterdir())  # the checkpoint is gone
