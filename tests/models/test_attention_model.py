"""A whole model scores and trains alike with every attention kernel, and on a mesh."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from genenv_jax.models import attention
from genenv_jax.models.attention_cudnn import cudnn_attention
from genenv_jax.models.config import TransformerConfig, Window
from genenv_jax.models.layers import DecoderLayer
from genenv_jax.models.scoring import completion_logprobs
from genenv_jax.parallel import rules
from genenv_jax.parallel.mesh import make_mesh
from tests.sampling.small_model import make_batch, make_params

CONFIG = TransformerConfig(
    vocab_size=48, hidden_size=32, intermediate_size=48, num_layers=2, num_heads=4, num_kv_heads=2,
    head_dim=8, qkv_bias=True, tie_embeddings=True, remat="full",
)  # fmt: skip


@pytest.fixture(scope="module")
def params():
    return make_params(CONFIG, scale=0.3)


@pytest.fixture(autouse=True)
def cudnn_without_gpu(monkeypatch):
    kernel = functools.partial(cudnn_attention, implementation="xla")
    monkeypatch.setitem(attention._KERNELS, "cudnn", lambda platform: kernel)
    # float32 shows smaller errors than cuDNN's own types.
    monkeypatch.setattr("genenv_jax.models.config.check_cudnn_dtype", lambda dtype: None)


def batch():
    """Prompts of 1, some and all of the tokens; completions of none, some and all."""
    return make_batch([1, 4, 7, 5], [[6, 1, 0], [3, 6, 2], [6, 6, 6], [5, 4, 1]], CONFIG.vocab_size, 1)


def scores_and_gradients(params, config):
    def loss(params, batch):
        logp, entropy = completion_logprobs(params, batch, config)
        return jnp.sum(logp + 0.1 * entropy) / 40, (logp, entropy)

    grads, scores = jax.jit(jax.grad(loss, has_aux=True))(params, batch())
    return scores, grads


@pytest.fixture(scope="module")
def plain(params):
    scores, grads = scores_and_gradients(params, CONFIG)
    for leaf in jax.tree.leaves(grads["layers"]):  # far above the tolerance
        assert float(jnp.abs(leaf).max()) > 1e-4
    return scores, grads


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"attention": "splash"}, marks=pytest.mark.slow),
        {"attention": "cudnn"},
        {"matmul_dtype": "bfloat16"},
    ],
)
def test_scores_and_gradients(params, plain, changes):
    config, narrow = dataclasses.replace(CONFIG, **changes), "matmul_dtype" in changes
    # A float32 sum in another order may be rounded to the next bfloat16.
    close = functools.partial(np.testing.assert_allclose, atol=2e-3 if narrow else 1e-5)
    alone = scores_and_gradients(params, config)
    if not narrow:
        jax.tree.map(close, alone, plain)
    if config.attention != "splash":  # which test_attention_splash.py runs on a mesh
        with rules.activate(make_mesh(2, 2, 2), config):
            jax.tree.map(close, scores_and_gradients(params, config), alone)


@pytest.mark.slow
def test_windows_in_the_splash_kernel(params, plain):
    """A local and a global layer; a completion's window ends within its prompt."""
    config = dataclasses.replace(CONFIG, window=Window(4, (True, False), 100.0))
    want = scores_and_gradients(params, config)
    close = functools.partial(np.testing.assert_allclose, atol=1e-5)
    jax.tree.map(close, scores_and_gradients(params, dataclasses.replace(config, attention="splash")), want)
    assert float(jnp.abs(want[0][0] - plain[0][0]).max()) > 1e-2


def test_programs_are_traced_without_making_classes(params):
    """Flax edits a class's bases while it makes one, under the threads that trace other programs."""
    made = DecoderLayer.__subclasses__()
    completion_logprobs(params, batch(), dataclasses.replace(CONFIG, rope_theta=5e3))
    assert DecoderLayer.__subclasses__() == made
