"""What a compiled update of adapters, and a decoding step, compute and hold."""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import pytest

from genenv_jax.models.config import TransformerConfig
from genenv_jax.models.lora import LoraConfig, split
from genenv_jax.models.scoring import CompletionBatch
from genenv_jax.models.transformer import Transformer
from genenv_jax.parallel.rules import param_shapes
from genenv_jax.players import learner
from genenv_jax.players.optimizer import make_optimizer
from genenv_jax.rl.losses import LossConfig
from genenv_jax.sampling import decoding
from genenv_jax.sampling.draw import SamplingParams
from genenv_jax.sampling.engine import Engine

LAYERS, HIDDEN, INNER, VOCAB = 6, 48, 200, 1000
CONFIG = TransformerConfig(
    vocab_size=VOCAB, hidden_size=HIDDEN, intermediate_size=INNER, num_layers=LAYERS, num_heads=2,
    num_kv_heads=1, head_dim=20, tie_embeddings=True, lora=LoraConfig(4),
)  # fmt: skip
WIDTHS = (40, 20, 20, HIDDEN, INNER, INNER, HIDDEN)  # of the projections' outputs in a layer
PROMPTS, PROMPT, GROUP, COMPLETION = 2, 128, 4, 128


def lowered(**options):
    config = dataclasses.replace(CONFIG, **options)
    frozen, trained = split(param_shapes(config))
    if not config.lora:
        frozen, trained = {}, frozen
    optimizer = make_optimizer(1e-3)
    state = jax.eval_shape(lambda x: learner.TrainState(x, optimizer.init(x), jnp.int32(0)), trained)

    def array(*shape, dtype=jnp.float32):
        return jax.ShapeDtypeStruct((PROMPTS, *shape), dtype)

    tokens = [array(*shape, dtype=jnp.int32) for shape in ((PROMPT,), (), (GROUP, COMPLETION), (GROUP,))]
    batch = learner.GRPOBatch(CompletionBatch(*tokens), array(GROUP, COMPLETION), None, array(GROUP), None)
    return learner.make_grpo_step(config, LossConfig(kl_coef=0.0), optimizer).lower(state, frozen, batch)


def lowered_decode(config=CONFIG):
    options = SamplingParams(COMPLETION, GROUP, (0,))
    engine = Engine(config, options, PROMPTS, (PROMPT,))
    weights = jax.eval_shape(functools.partial(decoding.prepare, config=config), param_shapes(config))
    state = jax.eval_shape(lambda: engine.empty_state(jax.random.key(0), PROMPT, COMPLETION))
    return decoding.decode.lower(weights, state, config=config, options=options, steps=4)


def kernel_gradients(program):
    """Products with the shapes of the feed-forward network's kernels."""
    shape = rf"f32\[(?:{HIDDEN},{INNER}|{INNER},{HIDDEN})\]"
    return re.findall(rf"= {shape}\S* dot\(", program.as_text())


@pytest.fixture(scope="module")
def program():
    return lowered(remat="full").compile()


def test_frozen_weights_have_no_gradient(program):
    assert kernel_gradients(lowered(lora=None, remat="full").compile())
    assert not kernel_gradients(program)


def test_nothing_is_folded_in_and_the_tied_table_is_not_transposed(program):
    assert 'dense<"0x' not in lowered(remat="full").as_text()
    for each in (program, lowered_decode().compile()):
        assert f"f32[{VOCAB},{HIDDEN}]" in each.as_text()
        assert f"f32[{HIDDEN},{VOCAB}]" not in each.as_text()


def test_dots_keep_each_projection_s_output_once(program):
    more = lowered(remat="dots").compile().memory_analysis().temp_size_in_bytes
    more -= program.memory_analysis().temp_size_in_bytes
    tokens = PROMPTS * (PROMPT + GROUP * COMPLETION)
    assert 0 < more < 1.1 * 4 * LAYERS * tokens * sum(WIDTHS)


@pytest.mark.parametrize("tied", (True, False))
@pytest.mark.parametrize(("lora", "stored", "dtype"), [
    (LoraConfig(4), "float32", "bfloat16"), (None, "float32", "float32"), (None, "bfloat16", "bfloat16"),
])  # fmt: skip
def test_the_head_is_cast_only_under_adapters(tied, lora, stored, dtype):
    config = dataclasses.replace(CONFIG, tie_embeddings=tied, lora=lora, matmul_dtype="bfloat16")
    params = jax.tree.map(lambda x: x.update(dtype=jnp.dtype(stored)), param_shapes(config))
    head = jax.eval_shape(lambda p: Transformer(config).apply({"params": p}, method="head"), params)
    assert (head.shape, head.dtype) == ((HIDDEN, VOCAB), dtype)


def test_separate_layers_are_narrow_and_prompts_are_read_with_the_parameters_as_given():
    config = dataclasses.replace(CONFIG, lora=None, unroll_layers=True, matmul_dtype="bfloat16")
    weights = jax.eval_shape(functools.partial(decoding.prepare, config=config), param_shapes(config))
    assert {x.dtype for x in jax.tree.leaves(weights.params)} == {jnp.dtype("float32")}
    for path, x in jax.tree.leaves_with_path(weights.decoding):
        assert x.dtype == ("bfloat16" if path[-1].key == "kernel" else "float32")


def test_a_loop_over_narrow_layers_copies_none_of_them_in_float32():
    """XLA's CPU backend would: that is more than twice the weights."""
    text = lowered_decode(dataclasses.replace(CONFIG, lora=None, matmul_dtype="bfloat16")).compile().as_text()
    assert f"u16[{LAYERS},{HIDDEN},{INNER}]" in text
    assert f"f32[{LAYERS},{HIDDEN},{INNER}]" not in text and f"bf16[{LAYERS},{HIDDEN},{INNER}]" not in text


def test_with_remat_the_layers_stay_in_a_loop(program):
    """XLA recomputes unrolled layers before it needs them."""
    unrolled = lowered(remat="full", unroll_layers=True).compile()
    assert unrolled.memory_analysis().temp_size_in_bytes == program.memory_analysis().temp_size_in_bytes
