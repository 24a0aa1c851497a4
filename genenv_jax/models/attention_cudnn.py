"""Flash attention on NVIDIA GPUs: cuDNN's kernel through `jax.nn.dot_product_attention`."""

import jax
import jax.numpy as jnp

from genenv_jax.models.attention_sharding import SharedPast
from genenv_jax.typing import Array

_DTYPES = ("bfloat16", "float16")


def check_cudnn_dtype(dtype: str) -> None:
    """Raises ValueError for an activation dtype that cuDNN's attention does not support."""
    if dtype not in _DTYPES:
        raise ValueError(
            f"attention = 'cudnn' computes in {' or '.join(_DTYPES)}, but dtype = {dtype!r}; set "
            "dtype = 'bfloat16' or attention = 'xla'"
        )


def cudnn_attention(
    q: Array, k: Array, v: Array, past: SharedPast | None, *, implementation: str = "cudnn"
) -> Array:
    """Causal attention of a group's rows, each to the shared past and itself.

    Without a past this is cuDNN's causal attention.  With one, the rows of a group run one at a time:
    a row's keys are appended to the prompt's, under a mask (b, 1, t, s + t) that is the same for every
    row.  So only one row's copy of the keys and one mask are alive, whatever the group size, and a
    row's queries never meet another row's keys.  (Two kernel calls, one over the prompt and one over
    the row, would need no mask, but merging them needs the log-sum-exp, which JAX returns in bfloat16
    and does not differentiate.)

    Args:
      q: (b, g, t, n, h) in bfloat16 or float16.
      k, v: (b, g, t, k, h), of the same tokens.
      past: shared by the group, or None.
      implementation: "cudnn"; or "xla", to run the same layout and masks without a GPU.
    Returns:
      (b, g, t, n, h) in q's dtype.
    """
    b, g, t, _, _ = q.shape
    # The kernel's backward pass needs even lengths; mask rows must start at multiples of 16 bytes.
    q, k, v = (_pad(x, axis=2) for x in (q, k, v))
    if past is None:
        flat = [x.reshape(b * g, *x.shape[2:]) for x in (q, k, v)]
        out = jax.nn.dot_product_attention(*flat, is_causal=True, implementation=implementation)
        return out.reshape(q.shape)[:, :, :t]
    prompt = SharedPast(*(_pad(x, axis=1) for x in past))
    length = q.shape[2]
    mask = jnp.concatenate(
        [
            jnp.broadcast_to(prompt.valid[:, None, None], (b, 1, length, prompt.valid.shape[1])),
            jnp.broadcast_to(jnp.tri(length, dtype=bool), (b, 1, length, length)),
        ],
        axis=-1,
    )
    # In float32, so that the prompt's gradients are summed over rows in float32.
    wide_k, wide_v = (x.astype(jnp.float32) for x in prompt[:2])

    def attend_row(row):
        q, k, v = row
        k = jnp.concatenate([wide_k.astype(k.dtype), k], axis=1)
        v = jnp.concatenate([wide_v.astype(v.dtype), v], axis=1)
        return jax.nn.dot_product_attention(q, k, v, mask=mask, implementation=implementation)

    # For each row, the backward pass keeps the kernel's outputs and copies the keys again.
    attend_row = jax.checkpoint(attend_row, prevent_cse=False, policy=_is_kernel_output)
    out = jax.lax.map(attend_row, tuple(jnp.moveaxis(x, 1, 0) for x in (q, k, v)))
    return jnp.moveaxis(out, 0, 1)[:, :, :t]


def _is_kernel_output(primitive, *_, **__) -> bool:
    """Checkpoint policy: saves the output and softmax statistics of cuDNN's forward kernel."""
    return "dot_product_attention_fwd" in primitive.name


def _pad(x: Array, axis: int) -> Array:
    """Pads an axis with zeros (false) to a multiple of 8."""
    pads = [(0, 0)] * x.ndim
    pads[axis] = (0, -x.shape[axis] % 8)
    return jnp.pad(x, pads)
