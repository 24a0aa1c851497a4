"""The decoder's matrix product, whose operands may be narrower than the activations."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from genenv_jax.typing import Array


def matmul(x: Array, kernel: Array) -> Array:
    """x @ kernel in x's dtype; x (rows, in), kernel (in, out).

    With float32 rows and a bfloat16 kernel, the operands of the product and of its gradient with respect to x
    are rounded to bfloat16, and sums are float32, as in a TPU's default float32 product.
    """
    return _mixed(x, kernel) if kernel.dtype != x.dtype else x @ kernel


@jax.custom_vjp
def _mixed(x, kernel):
    return _rounded(x, kernel, ((1,), (0,)))


def _mixed_forward(x, kernel):
    return _mixed(x, kernel), (x, kernel)


def _mixed_gradient(saved, gradient):
    x, kernel = saved
    # In float32: one operand needs transposing, and the CPU backend has no narrow product for that.
    of_kernel = jax.lax.dot_general(x, gradient, (((0,), (0,)), ((), ())))
    return _rounded(gradient, kernel, ((1,), (1,))), of_kernel.astype(kernel.dtype)


_mixed.defvjp(_mixed_forward, _mixed_gradient)


def _rounded(rows, kernel, axes):
    return jax.lax.dot_general(
        rows.astype(kernel.dtype), kernel, (axes, ((), ())), preferred_element_type=jnp.float32
    )
