"""Weights read straight onto a mesh, and a forward pass that does not depend on it."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from genenv_jax.models import huggingface
from genenv_jax.models.config import TransformerConfig
from genenv_jax.models.transformer import Transformer
from genenv_jax.parallel import rules
from genenv_jax.parallel.mesh import make_mesh
from tests import tiny


def write(tmp_path, **changes):
    path = tiny.write_model(tmp_path / "model", tokenizer=False, **changes)
    return path, TransformerConfig.from_huggingface(huggingface.read_config(path))


@pytest.mark.parametrize("sizes", [(2, 2, 2), (1, 2, 4), (8, 1, 1)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_sharded_load_equals_unsharded(tmp_path, sizes, dtype):
    path, config = write(tmp_path, shards=2, dtype=dtype)
    want = huggingface.load_params(path, config)
    mesh = make_mesh(*sizes)
    shardings = rules.param_shardings(config, mesh)
    with rules.activate(mesh, config):  # must not disturb the reading
        got = huggingface.load_params(path, config, shardings)
    assert jax.tree.map(lambda x: x.sharding, got) == shardings
    jax.tree.map(np.testing.assert_array_equal, got, want)
    out = huggingface.save_model(tmp_path / "out", got, huggingface.read_config(path))
    jax.tree.map(np.testing.assert_array_equal, huggingface.load_params(out, config), want)


def test_axes_that_the_table_does_not_split(tmp_path):
    """The reader serves any sharding, also within a head and over layers."""
    path, config = write(tmp_path)
    mesh = make_mesh(2, 2, 2)
    P = jax.sharding.PartitionSpec
    specs = {4: P("data", None, "fsdp", "tensor"), 3: P("data", "fsdp", "tensor"), 2: P("data")}

    def place(x):
        return jax.sharding.NamedSharding(mesh, specs.get(x.ndim, P()))

    got = huggingface.load_params(path, config, jax.tree.map(place, rules.param_shapes(config)))
    jax.tree.map(np.testing.assert_array_equal, got, huggingface.load_params(path, config))


def test_only_local_rows_are_read_and_each_once(tmp_path, monkeypatch):
    """A part that several devices hold is read once, and without the rest of its tensor."""
    path, config = write(tmp_path)
    read = collections.Counter()
    original = huggingface._Tensor.read

    def counting(self, region):
        x = original(self, region)
        read[self.key] += x.size
        return x

    monkeypatch.setattr(huggingface._Tensor, "read", counting)
    shardings = rules.param_shardings(config, make_mesh(2, 1, 4))
    huggingface.load_params(path, config, shardings)
    # The data axis copies everything, and the 2 key/value heads are copied along the tensor axis.
    want = {key: x.size for key, x in tiny.random_tensors(tiny.config_dict()).items()}
    assert read == want

    read.clear()
    sharding = shardings["layers"]["mlp"]["up"]["kernel"]
    index = sharding.devices_indices_map((2, 32, 48))[jax.devices()[0]]
    with huggingface._open_tensors(path) as tensors:
        layout = huggingface._LAYOUTS["layers/mlp/up/kernel"]
        key = layout.keys(2)[1]
        part = layout.read(tensors[key].read, (32, 48), index[1:])
    assert part.shape == (32, 12)
    assert read[key] == part.size


@pytest.mark.parametrize("kv_heads", [1, 2])
@pytest.mark.parametrize("tied", [False, True])
def test_forward_pass_does_not_depend_on_the_mesh(tmp_path, kv_heads, tied):
    path, config = write(tmp_path, num_key_value_heads=kv_heads, tie_word_embeddings=tied)
    tokens = np.random.default_rng(0).integers(0, config.vocab_size, (8, 2, 6), dtype=np.int32)
    positions = np.broadcast_to(np.arange(6, dtype=np.int32), tokens.shape)
    model = Transformer(config)

    def forward(params, tokens, positions):
        hidden, segment = model.apply({"params": params}, tokens, positions)
        return model.apply({"params": params}, hidden, method="logits"), segment.k

    want = jax.jit(forward)(huggingface.load_params(path, config), tokens, positions)
    for mesh in (make_mesh(1, 1, 1, devices=jax.devices()[:1]), make_mesh(2, 2, 2)):
        shardings = rules.param_shardings(config, mesh)
        params = huggingface.load_params(path, config, shardings)
        with rules.activate(mesh, config):
            inputs = jax.device_put((tokens, positions), rules.batch_sharding(mesh))
            got = jax.jit(forward)(params, *inputs)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-5)
    assert float(jnp.abs(want[0]).max()) > 0.5


def test_gradients_do_not_depend_on_the_mesh(tmp_path):
    path, config = write(tmp_path, num_key_value_heads=1)
    tokens = np.random.default_rng(0).integers(0, config.vocab_size, (8, 1, 6), dtype=np.int32)
    positions = np.broadcast_to(np.arange(6, dtype=np.int32), tokens.shape)
    model = Transformer(config)

    def loss(params, tokens, positions):
        hidden, _ = model.apply({"params": params}, tokens, positions)
        logits = model.apply({"params": params}, hidden[:, :, :-1], method="logits")
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, :, 1:, None], axis=-1)
        return -chosen.mean()

    want = jax.jit(jax.grad(loss))(huggingface.load_params(path, config), tokens, positions)
    mesh = make_mesh(2, 2, 2)
    shardings = rules.param_shardings(config, mesh)
    params = huggingface.load_params(path, config, shardings)
    with rules.activate(mesh, config):
        inputs = jax.device_put((tokens, positions), rules.batch_sharding(mesh))
        got = jax.jit(jax.grad(loss), out_shardings=shardings)(params, *inputs)
    assert jax.tree.map(lambda x: x.sharding, got) == shardings
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), got, want)
