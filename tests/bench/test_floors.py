import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from floors import attention_flops, decode_step_bytes, head_flops, parameters, work_flops
from workloads import SIZES, Work, huggingface_config

from genenv_jax.models.config import TransformerConfig
from genenv_jax.models.scoring import CompletionBatch, completion_logprobs
from genenv_jax.parallel.rules import param_shapes

# Wide, with a small vocabulary, so that XLA's count is nearly all matrix products.
SIZE = {
    "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 512, "vocab_size": 512,
}  # fmt: skip
CONFIG = TransformerConfig.from_huggingface(huggingface_config(SIZE), unroll_layers=True)
WORK = Work("score", prompts=2, group=3, prompt=24, new=17)


def shapes(work):
    """Abstract parameters and batch of a workload."""
    b, g, p, c = work.prompts, work.group, work.prompt, work.new
    array = jax.ShapeDtypeStruct
    batch = CompletionBatch(*(array(shape, jnp.int32) for shape in ((b, p), (b,), (b, g, c), (b, g))))
    return param_shapes(CONFIG), batch


def counted(function, *args):
    """FLOPs that XLA counts in a compiled function."""
    return jax.jit(function).lower(*args).compile().cost_analysis()["flops"]


def unmasked(work):
    """FLOPs of the query-key pairs that a kernel computes only to mask them afterwards."""
    b, g, p, passed = work.prompts, work.group, work.prompt, work.new - 1
    computed = b * p * p + b * g * passed * (p + passed)
    needed = b * p * (p + 1) / 2 + b * g * (passed * p + passed * (passed + 1) / 2)
    return attention_flops(SIZE, computed - needed)


def extra_heads(work):
    """FLOPs of the first token's logits, computed for each row but needed once per group."""
    return work.prompts * (work.group - 1) * head_flops(SIZE)


def test_a_forward_pass_is_what_xla_counts():
    params, batch = shapes(WORK)
    flops = counted(lambda p, x: completion_logprobs(p, x, CONFIG)[0], params, batch)
    assert flops == pytest.approx(work_flops(SIZE, WORK) + unmasked(WORK) + extra_heads(WORK), rel=0.04)


@pytest.mark.parametrize(
    "work", [WORK, pytest.param(dataclasses.replace(WORK, prompt=96, new=64), marks=pytest.mark.slow)]
)
def test_an_update_is_three_forward_passes(work):
    params, batch = shapes(work)

    def loss(params, batch):
        return jnp.sum(completion_logprobs(params, batch, CONFIG)[0])

    flops = counted(jax.grad(loss), params, batch)
    step = dataclasses.replace(work, kind="grpo")
    assert work_flops(SIZE, step) == 3 * work_flops(SIZE, work)
    assert flops == pytest.approx(work_flops(SIZE, step) + 3 * (unmasked(work) + extra_heads(work)), rel=0.06)


@pytest.mark.parametrize("size", SIZES)
def test_parameters_are_those_of_the_model(size):
    config = TransformerConfig.from_huggingface(huggingface_config(SIZES[size]))
    leaves = jax.tree_util.tree_leaves_with_path(param_shapes(config))
    matrices = sum(np.prod(x.shape) for path, x in leaves if path[-1].key in ("kernel", "embedding"))
    assert parameters(SIZES[size]) == matrices


def test_a_decoding_step_reads_weights_once_and_a_prompt_once_a_group():
    pair = 2 * 2 * 2 * 64  # keys and values, layers, key/value heads, head width
    size = decode_step_bytes(SIZE, prompts=3, rows=12, prompt=10, generated=5.0)
    assert size == 2 * (parameters(SIZE) + pair * (3 * 10 + 12 * 5))
    # Of two layers, the first sees six tokens.
    windows = SIZE | {"sliding_window": 6, "sliding_window_pattern": 2}
    size = decode_step_bytes(windows, prompts=3, rows=12, prompt=10, generated=5.0)
    assert size == 2 * (parameters(SIZE) + pair // 2 * (3 * (10 + 6) + 12 * (5 + 5)))
