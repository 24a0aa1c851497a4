"""Shared by both players' updates: the train state, gradient accumulation and the jitted steps.

A step takes (state, frozen, batch).  `frozen` holds the parameters that are not trained: {} in full
training, the whole base under LoRA, where the state holds only the adapters.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from genenv_jax.models.config import TransformerConfig
from genenv_jax.models.lora import join
from genenv_jax.models.scoring import CompletionBatch, completion_logprobs
from genenv_jax.parallel.rules import stored_params
from genenv_jax.rl import losses, rwr
from genenv_jax.typing import Array, Params


class TrainState(NamedTuple):
    """Everything that training changes in a player.

    params: the trained parameters, float32.  step: () int32, optimiser steps taken.
    """

    params: Params
    opt_state: optax.OptState
    step: Array


def init_state(params: Params, optimizer: optax.GradientTransformation, *, copy: bool = True) -> TrainState:
    """A new state, whose moments are sharded like the parameters.

    Updates donate the state: without `copy`, the first update destroys `params`.  Abstract parameters, as in
    a dry run, make an abstract state.
    """
    if copy:
        params = jax.tree.map(jnp.copy, params)

    def init(params: Params) -> tuple[optax.OptState, Array]:
        return optimizer.init(params), jnp.int32(0)

    first, shardings = jax.tree.leaves(params)[0], None
    if isinstance(first.sharding, jax.sharding.NamedSharding):
        shardings = state_shardings(params, jax.tree.map(lambda x: x.sharding, params), optimizer)
    if isinstance(first, jax.ShapeDtypeStruct):
        state = TrainState(params, *jax.eval_shape(init, params))
        shardings = shardings or jax.tree.map(lambda x: first.sharding, state)
        return jax.tree.map(lambda x, sharding: x.update(sharding=sharding), state, shardings)
    if shardings:
        init = jax.jit(init, out_shardings=(shardings.opt_state, shardings.step))
    return TrainState(params, *init(params))


def state_shardings(params: Params, shardings: Params, optimizer: optax.GradientTransformation) -> TrainState:
    """Shardings of a train state: moments are sharded like their parameters, counters replicated.

    params: arrays or ShapeDtypeStructs.  shardings: a NamedSharding for each of them.
    """
    mesh = jax.tree.leaves(shardings)[0].mesh
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    opt_state = _map_moments(
        lambda moment: shardings, lambda counter: everywhere, jax.eval_shape(optimizer.init, params), params
    )
    return TrainState(shardings, opt_state, everywhere)


def _map_moments(moments: Callable, others: Callable, opt_state: Any, params: Params) -> Any:
    """Applies `moments` to each tree with the parameters' structure in `opt_state`, `others` to the rest."""
    structure = jax.tree.structure(params)

    def like_params(x) -> bool:
        return jax.tree.structure(x) == structure

    return jax.tree.map(lambda x: moments(x) if like_params(x) else others(x), opt_state, is_leaf=like_params)


def _stored(state: TrainState, config: TransformerConfig) -> TrainState:
    """The state with `init_state`'s shardings, so that the next step does not recompile."""
    opt_state = _map_moments(
        lambda moment: stored_params(moment, config), lambda x: x, state.opt_state, state.params
    )
    return TrainState(stored_params(state.params, config), opt_state, state.step)


def minibatches(rows: np.ndarray, size: int) -> list[np.ndarray]:
    """Splits `rows` into the fewest parts of at most `size`, whose lengths differ by at most one."""
    return np.array_split(rows, max(1, -(-len(rows) // size)))


def _split(batch: Any, parts: int) -> Any:
    """Splits the leading axis of every leaf: (b, ...) -> (parts, b / parts, ...)."""
    return jax.tree.map(lambda x: x.reshape(parts, -1, *x.shape[1:]), batch)


def accumulate(loss_fn: Callable, params: Params, batch: Any, micro_batches: int):
    """Gradient and metrics of `loss_fn(params, part)` summed over `micro_batches` parts of `batch`.

    Each part's loss must already be divided by the whole batch's denominator.  `micro_batches` must divide
    the leading axis of every leaf of `batch`.  Metrics whose name ends in "_max" must not be negative; their
    maximum is taken.  Returns (gradient, metrics).
    """
    value_and_grad = jax.value_and_grad(loss_fn, has_aux=True)
    if micro_batches == 1:
        (_, metrics), gradient = value_and_grad(params, batch)
        return gradient, metrics
    parts = _split(batch, micro_batches)

    def add(total, part):
        (_, metrics), gradient = value_and_grad(params, part)
        gradient = jax.tree.map(jnp.add, total[0], gradient)
        together = {
            name: (jnp.maximum if name.endswith("_max") else jnp.add)(total[1][name], value)
            for name, value in metrics.items()
        }
        return (gradient, together), None

    first = jax.tree.map(lambda x: x[0], parts)
    shapes = jax.eval_shape(lambda p, x: value_and_grad(p, x), params, first)
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), (shapes[1], shapes[0][1]))
    return jax.lax.scan(add, zeros, parts)[0]


class GRPOBatch(NamedTuple):
    """A mini-batch of rollouts.

    old_logp, ref_logp: (b, g, c); the reference's are None without a KL term.  advantages, on_policy: (b, g).
    See `losses.policy_loss`.
    """

    rollouts: CompletionBatch
    old_logp: Array
    ref_logp: Array | None
    advantages: Array
    on_policy: Array | None = None


def make_grpo_step(
    config: TransformerConfig,
    loss: losses.LossConfig,
    optimizer: optax.GradientTransformation,
    micro_batches: int = 1,
    longest: int = 1,
) -> Callable[[TrainState, Params, GRPOBatch], tuple[TrainState, dict[str, Array]]]:
    """A jitted policy-gradient step with a loss from `losses.LOSSES`; the state is donated.

    b must be a multiple of `micro_batches`.  longest: maximum tokens of a completion, for "dr_grpo".

    A mini-batch with k of b groups moves the parameters k / b as far, whatever the optimiser's normalisation:
    every group has the same weight.
    """

    def step(state: TrainState, frozen: Params, batch: GRPOBatch):
        constants = losses.constants(batch.rollouts.mask, longest, loss)

        def loss_fn(params, part: GRPOBatch):
            of_policy = completion_logprobs(join(frozen, params), part.rollouts, config)
            given = part.old_logp, part.ref_logp, part.advantages, part.rollouts.mask
            return losses.policy_loss(losses.Inputs(*of_policy, *given), constants, part.on_policy)

        gradient, metrics = accumulate(loss_fn, state.params, batch, micro_batches)
        gradient = stored_params(gradient, config)
        updates, opt_state = optimizer.update(gradient, state.opt_state, state.params)
        metrics["grad_norm"] = optax.tree.norm(gradient)
        share = jnp.mean((batch.rollouts.mask.sum(axis=(1, 2)) > 0).astype(jnp.float32))
        params = optax.apply_updates(state.params, optax.tree.scale(share, updates))
        return _stored(TrainState(params, opt_state, state.step + 1), config), metrics

    return jax.jit(step, donate_argnums=0)


class RWRBatch(NamedTuple):
    """A mini-batch of generations.

    start_logp, ref_logp: (b, g, c).  weights, own: (b, g); own: 1 for the current simulator's generations.
    """

    generations: CompletionBatch
    start_logp: Array
    ref_logp: Array
    weights: Array
    own: Array


def make_rwr_step(
    config: TransformerConfig,
    optimizer: optax.GradientTransformation,
    kl_coef: float,
    kl_cap: float,
    micro_batches: int = 1,
) -> Callable[[TrainState, Params, RWRBatch], tuple[TrainState, dict[str, Array]]]:
    """A jitted RWR step whose KL from the update's start is capped; the state is donated.

    Metrics include "update_kl", the KL after the step, and "step_scale", the factor by which the optimiser's
    step was shortened to keep the KL within `kl_cap` (0: not taken).  `kl_cap` = inf disables the cap.
    """

    def step(state: TrainState, frozen: Params, batch: RWRBatch):
        mask = batch.generations.mask
        total = rwr.weighted_total(batch.weights, mask)
        parts = _split(batch.generations, micro_batches)

        def loss_fn(params, part: RWRBatch):
            logp, _ = completion_logprobs(join(frozen, params), part.generations, config)
            return rwr.rwr_loss(logp, part.ref_logp, part.weights, part.generations.mask, total, kl_coef)

        gradient, metrics = accumulate(loss_fn, state.params, batch, micro_batches)
        gradient = stored_params(gradient, config)

        def stepped(scale, gradient):
            """Parameters and optimiser state after the scaled optimiser step."""
            updates, opt_state = optimizer.update(gradient, state.opt_state, state.params)
            # With scale 0 even a non-finite update must leave the parameters unchanged.
            updates = jax.tree.map(lambda u: jnp.where(scale > 0, scale * u, 0), updates)
            # A step that is not taken must not change the moments either (it could put NaN there).
            opt_state = jax.tree.map(
                lambda new, old: jnp.where(scale > 0, new, old), opt_state, state.opt_state
            )
            return stored_params(optax.apply_updates(state.params, updates), config), opt_state

        def kl_at(scale):
            # Recompute the step at every scale: keeping it and the new moments would cost three more
            # trees of the parameters' size.  Without the barrier XLA would keep them.
            scale, again = jax.lax.optimization_barrier((scale, gradient))
            params = jax.tree.map(lambda x: x.astype(config.dtype), stepped(scale, again)[0])
            # As in the gradient, hold only one part's activations at a time.
            logp = jax.lax.map(lambda part: completion_logprobs(join(frozen, params), part, config)[0], parts)
            logp = logp.reshape(mask.shape)
            return rwr.update_kl(logp, batch.start_logp, batch.own, mask)

        scale, kl = rwr.capped_scale(kl_at, kl_cap)
        params, opt_state = stepped(scale, gradient)
        metrics |= {"update_kl": kl, "step_scale": scale, "grad_norm": optax.tree.norm(gradient)}
        return _stored(TrainState(params, opt_state, state.step + 1), config), metrics

    return jax.jit(step, donate_argnums=0)


def make_supervised_step(
    config: TransformerConfig, optimizer: optax.GradientTransformation, micro_batches: int = 1
) -> Callable[[TrainState, Params, CompletionBatch], tuple[TrainState, dict[str, Array]]]:
    """A jitted maximum-likelihood step on completions, averaged over tokens; the state is donated."""

    def step(state: TrainState, frozen: Params, batch: CompletionBatch):
        total = jnp.maximum(jnp.sum(batch.mask), 1.0)

        def loss_fn(params, part: CompletionBatch):
            logp, _ = completion_logprobs(join(frozen, params), part, config)
            loss = -jnp.sum(logp) / total  # log-probs are 0 at padding
            return loss, {"loss": loss}

        gradient, metrics = accumulate(loss_fn, state.params, batch, micro_batches)
        gradient = stored_params(gradient, config)
        updates, opt_state = optimizer.update(gradient, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        return _stored(TrainState(params, opt_state, state.step + 1), config), metrics

    return jax.jit(step, donate_argnums=0)
