"""Sampling inside jit: prefill once a prompt, then decode its whole group with a shared prompt cache.

    prompts (b, p), lengths (b,)            row 0:  The cat sat . .        length 3
      -> prefill, KV segment (l, b, 1, p, k, h), read by all g rows of a group
      -> token 0 of every row from the prompt's last hidden state
      -> while some row is not done:        group (0, 0):  on the mat <eos> . .   length 4, done
           one decoding step                group (0, 1):  down and slept until   length 4, not done

A sample depends on its own prompt, the key and its row id, and on nothing else: not on the other rows,
the padding or the mesh.  That is what makes a resumed or re-batched run repeat itself.

On a mesh the prompts are read as in training, with each layer's weights gathered in turn.  A decoding
step has too few tokens for that: its weights stay where they are (`rules.decoding_rules`).
"""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from genenv_jax.models.config import TransformerConfig
from genenv_jax.models.transformer import KVSegment, Transformer
from genenv_jax.parallel import rules
from genenv_jax.typing import Array, Params, PRNGKey

_BLOCK = 128  # tokens a block in the two-level draw


@dataclasses.dataclass(frozen=True)
class SamplingParams:
    """Static options of a sampler; every field is part of the compiled program's identity.

    Attributes:
      max_new_tokens: length limit of a completion, end token included.
      group_size: samples a prompt (g).
      eos_ids: ids that end a completion; the end token is part of it.
      temperature: 0 means greedy.
      top_k: keep the k likeliest tokens; 0 keeps all.
      top_p: keep the smallest set of likeliest tokens with at least this mass; 1 keeps all.
    """

    max_new_tokens: int
    group_size: int
    eos_ids: tuple[int, ...]
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self):
        if self.max_new_tokens < 1 or self.group_size < 1:
            raise ValueError("max_new_tokens and group_size must be at least 1")
        if not self.temperature >= 0 or self.top_k < 0 or not 0 < self.top_p <= 1:
            raise ValueError("expected temperature >= 0, top_k >= 0 and 0 < top_p <= 1")


class Samples(NamedTuple):
    """Completions of a batch.

    tokens: (b, g, c) int32; zero past a row's length (use `lengths`, never the token id, as a mask).
    lengths: (b, g) int32, end token included.
    logprobs: (b, g, c) float32, log π(token) of the raw policy (temperature 1, no truncation).
    done: (b, g) bool, whether an end token was drawn before the limit.
    """

    tokens: Array
    lengths: Array
    logprobs: Array
    done: Array


def truncate_logits(logits: Array, top_k: int, top_p: float) -> Array:
    """Sets logits outside the top-k and top-p sets to -inf.  logits: (..., v) float32."""
    if top_k and top_k < logits.shape[-1]:
        threshold = jax.lax.top_k(logits, top_k)[0][..., -1:]
        logits = jnp.where(logits < threshold, -jnp.inf, logits)
    if top_p < 1.0:
        descending = -jnp.sort(-logits, axis=-1)
        probability = jax.nn.softmax(descending, axis=-1)
        # A token stays while the mass of those before it is below top_p, so the likeliest always stays.
        keep = jnp.cumsum(probability, axis=-1) - probability < top_p
        threshold = jnp.min(jnp.where(keep, descending, jnp.inf), axis=-1, keepdims=True)
        logits = jnp.where(logits < threshold, -jnp.inf, logits)
    return logits


def draw(logits: Array, uniform: Array) -> Array:
    """Draws from softmax(logits) by inverting its CDF in two levels (blocks, then tokens of a block).

    One uniform number a row replaces the v Gumbel numbers of `jax.random.categorical`, and short sums
    keep float32 exact enough for vocabularies of 150,000.

    Args:
      logits: (..., v) float32; -inf excludes a token.
      uniform: (...) float32 in [0, 1).
    Returns:
      (...) int32 token ids.  A token with probability 0 is never returned.
    """
    v = logits.shape[-1]
    weight = jnp.exp(logits - jnp.max(logits, axis=-1, keepdims=True))
    weight = jnp.pad(weight, [(0, 0)] * (weight.ndim - 1) + [(0, -v % _BLOCK)])
    weight = weight.reshape(*weight.shape[:-1], -1, _BLOCK)
    block_weight = jnp.sum(weight, axis=-1)
    block_cdf = jnp.cumsum(block_weight, axis=-1)
    target = (uniform * block_cdf[..., -1])[..., None]
    last_block = block_cdf.shape[-1] - 1
    block = jnp.minimum(jnp.sum(block_cdf <= target, axis=-1), last_block)[..., None]
    # XLA adds prefixes as a tree, so a block without weight can seem to have some: it is not taken.
    empty = jnp.take_along_axis(block_weight, block, axis=-1) <= 0
    block = jnp.where(empty, jnp.argmax(block_weight, axis=-1)[..., None], block)
    before = jnp.where(
        block > 0, jnp.take_along_axis(block_cdf, jnp.maximum(block - 1, 0), axis=-1), 0.0
    )
    inside = jnp.take_along_axis(weight, block[..., None], axis=-2)[..., 0, :]
    offset = jnp.sum(jnp.cumsum(inside, axis=-1) <= target - before, axis=-1)
    # Rounding can leave the target past the block's own sum: fall back to the block's likeliest token.
    offset = jnp.minimum(offset, _BLOCK - 1)
    drawn = jnp.take_along_axis(inside, offset[..., None], axis=-1)[..., 0]
    offset = jnp.where(drawn > 0, offset, jnp.argmax(inside, axis=-1))
    return (block[..., 0] * _BLOCK + offset).astype(jnp.int32)


def next_token(logits: Array, row_keys: PRNGKey, step: Array, options: SamplingParams) -> Array:
    """One token a row.  logits: (b, g, v) float32; row_keys: (b, g) typed keys.  Returns (b, g) int32."""
    if options.temperature == 0.0:
        return jnp.argmax(logits, axis=-1).astype(jnp.int32)
    logits = truncate_logits(logits / options.temperature, options.top_k, options.top_p)
    keys = jax.vmap(jax.vmap(lambda key: jax.random.fold_in(key, step)))(row_keys)
    uniform = jax.vmap(jax.vmap(lambda key: jax.random.uniform(key, (), jnp.float32)))(keys)
    return draw(logits, uniform)


def shard_segment(segment: KVSegment) -> KVSegment:
    """Splits a segment (l, b, g, s, k, h) by rows and key/value heads."""
    axes = ("layers", "batch", "group", None, "kv_heads", "head_dim")
    return KVSegment(*(nn.with_logical_constraint(x, axes) for x in segment))


@functools.partial(jax.jit, static_argnames=("config", "max_tokens"))
def prefill(
    params: Params,
    prompts: Array,
    prompt_lengths: Array,
    *,
    config: TransformerConfig,
    max_tokens: int = 8192,
) -> tuple[Array, KVSegment]:
    """Reads the prompts (b, p), right-padded; lengths (b,), of which 0 counts as 1.

    On each device not more than `max_tokens` tokens at a time, and a prompt at least, so that the
    activations of a large batch do not outweigh its keys and values.

    Returns the hidden states (b, d) of the last tokens and the prompts' keys and values
    (l, b, 1, p, k, h).
    """
    b, p = prompts.shape
    rows = rules.batch_shards()
    own = b // rows if b % rows == 0 else 1
    parts = next(
        n for n in range(1, own + 1) if own % n == 0 and (own // n * p <= max_tokens or n == own)
    )
    if parts == 1:
        last, segment = _read_prompts(params, prompts, prompt_lengths, config)
        return last, shard_segment(segment)

    # Every device takes a part of its own rows: (rows, parts, n) is how they lie.
    def split(x):
        return jnp.moveaxis(x.reshape(rows, parts, -1, *x.shape[1:]), 1, 0)

    def read(cache, part):
        index, tokens, lengths = part
        last, segment = _read_prompts(params, tokens.reshape(-1, p), lengths.reshape(-1), config)
        segment = KVSegment(*(x.reshape(x.shape[0], rows, 1, -1, *x.shape[2:]) for x in segment))
        cache = jax.tree.map(
            lambda x, new: jax.lax.dynamic_update_slice_in_dim(x, new, index, axis=2),
            cache,
            segment,
        )
        return _shard_parts(cache), last.reshape(rows, -1, last.shape[-1])

    heads = config.num_kv_heads, config.head_dim
    zeros = jnp.zeros(
        (config.num_layers, rows, parts, b // (rows * parts), 1, p, *heads), config.dtype
    )
    cache, last = jax.lax.scan(
        read,
        _shard_parts(KVSegment(zeros, zeros)),
        (jnp.arange(parts), split(prompts), split(prompt_lengths)),
    )
    segment = KVSegment(*(x.reshape(x.shape[0], b, *x.shape[4:]) for x in cache))
    return jnp.moveaxis(last, 0, 1).reshape(b, -1), shard_segment(segment)


def _read_prompts(params, prompts, lengths, config) -> tuple[Array, KVSegment]:
    b, p = prompts.shape
    positions = jnp.broadcast_to(jnp.arange(p), (b, 1, p))
    hidden, segment = Transformer(config).apply({"params": params}, prompts[:, None], positions)
    end = jnp.maximum(lengths - 1, 0)[:, None, None]
    return jnp.take_along_axis(hidden[:, 0], end, axis=1)[:, 0], segment


def _shard_parts(cache: KVSegment) -> KVSegment:
    axes = ("layers", "batch", None, None, "group", None, "kv_heads", "head_dim")
    return KVSegment(*(nn.with_logical_constraint(x, axes) for x in cache))


@functools.partial(jax.jit, static_argnames=("config", "options"))
def sample(
    params: Params,
    prompts: Array,
    prompt_lengths: Array,
    key: PRNGKey,
    row_ids: Array,
    *,
    config: TransformerConfig,
    options: SamplingParams,
) -> Samples:
    """Samples `options.group_size` completions of every prompt.

    Args:
      params: parameters of `Transformer(config)`.
      prompts: (b, p) int32, right-padded.
      prompt_lengths: (b,) int32; 0 marks an empty row, which is done from the start with length 0.
      key: typed PRNG key of this call.
      row_ids: (b, g) integers that name the rows within the run; row key = fold_in(key, row id), and
        the key of a step is fold_in(row key, step).
    """
    model = Transformer(config)
    b, p = prompts.shape
    g, c = options.group_size, options.max_new_tokens
    row_keys = jax.vmap(jax.vmap(lambda row: jax.random.fold_in(key, row)))(row_ids)
    eos = jnp.asarray(options.eos_ids, jnp.int32)
    params = rules.cast_params(params, config)
    head = model.apply({"params": params}, method="head")

    def choose(hidden, step, done):
        """hidden (b, g, d) -> token, its raw log-prob (both zero where done), and done."""
        logits = model.apply({"params": params}, hidden, head, method="logits")
        # From a part of the vocabulary for all rows to the whole vocabulary for some of the rows.
        logits = nn.with_logical_constraint(logits, ("batch", "group", None))
        token = next_token(logits, row_keys, step, options)
        chosen = jnp.take_along_axis(logits, token[..., None], axis=-1)[..., 0]
        logprob = chosen - jax.nn.logsumexp(logits, axis=-1)
        ends = jnp.any(token[..., None] == eos, axis=-1)
        return jnp.where(done, 0, token), jnp.where(done, 0.0, logprob), done | ends

    last, prompt = prefill(params, prompts, prompt_lengths, config=config)
    prompt_mask = (jnp.arange(p) < prompt_lengths[:, None])[:, None, None]
    last = jnp.broadcast_to(last[:, None], (b, g, last.shape[-1]))
    empty = jnp.broadcast_to(prompt_lengths[:, None] == 0, (b, g))
    token, logprob, done = choose(last, 0, empty)
    params = rules.decoding_params(params, config)

    cache = (config.num_layers, b, g, c, config.num_kv_heads, config.head_dim)
    zeros = jnp.zeros(cache, config.dtype)
    generated = shard_segment(KVSegment(zeros, zeros))
    tokens = jnp.zeros((b, g, c), jnp.int32).at[:, :, 0].set(token)
    logprobs = jnp.zeros((b, g, c), jnp.float32).at[:, :, 0].set(logprob)
    lengths = (~empty).astype(jnp.int32)

    def running(carry):
        step, _, _, _, _, done = carry
        return (step < c) & ~jnp.all(done)

    def decode(carry):
        step, generated, tokens, logprobs, lengths, done = carry
        token = jax.lax.dynamic_slice_in_dim(tokens, step - 1, 1, axis=2)
        position = jnp.broadcast_to((prompt_lengths + step - 1)[:, None, None], (b, g, 1))
        generated_mask = (jnp.arange(c) < step - 1)[None, None, None]
        with rules.decoding(config):
            hidden, new = model.apply(
                {"params": params},
                token,
                position,
                (prompt, generated),
                (prompt_mask, generated_mask),
            )
        # Layers only read the cache; the new keys and values are appended once, after the layer scan.
        generated = shard_segment(
            KVSegment(
                jax.lax.dynamic_update_slice_in_dim(generated.k, new.k, step - 1, axis=3),
                jax.lax.dynamic_update_slice_in_dim(generated.v, new.v, step - 1, axis=3),
            )
        )
        lengths = lengths + ~done
        token, logprob, done = choose(hidden[:, :, 0], step, done)
        tokens = jax.lax.dynamic_update_slice_in_dim(tokens, token[..., None], step, axis=2)
        logprobs = jax.lax.dynamic_update_slice_in_dim(logprobs, logprob[..., None], step, axis=2)
        return step + 1, generated, tokens, logprobs, lengths, done

    state = (jnp.int32(1), generated, tokens, logprobs, lengths, done)
    _, _, tokens, logprobs, lengths, done = jax.lax.while_loop(running, decode, state)
    return Samples(tokens, lengths, logprobs, done)
