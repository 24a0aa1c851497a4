"""Estimators of KL(π || π_ref) from single tokens (Schulman, 2020, "Approximating KL divergence")."""

from __future__ import annotations

import jax.numpy as jnp

from genenv_jax.typing import Array

ESTIMATORS = ("k1", "k2", "k3")


def kl_estimate(logp: Array, ref_logp: Array, estimator: str = "k3") -> Array:
    """Per-token estimate, in nats, for tokens drawn from π.

    With d = log π_ref - log π: k1 = -d, k2 = d² / 2, k3 = exp(d) - 1 - d ("low variance": never
    negative).  d is clipped to ±20 so that one unlikely token cannot overflow the sum.
    """
    d = jnp.clip(ref_logp - logp, -20.0, 20.0)
    if estimator == "k1":
        return -d
    if estimator == "k2":
        return jnp.square(d) / 2
    if estimator == "k3":
        return jnp.expm1(d) - d
    raise ValueError(f"kl_estimator = {estimator!r}: expected one of {ESTIMATORS}")
