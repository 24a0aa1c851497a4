"""A whole model scores and trains alike with every attention kernel."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from genenv_jax.models import attention
from genenv_jax.models.attention_cudnn import cudnn_attention
from genenv_jax.models.config import TransformerConfig
from genenv_jax.models.scoring import CompletionBatch, completion_logprobs
from genenv_jax.parallel import rules
from genenv_jax.parallel.mesh import make_mesh

CONFIG = TransformerConfig(
    vocab_size=48, hidden_size=32, intermediate_size=48, num_layers=2, num_heads=4, num_kv_heads=2,
    head_dim=8, qkv_bias=True, remat="full",
)  # fmt: skip


@pytest.fixture(scope="module")
def params():
    rng = np.random.default_rng(0)
    return jax.tree.map(
        lambda x: jnp.asarray(rng.normal(0.0, 0.3, x.shape), x.dtype), rules.param_shapes(CONFIG)
    )


@pytest.fixture(autouse=True)
def cudnn_without_gpu(monkeypatch):
    kernel = functools.partial(cudnn_attention, implementation="xla")
    monkeypatch.setitem(attention._KERNELS, "cudnn", lambda platform: kernel)
    # float32 shows more than the types that cuDNN itself computes in.
    monkeypatch.setattr(attention, "check_cudnn_dtype", lambda dtype: None)


def batch():
    """Prompts of 1, some and all of the tokens; completions of none, some and all."""
    rng = np.random.default_rng(1)
    return CompletionBatch(
        prompts=rng.integers(0, 48, (4, 7), dtype=np.int32),
        prompt_lengths=np.array([1, 4, 7, 5], np.int32),
        completions=rng.integers(0, 48, (4, 3, 6), dtype=np.int32),
        completion_lengths=np.array([[6, 1, 0], [3, 6, 2], [6, 6, 6], [5, 4, 1]], np.int32),
    )


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


def assert_close(got, want):
    jax.tree.map(functools.partial(np.testing.assert_allclose, atol=1e-5), got, want)


@pytest.mark.parametrize("implementation", ["splash", "cudnn"])
def test_completion_logprobs(params, plain, implementation):
    config = dataclasses.replace(CONFIG, attention=implementation)
    assert_close(scores_and_gradients(params, config), plain)


@pytest.mark.parametrize("implementation", ["splash", "cudnn"])
def test_completion_logprobs_on_a_mesh(params, plain, implementation):
    config = dataclasses.replace(CONFIG, attention=implementation)
    with rules.activate(make_mesh(2, 2, 2), config):
        scores = jax.jit(functools.partial(completion_logprobs, config=config))(params, batch())
    assert_close(scores, plain[0])
