"""Rotary position embeddings, and their scalings: how a checkpoint extends its context.

The frequencies are made with NumPy on the host: they are constants of a traced program.  They must match the
training frequencies to the last bit, because a position of 32,000 multiplies any error.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from genenv_jax.models.platform import target_platform
from genenv_jax.typing import Array

# The kinds of layers, which may have frequencies of their own, as spelled in config.json files.
FULL, SLIDING = "full_attention", "sliding_attention"

# rope type: (required keys, optional keys), as spelled in Hugging Face config.json files.
_KEYS: dict[str, tuple[set[str], set[str]]] = {
    "default": (set(), set()),
    "linear": ({"factor"}, set()),
    "llama3": ({"factor", "low_freq_factor", "high_freq_factor"}, {"original_max_position_embeddings"}),
    "yarn": ({"factor"}, {"original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow"}),
}


@dataclasses.dataclass(frozen=True)
class RopeScaling:
    """Rescaled rotary frequencies; each type uses the fields marked with its name.

    Attributes:
      rope_type: "linear" (position interpolation), "llama3" (Llama 3.1's) or "yarn" (arXiv
        2309.00071).
      factor: how many times longer the context becomes.
      original_max_positions: context length in pretraining (llama3, yarn).
      low_freq_factor, high_freq_factor: original length over the wavelength above which a frequency
        is divided by `factor`, and below which it is kept (llama3).
      beta_fast, beta_slow: rotations within the original length above which a frequency is kept, and
        below which it is divided by `factor` (yarn).
      attention_factor: scales queries and keys through the cosines and sines (yarn).
    """

    rope_type: str
    factor: float
    original_max_positions: int = 0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float = 1.0

    @property
    def max_positions(self) -> int:
        """The context length that this scaling supports; 0 if unspecified."""
        return round(self.factor * self.original_max_positions) if self.rope_type == "yarn" else 0


def read_rope(config: Mapping[str, Any]) -> tuple[float, RopeScaling | None]:
    """(base θ, scaling or None) from the dict of a config.json.

    Reads both spellings: "rope_scaling" beside a top-level "rope_theta", and transformers 5's
    "rope_parameters", which holds both.  Raises ValueError, naming it, for an unsupported type, key or
    value, and if the two spellings disagree.
    """
    config = {**config, "rope_parameters": _by_layer(config, FULL)}
    spelt = [key for key in ("rope_parameters", "rope_scaling") if config.get(key)]
    if not spelt:
        _check_partial(config.get("partial_rotary_factor"))
        return _theta(config, {}), None
    read = [(_theta(config, config[key]), _scaling(config, key)) for key in spelt]
    if read[0] != read[-1]:
        raise ValueError(
            "rope_parameters and rope_scaling disagree: "
            f"{config['rope_parameters']} and {config['rope_scaling']}; expected one of them"
        )
    return read[0]


def _by_layer(config: Mapping[str, Any], kind: str) -> Any:
    """The "rope_parameters" of one kind of layer: of all, or under the kind's name."""
    rope = config.get("rope_parameters")
    named = isinstance(rope, Mapping) and not rope.keys().isdisjoint((FULL, SLIDING))
    return rope.get(kind) if named else rope if kind == FULL else None


def read_local_theta(config: Mapping[str, Any]) -> float:
    """Base θ of layers with a sliding window, whose frequencies are not rescaled (Gemma 3).

    Raises ValueError for a rescaling, and for an invalid value.
    """
    rope = _by_layer(config, SLIDING)
    if not rope:
        return _number("rope_local_base_freq", config.get("rope_local_base_freq", 1e4), above=1.0)
    theta, scaling = read_rope({"rope_parameters": rope})
    if scaling:
        raise ValueError(f"rope_parameters.{SLIDING} = {rope}: expected no scaling")
    return theta


def spell_rope(config: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a config.json that state in both spellings what `read_rope` finds in it.

    transformers 4 ignores "rope_parameters", and would rotate by its default instead.
    """
    theta, scaling = read_rope(config)
    given = _by_layer(config, FULL) or config.get("rope_scaling") or {}
    rope = {key: value for key, value in given.items() if key not in ("type", "rope_theta")}
    rope["rope_type"] = scaling.rope_type if scaling else "default"
    if rope["rope_type"] == "llama3":  # transformers 4 looks for it nowhere else
        rope["original_max_position_embeddings"] = scaling.original_max_positions
    old = {"rope_theta": theta, "rope_scaling": rope if scaling else None}
    rope = rope | {"rope_theta": theta}
    if config.get("rope_local_base_freq") or _by_layer(config, SLIDING):
        old["rope_local_base_freq"] = local = read_local_theta(config)
        rope = {FULL: rope, SLIDING: {"rope_type": "default", "rope_theta": local}}
    return old | {"rope_parameters": rope}


def _theta(config: Mapping[str, Any], rope: Any) -> float:
    inside = isinstance(rope, Mapping) and rope.get("rope_theta") is not None
    values = rope if inside else config
    theta = values.get("rope_theta")
    return _number("rope_theta", 10_000.0 if theta is None else theta, above=1.0)


def _check_partial(value: Any) -> None:
    if value not in (None, 1):
        raise ValueError(f"partial_rotary_factor = {value!r} is not supported; expected 1")


def _number(name: str, value: Any, above: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > above:
        raise ValueError(f"{name} = {value!r}: expected a number above {above:g}")
    if not math.isfinite(value):
        raise ValueError(f"{name} = {value!r}: expected a finite number")
    return float(value)


def _scaling(config: Mapping[str, Any], where: str) -> RopeScaling | None:
    rope = config[where]
    if not isinstance(rope, Mapping):
        raise ValueError(f"{where} = {rope!r}: expected an object")
    rope_type = rope.get("rope_type", rope.get("type", "default"))
    if not isinstance(rope_type, str) or rope_type not in _KEYS:
        raise ValueError(f"rope type {rope_type!r} is not supported; expected one of {list(_KEYS)}")
    required, optional = _KEYS[rope_type]
    if missing := sorted(required - rope.keys()):
        raise ValueError(f"{where} of rope type {rope_type!r} lacks {', '.join(missing)}")
    given = {key: value for key, value in rope.items() if value is not None}
    _check_partial(given.pop("partial_rotary_factor", config.get("partial_rotary_factor")))
    known = required | optional | {"rope_type", "type", "rope_theta"}
    if unknown := sorted(given.keys() - known):
        raise ValueError(
            f"{where} of rope type {rope_type!r} has {unknown[0]!r}, which is not supported; "
            f"expected some of {sorted(known)}"
        )
    if rope_type == "default":
        return None

    def number(key: str, default: float | None = None) -> float:
        return _number(f"{where}.{key}", given.get(key, default), above=0.0)

    if rope_type == "linear":
        return RopeScaling("linear", number("factor"))
    # A length at the top level takes precedence, as in transformers.
    length = config.get("original_max_position_embeddings") or given.get(
        "original_max_position_embeddings", config.get("max_position_embeddings")
    )
    length = int(_number("original_max_position_embeddings", length, above=1.0))
    if rope_type == "llama3":
        low, high = number("low_freq_factor"), number("high_freq_factor")
        if not high > low:
            raise ValueError(f"{where}: high_freq_factor = {high:g} must be above low_freq_factor = {low:g}")
        return RopeScaling("llama3", number("factor"), length, low_freq_factor=low, high_freq_factor=high)
    factor = number("factor", default=(config.get("max_position_embeddings") or 0) / length)
    # YaRN's Eq. 22.
    usual = 0.1 * math.log(factor) + 1.0 if factor > 1 else 1.0
    return RopeScaling(
        "yarn",
        factor,
        length,
        # Zero means unset, here as in transformers.
        beta_fast=number("beta_fast") if given.get("beta_fast") else 32.0,
        beta_slow=number("beta_slow") if given.get("beta_slow") else 1.0,
        attention_factor=number("attention_factor", default=usual),
    )


def inverse_frequencies(head_dim: int, theta: float, scaling: RopeScaling | None) -> np.ndarray:
    """Angle per position of each pair of dimensions: (h / 2,) float32.

    Equals `transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS` in float32, including rounding:
    the powers are rounded to float32 before any other operation.
    """
    exponent = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
    power = (theta ** exponent.astype(np.float64)).astype(np.float32)
    plain = np.float32(1) / power
    if scaling is None:
        return plain
    if scaling.rope_type == "linear":
        return plain / np.float32(scaling.factor)
    if scaling.rope_type == "llama3":
        return _llama3(plain, scaling)
    return _yarn(power, head_dim, theta, scaling)


def _llama3(plain: np.ndarray, s: RopeScaling) -> np.ndarray:
    """Slows long waves by `factor`, keeps short ones, and interpolates in between."""
    f32 = np.float32
    length, low, high = s.original_max_positions, s.low_freq_factor, s.high_freq_factor
    # Reciprocals first, because PyTorch divides a number by a tensor that way.
    wavelength = f32(1) / plain * f32(2 * math.pi)
    smooth = (f32(1) / wavelength * f32(length) - f32(low)) / f32(high - low)
    mixed = (f32(1) - smooth) * plain / f32(s.factor) + smooth * plain
    slowed = np.where(wavelength > f32(length / low), plain / f32(s.factor), mixed)
    return np.where(wavelength < f32(length / high), plain, slowed).astype(f32)


def _yarn(power: np.ndarray, head_dim: int, theta: float, s: RopeScaling) -> np.ndarray:
    """A linear ramp over the dimensions, from plain frequencies to those divided by `factor`."""
    f32 = np.float32

    def dimension(rotations: float) -> float:
        """The dimension whose pair makes that many rotations in the original length (from Eq. 17)."""
        turns = s.original_max_positions / (rotations * 2 * math.pi)
        return head_dim * math.log(turns) / (2 * math.log(theta))

    low, high = math.floor(dimension(s.beta_fast)), math.ceil(dimension(s.beta_slow))
    low, high = max(low, 0), min(high, head_dim - 1)
    if low == high:
        high += 0.001  # a step instead of a ramp
    ramp = (np.arange(head_dim // 2, dtype=f32) - f32(low)) / f32(high - low)
    kept = f32(1) - np.clip(ramp, f32(0), f32(1))
    slowed, plain = f32(1) / (f32(s.factor) * power), f32(1) / power
    return slowed * (f32(1) - kept) + plain * kept


def rope_tables(
    positions: Array, head_dim: int, theta: float, scaling: RopeScaling | None = None
) -> tuple[Array, Array]:
    """Cosines and sines of rotary embeddings (Su et al., 2021), in float32.

    positions: integers (b, g, t).  Returns two arrays (b, g, t, 1, h / 2).
    """
    angle = positions[..., None, None].astype(jnp.float32) * inverse_frequencies(head_dim, theta, scaling)
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    if scaling is not None and scaling.attention_factor != 1:
        cos, sin = cos * scaling.attention_factor, sin * scaling.attention_factor
    if target_platform() == "cpu":
        # XLA's CPU backend would recompute them in every layer's rotation, for every head.  It fuses no
        # elementwise work across a matrix product, and this product is exact.
        identity = jnp.eye(cos.shape[-1], dtype=cos.dtype)
        cos, sin = cos @ identity, sin @ identity
    return cos, sin


def apply_rope(x: Array, tables: tuple[Array, Array]) -> Array:
    """Rotates x (b, g, t, heads, h) in pairs (i, i + h / 2), as in Hugging Face checkpoints."""
    cos, sin = tables
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    rotated = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return rotated.astype(x.dtype)
