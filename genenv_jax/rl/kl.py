"""Estimators of KL(π || π_ref) from single tokens (Schulman, 2020, "Approximating KL divergence").

For tokens drawn from π all but k2 have the KL as their mean.  A loss needs the mean of their gradient, which
is another matter (Tang and Munos, 2025, arXiv 2506.09477):

    k1    zero: a penalty without effect
    k2    the gradient of KL(π || π_ref)
    k3    the gradient of KL(π_ref || π): tokens that π avoids more than the reference weigh exponentially
    k3+   the value of k3 with the gradient of k2
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from genenv_jax.typing import Array

ESTIMATORS = ("k3", "k2", "k1", "k3+")


def kl_estimate(logp: Array, ref_logp: Array, estimator: str = "k3") -> Array:
    """Per-token estimate, in nats, for tokens drawn from π.

    With d = log π_ref - log π: k1 = -d, k2 = d² / 2, k3 = exp(d) - 1 - d ("low variance": never negative).  d
    is clipped to ±10, so that one unlikely token cannot drown a batch; only "k3+" has a gradient beyond.
    """
    d = jnp.clip(ref_logp - logp, -10.0, 10.0)
    if estimator == "k1":
        return -d
    if estimator == "k2":
        return jnp.square(d) / 2
    k3, stop = jnp.expm1(d) - d, jax.lax.stop_gradient
    return k3 if estimator == "k3" else stop(k3) - stop(d) * (logp - stop(logp))
