"""The GRPO loss (Shao et al., 2024), with defaults from the paper's public configuration.

For a token with probability ratio ρ = π / π_old and advantage A the surrogate is
    min(ρ A, clip(ρ, 1 - ε_low, 1 + ε_high) A),
bounded below by c·A where A < 0 (dual clip, Ye et al., 2020).  The loss is its negative mean, plus
kl_coef · KL(π || π_ref) minus entropy_coef · H(π).
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from genenv_jax.rl.kl import kl_estimate
from genenv_jax.settings import Settings, choice, within
from genenv_jax.typing import Array

AGGREGATIONS = ("token-mean", "sequence-mean")


@dataclasses.dataclass(frozen=True)
class GRPOConfig(Settings):
    """Settings of the loss.

    Attributes:
      clip_low: ratios below 1 - clip_low are clipped.
      clip_high: ratios above 1 + clip_high are clipped.
      dual_clip: for negative advantages, the surrogate's lower bound as a multiple of them; 0: no bound.
      kl_coef: coefficient of the KL penalty to the reference model.
      kl_estimator: estimator of that KL (Schulman, 2020).
      entropy_coef: coefficient of the entropy bonus.
      aggregation: "token-mean" averages over all tokens of the mini-batch; "sequence-mean" averages within
        each completion first, then over completions.
    """

    clip_low: float = within(0.2, 0, 1)
    clip_high: float = within(0.2, 0)
    dual_clip: float = within(3.0, 0)
    kl_coef: float = within(0.001, 0)
    kl_estimator: str = choice("k3", "k2", "k1")
    entropy_coef: float = within(0.001, 0)
    aggregation: str = choice(*AGGREGATIONS)

    def __post_init__(self):
        super().__post_init__()
        if 0 < self.dual_clip <= 1:
            raise ValueError(f"dual_clip = {self.dual_clip}: expected more than 1, or 0 for none")


def denominator(mask: Array, aggregation: str) -> Array:
    """The divisor of sums over a mini-batch: its number of tokens, or of non-empty completions.

    Computed over the whole mini-batch and passed to every micro-batch, so that gradient accumulation
    weights each token as one large batch would.  mask: (b, g, c).
    """
    if aggregation == "token-mean":
        return jnp.maximum(jnp.sum(mask), 1.0)
    return jnp.maximum(jnp.sum(jnp.any(mask > 0, axis=-1)), 1.0).astype(jnp.float32)


def aggregate(values: Array, mask: Array, total: Array, aggregation: str) -> Array:
    """Reduces per-token `values` (b, g, c) to a scalar by `aggregation`, divided by `total`."""
    if aggregation == "sequence-mean":
        values = values / jnp.maximum(jnp.sum(mask, axis=-1, keepdims=True), 1.0)
    elif aggregation not in AGGREGATIONS:
        raise ValueError(f"agent.aggregation = {aggregation!r}: expected one of {AGGREGATIONS}")
    return jnp.sum(values * mask) / total


def grpo_loss(
    logp: Array,
    entropy: Array,
    old_logp: Array,
    ref_logp: Array,
    advantages: Array,
    mask: Array,
    total: Array,
    config: GRPOConfig,
    on_policy: Array | None = None,
) -> tuple[Array, dict[str, Array]]:
    """Loss and metrics of one micro-batch.

    Args:
      logp, entropy: (b, g, c) log-probs and entropies under the policy being trained.
      old_logp: (b, g, c) log-probs under the policy that sampled.
      ref_logp: (b, g, c) log-probs under the reference policy.
      advantages: (b, g), one per completion, or (b, g, c), one per token.
      mask: (b, g, c), 1 at completion tokens.
      total: `denominator` of the whole mini-batch.
      on_policy: (b, g), 1 where the policy being trained is still the one that sampled.  The ratio there
        is 1, despite rounding in `old_logp`, and its gradient is that of log π.  None: nowhere.
    Returns:
      scalar loss, and scalar metrics.  Metrics are summed over the micro-batches of a mini-batch, except
      that names ending in "_max" take the maximum.  All others are means under `config.aggregation`;
      "clip_share" is the share of tokens whose gradient the clip removes.  If `kl_coef` is 0, there is no
      "kl" and `ref_logp` is ignored.
    """

    def mean(values):
        return aggregate(values, mask, total, config.aggregation)

    gap = jnp.abs(logp - old_logp)
    if on_policy is not None:
        old_logp = jnp.where(on_policy[..., None] > 0, jax.lax.stop_gradient(logp), old_logp)
    # A stale sample can have a huge ratio; ±20 in log space keeps exp() and its gradient finite.
    log_ratio = jnp.clip(logp - old_logp, -20.0, 20.0)
    ratio = jnp.exp(log_ratio)
    advantage = advantages[..., None] if advantages.ndim == 2 else advantages
    clipped = jnp.clip(ratio, 1.0 - config.clip_low, 1.0 + config.clip_high)
    surrogate = jnp.minimum(ratio * advantage, clipped * advantage)
    if config.dual_clip:
        bounded = jnp.maximum(surrogate, config.dual_clip * advantage)
        surrogate = jnp.where(advantage < 0, bounded, surrogate)
    loss = policy_loss = -mean(surrogate)
    kl = {}
    if config.kl_coef:
        kl["kl"] = mean(kl_estimate(logp, ref_logp, config.kl_estimator))
        loss += config.kl_coef * kl["kl"]
    loss -= config.entropy_coef * mean(entropy)
    metrics = {
        "loss": loss,
        "policy_loss": policy_loss,
        **kl,
        "entropy": mean(entropy),
        "clip_share": mean((clipped * advantage < ratio * advantage).astype(jnp.float32)),
        "sampler_trainer_logp_gap": mean(gap),
    }
    if on_policy is not None:
        metrics["sampler_trainer_logp_gap_max"] = jnp.max(gap * mask)
    return loss, metrics
