"""Random Qwen2 models as Hugging Face directories, one file per layer: at most a layer is in memory."""

import json
import math
import pathlib
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import safetensors.numpy

DTYPES = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
_POOL = 1_048_573  # numbers that are drawn; a prime, so that no two rows of a matrix are equal


def files(config: Mapping[str, Any]) -> list[dict[str, tuple[int, ...]]]:
    """Shapes of the tensors by name, a dictionary per file.

    config: config.json of a Qwen2 model.
    """
    d, f, v = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    kv = config["num_key_value_heads"] * (d // config["num_attention_heads"])
    layer = {
        "self_attn.q_proj.weight": (d, d), "self_attn.q_proj.bias": (d,),
        "self_attn.k_proj.weight": (kv, d), "self_attn.k_proj.bias": (kv,),
        "self_attn.v_proj.weight": (kv, d), "self_attn.v_proj.bias": (kv,),
        "self_attn.o_proj.weight": (d, d),
        "mlp.gate_proj.weight": (f, d), "mlp.up_proj.weight": (f, d), "mlp.down_proj.weight": (d, f),
        "input_layernorm.weight": (d,), "post_attention_layernorm.weight": (d,),
    }  # fmt: skip
    found = [{"model.embed_tokens.weight": (v, d), "model.norm.weight": (d,)}]
    for i in range(config["num_hidden_layers"]):
        found.append({f"model.layers.{i}.{name}": shape for name, shape in layer.items()})
    return found if config["tie_word_embeddings"] else [*found, {"lm_head.weight": (v, d)}]


def parameters(config: Mapping[str, Any]) -> int:
    """Number of parameters."""
    return sum(math.prod(shape) for file in files(config) for shape in file.values())


def write(path: pathlib.Path, config: Mapping[str, Any], dtype: str = "float32") -> None:
    """Writes a model; always the same one for a shape.

    Logits differ by a few nats, and biases and norms are not at their initial values, so an engine that left
    one out would be noticed.  Tensors repeat few distinct values, each from another offset: drawing all would
    take much longer than loading, which ignores them.

    dtype: on disk, one of `DTYPES`.
    """
    rng = np.random.default_rng(0)
    pool = rng.standard_normal(_POOL, np.float32)

    def draw(name: str, shape: tuple[int, ...]) -> np.ndarray:
        mean, scale = float("norm" in name), 0.1
        if len(shape) == 2:
            scale = shape[1] ** -0.5 * (3 if "embed" in name else 1)
        values = np.roll(mean + scale * pool, rng.integers(_POOL)).astype(DTYPES[dtype])
        return np.resize(values, shape)

    path.mkdir(parents=True, exist_ok=True)
    weight_map, total, parts = {}, 0, files(config)
    for number, shapes in enumerate(parts, start=1):
        name = f"model-{number:05d}-of-{len(parts):05d}.safetensors"
        tensors = {key: draw(key, shape) for key, shape in shapes.items()}
        safetensors.numpy.save_file(tensors, path / name, {"format": "pt"})
        weight_map |= dict.fromkeys(tensors, name)
        total += sum(x.nbytes for x in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    (path / "config.json").write_text(json.dumps({**config, "torch_dtype": dtype}, indent=1))
