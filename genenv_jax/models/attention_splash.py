"""Flash attention on TPUs: the splash kernel of JAX's Pallas library over a group of rows.

The rows of a group become one sequence of queries, so that their prompt is read once for all rows:

                      prompt        row 0   row 1   row 2
        row 0    [  1 1 1 1 1 1    causal     .       .    ]        1: every query sees every key
        row 1    [  1 1 1 1 1 1      .     causal     .    ]        .: block of zeros, not computed
        row 2    [  1 1 1 1 1 1      .       .     causal  ]

This mask is known when the program is traced.  Prompt lengths are not, so a prompt's padding gets a
different segment id than the queries.

With a sliding window the prompt's tokens end where the rows begin, whatever their number.  So the window is
known then too: a band in each part.
"""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas.ops.tpu import splash_attention as splash

from genenv_jax.models.attention_sharding import SharedPast
from genenv_jax.typing import Array

_LANES = 128  # the kernel's block sizes are multiples of this


@dataclasses.dataclass(frozen=True)
class GroupMask(splash.Mask):
    """Which keys of the prompt and of the group each query sees; built one block at a time.

    Attributes:
      prompt: number of keys of the shared past; they come first.
      rows: number of rows in the group.
      length: queries per row, and keys per row.
      window: how many keys a query sees, its own included, where a row follows the prompt's last key;
        None: all.
    """

    prompt: int
    rows: int
    length: int
    window: int | None = None

    @property
    def shape(self) -> tuple[int, int]:
        own = self.rows * self.length
        return own, self.prompt + own

    def __getitem__(self, index: tuple[slice, slice]) -> np.ndarray:
        queries, keys = (np.arange(size)[part] for size, part in zip(self.shape, index, strict=True))
        queries, keys = queries[:, None], keys[None] - self.prompt
        same_row = queries // self.length == keys // self.length
        ago = np.where(keys < 0, queries % self.length, queries) - keys
        seen = (keys < 0) | (same_row & (ago >= 0))
        return seen if self.window is None else seen & (ago < self.window)


def splash_attention(
    q: Array,
    k: Array,
    v: Array,
    past: SharedPast | None,
    *,
    interpret: bool,
    window: int | None = None,
    local: Array | bool = True,
    max_block: int = 512,
) -> Array:
    """Causal attention of a group's rows, each to the shared past and itself.

    Scores exist one block at a time, also in the backward pass; key/value heads are not repeated.

    Args:
      q: (b, g, t, n, h).
      k, v: (b, g, t, k, h), of the same tokens.
      past: shared by the group, or None.  With a window, its tokens are in order, behind all padding.
      interpret: run the kernel as plain JAX operations, for machines without a TPU.
      window: how many tokens a query sees, its own included, if `local`, a boolean scalar; None: all.
      max_block: maximum queries, and keys, in a block; a multiple of 128.
    Returns:
      (b, g, t, n, h) in q's dtype; scores and softmax are float32.
    """
    b, g, t, n, h = q.shape
    length, block = _blocks(t, g, max_block)
    q, k, v = (_sequence(x, length) for x in (q * h**-0.5, k, v))
    prompt, segment_ids = 0, None
    if past is not None:
        prompt = _round_up(past.k.shape[1], block)
        front = [(0, 0), (prompt - past.k.shape[1], 0)]
        past = jax.tree.map(lambda x: jnp.pad(x, front + [(0, 0)] * (x.ndim - 2)), past)
        k = jnp.concatenate([_sequence(past.k[:, None], prompt), k], axis=2)
        v = jnp.concatenate([_sequence(past.v[:, None], prompt), v], axis=2)
        # Keys with id 1 are hidden.  Every query still sees at least its own key.
        hidden = jnp.pad((~past.valid).astype(jnp.int32), [(0, 0), (0, g * length)])
        segment_ids = splash.SegmentIds(q=jnp.zeros((b, g * length), jnp.int32), kv=hidden)
    names = ("block_q", "block_kv", "block_q_dkv", "block_kv_dkv", "block_q_dq", "block_kv_dq")
    sizes = splash.BlockSizes(**dict.fromkeys(names, block))

    def attend(window, *args):
        mask = splash.MultiHeadMask([GroupMask(prompt, g, length, window)] * n)
        kernel = splash.make_splash_mha_single_device(mask, block_sizes=sizes, interpret=interpret)
        return jax.vmap(kernel)(*args)

    args, attend_all = (q, k, v, segment_ids), functools.partial(attend, None)
    if window is None:
        out = attend_all(*args)
    else:
        out = jax.lax.cond(local, functools.partial(attend, window), attend_all, *args)
    return out.reshape(b, n, g, length, h)[:, :, :, :t].transpose(0, 2, 3, 1, 4)


def _blocks(t: int, g: int, max_block: int) -> tuple[int, int]:
    """Padded length of a row of t tokens, and the block size; block ends match row ends.

    A long row is cut into equal blocks; as many short rows as fit share one block.
    """
    count = math.ceil(t / max_block)
    block = _round_up(math.ceil(t / count), _LANES)
    length = count * block
    if count == 1:
        block *= max(r for r in range(1, g + 1) if g % r == 0 and r * block <= max_block)
    return length, block


def _sequence(x: Array, length: int) -> Array:
    """(b, g, t, n, h) -> (b, n, g * length, h), each row padded with zeros to `length`."""
    b, g, t, n, h = x.shape
    x = jnp.pad(x, [(0, 0), (0, 0), (0, length - t), (0, 0), (0, 0)])
    return x.reshape(b, g * length, n, h).swapaxes(1, 2)


def _round_up(size: int, multiple: int) -> int:
    return math.ceil(size / multiple) * multiple
