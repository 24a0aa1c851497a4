"""The optimiser of both players, and how its moments are stored."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from optax.contrib import MuonDimensionNumbers

from genenv_jax.settings import Settings, within
from genenv_jax.typing import Array, Params, PRNGKey


@dataclasses.dataclass(frozen=True)
class OptimizerConfig(Settings):
    """`config.optimizer`: both players' optimisers; each player counts its own steps.

    Attributes:
      warmup_steps: number n of linear warm-up steps; the first has 1/n of the learning rate, the last all.
      decay_steps: steps, warm-up included, until a cosine decay brings the learning rate to 0; 0: no decay.
      b2: AdamW's β₂, the decay rate of the second moment.
      weight_decay: AdamW's weight decay.
    """

    warmup_steps: int = within(0, 0)
    decay_steps: int = within(0, 0)
    b2: float = within(0.999, 0, 0.999999)
    weight_decay: float = within(0.01, 0)

    def __post_init__(self):
        super().__post_init__()
        if 0 < self.decay_steps < self.warmup_steps:
            raise ValueError(
                f"warmup_steps = {self.warmup_steps}: expected at most decay_steps = {self.decay_steps}"
            )

    def schedule(self, learning_rate: float) -> optax.ScalarOrSchedule:
        """The learning rate by the number of steps taken; a number if it never changes."""
        warmup, peak = max(self.warmup_steps, 1), max(self.warmup_steps - 1, 0)

        def rate(count):
            warm = learning_rate * jnp.minimum((count + 1) / warmup, 1.0)
            if not self.decay_steps:
                return warm
            left = 1 - jnp.clip((count - peak) / (self.decay_steps - peak), 0.0, 1.0)
            return warm * (1 - jnp.cos(jnp.pi * left)) / 2

        return rate if self.warmup_steps or self.decay_steps else learning_rate


def make_optimizer(
    learning_rate: float,
    config: OptimizerConfig = OptimizerConfig(),
    moments: str = "float32",
    grad_clip: float = 1.0,
) -> optax.GradientTransformation:
    """AdamW (Loshchilov and Hutter, 2019); biases and norm scales are decayed too, as in torch.

    Args:
      learning_rate: the highest of the schedule.
      moments: type of both moments between steps.
      grad_clip: the gradient's largest global norm; 0: no limit.
    """
    adamw = optax.adamw(config.schedule(learning_rate), b2=config.b2, weight_decay=config.weight_decay)
    if moments != "float32":
        adamw = store_rounded(adamw)
    return optax.chain(_clip(grad_clip), adamw)


def make_muon(
    learning_rate: float, config: OptimizerConfig, grad_clip: float = 1.0
) -> optax.GradientTransformation:
    """Muon (Jordan et al., 2024) for the layers' kernels and AdamW for the rest, after the same clipping.

    Both use Nesterov momentum.  Muon's updates are scaled to a root mean square of 0.2 (Liu et al.,
    arXiv 2502.16982, Eq. 4), close to that of AdamW's, so both share one learning rate.  For the arguments
    see `make_optimizer`.
    """
    muon = optax.contrib.muon(
        config.schedule(learning_rate),
        weight_decay=config.weight_decay,
        adam_b2=config.b2,
        adam_weight_decay=config.weight_decay,
        consistent_rms=0.2,
        muon_weight_dimension_numbers=_matrices,
    )
    return optax.chain(_clip(grad_clip), muon)


def _clip(norm: float) -> optax.GradientTransformation:
    return optax.clip_by_global_norm(norm) if norm else optax.identity()


def _matrices(params: Params) -> Any:
    """Contracted and output axes of each layer kernel (l, ...); None for all other parameters."""

    def axes(path: tuple[jax.tree_util.DictKey, ...], x: Array) -> MuonDimensionNumbers | None:
        names = [key.key for key in path]
        if names[0] != "layers" or names[-1] != "kernel":
            return None
        contracted = 2 if names[-2] == "o" else 1  # heads and their width
        return MuonDimensionNumbers(tuple(range(1, 1 + contracted)), tuple(range(1 + contracted, x.ndim)))

    return jax.tree_util.tree_map_with_path(axes, params)


class RoundedState(NamedTuple):
    """State of `store_rounded`.  count: () int32, steps taken."""

    count: Array
    inner: optax.OptState


def store_rounded(transformation: optax.GradientTransformation) -> optax.GradientTransformation:
    """Stores a transformation's float32 arrays in bfloat16, rounded stochastically after each step.

    Rounding to nearest would freeze an average that moves by less than half a unit in the last place.
    With b2 = 0.999 the second moment decays by at most 0.1 % a step, but bfloat16's spacing is 0.4 to
    0.8 %, so it could grow but never decay.  With stochastic rounding the stored value is right in
    expectation.  The random bits depend only on the step count, so a repeated run repeats them.
    """

    def cast(tree, old, new):
        return jax.tree.map(lambda x: x.astype(new) if x.dtype == old else x, tree)

    def init(params):
        inner = cast(transformation.init(params), jnp.float32, jnp.bfloat16)
        return RoundedState(jnp.zeros((), jnp.int32), inner)

    def update(updates, state, params=None):
        wide = cast(state.inner, jnp.bfloat16, jnp.float32)
        updates, wide = transformation.update(updates, wide, params)
        key = jax.random.fold_in(jax.random.key(0), state.count)
        leaves, tree = jax.tree.flatten(wide)
        stored = [
            round_stochastically(x, jax.random.fold_in(key, i)) if old.dtype == jnp.bfloat16 else x
            for i, (x, old) in enumerate(zip(leaves, jax.tree.leaves(state.inner), strict=True))
        ]
        return updates, RoundedState(state.count + 1, jax.tree.unflatten(tree, stored))

    return optax.GradientTransformation(init, update)


def round_stochastically(x: Array, key: PRNGKey) -> Array:
    """x (float32) as bfloat16: the neighbour above or below, with mean x.

    NaN, infinity and exactly representable values are unchanged.
    """
    bits = jax.lax.bitcast_convert_type(x, jnp.uint32)
    # bfloat16 is the upper half of float32: a carry out of the lower half rounds away from zero.
    bits = bits + jax.random.bits(key, x.shape, jnp.uint16).astype(jnp.uint32)
    rounded = jax.lax.bitcast_convert_type((bits >> 16).astype(jnp.uint16), jnp.bfloat16)
    return jnp.where(jnp.isfinite(x), rounded, x.astype(jnp.bfloat16))
