"""The estimator k3 of KL(π || π_ref) from single tokens (Schulman, 2020, "Approximating KL divergence")."""

import jax.numpy as jnp

from genenv_jax.typing import Array


def kl_estimate(logp: Array, ref_logp: Array) -> Array:
    """Per-token estimate exp(d) - 1 - d with d = log π_ref - log π, in nats, for tokens drawn from π.

    It is never negative, and its mean is the KL.  Its gradient's mean is that of KL(π_ref || π): tokens
    that π avoids more than the reference weigh exponentially (Tang and Munos, 2025, arXiv 2506.09477).  d is
    clipped to ±10, so that one unlikely token cannot drown a batch.
    """
    d = jnp.clip(ref_logp - logp, -10.0, 10.0)
    return jnp.expm1(d) - d
