"""What the engine is held against: a batch in one program, every prompt in a slot of its own."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from genenv_jax.models.config import TransformerConfig
from genenv_jax.sampling import decoding
from genenv_jax.sampling.draw import SamplingParams
from genenv_jax.typing import Array, Params, PRNGKey


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
    """Samples `options.group_size` completions of every prompt; see `sampling.decoding`.

    Args:
      params: parameters of `Transformer(config)`.
      prompts: (b, p) int32, right-padded.
      prompt_lengths: (b,) int32; 0 marks an empty row, which is done from the start with length 0.
      key: typed PRNG key of this call.
      row_ids: (b, g) integers that name the rows within the run; row key = fold_in(key, row id), and
        the key of a step is fold_in(row key, step).
    """
    b, p = prompts.shape
    g, c = options.group_size, options.max_new_tokens
    weights = decoding.prepare(params, config=config)
    state = decoding.empty_state(
        key, config=config, slots=b, lanes=g, group=g, prompt=p, length=max(c - 1, 1)
    )
    new = decoding.Prompts(
        prompts,
        prompt_lengths,
        row_ids,
        jnp.full((b, g), c, jnp.int32),
        jnp.arange(b),
        jnp.full(b, b, jnp.int32),
    )
    state, first, logprob = decoding.admit(weights, state, new, config=config, options=options)
    _, rest = decoding.decode(weights, state, config=config, options=options, steps=c - 1)
    # Samples that end with their first token take no lane, so which lane has which sample varies; a
    # sample keeps its lane.
    there = rest.sample >= 0
    row = jnp.arange(b)[None, :, None]
    place = row, jnp.where(there, rest.sample, g), rest.position  # out of range: dropped
    occupied = (prompt_lengths > 0)[:, None]
    tokens = jnp.zeros((b, g, c), jnp.int32).at[:, :, 0].set(jnp.where(occupied, first, 0))
    logprobs = jnp.zeros((b, g, c), jnp.float32).at[:, :, 0].set(jnp.where(occupied, logprob, 0.0))
    lengths = jnp.zeros((b, g), jnp.int32).at[place[:2]].add(1, mode="drop") + occupied
    tokens = tokens.at[place].set(rest.token, mode="drop")
    logprobs = logprobs.at[place].set(rest.logprob, mode="drop")
    last = jnp.take_along_axis(tokens, jnp.maximum(lengths - 1, 0)[..., None], axis=-1)[..., 0]
    eos = jnp.asarray(options.eos_ids, jnp.int32)
    done = jnp.any(last[..., None] == eos, axis=-1) | ~occupied
    return Samples(tokens, lengths, logprobs, done)
