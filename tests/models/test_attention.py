"""The plain path over blocks of queries, and the choice of a kernel."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from genenv_jax.models import attention
from genenv_jax.models.attention import SlidingWindow, attend, causal_attention
from genenv_jax.models.config import TransformerConfig
from tests import tiny
from tests.models.attention_cases import assert_equal_with_gradients, make_inputs


def single_shot(q, k, v, past):
    t = q.shape[2]
    return attend(q, [*past, (k, v, jnp.tril(jnp.ones((1, 1, t, t), bool)))])


@pytest.mark.parametrize(
    ("g", "t", "s", "dtype"), [(1, 37, 0, "float32"), (4, 37, 21, "float32"), (3, 8, 5, "bfloat16")]
)
def test_blocks_equal_single_shot(monkeypatch, g, t, s, dtype):
    inputs = make_inputs(g=g, t=t, s=s, dtype=dtype)
    assert "while" not in str(jax.make_jaxpr(causal_attention)(*inputs))  # small: not split into blocks
    monkeypatch.setattr(attention, "_MAX_SCORES", 5 * g * (s + t))  # five queries at a time
    assert_equal_with_gradients(causal_attention, single_shot, inputs)


def test_blocks_take_masks_of_every_shape(monkeypatch):
    """A segment per row, masked by query, also goes through the blocks."""
    b, g, t, s = 2, 3, 9, 6
    q, k, v, past = make_inputs(g=g, t=t, s=s)
    rng = np.random.default_rng(7)
    own = [jnp.asarray(rng.normal(size=(b, g, s, *k.shape[3:])), jnp.float32) for _ in range(2)]
    past = [*past, (*own, jnp.asarray(rng.random((b, g, t, s)) < 0.5))]
    want = jax.jit(single_shot)(q, k, v, past)
    for budget in (1, g * (t + 2 * s) * 4):
        monkeypatch.setattr(attention, "_MAX_SCORES", budget)
        got = jax.jit(lambda *args: causal_attention(*args))(q, k, v, past)  # traced anew
        np.testing.assert_allclose(got, want, atol=1e-6)


def test_gradients_are_added_up_in_float32(monkeypatch):
    """In bfloat16, 128 blocks' shares of one key would stop adding up long before the end."""
    t = 256
    q, k, v, _ = make_inputs(g=1, t=t, s=0, n=1, kv=1, b=1, dtype="bfloat16")
    monkeypatch.setattr(attention, "_MAX_SCORES", 2 * t)  # two queries at a time
    q = jnp.zeros_like(q)  # a query weights all keys up to its own equally
    grad = jax.jit(jax.grad(lambda v: jnp.sum(causal_attention(q, k, v, []).astype(jnp.float32))))
    want = np.cumsum((1 / np.arange(1, t + 1))[::-1])[::-1]  # 1/j + ... + 1/t for key j
    np.testing.assert_allclose(grad(v)[0, 0, :, 0, 0].astype(jnp.float32), want, rtol=1e-2)


def test_long_prompts_never_hold_all_scores():
    """Temporaries of forward and backward pass, by the compiler's own account."""
    n, t = 4, 2048

    def loss(q, k, v):
        return jnp.sum(causal_attention(q, k, v, []) ** 2)

    q = jax.ShapeDtypeStruct((1, 1, t, n, 64), jnp.float32)
    k = jax.ShapeDtypeStruct((1, 1, t, 2, 64), jnp.float32)
    compiled = jax.jit(jax.grad(loss, argnums=(0, 1, 2))).lower(q, k, k).compile()
    scores = 4 * n * t * t  # bytes of one float32 copy of all scores
    assert compiled.memory_analysis().temp_size_in_bytes < scores


@pytest.mark.parametrize("implementation", ["splash", "cudnn"])
def test_decoding_and_other_segments_than_a_shared_one_take_the_plain_path(implementation):
    def same_program(q, k, v, past, window=None):
        attend = functools.partial(causal_attention, window=window)
        got, want = (
            str(jax.make_jaxpr(attend, static_argnums=4)(q, k, v, past, name))
            for name in (implementation, "xla")
        )
        return got == want

    assert same_program(*make_inputs(g=3, t=1, s=5))
    q, k, v, past = make_inputs(g=3, t=4, s=4)
    of_rows = [(k, v, jnp.ones((1, 1, 1, 4), bool))]
    by_query = [(*past[0][:2], jnp.ones((1, 1, 4, 4), bool))]
    for segments in (of_rows, by_query, [*past, *past]):
        assert same_program(q, k, v, segments)
    window = SlidingWindow(True, 2, (jnp.arange(4)[None, None, None],))
    assert same_program(q, k, v, of_rows, window)
    assert same_program(q, k, v, past, window) == (implementation == "cudnn")


def test_kernels_that_are_not_there():
    q, k, v, past = make_inputs(g=1, t=4, s=0)
    with pytest.raises(ValueError, match="NVIDIA GPUs, and this program is for 'cpu'"):
        causal_attention(q, k, v, past, "cudnn")
    with pytest.raises(ValueError, match="bfloat16 or float16, but dtype = 'float32'"):
        TransformerConfig.from_huggingface(tiny.config_dict(), attention="cudnn")
    # A program for another machine is refused by that machine's name.
    device = jax.sharding.AbstractDevice("a card", 1, "gpu")
    mesh = jax.sharding.AbstractMesh((1,), ("data",), abstract_device=device)
    with (
        jax.sharding.use_abstract_mesh(mesh),
        pytest.raises(ValueError, match="runs on TPUs, and this program is for 'gpu'"),
    ):
        causal_attention(q, k, v, past, "splash")
    TransformerConfig.from_huggingface(tiny.config_dict(), attention="cudnn", dtype="bfloat16")
