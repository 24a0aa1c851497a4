"""The GPU kernel's layout and masks against the plain path, and what it lowers to for a GPU."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from genenv_jax.models.attention import causal_attention
from genenv_jax.models.attention_cudnn import cudnn_attention
from tests.models.attention_cases import assert_equal_with_gradients, make_inputs, with_shared_past

# The same calls, in XLA's implementation of `jax.nn.dot_product_attention`.
without_gpu = functools.partial(cudnn_attention, implementation="xla")


@pytest.mark.parametrize(
    ("g", "t", "s", "n", "kv", "h", "dtype"),
    [
        (1, 9, 0, 4, 2, 64, "float32"),
        (4, 9, 0, 4, 1, 64, "bfloat16"),
        (4, 9, 13, 4, 2, 64, "float32"),
        (4, 9, 13, 4, 2, 64, "bfloat16"),
        (1, 8, 16, 6, 6, 128, "float32"),
    ],
)
def test_equals_the_plain_path(g, t, s, n, kv, h, dtype):
    inputs = make_inputs(g=g, t=t, s=s, n=n, kv=kv, h=h, b=3, lengths=[1, max(1, s // 2), s], dtype=dtype)
    assert_equal_with_gradients(with_shared_past(without_gpu), causal_attention, inputs)


def test_gradients_of_the_prompt_are_added_up_in_float32():
    """In bfloat16, the equal shares of 300 rows would stop adding up at 256."""
    g = 300
    q, k, v, past = make_inputs(g=g, t=1, s=1, n=1, kv=1, b=1, dtype="bfloat16")
    ((keys, values, mask),) = past

    def total(values):
        out = with_shared_past(without_gpu)(jnp.zeros_like(q), k, v, [(keys, values, mask)])
        return jnp.sum(out.astype(jnp.float32))

    grad = jax.jit(jax.grad(total))(values).astype(jnp.float32)
    np.testing.assert_allclose(grad, np.full(values.shape, g / 2), rtol=1e-2)


@pytest.fixture
def gpu_lowering(monkeypatch):
    """Lets JAX lower cuDNN calls where no cuDNN is installed, and gives the lowered text."""
    cudnn = pytest.importorskip("jax._src.cudnn.fused_attention_stablehlo")
    monkeypatch.setattr(cudnn, "check_cudnn_version", lambda: 91_000)

    def text(function, *args):
        return jax.jit(function).trace(*args).lower(lowering_platforms=("cuda",)).as_text()

    return text


@pytest.mark.parametrize("s", [0, 12])
def test_lowers_to_cudnn_calls(gpu_lowering, s):
    q, k, v, past = make_inputs(g=4, t=9, s=s, h=64, dtype="bfloat16")
    kernel = with_shared_past(cudnn_attention)
    kind = "fmhaScaleBiasSoftmax" if s else "fmhaSoftmax"
    assert gpu_lowering(kernel, q, k, v, past).count(f"@__cudnn${kind}(") == 1
    pairs = [segment[:2] for segment in past]

    def gradients(q, k, v, pairs):
        def loss(q, k, v, pairs):
            segments = [(*pair, mask) for pair, (*_, mask) in zip(pairs, past, strict=True)]
            return jnp.sum(kernel(q, k, v, segments).astype(jnp.float32) ** 2)

        return jax.grad(loss, argnums=(0, 1, 2, 3))(q, k, v, pairs)

    both = gpu_lowering(gradients, q, k, v, pairs)
    # The forward kernel runs once: the backward pass reuses its results.
    assert both.count(f"@__cudnn${kind}(") == 1
    assert both.count(f"@__cudnn${kind}Backward(") == 1


def test_masks_do_not_grow_with_the_group(gpu_lowering):
    """One row's scores under one mask at a time: (b, 1, t, s + t), whatever g."""
    for g in (2, 6):
        q, k, v, past = make_inputs(g=g, t=16, s=24, h=64, dtype="bfloat16")
        text = gpu_lowering(with_shared_past(cudnn_attention), q, k, v, past)
        assert "tensor<2x1x16x40xbf16>" in text
        assert f"tensor<{2 * g}x1x16x40xbf16>" not in text
