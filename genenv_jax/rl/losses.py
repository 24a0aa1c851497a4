"""The losses of policy gradients, by name.  A new one is a function and its name in `LOSSES`.

A loss is the negative mean of a surrogate, plus kl_coef · KL(π || π_ref) minus entropy_coef · H(π).  In the
functions' descriptions ρ = π / π_old is the ratio of a token and A the advantage of its completion.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from genenv_jax.settings import Settings, choice, within
from genenv_jax.typing import Array


class Inputs(NamedTuple):
    """A loss's inputs for a micro-batch: arrays (b, g, c), but advantages (b, g).

    logp, entropy: under the policy being trained.  old, ref: log-probs under the policy that sampled and the
    reference policy, None without a KL term.  mask: 1 at completion tokens.
    """

    logp: Array
    entropy: Array
    old: Array
    ref: Array | None
    advantages: Array
    mask: Array


class Constants(NamedTuple):
    """What a loss knows about the whole mini-batch, so that micro-batches add up to one large batch.

    tokens, completions: numbers of tokens and of completions that are not empty.  room: maximum tokens that
    its completions could have.
    """

    tokens: Array
    completions: Array
    room: int
    config: LossConfig


def constants(mask: Array, longest: int, config: LossConfig) -> Constants:
    """Constants of a mini-batch with this mask (b, g, c), whose completions may have `longest` tokens."""
    tokens = jnp.maximum(jnp.sum(mask), 1.0)
    completions = jnp.maximum(jnp.sum(jnp.any(mask > 0, axis=-1)), 1.0)
    return Constants(tokens, completions, mask.shape[0] * mask.shape[1] * longest, config)


def grpo(x: Inputs, c: Constants) -> tuple[Array, dict[str, Array]]:
    """min(ρ A, clip(ρ, 0.8, 1.2) A), but at least 3 A where A < 0; mean over tokens.

    Shao et al. (2024) with the dual clip of Ye et al. (2020), as in the paper's public configuration.
    """
    advantage = x.advantages[..., None]
    surrogate, clipped = _clipped(jnp.exp(_log_ratio(x)), advantage, 0.2, 0.2)
    bounded = jnp.where(advantage < 0, jnp.maximum(surrogate, 3.0 * advantage), surrogate)
    return _penalised(x, c, bounded, clipped | (surrogate < bounded), x.mask, c.tokens)


def dr_grpo(x: Inputs, c: Constants) -> tuple[Array, dict[str, Array]]:
    """min(ρ A, clip(ρ, 0.8, 1.2) A), divided by a constant, so that tokens weigh alike in every batch.

    Liu et al. (2025, arXiv 2503.20783), whose advantages are "centred".
    """
    surrogate, clipped = _clipped(jnp.exp(_log_ratio(x)), x.advantages[..., None], 0.2, 0.2)
    return _penalised(x, c, surrogate, clipped, x.mask, c.room)


def gspo(x: Inputs, c: Constants) -> tuple[Array, dict[str, Array]]:
    """min(s A, clip(s, 1 - 3e-4, 1 + 4e-4) A), mean over completions; s: geometric mean of a completion's ρ.

    Zheng et al. (2025, arXiv 2507.18071).
    """
    weight = x.mask / jnp.maximum(jnp.sum(x.mask, axis=-1, keepdims=True), 1.0)
    ratio = jnp.exp(jnp.sum(_log_ratio(x) * weight, axis=-1, keepdims=True))
    surrogate, clipped = _clipped(ratio, x.advantages[..., None], 3e-4, 4e-4)
    return _penalised(x, c, surrogate, clipped, weight, c.completions)


def cispo(x: Inputs, c: Constants) -> tuple[Array, dict[str, Array]]:
    """min(ρ, 5) A log π without a gradient through the weight, so no token drops out; mean over tokens.

    MiniMax-M1 (2025, arXiv 2506.13585), with the bound of Khatri et al. (2025, arXiv 2510.13786).
    """
    ratio = jax.lax.stop_gradient(jnp.exp(_log_ratio(x)))
    surrogate = jnp.minimum(ratio, 5.0) * x.advantages[..., None] * x.logp
    return _penalised(x, c, surrogate, ratio > 5.0, x.mask, c.tokens)


LOSSES: dict[str, Callable[[Inputs, Constants], tuple[Array, dict[str, Array]]]] = {
    loss.__name__: loss for loss in (grpo, dr_grpo, gspo, cispo)
}


@dataclasses.dataclass(frozen=True)
class LossConfig(Settings):
    """Settings of the loss.

    Attributes:
      loss: "grpo", "dr_grpo", "gspo" or "cispo"; it decides the clipping and the averaging (`rl.losses`).
      kl_coef: coefficient of the KL penalty to the reference model.
      entropy_coef: coefficient of the entropy bonus.
    """

    loss: str = choice(*LOSSES)
    kl_coef: float = within(0.001, 0)
    entropy_coef: float = within(0.001, 0)


def policy_loss(x: Inputs, c: Constants, on_policy: Array | None = None) -> tuple[Array, dict[str, Array]]:
    """Loss and metrics of one micro-batch.

    Args:
      on_policy: (b, g), 1 where the policy being trained is still the one that sampled.  The ratio there
        is 1, despite rounding in `x.old`, and its gradient is that of log π.  None: nowhere.
    Returns:
      scalar loss, and scalar metrics.  Metrics are summed over the micro-batches of a mini-batch, except
      that names ending in "_max" take the maximum.  All but the losses are means over tokens; "clip_share" is
      the share of tokens whose gradient the clip removes ("cispo": bounds).  If `kl_coef` is 0, there is no
      "kl" and `x.ref` is ignored.
    """
    gap = jnp.abs(x.logp - x.old)
    if on_policy is not None:
        own = jax.lax.stop_gradient(x.logp)
        x = x._replace(old=jnp.where(on_policy[..., None] > 0, own, x.old))
    loss, metrics = LOSSES[c.config.loss](x, c)
    metrics["sampler_trainer_logp_gap"] = jnp.sum(gap * x.mask) / c.tokens
    if on_policy is not None:
        metrics["sampler_trainer_logp_gap_max"] = jnp.max(gap * x.mask)
    return loss, metrics


def kl_estimate(logp: Array, ref_logp: Array) -> Array:
    """Per-token estimate exp(d) - 1 - d with d = log π_ref - log π, in nats, for tokens drawn from π.

    The estimator k3 of KL(π || π_ref) (Schulman, 2020, "Approximating KL divergence"): it is never negative,
    and its mean is the KL.  Its gradient's mean is that of KL(π_ref || π): tokens that π avoids more than the
    reference weigh exponentially (Tang and Munos, 2025, arXiv 2506.09477).  d is clipped to ±10, so that one
    unlikely token cannot drown a batch.
    """
    d = jnp.clip(ref_logp - logp, -10.0, 10.0)
    return jnp.expm1(d) - d


def _log_ratio(x: Inputs) -> Array:
    # A stale sample can have a huge ratio; ±20 in log space keeps exp() and its gradient finite.
    return jnp.clip(x.logp - x.old, -20.0, 20.0)


def _clipped(ratio: Array, advantage: Array, low: float, high: float) -> tuple[Array, Array]:
    """PPO's surrogate, and where the clip removes its gradient."""
    bounded = jnp.clip(ratio, 1.0 - low, 1.0 + high) * advantage
    return jnp.minimum(ratio * advantage, bounded), bounded < ratio * advantage


def _penalised(
    x: Inputs, c: Constants, surrogate: Array, clipped: Array, weight: Array, total: Array | int
) -> tuple[Array, dict[str, Array]]:
    """The loss with its penalties, each the sum over tokens by `weight` (b, g, c), divided by `total`."""

    def mean(values: Array, weight: Array = x.mask, total: Array | int = c.tokens) -> Array:
        return jnp.sum(values * weight) / total

    loss = policy_loss = -mean(surrogate, weight, total)
    metrics = {"policy_loss": policy_loss, "entropy": mean(x.entropy)}
    metrics["clip_share"] = mean(clipped.astype(jnp.float32))
    if c.config.kl_coef:
        kl = kl_estimate(x.logp, x.ref)
        loss += c.config.kl_coef * mean(kl, weight, total)
        metrics["kl"] = mean(kl)
    loss -= c.config.entropy_coef * mean(x.entropy, weight, total)
    return loss, metrics | {"loss": loss}
