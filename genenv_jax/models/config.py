"""Shape and options of a decoder, read from a Hugging Face config.json."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

_REQUIRED = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
)


@dataclasses.dataclass(frozen=True)
class TransformerConfig:
    """One decoder family member.  Families differ in these values only, never in code paths of their own.

    `dtype` is the type of activations and of matrix products; parameters keep the type they are
    stored in and are cast at use.  `remat` names what the backward pass keeps of a layer
    (`transformer.REMAT_POLICIES`), `attention` the kernel (see `models.attention`).
    `unroll_layers` unrolls the scan over layers: slower to compile, a third faster to train on a CPU.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-6
    tie_embeddings: bool = False
    qkv_bias: bool = False
    max_positions: int = 32_768
    dtype: str = "float32"
    remat: str = "none"
    attention: str = "xla"
    unroll_layers: bool = False

    def __post_init__(self):
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_attention_heads = {self.num_heads} must be a multiple of "
                f"num_key_value_heads = {self.num_kv_heads}"
            )
        if self.head_dim % 2:
            raise ValueError(f"head_dim = {self.head_dim} must be even for rotary embeddings")

    @classmethod
    def from_huggingface(cls, config: Mapping[str, Any], **options: Any) -> TransformerConfig:
        """Reads the dict of a config.json; `options` are dtype, remat, attention, unroll_layers.

        Raises ValueError for an architecture, activation, attention or rope variant that this decoder
        does not have, and for a missing key, naming it.
        """
        model_type = config.get("model_type")
        if model_type not in FAMILIES:
            raise ValueError(
                f"model_type {model_type!r} is not supported; expected one of {sorted(FAMILIES)}"
            )
        missing = [key for key in _REQUIRED if key not in config]
        if missing:
            raise ValueError(f"config.json lacks {', '.join(missing)}")
        if config.get("hidden_act", "silu") != "silu":
            raise ValueError(
                f"hidden_act {config['hidden_act']!r} is not supported; expected 'silu'"
            )
        if config.get("use_sliding_window"):
            raise ValueError("use_sliding_window = true is not supported; expected false")
        # transformers 5 moved rope_theta into rope_parameters; older files keep it at the top level.
        rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
        rope_type = rope.get("rope_type", rope.get("type", "default"))
        if rope_type != "default":
            raise ValueError(f"rope type {rope_type!r} is not supported; expected 'default'")
        heads = config["num_attention_heads"]
        return cls(
            vocab_size=config["vocab_size"],
            hidden_size=config["hidden_size"],
            intermediate_size=config["intermediate_size"],
            num_layers=config["num_hidden_layers"],
            num_heads=heads,
            num_kv_heads=config.get("num_key_value_heads") or heads,
            head_dim=config.get("head_dim") or config["hidden_size"] // heads,
            rope_theta=float(rope.get("rope_theta", config.get("rope_theta", 10_000.0))),
            norm_eps=float(config.get("rms_norm_eps", 1e-6)),
            tie_embeddings=bool(config.get("tie_word_embeddings", False)),
            max_positions=config.get("max_position_embeddings", 32_768),
            **FAMILIES[model_type],
            **options,
        )


# What sets a family apart from the others; everything else stands in its config.json.
FAMILIES: dict[str, dict[str, Any]] = {"qwen2": {"qkv_bias": True}}
