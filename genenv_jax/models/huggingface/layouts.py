"""Maps parameters to checkpoint tensors, for every family, both for reading and for writing.

Our parameters are Linen kernels with input axes first and layers stacked in front.  A checkpoint has one
(out, in) matrix per layer.
"""

import dataclasses
import math
from collections.abc import Callable

import numpy as np
from flax import traverse_util

from genenv_jax.models.config import TransformerConfig
from genenv_jax.models.transformer import param_shapes


@dataclasses.dataclass(frozen=True)
class Layout:
    """How a parameter is stored in a checkpoint.

    `key` is its name in the checkpoint, with {} for the layer.  `ours` are our axes and `theirs` the
    checkpoint's, in the letters of genenv_jax.typing; a word is several of our axes merged into one.
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
        """Whether the checkpoint's matrix is the transpose of ours."""
        return "".join(self.theirs) != self.ours

    @property
    def row_axis(self) -> int:
        """Our axis (in one layer) whose slices are contiguous on disk."""
        return self.ours.index(self.theirs[0][0])

    def keys(self, num_layers: int) -> list[str]:
        """Names in the checkpoint: one per layer, or a single one."""
        return [self.key.format(i) for i in range(num_layers)] if self.stacked else [self.key]

    def their_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Checkpoint shape of a parameter whose shape here (one layer) is `shape`."""
        size = dict(zip(self.ours, shape, strict=True))
        return tuple(math.prod(size[axis] for axis in word) for word in self.theirs)

    def read(
        self,
        read: Callable[[tuple[slice, ...]], np.ndarray],
        shape: tuple[int, ...],
        index: tuple[slice, ...],
    ) -> np.ndarray:
        """Reads the part `index` of one layer of shape `shape`, and no more rows than needed.

        `read` returns a region of the checkpoint's tensor.  The result is a view of that region: if ours
        is the transpose, the next copy transposes it.
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
        """One layer of the parameter in checkpoint layout, contiguous."""
        shape = self.their_shape(x.shape)
        if self.swapped:
            return transpose(x.reshape(shape[::-1]))
        return np.ascontiguousarray(x.reshape(shape))


def transpose(x: np.ndarray) -> np.ndarray:
    """Contiguous transpose of a matrix, in tiles that fit the cache: several times faster than at once."""
    # As plain integers: NumPy copies its own dtypes faster than bfloat16.
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
# Parameter path, joined by "/" -> layout.  Each family has some of them.
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
    # With norms after attention and MLP, the name above is that of the first of them.
    "layers/attention_post_norm/scale": _layout(_LAYER + "post_attention_layernorm.weight", "d -> d"),
    "layers/mlp_pre_norm/scale": _layout(_LAYER + "pre_feedforward_layernorm.weight", "d -> d"),
    "layers/mlp_post_norm/scale": _layout(_LAYER + "post_feedforward_layernorm.weight", "d -> d"),
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
    """Shapes of a model's parameters (without adapters) by path, as in `LAYOUTS`."""
    flat = traverse_util.flatten_dict(param_shapes(config.base), sep="/")
    return {name: leaf.shape for name, leaf in flat.items()}


def parameter_count(config: TransformerConfig) -> int:
    """Number of a model's parameters (without adapters)."""
    return sum(math.prod(shape) for shape in flat_shapes(config).values())
