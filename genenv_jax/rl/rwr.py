"""Reward-weighted regression of the simulator (Peters and Schaal, 2007; section 3 of arXiv 2512.19682).

    L = Σ_i w_i Σ_t -log π(y_it) / Σ_i w_i |y_i|  +  kl_coef · KL(π || π_initial)

with w_i ∝ exp(λ R_env(p̂_i)).  Each update's KL from the policy that it started from is capped by
`capped_scale`: an optimiser step that would pass the cap is shortened until it does not.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from genenv_jax.rl.kl import kl_estimate
from genenv_jax.typing import Array


def rwr_loss(
    logp: Array,
    ref_logp: Array,
    weights: Array,
    mask: Array,
    total: Array,
    kl_coef: float,
) -> tuple[Array, dict[str, Array]]:
    """Weighted negative log-likelihood and the KL penalty to the initial simulator.

    Args:
      logp, ref_logp: (b, g, c) log-probs of the generations under the simulator and its initial self.
      weights: (b, g), 0 for a generation that takes no part.
      mask: (b, g, c), 1 at generation tokens.
      total: Σ_i w_i |y_i| of the whole mini-batch (its micro-batches share it).
      kl_coef: of the penalty to the initial simulator.
    Returns:
      scalar loss and scalars that add up over micro-batches.  All terms are token means under the
      weights, so a filtered generation has no part in any.
    """
    token_weight = weights[..., None] * mask / total
    nll = -jnp.sum(logp * token_weight)
    kl = jnp.sum(kl_estimate(logp, ref_logp, "k3") * token_weight)
    loss = nll + kl_coef * kl
    return loss, {"loss": loss, "nll": nll, "kl_to_initial": kl}


def weighted_total(weights: Array, mask: Array) -> Array:
    """Σ_i w_i |y_i|, at least a tiny positive number.  weights (b, g), mask (b, g, c)."""
    return jnp.maximum(jnp.sum(weights[..., None] * mask), 1e-6)


def update_kl(logp: Array, start_logp: Array, weights: Array, mask: Array) -> Array:
    """Mean k3 estimate of the KL between an update's start and now, over the tokens it trains on.

    The tokens were drawn from the policy at the start, so log π_start and log π take the places of
    log π and log π_ref in the estimator.  Rows with weight 0 do not count.  Scalar, in nats a token.
    """
    counted = (weights > 0)[..., None] * mask
    return jnp.sum(kl_estimate(start_logp, logp, "k3") * counted) / jnp.maximum(jnp.sum(counted), 1)


def capped_scale(
    kl_at: Callable[[Array], Array], cap: float, halvings: int = 6
) -> tuple[Array, Array]:
    """The largest of 1, 1/2, 1/4, ... at which a step's KL is within `cap`, or 0 if none is.

    Args:
      kl_at: KL of the update if the step is scaled by the argument; evaluated at most halvings + 2 times.
      cap: most KL that the update may reach, in nats a token.
    Returns:
      (scale, KL at that scale).  With scale 0 the KL is that of taking no step.
    """

    def too_far(carry):
        scale, kl = carry
        return ~(kl <= cap) & (scale > 0)  # NaN is too far as well

    def shorten(carry):
        scale, _ = carry
        scale = jnp.where(scale > 2.0**-halvings, scale / 2, 0.0)
        return scale, kl_at(scale)

    # One place where the KL is measured, so that its forward pass is compiled once.
    return jax.lax.while_loop(too_far, shorten, (jnp.float32(2.0), jnp.float32(jnp.nan)))
