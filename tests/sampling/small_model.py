"""A small decoder with random weights, and prompts for it."""

import jax
import jax.numpy as jnp
import numpy as np

from genenv_jax.models.config import TransformerConfig, Window
from genenv_jax.models.scoring import CompletionBatch
from genenv_jax.models.transformer import Transformer
from genenv_jax.parallel.rules import param_shapes

# 130 tokens: one block of 128 and a bit.  Two layers see three tokens, the other all.
CONFIG = TransformerConfig(
    vocab_size=130, hidden_size=16, intermediate_size=24, num_layers=3, num_heads=4,
    num_kv_heads=2, head_dim=4, qkv_bias=True, window=Window(3, (True, False, True), 100.0),
)  # fmt: skip


def make_params(config=CONFIG, seed=0, scale=0.5):
    """Weights that make the logits vary by a few nats; host arrays are much faster to draw."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: jnp.asarray(rng.normal(0.0, scale, x.shape), x.dtype), param_shapes(config))


def make_prompts(count, longest, seed=0):
    """Token lists of 1 to `longest` tokens; the first has `longest`."""
    rng = np.random.default_rng(seed)
    lengths = [longest, *rng.integers(1, longest + 1, count - 1)]
    return [rng.integers(0, CONFIG.vocab_size, n).tolist() for n in lengths]


def same(got, want):
    """Asserts that two samplers drew the same rollouts, with log-probs up to rounding."""
    assert got.prompts == want.prompts
    for name in ("tokens", "lengths", "done", "loss_mask"):
        np.testing.assert_array_equal(getattr(got, name), getattr(want, name))
    np.testing.assert_allclose(got.logprobs, want.logprobs, atol=1e-5)


def make_batch(prompt_lengths, completion_lengths, vocab_size=CONFIG.vocab_size, seed=0):
    """Random prompts (b,) and groups of completions (b, g) of these lengths, padded to the longest."""
    rng, shape = np.random.default_rng(seed), np.shape(completion_lengths)
    return CompletionBatch(
        rng.integers(0, vocab_size, (shape[0], np.max(prompt_lengths)), dtype=np.int32),
        np.asarray(prompt_lengths, np.int32),
        rng.integers(0, vocab_size, (*shape, np.max(completion_lengths)), dtype=np.int32),
        np.asarray(completion_lengths, np.int32),
    )


def full_logits(params, tokens):
    """Logits (rows, t, v) of one plain pass over whole sequences (rows, t), float64."""
    tokens = np.asarray(tokens, np.int32)[:, None]
    return np.asarray(_full(params, tokens)[:, 0], np.float64)


@jax.jit
def _full(params, tokens):
    model = Transformer(CONFIG)
    positions = jnp.broadcast_to(jnp.arange(tokens.shape[-1]), tokens.shape)
    hidden, _ = model.apply({"params": params}, tokens, positions)
    return model.apply({"params": params}, hidden, method="logits")


def log_softmax(logits):
    top = logits.max(axis=-1, keepdims=True)
    return logits - top - np.log(np.exp(logits - top).sum(axis=-1, keepdims=True))
