"""Weights read straight onto a mesh, and a forward pass that does not depend on it."""

import dataclasses
import functools

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


_SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("kv_heads", "tied", "sizes", "matmul_dtype"),
    [
        (1, False, (2, 2, 2), ""),
        *(
            pytest.param(kv_heads, tied, sizes, "", marks=_SLOW)
            for kv_heads, tied, sizes in ((1, True, (2, 2, 2)), (2, False, (1, 1, 1)))
        ),
        pytest.param(2, True, (2, 2, 2), "bfloat16", marks=_SLOW),
    ],
)
def test_a_pass_and_its_gradients_do_not_depend_on_the_mesh(
    tmp_path, kv_heads, tied, sizes, matmul_dtype
):
    path, config = write(tmp_path, num_key_value_heads=kv_heads, tie_word_embeddings=tied)
    config = dataclasses.replace(config, matmul_dtype=matmul_dtype)
    tokens = np.random.default_rng(0).integers(0, config.vocab_size, (8, 2, 6), dtype=np.int32)
    positions = np.broadcast_to(np.arange(6, dtype=np.int32), tokens.shape)
    model = Transformer(config)

    def loss(params, tokens, positions):
        hidden, segment = model.apply({"params": params}, tokens, positions)
        logits = model.apply({"params": params}, hidden, method="logits")
        logp = jax.nn.log_softmax(logits[:, :, :-1])
        chosen = jnp.take_along_axis(logp, tokens[:, :, 1:, None], axis=-1)
        return -chosen.mean(), (logits, segment.k)

    run = jax.grad(loss, has_aux=True)
    want, outputs = jax.jit(run)(huggingface.load_params(path, config), tokens, positions)
    mesh = make_mesh(*sizes, devices=jax.devices()[: np.prod(sizes)])
    shardings = rules.param_shardings(config, mesh)
    params = huggingface.load_params(path, config, shardings)
    with rules.activate(mesh, config):
        inputs = jax.device_put((tokens, positions), rules.batch_sharding(mesh))
        got, found = jax.jit(run, out_shardings=(shardings, None))(params, *inputs)
    assert jax.tree.map(lambda x: x.sharding, got) == shardings
    assert float(jnp.abs(outputs[0]).max()) > 0.5
    # A float32 sum in another order may be rounded to the next bfloat16.
    close = functools.partial(np.testing.assert_allclose, atol=2e-3 if matmul_dtype else 1e-5)
    jax.tree.map(close, (got, found), (want, outputs))
