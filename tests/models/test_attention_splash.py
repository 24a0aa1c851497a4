"""The TPU kernel, interpreted, against the plain path; and compiled for a TPU where libtpu is installed."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from genenv_jax.models.attention import causal_attention
from genenv_jax.models.attention_splash import GroupMask, splash_attention
from genenv_jax.models.config import TransformerConfig
from genenv_jax.parallel import rules
from genenv_jax.parallel.mesh import make_mesh
from tests.models import attention_cases


def heads(n, kv, head_dim):
    """A model with these heads."""
    return TransformerConfig(
        vocab_size=48, hidden_size=n * head_dim, intermediate_size=48, num_layers=1, num_heads=n,
        num_kv_heads=kv, head_dim=head_dim,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "case",
    [  # t is never a multiple of the block
        pytest.param({"g": 1, "t": 150, "s": 0, "n": 2, "kv": 1, "h": 64}, id="prompt"),
        pytest.param({"g": 4, "t": 50, "s": 70, "n": 4, "kv": 2, "h": 64}, id="rows share a block"),
        pytest.param({"g": 2, "t": 150, "s": 130, "n": 2, "kv": 2, "h": 128}, id="longer rows"),
    ],
)
def test_equals_the_plain_path(case, dtype):
    s = case["s"]
    inputs = attention_cases.make_inputs(**case, b=3, lengths=[1, max(1, s // 2), s], dtype=dtype)
    kernel = functools.partial(splash_attention, interpret=True, max_block=256 if case["t"] < 128 else 128)
    attention_cases.assert_equal_with_gradients(
        attention_cases.with_shared_past(kernel), causal_attention, inputs
    )


@pytest.mark.parametrize(
    ("size", "case"),
    [
        pytest.param(20, {"g": 1, "t": 150, "s": 0, "n": 2, "kv": 1, "h": 64}, id="prompt"),
        pytest.param(60, {"g": 4, "t": 50, "s": 70, "n": 4, "kv": 2, "h": 64}, id="rows share a block"),
    ],
)
def test_windows_equal_the_plain_path(size, case):
    """In layers with a window and without, where a prompt's padding lies between its tokens and a row's."""
    *inputs, past = attention_cases.make_inputs(**case, b=3, lengths=[1, case["s"] // 2, case["s"]])
    # The second prompt is padded in front.
    inputs = *inputs, [(k, v, mask.at[1].set(mask[1, ..., ::-1])) for k, v, mask in past]
    outputs = []
    for local in jnp.array([True, False]):
        splash, plain = (attention_cases.with_window(name, size, local) for name in ("splash", "xla"))
        attention_cases.assert_equal_with_gradients(splash, plain, inputs)
        outputs.append(splash(*inputs))
    everything = causal_attention(*inputs)
    np.testing.assert_allclose(outputs[1], everything, atol=1e-5)
    assert float(jnp.abs(outputs[0] - everything).max()) > 0.1


@pytest.mark.parametrize("window", [None, 1, 3])
@pytest.mark.parametrize(("prompt", "rows", "length"), [(4, 3, 2), (0, 1, 5), (6, 2, 3)])
def test_mask(prompt, rows, length, window):
    mask = GroupMask(prompt, rows, length, window)
    own = rows * length
    dense = np.zeros((own, prompt + own), bool)
    for row in range(rows):
        for i in range(length):
            query = row * length + i
            size = window or prompt + length
            dense[query, max(0, prompt + i + 1 - size) : prompt] = True
            dense[query, prompt + max(row * length, query + 1 - size) : prompt + query + 1] = True
    assert mask.shape == dense.shape
    np.testing.assert_array_equal(mask[:, :], dense)
    np.testing.assert_array_equal(mask[1:3, 2:5], dense[1:3, 2:5])
    same = GroupMask(prompt, rows, length, window)
    assert mask == same and hash(mask) == hash(same)


def test_blocks_between_rows_are_skipped():
    """The kernel's own preparation keeps only the prompt's blocks and each row's own."""
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask_info as info

    found, _ = info.process_mask(masks.MultiHeadMask([GroupMask(1024, 8, 512)]), (512, 512))
    assert found.block_mask.shape == (1, 8, 3)  # two blocks of the prompt and one of its own
    np.testing.assert_array_equal(found.block_mask[0], [[2, 2, 1]] * 8)
    assert found.partial_mask_blocks.shape == (1, 512, 512)  # one causal block serves all
    found, _ = info.process_mask(masks.MultiHeadMask([GroupMask(1024, 8, 512, 512)]), (512, 512))
    np.testing.assert_array_equal(found.block_mask[0], [[1, 1]] * 8)  # the prompt's last, and its own


@pytest.mark.parametrize(
    ("batch", "n", "kv", "sizes", "window"),
    [
        (4, 4, 2, (2, 2, 2), 0),
        (3, 4, 2, (2, 2, 2), 12),  # a batch that the mesh does not divide
        pytest.param(4, 8, 2, (2, 1, 4), 0, marks=pytest.mark.slow),  # each device reads one of two kv heads
        pytest.param(
            4, 12, 4, (1, 1, 6), 0, marks=pytest.mark.slow
        ),  # a device's heads straddle two kv heads
    ],
)
def test_on_a_mesh(batch, n, kv, sizes, window):
    """Batch over data and fsdp, heads over tensor; kv heads replicated where tensor does not divide them."""
    q, k, v, past = attention_cases.make_inputs(g=2, t=20, s=9, n=n, kv=kv, b=batch)
    splash, plain = (
        attention_cases.with_window(name, window, jnp.array(True))
        if window
        else functools.partial(causal_attention, implementation=name)
        for name in ("splash", "xla")
    )
    want = attention_cases.forward_and_gradients(plain, q, k, v, past)
    mesh = make_mesh(*sizes, devices=jax.devices()[: np.prod(sizes)])
    with rules.activate(mesh, heads(n, kv, 8)):
        got = attention_cases.forward_and_gradients(splash, q, k, v, past)
        text = str(jax.make_jaxpr(splash)(q, k, v, past))
    assert "shard_map" in text and "pallas_call" in text
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5)
    if batch == 4 and sizes == (2, 2, 2):
        spec = got[0].sharding.spec
        assert spec[0] == ("data", "fsdp") and spec[3] == "tensor"


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(1, 4, 1), (1, 1, 4), (1, 2, 2)])
@pytest.mark.parametrize("head_dim", [64, 128])
def test_compiles_for_a_tpu(sizes, head_dim, monkeypatch):
    """Forward and backward pass of a 7B's attention on v5e, on a machine without a TPU."""
    pytest.importorskip("libtpu")
    monkeypatch.setenv("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")  # there is no TPU to share
    from jax.experimental import topologies

    mesh = make_mesh(*sizes, devices=topologies.get_topology_desc("v5e:2x2", "tpu").devices)
    b, g, t, s, n, kv = 4, 8, 511, 4096, 28, 4
    config = heads(n, kv, head_dim)

    def shaped(*shape, axes, dtype=jnp.bfloat16):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=rules.logical_sharding(mesh, axes, config))

    q = shaped(b, g, t, n, head_dim, axes=("batch", None, None, "heads", None))
    k = shaped(b, g, t, kv, head_dim, axes=("batch", None, None, "kv_heads", None))
    keys = shaped(b, 1, s, kv, head_dim, axes=("batch", None, None, "kv_heads", None))
    mask = shaped(b, 1, 1, s, axes=("batch", None, None, None), dtype=bool)

    def loss(q, k, v, keys, values, mask):
        return jnp.sum(causal_attention(q, k, v, [(keys, values, mask)], "splash").astype(jnp.float32) ** 2)

    with rules.activate(mesh, config):
        lowered = jax.jit(jax.grad(loss, argnums=range(5))).lower(q, k, k, keys, keys, mask)
        assert lowered.as_text().count("tpu_custom_call") >= 3  # forward, dq, dkv
        memory = lowered.compile().memory_analysis()
    scores = 4 * b * g * n * t * (s + t) // 4  # bytes per chip of one float32 copy of the scores
    assert memory.temp_size_in_bytes < scores / 4
