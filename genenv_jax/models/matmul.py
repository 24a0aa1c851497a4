"""The decoder's matrix product, whose operands may be narrower than the activations."""

import jax
import jax.numpy as jnp

from genenv_jax.models.platform import target_platform
from genenv_jax.typing import Array


def matmul(x: Array, kernel: Array) -> Array:
    """x @ kernel in x's dtype; x (rows, in), kernel (in, out).

    With float32 rows and a bfloat16 kernel, the operands of the product and of its gradients are rounded to
    bfloat16, and sums are float32, as in a TPU's default float32 product.
    """
    # XLA's CPU backend takes several times as long for a narrow product whose result is narrow too.
    narrow = kernel.dtype == jnp.bfloat16 and target_platform() == "cpu"
    return _mixed(x, kernel) if narrow or kernel.dtype != x.dtype else x @ kernel


@jax.custom_vjp
def _mixed(x, kernel):
    return _rounded(x, kernel, ((1,), (0,))).astype(x.dtype)


def _mixed_forward(x, kernel):
    return _mixed(x, kernel), (x, kernel)


def _mixed_gradient(saved, gradient):
    x, kernel = saved
    transposed, of_product = x.astype(kernel.dtype).T, gradient.astype(kernel.dtype)
    if target_platform() == "cpu":
        # XLA folds a transpose into the product, but its CPU backend has no narrow product with a transposed
        # operand and takes thrice as long in float32.  With one more row, of zeros, it transposes first.
        transposed, of_product = jnp.pad(transposed, ((0, 0), (0, 1))), jnp.pad(of_product, ((0, 1), (0, 0)))
    of_kernel = _rounded(transposed, of_product, ((1,), (0,)))
    of_x = _rounded(gradient, kernel, ((1,), (1,)))
    return of_x.astype(x.dtype), of_kernel.astype(kernel.dtype)


_mixed.defvjp(_mixed_forward, _mixed_gradient)


def _rounded(rows, kernel, axes):
    return jax.lax.dot_general(
        rows.astype(kernel.dtype), kernel, (axes, ((), ())), preferred_element_type=jnp.float32
    )
