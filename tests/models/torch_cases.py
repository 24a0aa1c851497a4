"""Small models and inputs on which `make_references` has stored what torch computes.

The tests compare ours with the stored numbers; a slow test computes them anew where torch is installed.
"""

import dataclasses
import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np

from genenv_jax.models import huggingface
from genenv_jax.models.config import TransformerConfig
from genenv_jax.models.transformer import Transformer

FOLDER = pathlib.Path(__file__).with_name("references")
VOCAB = 48
LENGTHS = np.array([11, 7, 1])

ROPES = {
    "default": None,
    "linear": {"rope_type": "linear", "factor": 4.0},
    # Llama 3.1's, on a shorter original context, so that all three of its bands are used.
    "llama3": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    # The recipe of Qwen's model cards.
    "yarn": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192},
}  # fmt: skip


def shape(family, rope="default", **changes):
    """Arguments of `tiny.write_model`."""
    small = {"tokenizer": False, "vocab_size": VOCAB, "bos_token_id": None, "eos_token_id": 3}
    return {"family": family, "rope_scaling": ROPES[rope], **small, **changes}


# Every layer type of every family: biases where a family may have them, norms of queries and keys, heads
# wider than their share of the model; tied and untied heads; every scaling of the positions.
MODELS = {
    "qwen2": shape("qwen2", num_key_value_heads=1, rope_theta=1e6, tie_word_embeddings=True),
    "qwen2-deep": shape("qwen2", "linear", num_hidden_layers=3, rms_norm_eps=1e-5),
    "qwen2-head_dim": shape("qwen2", "llama3", num_key_value_heads=4, hidden_size=24, head_dim=10),
    "qwen3": shape("qwen3", "yarn", tie_word_embeddings=True),
    "qwen3-biases": shape("qwen3", "yarn", attention_bias=True, num_key_value_heads=1),
    "llama": shape("llama", rms_norm_eps=1e-5),
    "llama-biases": shape(
        "llama", "linear", attention_bias=True, mlp_bias=True, head_dim=10, tie_word_embeddings=True
    ),
    "llama-heads": shape("llama", "llama3", num_key_value_heads=None),
    "gemma3": shape("gemma3_text"),
    "gemma3-linear": shape(
        "gemma3_text", "linear", num_hidden_layers=2, layer_types=None, sliding_window_pattern=2,
        num_key_value_heads=1, tie_word_embeddings=False,
    ),
}  # fmt: skip

# Scalings on their own: (rope_scaling, max_position_embeddings)
LLAMA3 = ROPES["llama3"]
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
SCALINGS = {
    "linear": ({"rope_type": "linear", "factor": 2.5}, 8192),
    "llama-3.1": (LLAMA3, 131_072),
    "llama-3.2": (LLAMA3 | {"factor": 32.0}, 131_072),
    "llama3-wide": (LLAMA3 | {"low_freq_factor": 0.5, "high_freq_factor": 16}, 131_072),
    "qwen2.5-yarn": ({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}, 32768),
    "qwen3-yarn": (YARN, 40_960),
    "yarn-betas": (YARN | {"beta_fast": 16, "beta_slow": 2.5}, 131_072),
    "yarn-attention_factor": (YARN | {"attention_factor": 1.5}, 131_072),
    "yarn-of-max": ({"rope_type": "yarn", "factor": 2.0}, 32_768),
    "yarn-no-factor": (YARN | {"factor": None}, 131_072),
    "yarn-shrinks": (YARN | {"factor": 1.0}, 32_768),
}
HEADS = ((64, 500_000.0), (128, 1_000_000.0), (96, 1e4))  # (head_dim, rope_theta)
ROPE_POSITIONS = np.concatenate([np.arange(4), np.arange(32_764, 32_768)])

_FAR = {"rope_theta": 1e6, "max_position_embeddings": 32_768}
FAR_MODELS = {
    f"{family}-{rope}": shape(family, rope, **_FAR)
    for family, rope in (("qwen2", "yarn"), ("llama", "llama3"))
}

_NARROW = {"hidden_size": 16, "intermediate_size": 24}
# (what the backward pass keeps, model)
GRADIENTS = {
    "qwen2": ("offload", shape("qwen2", num_hidden_layers=3, **_NARROW)),
    "qwen3": ("full", shape("qwen3", "yarn", attention_bias=True, num_key_value_heads=1,
                            tie_word_embeddings=True, **_NARROW)),
    "llama": ("dots", shape("llama", "llama3", attention_bias=True, mlp_bias=True, head_dim=10,
                            **_NARROW)),
    "gemma3": ("full", shape("gemma3_text", **_NARROW)),
}  # fmt: skip

ADAPTED = shape("qwen2", seed=5, **_NARROW)
ADAPTERS = {  # PEFT's settings
    "all": {
        "r": 3,
        "lora_alpha": 12,
        "target_modules": [*("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")],
    },
    "two": {"r": 2, "lora_alpha": 6, "target_modules": ["q_proj", "down_proj"]},
}


def stored(name):
    """The arrays of references/<name>.npz by key."""
    with np.load(FOLDER / f"{name}.npz") as file:
        return dict(file)


def part(arrays, prefix):
    """The arrays under "<prefix>/", by the rest of their keys."""
    start = f"{prefix}/"
    return {key.removeprefix(start): x for key, x in arrays.items() if key.startswith(start)}


def padded_batch(vocab_size=VOCAB, seed=1):
    """Right-padded tokens (3, 11) and their mask.  The padding is an ordinary token on purpose."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, vocab_size, (len(LENGTHS), LENGTHS.max()), dtype=np.int32)
    return tokens, np.arange(tokens.shape[1]) < LENGTHS[:, None]


def far_batch():
    """Tokens (2, 16) and positions: a few early ones, then a leap to the end of 32k."""
    tokens = np.random.default_rng(5).integers(0, VOCAB, (2, 16), dtype=np.int32)
    row = np.concatenate([np.arange(4), np.arange(32_768 - 12, 32_768)]).astype(np.int32)
    return tokens, np.broadcast_to(row, tokens.shape)


def load(path, **options):
    """Our model of a directory, and its parameters."""
    config = TransformerConfig.from_huggingface(huggingface.read_config(path))
    config = dataclasses.replace(config, **options)
    return Transformer(config), huggingface.load_params(path, config)


@functools.partial(jax.jit, static_argnums=0)
def logits(model, params, tokens, positions=None):
    """Logits (rows, t, v) of one pass over whole sequences (rows, t)."""
    if positions is None:
        positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
    variables = {"params": params}
    hidden, _ = model.apply(variables, tokens[:, None], positions[:, None])
    return model.apply(variables, hidden[:, 0], method="logits")
