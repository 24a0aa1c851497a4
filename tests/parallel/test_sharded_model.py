"""Weights read straight onto a mesh, and a forward pass that does not depend on it."""

import contextlib
import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from genenv_jax.models import huggingface
from genenv_jax.models.config import TransformerConfig
from genenv_jax.models.transformer import Transformer
from genenv_jax.parallel import rules
from genenv_jax.parallel.mesh import make_mesh
from genenv_jax.sampling.draw import SamplingParams
from tests import tiny
from tests.sampling.sampler import sample


def write(tmp_path, **changes):
    path = tiny.write_model(tmp_path / "model", tokenizer=False, **changes)
    return path, TransformerConfig.from_huggingface(huggingface.read_config(path))


_SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("sizes", "dtype"),
    [
        ((2, 2, 2), "bfloat16"),
        ((1, 2, 4), "float32"),
        pytest.param((8, 1, 1), "float32", marks=_SLOW),
    ],
)
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


def sampled(config, params, mesh=None):
    """Samples of eight prompts, and the compiled sampler's text."""
    rng = np.random.default_rng(0)
    prompts = rng.integers(0, config.vocab_size, (8, 6), dtype=np.int32)
    lengths, rows = rng.integers(0, 7, 8).astype(np.int32), np.arange(16, dtype=np.uint32)
    batch = prompts, lengths, rows.reshape(8, 2)
    options = SamplingParams(5, 2, (3, 40))
    context = contextlib.nullcontext()
    if mesh:
        params = jax.device_put(params, rules.param_shardings(config, mesh))
        batch = jax.device_put(batch, rules.batch_sharding(mesh))
        context = rules.activate(mesh, config)
    key = jax.random.key(1)
    with context:
        arguments = (params, *batch[:2], key, batch[2])
        compiled = sample.lower(*arguments, config=config, options=options).compile()
        return jax.device_get(compiled(*arguments)), compiled.as_text()


@pytest.fixture(
    scope="module", params=[False, pytest.param(True, marks=_SLOW)], ids=["untied", "tied"]
)
def sampler_case(request, tmp_path_factory):
    path, config = write(
        tmp_path_factory.mktemp("sampler"),
        tie_word_embeddings=request.param,
        intermediate_size=56,  # unlike any other size, so that its arrays are found in the program
    )
    params = huggingface.load_params(path, config)
    return config, params, sampled(config, params)[0]


@pytest.mark.parametrize(
    "sizes",
    [(1, 2, 4), *(pytest.param(x, marks=_SLOW) for x in ((8, 1, 1), (1, 8, 1), (2, 2, 2)))],
)
def test_samples_do_not_depend_on_the_mesh(sampler_case, sizes):
    config, params, want = sampler_case
    mesh = make_mesh(*sizes)
    got, text = sampled(config, params, mesh)
    np.testing.assert_array_equal(got.tokens, want.tokens)
    np.testing.assert_array_equal(got.lengths, want.lengths)
    np.testing.assert_allclose(got.logprobs, want.logprobs, atol=1e-5)
    if sizes[1] == 1:
        return
    # Prompts are read with each layer's weights gathered over "fsdp"; a decoding step gathers none.
    width = 56 // sizes[2]
    gathered = [line for line in text.splitlines() if re.search(r"= f32\S* all-gather\(", line)]
    kernels = [line for line in gathered if re.search(rf"\[(1,)?(32,{width}|{width},32)\]", line)]
    assert kernels
    assert all("while/body" in line and "read_prompts" in line for line in kernels), kernels
