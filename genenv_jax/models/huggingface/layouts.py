"""Where each parameter stands in a checkpoint, for every family and both directions.

A parameter here is a Linen kernel with its input axes first and its layers stacked in front; there it
is one (out, in) matrix a layer.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
from flax import traverse_util

from genenv_jax.models.config import TransformerConfig
from genenv_jax.parallel.rules import param_shapes


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where a parameter stands in a checkpoint.

    `key` is its name there, with {} for the layer; `ours` its axes here and `theirs` those there,
    in the letters of genenv_jax.typing, adjacent axes that share one axis there in one word.
    """

    key: str
    ours: str
    theirs: tuple[str, ...]

    @property
    def stacked(self) -> bool:
        """Whether the parameter has a leading axis of layers."""
        return "{}" in self.key

    @property
    def swapped(self) -> bool:
        """Whether their matrix is the transpose of ours."""
        return "".join(self.theirs) != self.ours

    @property
    def row_axis(self) -> int:
        """The axis of ours (one layer) whose parts lie one after the other on disk."""
        return self.ours.index(self.theirs[0][0])

    def keys(self, num_layers: int) -> list[str]:
        """Names there: one for each layer, or one."""
        return [self.key.format(i) for i in range(num_layers)] if self.stacked else [self.key]

    def their_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape there of a parameter that has `shape` here (one layer)."""
        size = dict(zip(self.ours, shape, strict=True))
        return tuple(math.prod(size[axis] for axis in word) for word in self.theirs)

    def read(
        self,
        read: Callable[[tuple[slice, ...]], np.ndarray],
        shape: tuple[int, ...],
        index: tuple[slice, ...],
    ) -> np.ndarray:
        """The part `index` of one layer of shape `shape`, reading no more rows than it needs.

        `read` gives a region of their tensor.  The result is a view of what it gave: where ours is
        the transpose, turning it is left to whoever copies it next.
        """
        size = dict(zip(self.ours, shape, strict=True))
        part = {a: s.indices(size[a])[:2] for a, s in zip(self.ours, index, strict=True)}
        region = []
        for first, *rest in self.theirs:
            inner = math.prod(size[axis] for axis in rest)
            region.append(slice(part[first][0] * inner, part[first][1] * inner))
            size[first] = part[first][1] - part[first][0]
            part[first] = (0, size[first])
        x = read(tuple(region))
        x = x.T if self.swapped else x
        return x.reshape([size[a] for a in self.ours])[tuple(slice(*part[a]) for a in self.ours)]

    def write(self, x: np.ndarray) -> np.ndarray:
        """One layer of the parameter as it stands there; contiguous."""
        shape = self.their_shape(x.shape)
        if self.swapped:
            return transpose(x.reshape(shape[::-1]))
        return np.ascontiguousarray(x.reshape(shape))


def transpose(x: np.ndarray) -> np.ndarray:
    """Contiguous transpose of a matrix; in tiles that fit a cache, several times as fast as in one."""
    # As plain integers: NumPy copies its own types faster than bfloat16.
    bits = np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}")
    out = np.empty(bits.shape[::-1], bits.dtype)
    for row in range(0, bits.shape[0], 128):
        for column in range(0, bits.shape[1], 512):
            tile = bits[row : row + 128, column : column + 512]
            out[column : column + 512, row : row + 128] = tile.T
    return out.view(x.dtype)


def _layout(key: str, axes: str) -> Layout:
    ours, theirs = axes.split(" -> ")
    return Layout(key, ours, tuple(theirs.split()))


_LAYER = "model.layers.{}."
# From the path of a parameter, joined by "/", to its place.  A family has some of them.
LAYOUTS: dict[str, Layout] = {
    "embedding": _layout("model.embed_tokens.weight", "vd -> v d"),
    "layers/attention_norm/scale": _layout(_LAYER + "input_layernorm.weight", "d -> d"),
    "layers/attention/q/kernel": _layout(_LAYER + "self_attn.q_proj.weight", "dnh -> nh d"),
    "layers/attention/q/bias": _layout(_LAYER + "self_attn.q_proj.bias", "nh -> nh"),
    "layers/attention/q_norm/scale": _layout(_LAYER + "self_attn.q_norm.weight", "h -> h"),
    "layers/attention/k/kernel": _layout(_LAYER + "self_attn.k_proj.weight", "dkh -> kh d"),
    "layers/attention/k/bias": _layout(_LAYER + "self_attn.k_proj.bias", "kh -> kh"),
    "layers/attention/k_norm/scale": _layout(_LAYER + "self_attn.k_norm.weight", "h -> h"),
    "layers/attention/v/kernel": _layout(_LAYER + "self_attn.v_proj.weight", "dkh -> kh d"),
    "layers/attention/v/bias": _layout(_LAYER + "self_attn.v_proj.bias", "kh -> kh"),
    "layers/attention/o/kernel": _layout(_LAYER + "self_attn.o_proj.weight", "nhd -> d nh"),
    "layers/attention/o/bias": _layout(_LAYER + "self_attn.o_proj.bias", "d -> d"),
    "layers/mlp_norm/scale": _layout(_LAYER + "post_attention_layernorm.weight", "d -> d"),
    "layers/mlp/gate/kernel": _layout(_LAYER + "mlp.gate_proj.weight", "df -> f d"),
    "layers/mlp/gate/bias": _layout(_LAYER + "mlp.gate_proj.bias", "f -> f"),
    "layers/mlp/up/kernel": _layout(_LAYER + "mlp.up_proj.weight", "df -> f d"),
    "layers/mlp/up/bias": _layout(_LAYER + "mlp.up_proj.bias", "f -> f"),
    "layers/mlp/down/kernel": _layout(_LAYER + "mlp.down_proj.weight", "fd -> d f"),
    "layers/mlp/down/bias": _layout(_LAYER + "mlp.down_proj.bias", "d -> d"),
    "norm/scale": _layout("model.norm.weight", "d -> d"),
    "lm_head/kernel": _layout("lm_head.weight", "dv -> v d"),
}


def flat_shapes(config: TransformerConfig) -> dict[str, tuple[int, ...]]:
    """Shapes of a model's parameters (without adapters) by the paths that `LAYOUTS` has."""
    flat = traverse_util.flatten_dict(param_shapes(config.base), sep="/")
    return {name: leaf.shape for name, leaf in flat.items()}
