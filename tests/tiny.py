"""Small random checkpoints in Hugging Face format, written without the package under test."""

import functools
import json
import pathlib

import ml_dtypes
import numpy as np
import safetensors.numpy
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"

CHAT_TEMPLATE = (
    "{%- if messages[0]['role'] != 'system' -%}"
    "{{ '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}"
    "{%- endif -%}"
    "{%- for message in messages -%}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}"
)

# Words, single digits, runs of punctuation, white space: how Qwen2 splits text before BPE merges.
_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CORPUS = (
    "The agent solves the tasks that the simulator writes; the simulator learns from the agent.",
    "system user assistant You are a helpful assistant. Question: what is the answer? Answer: 42.",
    'New Task: call the tool with {"name": "get_weather", "arguments": {"city": "Paris"}}',
    "def add(first, second):\n    return first + second\n",
)


@functools.cache
def train_tokenizer(vocab_size: int = 304) -> str:
    """tokenizer.json of a byte-level BPE; the control tokens come last, as in Qwen2."""
    controls = [PAD, START, END]
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(tokenizers.Regex(_PATTERN), behavior="isolated")
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, to_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(controls),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    tokenizer.add_special_tokens(controls)
    return tokenizer.to_str()


def write_tokenizer(
    path: pathlib.Path, vocab_size: int = 304, chat_template: str | None = CHAT_TEMPLATE
) -> pathlib.Path:
    """Writes tokenizer.json and tokenizer_config.json into `path`."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "tokenizer.json").write_text(train_tokenizer(vocab_size), encoding="utf-8")
    config = {"tokenizer_class": "Qwen2Tokenizer", "model_max_length": 512}
    config |= {"eos_token": END, "pad_token": PAD}
    if chat_template:
        config["chat_template"] = chat_template
    (path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return path


FAMILIES = {
    "qwen2": {"architectures": ["Qwen2ForCausalLM"], "use_sliding_window": False, "bos_token_id": None},
    "qwen3": {
        "architectures": ["Qwen3ForCausalLM"], "use_sliding_window": False, "attention_bias": False,
        "head_dim": 16,  # more than hidden_size / num_attention_heads, as in published models
        "bos_token_id": None,
    },
    "llama": {
        "architectures": ["LlamaForCausalLM"], "attention_bias": False, "mlp_bias": False,
        "bos_token_id": 302,
    },
    "gemma3_text": {  # every other layer sees the last four tokens
        "architectures": ["Gemma3ForCausalLM"], "num_hidden_layers": 3, "head_dim": 16,
        "query_pre_attn_scalar": 24, "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 4,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "rope_theta": 1e6,
        "rope_local_base_freq": 10_000.0, "tie_word_embeddings": True, "attention_bias": False,
        "bos_token_id": 302,
    },
}  # fmt: skip


def config_dict(family: str = "qwen2", **changes) -> dict:
    """config.json of a model with 2 layers of width 32, 4 query heads and 2 key/value heads."""
    return {
        "model_type": family, "vocab_size": 320, "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 512, "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 10_000.0,
        "tie_word_embeddings": False, "initializer_range": 0.02, "eos_token_id": 303, **FAMILIES[family],
        **changes,
    }  # fmt: skip


def random_tensors(config: dict, seed: int = 0) -> dict[str, np.ndarray]:
    """Random float32 weights under Hugging Face's keys, with non-trivial biases and norm scales.

    The values are exact in bfloat16 and in float16, so all dtypes on disk hold the same model.
    """
    rng = np.random.default_rng(seed)
    d, f, v = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    h = config.get("head_dim") or d // config["num_attention_heads"]
    heads = config["num_attention_heads"]
    q, kv = heads * h, (config["num_key_value_heads"] or heads) * h

    def normal(*shape, scale=None, mean=0.0):
        x = rng.normal(mean, shape[-1] ** -0.5 if scale is None else scale, shape)
        x = np.clip(np.round(x * 2**8), -(2**8) + 1, 2**8 - 1) / 2**8  # eight mantissa bits
        return x.astype(np.float32)

    attention = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    biased = set(attention if config["model_type"] == "qwen2" else ())
    if config.get("attention_bias"):
        biased |= {*attention, "self_attn.o_proj"}
    if config.get("mlp_bias"):
        biased |= {"mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}
    tensors = {"model.embed_tokens.weight": normal(v, d), "model.norm.weight": normal(d, mean=0.8)}
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        for name, shape in {
            "self_attn.q_proj": (q, d), "self_attn.k_proj": (kv, d), "self_attn.v_proj": (kv, d),
            "self_attn.o_proj": (d, q), "mlp.gate_proj": (f, d), "mlp.up_proj": (f, d),
            "mlp.down_proj": (d, f),
        }.items():  # fmt: skip
            tensors[f"{layer}{name}.weight"] = normal(*shape)
            if name in biased:
                tensors[f"{layer}{name}.bias"] = normal(shape[0], scale=0.3)
        norms = ["input_layernorm", "post_attention_layernorm"]
        if config["model_type"] == "gemma3_text":
            norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
        for name in norms:
            tensors[f"{layer}{name}.weight"] = normal(d, scale=0.1, mean=0.8)
        if config["model_type"] in ("qwen3", "gemma3_text"):
            for name in ("q_norm", "k_norm"):
                tensors[f"{layer}self_attn.{name}.weight"] = normal(h, scale=0.1, mean=0.8)
    if not config["tie_word_embeddings"]:
        tensors["lm_head.weight"] = normal(v, d)
    return tensors


def merge(params: dict, scale: float) -> dict:
    """Stacked kernels with their adapters added, W + scale · A B, as float32: `params` without "lora_…"."""
    merged = {}
    for name, value in params.items():
        if isinstance(value, dict):
            merged[name] = merge(value, scale)
        elif not name.startswith("lora_"):
            merged[name] = np.asarray(value, np.float32)
    if "lora_a" in params:
        kernel, a, b = (np.asarray(params[k], np.float32) for k in ("kernel", "lora_a", "lora_b"))
        layers, rank = a.shape[0], a.shape[-1]
        delta = a.reshape(layers, -1, rank) @ b.reshape(layers, rank, -1)
        merged["kernel"] = kernel + scale * delta.reshape(kernel.shape)
    return merged


def save_tensors(file: pathlib.Path, tensors: dict[str, np.ndarray]) -> None:
    """Writes one safetensors file."""
    safetensors.numpy.save_file(tensors, file, {"format": "pt"})


def write_weights(
    path: pathlib.Path, tensors: dict[str, np.ndarray], dtype: str = "float32", shards: int = 1
) -> None:
    """Writes safetensors: one file, or several with an index."""
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    tensors = {key: np.ascontiguousarray(value.astype(kind)) for key, value in tensors.items()}
    if shards == 1:
        save_tensors(path / "model.safetensors", tensors)
        return
    weight_map = {}
    keys = sorted(tensors)
    for n in range(shards):
        name = f"model-{n + 1:05d}-of-{shards:05d}.safetensors"
        part = {key: tensors[key] for key in keys[n::shards]}
        save_tensors(path / name, part)
        weight_map |= dict.fromkeys(part, name)
    index = {"metadata": {"total_size": sum(x.nbytes for x in tensors.values())}, "weight_map": weight_map}
    (path / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")


def write_model(
    path: pathlib.Path, *, family: str = "qwen2", seed: int = 0, dtype: str = "float32", shards: int = 1,
    tokenizer: bool = True, **changes,
) -> pathlib.Path:  # fmt: skip
    """Writes a whole model directory; `changes` go into config.json.  Deterministic."""
    path.mkdir(parents=True, exist_ok=True)
    config = config_dict(family, **changes) | {"torch_dtype": dtype}
    (path / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    write_weights(path, random_tensors(config, seed), dtype, shards)
    if tokenizer:
        write_tokenizer(path)
        generation = {"eos_token_id": [303, 301], "pad_token_id": 301}
        (path / "generation_config.json").write_text(json.dumps(generation), encoding="utf-8")
    return path
