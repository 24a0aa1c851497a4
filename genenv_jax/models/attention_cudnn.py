"""Flash attention on NVIDIA GPUs: cuDNN's kernel through `jax.nn.dot_product_attention`."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from genenv_jax.models.attention_sharding import SharedPast
from genenv_jax.typing import Array

_DTYPES = ("bfloat16", "float16")


def check_cudnn_dtype(dtype: str) -> None:
    """Raises ValueError for a type of activations that cuDNN's attention does not compute in."""
    if dtype not in _DTYPES:
        raise ValueError(
            f"attention = 'cudnn' computes in {' or '.join(_DTYPES)}, but dtype = {dtype!r}; set "
            "dtype = 'bfloat16' or attention = 'xla'"
        )


def cudnn_attention(
    q: Array, k: Array, v: Array, past: SharedPast | None, *, implementation: str = "cudnn"
) -> Array:
    """Causal attention of a group's rows, each over the shared past and itself.

    Without a past it is cuDNN's causal attention.  With one, the rows of a group take turns: a row's
    keys are put behind the prompt's, under a mask (b, 1, t, s + t) that is the same for every row.  So
    what is alive is one row's copy of the keys and one mask, whatever the group size, and a row's
    queries are never compared with the keys of another.  (Two kernel calls, over the prompt and over
    the row, would need no mask, but merging them needs the log-sum-exp that JAX returns in bfloat16 and
    does not differentiate.)

    Args:
      q: (b, g, t, n, h) in bfloat16 or float16.
      k, v: (b, g, t, k, h), of the same tokens.
      past: shared by the group, or None.
      implementation: "cudnn", or "xla" to run the same layout and masks without a GPU.
    Returns:
      (b, g, t, n, h) in q's dtype.
    Raises:
      ValueError: a type that the kernel does not compute in.
    """
    if implementation == "cudnn":
        check_cudnn_dtype(q.dtype.name)
    b, g, t, _, _ = q.shape
    # The kernel's backward pass wants even lengths; rows of the mask start at multiples of 16 bytes.
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
    # As float32, so that the gradients of the prompt are added up over the rows in float32.
    wide_k, wide_v = (x.astype(jnp.float32) for x in prompt[:2])

    def attend_row(row):
        q, k, v = row
        k = jnp.concatenate([wide_k.astype(k.dtype), k], axis=1)
        v = jnp.concatenate([wide_v.astype(v.dtype), v], axis=1)
        return jax.nn.dot_product_attention(q, k, v, mask=mask, implementation=implementation)

    # Of each row the backward pass keeps what the kernel returned, and copies the keys once more.
    attend_row = jax.checkpoint(attend_row, prevent_cse=False, policy=_is_kernel_output)
    out = jax.lax.map(attend_row, tuple(jnp.moveaxis(x, 1, 0) for x in (q, k, v)))
    return jnp.moveaxis(out, 0, 1)[:, :, :t]


def _is_kernel_output(primitive, *_, **__) -> bool:
    """Checkpoint policy: keep the output and the softmax statistics of cuDNN's forward kernel."""
    return "dot_product_attention_fwd" in primitive.name


def _pad(x: Array, axis: int) -> Array:
    """Pads an axis with zeros (false) to a multiple of 8."""
    pads = [(0, 0)] * x.ndim
    pads[axis] = (0, -x.shape[axis] % 8)
    return jnp.pad(x, pads)
