"""Attention over several key/value segments, some of them shared by a group of rows.

The decoder calls `causal_attention`.  The choice of kernel affects only memory and speed:

    "xla"      plain matrix products, on any backend; long inputs one block of queries at a time
    "splash"   `attention_splash`, on TPUs (interpreted on CPUs, for tests)
    "cudnn"    `attention_cudnn`, on NVIDIA GPUs, in bfloat16 or float16

Decoding steps always take the plain path: with one query per row, a kernel saves nothing.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from genenv_jax.models.attention_cudnn import cudnn_attention
from genenv_jax.models.attention_sharding import Kernel, SharedPast, run_per_device
from genenv_jax.models.attention_splash import splash_attention
from genenv_jax.models.platform import target_platform
from genenv_jax.typing import Array

Segment = tuple[Array, Array, Array]  # keys, values, mask

# Maximum scores per prompt and head at a time on the plain path: 4 MiB in float32.
_MAX_SCORES = 2**20


class SlidingWindow(NamedTuple):
    """The sliding window of a layer that may have one.

    local: whether it has one, a scalar that may be traced.  size: tokens that a query then sees, its own
    included.  places: for each past segment, the position of each key, int32 broadcastable to (b, g, t, s)
    and negative where there is none.  Together they are all positions before the new tokens, except that
    those which the window hides may be missing.
    """

    local: Array | bool
    size: int
    places: tuple[Array, ...] = ()


def causal_attention(
    q: Array,
    k: Array,
    v: Array,
    past: list[Segment],
    implementation: str = "xla",
    window: SlidingWindow | None = None,
) -> Array:
    """Attention of new tokens to past segments and, causally, to themselves.

    Args:
      q: (b, g, t, n, h).
      k, v: (b, g, t, k, h), of the same tokens.
      past: earlier segments, as in `attend`.  The kernels take at most one, which the group shares and which
        is masked by key; others use the plain path.
      implementation: "xla", "splash" or "cudnn".
      window: None: a query sees all tokens before it.  The masks of `past` already apply it.  "cudnn"
        does not support windows and takes the plain path.
    Returns:
      (b, g, t, n, h).
    Raises:
      ValueError: the kernel does not run on the platform of the current mesh (without one, of the default
        backend).
    """
    by_key, size = past, None
    if window is not None:
        by_key = [(*segment[:2], at) for segment, at in zip(past, window.places, strict=True)]
        size = jnp.where(window.local, window.size, q.shape[2])
        implementation = "xla" if implementation == "cudnn" else implementation
    shared = len(past) < 2 and all(keys.shape[1] == 1 and of.shape[1:3] == (1, 1) for keys, _, of in by_key)
    if implementation == "xla" or q.shape[2] == 1 or not shared:
        return _plain_attention(q, k, v, past, size)
    kernel = _KERNELS[implementation](target_platform())
    prompt = _shared_past(*by_key[0]) if by_key else None
    if window is not None:
        kernel = functools.partial(kernel, window=window.size, local=window.local)
        prompt = prompt and _in_order(prompt)
    return run_per_device(kernel, q, k, v, prompt)


def _splash_kernel(platform: str) -> Kernel:
    if platform not in ("tpu", "cpu"):
        raise ValueError(
            f"attention = 'splash' runs on TPUs, and this program is for {platform!r}; set "
            "attention = 'cudnn' or 'xla'"
        )
    return functools.partial(splash_attention, interpret=platform == "cpu")


def _cudnn_kernel(platform: str) -> Kernel:
    if platform not in ("gpu", "cuda"):
        raise ValueError(
            f"attention = 'cudnn' runs on NVIDIA GPUs, and this program is for {platform!r}; set "
            "attention = 'splash' on TPUs, 'xla' elsewhere"
        )
    return cudnn_attention


_KERNELS = {"cudnn": _cudnn_kernel, "splash": _splash_kernel}


def _shared_past(k: Array, v: Array, mask: Array) -> SharedPast:
    """A segment that the group shares."""
    return SharedPast(k[:, 0], v[:, 0], jnp.broadcast_to(mask[:, 0, 0], (k.shape[0], k.shape[2])))


def _in_order(past: SharedPast) -> SharedPast:
    """Sorts a past whose mask holds positions: visible keys in order, behind hidden ones."""
    order = jnp.argsort(past.valid, axis=1)
    k, v, places = (jax.vmap(lambda row, at: row[at])(x, order) for x in past)
    return SharedPast(k, v, places >= 0)


def _plain_attention(q: Array, k: Array, v: Array, past: list[Segment], window: Array | int | None) -> Array:
    """Attention as matrix products, in blocks of queries if the scores would take much memory."""
    _, g, t, _, _ = q.shape
    keys = t + sum(segment[0].shape[2] for segment in past)
    block = max(1, _MAX_SCORES // (g * keys))
    if t > block:
        return _blocked_attention(q, k, v, past, window, math.ceil(t / math.ceil(t / block)))
    return attend(q, [*past, (k, v, _causal(jnp.arange(t), t, window)[None, None])])


def _causal(queries: Array, t: int, window: Array | int | None) -> Array:
    """Which of t tokens the queries at these places see: (queries, t) boolean."""
    ago = queries[:, None] - jnp.arange(t)
    return ago >= 0 if window is None else (ago >= 0) & (ago < window)


def _blocked_attention(
    q: Array, k: Array, v: Array, past: list[Segment], window: Array | int | None, block: int
) -> Array:
    """Plain attention, one block of queries at a time; the backward pass recomputes each block."""
    b, g, t, n, h = q.shape
    blocks = math.ceil(t / block)

    def split(x):  # (·, ·, t, ...) -> (blocks, ·, ·, block, ...)
        pads = [(0, 0)] * x.ndim
        pads[2] = (0, blocks * block - t)
        x = jnp.pad(x, pads, mode="edge")  # a padded query sees what the last query sees
        return jnp.moveaxis(x.reshape(*x.shape[:2], blocks, block, *x.shape[3:]), 2, 0)

    # Masks with a query axis are cut into blocks; the others are the same for every block.
    by_query = [split(mask) if mask.shape[2] == t else None for *_, mask in past]
    # In float32, so that gradients of keys and values are summed over blocks in float32.
    wide = [(keys.astype(jnp.float32), values.astype(jnp.float32)) for keys, values, *_ in (*past, (k, v))]

    def attend_block(args):
        start, queries, masks = args
        seen = _causal(start + jnp.arange(block), t, window)
        masks = [past[i][2] if mask is None else mask for i, mask in enumerate(masks)]
        segments = [
            (keys.astype(q.dtype), values.astype(q.dtype), mask)
            for (keys, values), mask in zip(wide, [*masks, seen[None, None]], strict=True)
        ]
        return attend(queries, segments)

    starts = jnp.arange(blocks) * block
    attend_block = jax.checkpoint(attend_block, prevent_cse=False)
    out = jax.lax.map(attend_block, (starts, split(q), by_query))
    return jnp.moveaxis(out, 0, 2).reshape(b, g, blocks * block, n, h)[:, :, :t]


def attend(q: Array, segments: list[tuple[Array, Array, Array]]) -> Array:
    """Grouped-query attention over several key/value segments under one softmax.

    Each segment is a plain batched matrix product in its best layout.  Segments share only the
    softmax's maximum and sum, so their scores are never concatenated or transposed:
        softmax([s1, s2]) @ [v1; v2] = (e1 @ v1 + e2 @ v2) / (Σe1 + Σe2),   ei = exp(si - max(s1, s2))

    Args:
      q: (b, g, t, n, h).
      segments: (keys, values, mask) each; keys and values (b, g or 1, s, k, h); mask boolean,
        broadcastable to (b, g, t, s), true where a query may attend.  Each query attends to some key.
    Returns:
      (b, g, t, n, h), in q's dtype; scores and softmax are float32.
    """
    b, g, t, n, h = q.shape
    k = segments[0][0].shape[3]
    q = q.reshape(b, g, t, k, n // k, h) * h**-0.5
    parts, tops = [], []
    for keys, values, mask in segments:
        s = keys.shape[2]
        mask = jnp.broadcast_to(mask, (b, *mask.shape[1:3], s))
        if keys.shape[1] == 1:  # shared by the group, so its rows join the query axis
            layout, batch = (0, 3, 1, 4, 2, 5), (b, k)
            mask = mask[:, None, :, None]
        else:
            layout, batch = (0, 1, 3, 4, 2, 5), (b * g, k)
            mask = mask[:, :, None, None]
        queries = q.transpose(layout)
        rows = queries.shape[:-1]
        keys, values = (x.reshape(-1, s, k, h).swapaxes(1, 2) for x in (keys, values))
        scores = jnp.einsum(
            "...qh,...sh->...qs", queries.reshape(*batch, -1, h), keys, preferred_element_type=jnp.float32
        ).reshape(*rows, s)
        scores = jnp.where(mask, scores, jnp.finfo(jnp.float32).min)
        inverse = tuple(layout.index(axis) for axis in range(6))
        top = jax.lax.stop_gradient(jnp.max(scores, axis=-1, keepdims=True))
        tops.append(top.transpose(inverse))
        parts.append((scores, values, batch, layout, inverse))
    top = functools.reduce(jnp.maximum, tops)
    weighted, total = 0.0, 0.0
    for scores, values, batch, layout, inverse in parts:
        weights = jnp.exp(scores - top.transpose(layout))
        total = total + jnp.sum(weights, axis=-1, keepdims=True).transpose(inverse)
        out = weights.astype(q.dtype).reshape(*batch, -1, weights.shape[-1]) @ values
        weighted = weighted + out.reshape(*weights.shape[:-1], h).transpose(inverse).astype(jnp.float32)
    return (weighted / total).astype(q.dtype).reshape(b, g, t, n, h)
