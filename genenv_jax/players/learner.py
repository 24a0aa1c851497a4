"""What both players' updates share: the train state, the optimiser and gradient accumulation."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from genenv_jax.models.config import TransformerConfig
from genenv_jax.models.scoring import CompletionBatch, completion_logprobs
from genenv_jax.rl import grpo, rwr
from genenv_jax.typing import Array, Params


class TrainState(NamedTuple):
    """Everything of a player that training changes.  step: () int32, optimiser steps taken."""

    params: Params
    opt_state: optax.OptState
    step: Array


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """AdamW (Loshchilov and Hutter, 2019) after clipping by the global norm.

    warmup_steps rise linearly to `learning_rate`; with decay_steps > 0 a cosine takes it to 0 by then.
    """

    learning_rate: float
    warmup_steps: int = 0
    decay_steps: int = 0
    b1: float = 0.9
    b2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.01
    grad_clip: float = 1.0


def make_optimizer(config: OptimizerConfig) -> optax.GradientTransformation:
    """The optimiser; biases and norm scales are decayed too, as by torch's AdamW."""
    schedule: Any = config.learning_rate
    if config.decay_steps:
        schedule = optax.warmup_cosine_decay_schedule(
            0.0, config.learning_rate, config.warmup_steps, config.decay_steps
        )
    elif config.warmup_steps:
        schedule = optax.linear_schedule(0.0, config.learning_rate, config.warmup_steps)
    return optax.chain(
        optax.clip_by_global_norm(config.grad_clip),
        optax.adamw(schedule, config.b1, config.b2, config.eps, weight_decay=config.weight_decay),
    )


def init_state(params: Params, optimizer: optax.GradientTransformation) -> TrainState:
    """A fresh state.  Copies `params`, since updates donate the state and the caller's stay whole."""
    params = jax.tree.map(jnp.copy, params)
    # Not under jit: there the moments would lose the parameters' shardings, and every device would
    # hold all of them.
    state = TrainState(params, optimizer.init(params), jnp.int32(0))
    sharding = jax.tree.leaves(params)[0].sharding
    if not isinstance(sharding, jax.sharding.NamedSharding):
        return state
    everywhere = jax.sharding.NamedSharding(sharding.mesh, jax.sharding.PartitionSpec())
    return jax.tree.map(lambda x: x if x.ndim else jax.device_put(x, everywhere), state)


def check_finite(metrics: dict[str, float], what: str) -> None:
    """Raises FloatingPointError naming the metrics of an update that are NaN or infinite."""
    wrong = [name for name, value in metrics.items() if not math.isfinite(value)]
    if wrong:
        raise FloatingPointError(
            f"{what}: {', '.join(wrong)} not finite; lower its learning rate, or look for NaN in the "
            "weights.  The last checkpoint is whole"
        )


def _split(batch: Any, parts: int) -> Any:
    """Splits the leading axis of every leaf: (b, ...) -> (parts, b / parts, ...)."""
    return jax.tree.map(lambda x: x.reshape(parts, -1, *x.shape[1:]), batch)


def accumulate(loss_fn: Callable, params: Params, batch: Any, micro_batches: int):
    """Gradient and metrics of `loss_fn(params, part)` summed over `micro_batches` parts of `batch`.

    The loss of a part must already be divided by the whole batch's denominator.  Leaves of `batch`
    have a leading axis that `micro_batches` divides.  Returns (gradient, metrics).
    """
    value_and_grad = jax.value_and_grad(loss_fn, has_aux=True)
    if micro_batches == 1:
        (_, metrics), gradient = value_and_grad(params, batch)
        return gradient, metrics
    parts = _split(batch, micro_batches)

    def add(total, part):
        (_, metrics), gradient = value_and_grad(params, part)
        return jax.tree.map(jnp.add, total, (gradient, metrics)), None

    first = jax.tree.map(lambda x: x[0], parts)
    shapes = jax.eval_shape(lambda p, x: value_and_grad(p, x), params, first)
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), (shapes[1], shapes[0][1]))
    return jax.lax.scan(add, zeros, parts)[0]


class GRPOBatch(NamedTuple):
    """A mini-batch of rollouts.  old_logp, ref_logp: (b, g, c); advantages: (b, g)."""

    rollouts: CompletionBatch
    old_logp: Array
    ref_logp: Array
    advantages: Array


def make_grpo_step(
    config: TransformerConfig,
    loss: grpo.GRPOConfig,
    optimizer: optax.GradientTransformation,
    micro_batches: int = 1,
) -> Callable[[TrainState, GRPOBatch], tuple[TrainState, dict[str, Array]]]:
    """A jitted GRPO step; the state is donated.  b must be a multiple of `micro_batches`."""

    def step(state: TrainState, batch: GRPOBatch):
        total = grpo.denominator(batch.rollouts.mask, loss.aggregation)

        def loss_fn(params, part: GRPOBatch):
            logp, entropy = completion_logprobs(params, part.rollouts, config)
            return grpo.grpo_loss(
                logp,
                entropy,
                part.old_logp,
                part.ref_logp,
                part.advantages,
                part.rollouts.mask,
                total,
                loss,
            )

        gradient, metrics = accumulate(loss_fn, state.params, batch, micro_batches)
        updates, opt_state = optimizer.update(gradient, state.opt_state, state.params)
        metrics["grad_norm"] = optax.tree.norm(gradient)
        params = optax.apply_updates(state.params, updates)
        return TrainState(params, opt_state, state.step + 1), metrics

    return jax.jit(step, donate_argnums=0)


class RWRBatch(NamedTuple):
    """A mini-batch of generations.  start_logp, ref_logp: (b, g, c); weights: (b, g)."""

    generations: CompletionBatch
    start_logp: Array
    ref_logp: Array
    weights: Array


def make_rwr_step(
    config: TransformerConfig,
    optimizer: optax.GradientTransformation,
    kl_coef: float,
    kl_cap: float,
    micro_batches: int = 1,
) -> Callable[[TrainState, RWRBatch], tuple[TrainState, dict[str, Array]]]:
    """A jitted RWR step whose KL from the update's start is capped; the state is donated.

    Among the metrics: "update_kl", the KL after the step, and "step_scale", by how much the optimiser's
    step was shortened to keep it within `kl_cap` (0: not taken).  `kl_cap` = inf switches the cap off.
    """

    def step(state: TrainState, batch: RWRBatch):
        mask = batch.generations.mask
        total = rwr.weighted_total(batch.weights, mask)
        parts = _split(batch.generations, micro_batches)

        def loss_fn(params, part: RWRBatch):
            logp, _ = completion_logprobs(params, part.generations, config)
            return rwr.rwr_loss(
                logp, part.ref_logp, part.weights, part.generations.mask, total, kl_coef
            )

        gradient, metrics = accumulate(loss_fn, state.params, batch, micro_batches)
        updates, opt_state = optimizer.update(gradient, state.opt_state, state.params)

        def moved(scale):
            # Scale 0 times an update that is not finite must leave the parameters as they are.
            scaled = jax.tree.map(lambda u: jnp.where(scale > 0, scale * u, 0), updates)
            return optax.apply_updates(state.params, scaled)

        def kl_at(scale):
            params = moved(scale)
            # As in the gradient, only one part's activations exist at a time.
            logp = jax.lax.map(lambda part: completion_logprobs(params, part, config)[0], parts)
            logp = logp.reshape(mask.shape)
            return rwr.update_kl(logp, batch.start_logp, batch.weights, mask)

        scale, kl = rwr.capped_scale(kl_at, kl_cap)
        # A step that is not taken leaves no trace in the moments either, above all no NaN.
        opt_state = jax.tree.map(
            lambda new, old: jnp.where(scale > 0, new, old), opt_state, state.opt_state
        )
        metrics |= {
            "update_kl": kl,
            "step_scale": scale,
            "grad_norm": optax.tree.norm(gradient),
        }
        return TrainState(moved(scale), opt_state, state.step + 1), metrics

    return jax.jit(step, donate_argnums=0)


def make_supervised_step(
    config: TransformerConfig, optimizer: optax.GradientTransformation, micro_batches: int = 1
) -> Callable[[TrainState, CompletionBatch], tuple[TrainState, dict[str, Array]]]:
    """A jitted step of maximum likelihood on completions, token mean; the state is donated."""

    def step(state: TrainState, batch: CompletionBatch):
        total = grpo.denominator(batch.mask, "token-mean")

        def loss_fn(params, part: CompletionBatch):
            logp, _ = completion_logprobs(params, part, config)
            loss = -jnp.sum(logp) / total  # log-probs are 0 at padding
            return loss, {"loss": loss}

        gradient, metrics = accumulate(loss_fn, state.params, batch, micro_batches)
        updates, opt_state = optimizer.update(gradient, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        return TrainState(params, opt_state, state.step + 1), metrics

    return jax.jit(step, donate_argnums=0)
