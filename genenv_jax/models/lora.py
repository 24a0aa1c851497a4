"""Low-rank adapters (LoRA, arXiv 2106.09685): y = x W + (α / r) (x A) B, with W frozen.

A model with adapters is the same module with a `LoraConfig`: each target projection gets two more
parameters, "lora_a" and "lora_b".  The frozen base is one tree and the adapters another with the same
nesting, so several policies share one base.  The module is applied to `join(base, adapters)`; the base
alone is the reference policy.
"""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import traverse_util

from genenv_jax.settings import Settings, within
from genenv_jax.typing import Array, Params

# Target names follow Hugging Face checkpoints; without "_proj" they name our modules.
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@dataclasses.dataclass(frozen=True)
class LoraConfig(Settings):
    """`config.lora`: both players are adapters on one frozen base.

    Attributes:
      rank: adapters' rank r; 0: no adapters, all parameters are trained.
      alpha: numerator of the scale α / r.
      targets: projections that have adapters, some of `TARGETS`.
    """

    rank: int = within(0, 0, 2**14)
    alpha: float = within(32.0, 0)
    targets: tuple[str, ...] = TARGETS

    def __post_init__(self):
        super().__post_init__()
        if self.alpha == 0:
            raise ValueError(f"alpha = {self.alpha}: expected more than 0")
        unknown = [name for name in self.targets if name not in TARGETS]
        if unknown or not self.targets:
            raise ValueError(f"targets = {unknown or ()}: expected some of {list(TARGETS)}")
        if len(set(self.targets)) < len(self.targets):
            raise ValueError(f"targets = {list(self.targets)}: expected each at most once")

    @property
    def scale(self) -> float:
        """α / r."""
        return self.alpha / self.rank


def init_a(contract: int) -> nn.initializers.Initializer:
    """Initialiser of A, as in PEFT: uniform on ±1/√fan_in over `contract` input axes.  B starts at 0."""
    return nn.initializers.variance_scaling(
        1.0 / 3.0, "fan_in", "uniform", in_axis=tuple(range(contract)), out_axis=-1
    )


def split(params: Params) -> tuple[Params, Params]:
    """Splits a tree into (frozen base, adapters); works on any leaves."""
    flat = traverse_util.flatten_dict(params)
    adapters = {path: leaf for path, leaf in flat.items() if path[-1].startswith("lora_")}
    base = {path: leaf for path, leaf in flat.items() if path not in adapters}
    return traverse_util.unflatten_dict(base), traverse_util.unflatten_dict(adapters)


def join(frozen: Params, trained: Params) -> Params:
    """Joins the leaves of two trees, without copies; the inverse of `split`."""
    flat = traverse_util.flatten_dict(frozen) | traverse_util.flatten_dict(trained)
    return traverse_util.unflatten_dict(flat)


@jax.jit
def merge_kernel(kernel: Array, a: Array, b: Array, scale: float) -> Array:
    """W + scale · A B for l layers, in float32: in bfloat16, a small update would round to zero.

    kernel (l, in…, out…), a (l, in…, r), b (l, r, out…).
    """
    layers, rank = a.shape[0], a.shape[-1]
    delta = jnp.einsum(
        "lir,lro->lio",
        a.reshape(layers, -1, rank).astype(jnp.float32),
        b.reshape(layers, rank, -1).astype(jnp.float32),
        precision="highest",
    )
    return kernel.astype(jnp.float32) + scale * delta.reshape(kernel.shape)
