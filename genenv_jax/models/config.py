"""Shape and options of a decoder, read from a Hugging Face config.json."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from genenv_jax.models.attention_cudnn import check_cudnn_dtype
from genenv_jax.models.lora import LoraConfig
from genenv_jax.models.rope import FULL, SLIDING, RopeScaling, read_local_theta, read_rope

_REQUIRED = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
# The largest sizes accepted, far above those of published models.
_COUNTS = {
    "vocab_size": 2**24,
    "hidden_size": 2**17,
    "intermediate_size": 2**20,
    "num_hidden_layers": 2**10,
    "num_attention_heads": 2**12,
    "num_key_value_heads": 2**12,
    "head_dim": 2**12,
    "max_position_embeddings": 2**30,
}


@dataclasses.dataclass(frozen=True)
class Window:
    """Layers whose attention reaches back only a few tokens ("local" layers).

    Attributes:
      size: how many tokens a query sees, its own included.
      layers: for each layer, whether it is one of them.
      rope_theta: base of their rotary frequencies, which are never rescaled.
    """

    size: int
    layers: tuple[bool, ...]
    rope_theta: float


@dataclasses.dataclass(frozen=True)
class TransformerConfig:
    """Shape and options of one decoder.  Families differ only in these values, never in code paths.

    `qk_norm` normalises queries and keys over each head before they are rotated.  `query_scalar` replaces
    the head's width in the scale of the scores.  `window`: the layers with a sliding window; None: none.
    `activation` is "silu" or "gelu" (its tanh form).  `post_norms` also normalises what attention and MLP
    add, `norm_offset` makes the factor of all norms 1 + scale, and `scale_embedding` multiplies embeddings
    by the root of their width.
    `dtype` to `unroll_layers` are settings of `language_model.ModelConfig`, explained there, in
    `models.matmul`, `layers.REMAT_POLICIES` and `models.attention`; parameters keep their stored dtype and
    are cast at use.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rope_theta: float = 10_000.0
    rope_scaling: RopeScaling | None = None
    norm_eps: float = 1e-6
    tie_embeddings: bool = False
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    query_scalar: float | None = None
    window: Window | None = None
    activation: str = "silu"
    post_norms: bool = False
    norm_offset: bool = False
    scale_embedding: bool = False
    max_positions: int = 32_768
    dtype: str = "float32"
    matmul_dtype: str = ""
    remat: str = "none"
    attention: str = "xla"
    unroll_layers: bool = False
    lora: LoraConfig | None = None

    def __post_init__(self):
        if self.attention == "cudnn":
            check_cudnn_dtype(self.dtype)
        if self.matmul_dtype not in ("", self.dtype) and self.dtype != "float32":
            raise ValueError(
                f"matmul_dtype = {self.matmul_dtype!r} with dtype = {self.dtype!r}: expected '', or dtype "
                "'float32'"
            )
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_attention_heads = {self.num_heads} must be a multiple of "
                f"num_key_value_heads = {self.num_kv_heads}"
            )
        if self.head_dim % 2:
            raise ValueError(f"head_dim = {self.head_dim} must be even for rotary embeddings")

    @property
    def operand_dtype(self) -> str:
        """Dtype of the operands in products with parameters."""
        return self.matmul_dtype or self.dtype

    @property
    def local_layers(self) -> tuple[bool, ...]:
        """For each layer, whether it has a sliding window."""
        return self.window.layers if self.window else (False,) * self.num_layers

    @property
    def layer_kinds(self) -> tuple[bool, ...]:
        """The different values of `local_layers`, False first."""
        return tuple(sorted(set(self.local_layers)))

    @property
    def layers_by_kind(self) -> tuple[tuple[int, ...], ...]:
        """The layers of each of `layer_kinds`."""
        return tuple(
            tuple(i for i, local in enumerate(self.local_layers) if local == kind)
            for kind in self.layer_kinds
        )

    @property
    def index_in_kind(self) -> tuple[int, ...]:
        """Each layer's index among the layers of its kind."""
        return tuple(self.local_layers[:i].count(local) for i, local in enumerate(self.local_layers))

    @property
    def base(self) -> TransformerConfig:
        """The same decoder without adapters."""
        return dataclasses.replace(self, lora=None)

    def adapter(self, module: str) -> LoraConfig | None:
        """The adapter of the projection `module` ("q", "gate", …), if it has one."""
        return self.lora if self.lora and f"{module}_proj" in self.lora.targets else None

    @classmethod
    def from_huggingface(cls, config: Mapping[str, Any], **options: Any) -> TransformerConfig:
        """Reads the dict of a config.json; `options` are dtype, matmul_dtype, remat, attention,
        unroll_layers and lora.

        Raises ValueError for an architecture, activation, attention, quantisation or rope variant that
        this decoder does not support, and for a missing or invalid value, naming it.
        """
        model_type = config.get("model_type")
        if not isinstance(model_type, str) or model_type not in FAMILIES:
            raise ValueError(
                f"model_type {model_type!r} is not supported; expected one of {sorted(FAMILIES)}"
            )
        family = FAMILIES[model_type]
        config = with_defaults(config)
        missing = [key for key in _REQUIRED if key not in config]
        if missing:
            raise ValueError(f"config.json lacks {', '.join(missing)}")
        for key, most in _COUNTS.items():
            value = config.get(key)
            if value is None and key not in _REQUIRED:
                continue
            if type(value) is not int or not 0 < value <= most:
                raise ValueError(f"{key} = {value!r:.40}: expected an integer from 1 to {most:,}")
        norm_eps = config.get("rms_norm_eps", 1e-6)
        if type(norm_eps) not in (int, float) or not norm_eps > 0:
            raise ValueError(f"rms_norm_eps = {norm_eps!r}: expected a positive number")
        _check_supported(config, family)
        heads = config["num_attention_heads"]
        head_dim = config.get("head_dim") or config["hidden_size"] // heads
        theta, scaling = read_rope(config)
        attention_bias = family.attention_bias_option and bool(config.get("attention_bias"))
        return cls(
            vocab_size=config["vocab_size"],
            hidden_size=config["hidden_size"],
            intermediate_size=config["intermediate_size"],
            num_layers=config["num_hidden_layers"],
            num_heads=heads,
            num_kv_heads=config.get("num_key_value_heads") or heads,
            head_dim=head_dim,
            rope_theta=theta,
            rope_scaling=scaling,
            norm_eps=float(norm_eps),
            tie_embeddings=bool(config.get("tie_word_embeddings", False)),
            qkv_bias=family.qkv_bias or attention_bias,
            o_bias=attention_bias,
            mlp_bias=family.mlp_bias_option and bool(config.get("mlp_bias")),
            qk_norm=family.qk_norm,
            # YaRN extends the context without changing max_position_embeddings.
            max_positions=max(config["max_position_embeddings"], scaling.max_positions if scaling else 0),
            **(_gemma(config) if family.gemma else {}),
            **options,
        )


@dataclasses.dataclass(frozen=True)
class Family:
    """What distinguishes a model family; everything else is in its config.json.

    Attributes:
      architecture: the only entry allowed in "architectures".
      qkv_bias: queries, keys and values have biases, whatever config.json says.
      attention_bias_option: "attention_bias" gives all four attention projections biases.
      mlp_bias_option: "mlp_bias" gives the three MLP projections biases.
      qk_norm: see `TransformerConfig`.
      gemma: the options that only Gemma 3 uses.
      sliding_window: the family may limit attention to a window, which is supported for Gemma alone.
      defaults: transformers' values where config.json has none.
    """

    architecture: str
    qkv_bias: bool = False
    attention_bias_option: bool = False
    mlp_bias_option: bool = False
    qk_norm: bool = False
    gemma: bool = False
    sliding_window: bool = True
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)


FAMILIES: dict[str, Family] = {
    "qwen2": Family("Qwen2ForCausalLM", qkv_bias=True, defaults={"max_position_embeddings": 32_768}),
    "qwen3": Family(
        "Qwen3ForCausalLM",
        attention_bias_option=True,
        qk_norm=True,
        defaults={"head_dim": 128, "max_position_embeddings": 32_768},
    ),
    "llama": Family(
        "LlamaForCausalLM",
        attention_bias_option=True,
        mlp_bias_option=True,
        sliding_window=False,
        defaults={"max_position_embeddings": 2_048},
    ),
    "gemma3_text": Family(
        "Gemma3ForCausalLM",
        attention_bias_option=True,
        qk_norm=True,
        gemma=True,
        defaults={
            "vocab_size": 262_208,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "hidden_activation": "gelu_pytorch_tanh",
            "max_position_embeddings": 131_072,
            "query_pre_attn_scalar": 256,
            "rope_theta": 1e6,
            "rope_local_base_freq": 1e4,
            "sliding_window": 4_096,
            "tie_word_embeddings": True,
        },
    ),
}


def with_defaults(config: Mapping[str, Any]) -> dict[str, Any]:
    """A known family's config.json, with transformers' defaults for missing values."""
    defaults = FAMILIES[config["model_type"]].defaults
    return {**config, **{k: v for k, v in defaults.items() if config.get(k) is None}}


def _gemma(config: Mapping[str, Any]) -> dict[str, Any]:
    """The options of `TransformerConfig` that Gemma 3 sets.  Raises ValueError for an invalid value."""
    size, scalar, most = config["sliding_window"], config["query_pre_attn_scalar"], 2**30
    if type(size) is not int or not 1 <= size <= most:
        raise ValueError(f"sliding_window = {size!r:.40}: expected an integer from 1 to {most:,}")
    if type(scalar) not in (int, float) or not 0 < scalar <= most:
        raise ValueError(f"query_pre_attn_scalar = {scalar!r:.40}: expected a number from 0 to {most:,}")
    every = config.get("sliding_window_pattern") or 6
    if type(every) is not int or every < 1:
        raise ValueError(f"sliding_window_pattern = {every!r}: expected a positive integer")
    layers = range(1, config["num_hidden_layers"] + 1)
    types = config.get("layer_types") or [FULL if n % every == 0 else SLIDING for n in layers]
    local, theta = tuple(kind == SLIDING for kind in types), read_local_theta(config)
    return {
        "query_scalar": float(scalar),
        "window": Window(size, local, theta) if any(local) else None,
        "activation": "gelu",
        "post_norms": True,
        "norm_offset": True,
        "scale_embedding": True,
    }


def _check_supported(config: Mapping[str, Any], family: Family) -> None:
    """Raises ValueError, naming the option, for options that change the computation and are unsupported."""
    architectures = config.get("architectures") or [family.architecture]
    if architectures != [family.architecture]:
        raise ValueError(
            f"architectures {architectures} is not supported; expected ['{family.architecture}']"
        )
    activation, name = "hidden_act", "silu"
    if family.gemma:
        activation, name = "hidden_activation", "gelu_pytorch_tanh"
        for key in ("attn_logit_softcapping", "final_logit_softcapping", "use_bidirectional_attention"):
            if config.get(key):
                raise ValueError(f"{key} = {config[key]!r} is not supported; expected none")
    if config.get(activation, name) != name:
        raise ValueError(f"{activation} {config[activation]!r} is not supported; expected {name!r}")
    if config.get("quantization_config"):
        method = config["quantization_config"]
        method = method.get("quant_method", method) if isinstance(method, Mapping) else method
        raise ValueError(
            f"quantization_config of method {method!r} is not supported; expected weights in "
            "float32, bfloat16 or float16"
        )
    types = config.get("layer_types")
    if types is not None:
        known = {FULL, SLIDING} if family.gemma else {FULL}
        if other := sorted({str(kind) for kind in types} - known):
            expected = " or ".join(map(repr, sorted(known)))
            raise ValueError(f"layer_types {other} are not supported; expected {expected} everywhere")
        if len(types) != config["num_hidden_layers"]:
            raise ValueError(
                f"layer_types has {len(types)} entries; expected {config['num_hidden_layers']}, "
                "one for each layer"
            )
    elif family.sliding_window and not family.gemma and config.get("use_sliding_window"):
        first = config.get("max_window_layers", 28)  # layers from here on use a sliding window
        if config.get("sliding_window", 4_096) and first < config["num_hidden_layers"]:
            raise ValueError(
                f"use_sliding_window = true with max_window_layers = {first} is not supported; "
                "expected full attention in every layer"
            )
