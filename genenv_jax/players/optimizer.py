"""The optimiser of both players, and how its moments are stored."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from optax.contrib import MuonDimensionNumbers

from genenv_jax.settings import Settings, choice, within
from genenv_jax.typing import Array, Params, PRNGKey


@dataclasses.dataclass(frozen=True)
class OptimizerConfig(Settings):
    """AdamW (Loshchilov and Hutter, 2019) after clipping by the global norm.

    Attributes:
      learning_rate: after the warm-up.
      warmup_steps: steps of the linear warm-up.
      decay_steps: step at which a cosine decay reaches 0; 0: no decay.
      moments: type of both moments between steps.
    """

    learning_rate: float = within(1e-6, 0)
    warmup_steps: int = 0
    decay_steps: int = 0
    b1: float = 0.9
    b2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = within(0.01, 0)
    grad_clip: float = within(1.0, 0)
    moments: str = choice("float32", "bfloat16")


def make_optimizer(config: OptimizerConfig) -> optax.GradientTransformation:
    """The optimiser; biases and norm scales are decayed too, as by torch's AdamW."""
    adamw = optax.adamw(
        _schedule(config), config.b1, config.b2, config.eps, weight_decay=config.weight_decay
    )
    if config.moments != "float32":
        adamw = store_rounded(adamw, jnp.dtype(config.moments))
    return optax.chain(optax.clip_by_global_norm(config.grad_clip), adamw)


def make_muon(config: OptimizerConfig) -> optax.GradientTransformation:
    """Muon (Jordan et al., 2024) for the layers' kernels and AdamW for the rest, after the same clipping.

    Both use Nesterov momentum.  Muon's updates are scaled to a root mean square of 0.2 (Liu et al.,
    arXiv 2502.16982, Eq. 4), close to that of AdamW's, so both share one learning rate.  `b1`, `eps` and
    `moments` are ignored.
    """
    muon = optax.contrib.muon(
        _schedule(config),
        weight_decay=config.weight_decay,
        adam_b2=config.b2,
        adam_weight_decay=config.weight_decay,
        consistent_rms=0.2,
        muon_weight_dimension_numbers=_matrices,
    )
    return optax.chain(optax.clip_by_global_norm(config.grad_clip), muon)


def _matrices(params: Params) -> Any:
    """Contracted and output axes of each layer kernel (l, ...); None for all other parameters."""

    def axes(path: tuple[jax.tree_util.DictKey, ...], x: Array) -> MuonDimensionNumbers | None:
        names = [key.key for key in path]
        if names[0] != "layers" or names[-1] != "kernel":
            return None
        contracted = 2 if names[-2] == "o" else 1  # heads and their width
        return MuonDimensionNumbers(
            tuple(range(1, 1 + contracted)), tuple(range(1 + contracted, x.ndim))
        )

    return jax.tree_util.tree_map_with_path(axes, params)


def _schedule(config: OptimizerConfig) -> optax.ScalarOrSchedule:
    if config.decay_steps:
        return optax.warmup_cosine_decay_schedule(
            0.0, config.learning_rate, config.warmup_steps, config.decay_steps
        )
    if config.warmup_steps:
        return optax.linear_schedule(0.0, config.learning_rate, config.warmup_steps)
    return config.learning_rate


class RoundedState(NamedTuple):
    """State of `store_rounded`.  count: () int32, steps taken."""

    count: Array
    inner: optax.OptState


def store_rounded(
    transformation: optax.GradientTransformation, dtype: Any = jnp.bfloat16
) -> optax.GradientTransformation:
    """Stores a transformation's float32 arrays in bfloat16, rounded stochastically after each step.

    Rounding to nearest would freeze an average that moves by less than half a unit in the last place.
    With b2 = 0.999 the second moment decays by at most 0.1 % a step, but bfloat16's spacing is 0.4 to
    0.8 %, so it could grow but never decay.  With stochastic rounding the stored value is right in
    expectation.  The random bits depend only on the step count, so a repeated run repeats them.

    Raises ValueError for a dtype other than bfloat16.
    """
    if jnp.dtype(dtype) != jnp.bfloat16:
        raise ValueError(f"moments of type {jnp.dtype(dtype).name}: expected float32 or bfloat16")

    def init(params):
        inner = jax.tree.map(
            lambda x: x.astype(dtype) if x.dtype == jnp.float32 else x, transformation.init(params)
        )
        return RoundedState(jnp.zeros((), jnp.int32), inner)

    def update(updates, state, params=None):
        wide = jax.tree.map(lambda x: x.astype(jnp.float32) if x.dtype == dtype else x, state.inner)
        updates, wide = transformation.update(updates, wide, params)
        key = jax.random.fold_in(jax.random.key(0), state.count)
        leaves, tree = jax.tree.flatten(wide)
        stored = [
            round_stochastically(x, jax.random.fold_in(key, i)) if old.dtype == dtype else x
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
