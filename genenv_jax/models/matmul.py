"""The decoder's matrix product, with operands that may be narrower than the activations."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from genenv_jax.typing import Array


def matmul(x: Array, kernel: Array) -> Array:
    """x @ kernel in x's dtype; x (rows, in), kernel (in, out).

    A bfloat16 kernel under float32 rows: both operands of the product, and of its gradient by x, are rounded
    to bfloat16 and the sums are float32, as a TPU computes float32 products by default.
    """
    return _mixed(x, kernel) if kernel.dtype != x.dtype else x @ kernel


@jax.custom_vjp
def _mixed(x, kernel):
    return _rounded(x, kernel, ((1,), (0,)))


def _mixed_forward(x, kernel):
    return _mixed(x, kernel), (x, kernel)


def _mixed_gradient(saved, gradient):
    x, kernel = saved
    # Of its two operands the CPU backend would have to transpose one, for which it has no narrow product.
    of_kernel = jax.lax.dot_general(x, gradient, (((0,), (0,)), ((), ())))
    return _rounded(gradient, kernel, ((1,), (1,))), of_kernel.astype(kernel.dtype)


_mixed.defvjp(_mixed_forward, _mixed_gradient)


def _rounded(rows, kernel, axes):
    return jax.lax.dot_general(
        rows.astype(kernel.dtype), kernel, (axes, ((), ())), preferred_element_type=jnp.float32
    )
