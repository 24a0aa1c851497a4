"""Reward-weighted regression of the simulator (Peters and Schaal, 2007; section 3 of arXiv 2512.19682).

    L = Σ_i w_i Σ_t -log π(y_it) / Σ_i w_i |y_i|  +  kl_coef · KL(π || π_initial)

with w_i ∝ exp(λ R_env(p̂_i)).  `capped_scale` caps each update's KL from its starting policy: an optimiser
step that would exceed the cap is shortened until it does not.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from genenv_jax.rl.losses import kl_estimate
from genenv_jax.typing import Array


def rwr_loss(
    logp: Array, ref_logp: Array, weights: Array, mask: Array, total: Array, kl_coef: float
) -> tuple[Array, dict[str, Array]]:
    """Weighted negative log-likelihood and the KL penalty to the initial simulator.

    Args:
      logp, ref_logp: (b, g, c) log-probs of the generations under the current and the initial simulator.
      weights: (b, g), 0 for a generation that is left out.
      mask: (b, g, c), 1 at generation tokens.
      total: Σ_i w_i |y_i| of the whole mini-batch, shared by its micro-batches.
      kl_coef: coefficient of the KL penalty to the initial simulator.
    Returns:
      scalar loss, and scalar metrics that are summed over micro-batches.  All terms are weighted token
      means, so a filtered generation contributes to none.
    """
    token_weight = weights[..., None] * mask / total
    nll = -jnp.sum(logp * token_weight)
    kl = jnp.sum(kl_estimate(logp, ref_logp) * token_weight)
    loss = nll + kl_coef * kl
    return loss, {"loss": loss, "nll": nll, "kl_to_initial": kl}


def weighted_total(weights: Array, mask: Array) -> Array:
    """Σ_i w_i |y_i|, at least a tiny positive number.  weights (b, g), mask (b, g, c)."""
    return jnp.maximum(jnp.sum(weights[..., None] * mask), 1e-6)


def update_kl(logp: Array, start_logp: Array, own: Array, mask: Array) -> Array:
    """Mean k3 estimate of the KL between an update's starting and current policy, over its tokens.

    The tokens were sampled from the starting policy (below temperature 1, from its likelier part), so log
    π_start and log π take the places of log π and log π_ref in the estimator.  Only the generations with
    `own` (b, g) above 0 count: those that the starting policy wrote and the update trains on.  Scalar, in
    nats per token; 0 without any.
    """
    counted = (own > 0)[..., None] * mask
    return jnp.sum(kl_estimate(start_logp, logp) * counted) / jnp.maximum(jnp.sum(counted), 1)


HALVINGS = 6


def measurements(scale: float) -> int:
    """How often `capped_scale` measured the KL before it returned `scale`."""
    return HALVINGS + 2 if scale == 0 else 1 - int(np.log2(scale))


def capped_scale(kl_at: Callable[[Array], Array], cap: float) -> tuple[Array, Array]:
    """The largest of 1, 1/2, 1/4, ... at which a step's KL is within `cap`, or 0 if none is.

    Args:
      kl_at: maps a step scale to the update's KL; called at most `HALVINGS` + 2 times.
      cap: largest KL that the update may reach, in nats per token.
    Returns:
      (scale, KL at that scale).  At scale 0, the KL is that of taking no step.
    """

    def too_far(carry):
        scale, kl = carry
        return ~(kl <= cap) & (scale > 0)  # NaN counts as too far

    def shorten(carry):
        scale, _ = carry
        scale = jnp.where(scale > 2.0**-HALVINGS, scale / 2, 0.0)
        return scale, kl_at(scale)

    # `kl_at` is called in only one place, so that its forward pass is compiled once.
    return jax.lax.while_loop(too_far, shorten, (jnp.float32(2.0), jnp.float32(jnp.nan)))
