"""Sampling episodes inside jit: each row continues where it stopped, at its own length.

    prompt        | answer      <end> | observation     | answer <end> | ...
    shared cache  | history: one cache per row, of all tokens after the prompt

A chunk of decoding steps writes to one column of a small cache shared by all rows; after the chunk, each
row's tokens move to the end of its history.  An observation is read like a prompt, with the prompt and the
history as context.  So a turn costs its own tokens plus attention over the earlier ones.

The draw of a token depends only on its row's key and its position after the prompt: not on the other rows,
nor on when its environment replied.
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from genenv_jax.models.config import TransformerConfig
from genenv_jax.models.transformer import Transformer
from genenv_jax.sampling import cache as caches
from genenv_jax.sampling import decoding, parts
from genenv_jax.sampling.cache import Cache
from genenv_jax.sampling.draw import SamplingParams
from genenv_jax.typing import Array, PRNGKey


class Caches(NamedTuple):
    """Device state of b prompts with g rows each.

    prompts: cache (b, 1, k, p, h).  lengths: (b,) int32.  history: cache (b, g, k, s, h).
    """

    prompts: Cache
    lengths: Array
    history: Cache


class Rows(NamedTuple):
    """State of the rows, (b, g) each; a row's length counts its tokens after the prompt.

    token: int32, its last token.  length: int32; all but the last token are in the history.
    limit: int32, the length at which the row stops.  running: bool, whether it decodes.  ids: uint32.
    """

    token: Array
    length: Array
    limit: Array
    running: Array
    ids: Array


class Prompts(NamedTuple):
    """Prompts to read, each at a place in its slot's batch shard (`parts`).

    tokens: (n, p) int32.  lengths: (n,) int32.  ids: (n, g) uint32.  slots: (n,) int32; b: none.
    """

    tokens: Array
    lengths: Array
    ids: Array
    slots: Array


class Observations(NamedTuple):
    """Tokens that rows read before they answer, each at a place in its slot's batch shard (`parts`).

    tokens: (n, w) int32, right-padded: the row's last token, then what follows.  counts: (n,) int32.
    lengths: (n,) int32, how many of the row's tokens are in the history.  slots, lanes: (n,) int32, the
    row; slot b: none.  ids: (n,) uint32.
    """

    tokens: Array
    counts: Array
    lengths: Array
    slots: Array
    lanes: Array
    ids: Array


class Emitted(NamedTuple):
    """Tokens (int32, -1 for none) and log-probs (float32) of a chunk: (steps, b, g), replicated."""

    token: Array
    logprob: Array


@functools.partial(jax.jit, static_argnames=("config", "slots", "group", "prompt", "length"))
def empty(*, config: TransformerConfig, slots: int, group: int, prompt: int, length: int) -> Caches:
    """Empty caches for prompts of `prompt` tokens and rows of `length` more tokens."""
    return Caches(
        caches.empty(config, slots, 1, prompt),
        decoding.by_rows(jnp.zeros(slots, jnp.int32)),
        caches.empty(config, slots, group, length),
    )


@functools.partial(jax.jit, static_argnames=("config", "length"))
def widen(state: Caches, *, config: TransformerConfig, length: int) -> Caches:
    """Widens the caches to rows of `length` tokens."""
    return state._replace(history=caches.widen(state.history, length, config))


def admit(
    weights: decoding.Weights,
    state: Caches,
    new: Prompts,
    key: PRNGKey,
    *,
    config: TransformerConfig,
    options: SamplingParams,
) -> tuple[Caches, Array, Array]:
    """Reads prompts into slots; the state is donated.

    Returns:
      the state, and each row's first token (n, g) int32 with its log-prob (n, g) float32.
    """
    # Leave out the histories, so that one program serves all their sizes.
    history, state = state.history, state._replace(history=())
    state, *first = _read_prompts(weights, state, new, key, config=config, options=options)
    return state._replace(history=history), *first


@functools.partial(jax.jit, static_argnames=("config", "options"), donate_argnames="state")
def _read_prompts(weights, state, new, key, *, config, options):
    token, logprob, segment = decoding.first_tokens(weights, new, new.ids, key, config, options)
    slots = parts.local(new.slots, state.lengths.shape[0])
    state = state._replace(
        prompts=caches.insert(state.prompts, caches.from_prompts(segment, new.lengths, config), slots),
        lengths=decoding.by_rows(parts.put_rows(state.lengths, slots, new.lengths)),
    )
    return state, decoding.whole(token), decoding.whole(logprob)


@functools.partial(jax.jit, static_argnames=("config", "options", "steps"), donate_argnames="state")
def decode(
    weights: decoding.Weights,
    state: Caches,
    rows: Rows,
    key: PRNGKey,
    *,
    config: TransformerConfig,
    options: SamplingParams,
    steps: int,
) -> tuple[Caches, Emitted]:
    """Decodes up to `steps` tokens per running row, until its answer ends; the state is donated."""
    head = Transformer(config).apply({"params": weights.params}, method="head")
    b, g = rows.token.shape
    ends, cached = state.lengths[:, None, None], (rows.length - 1)[..., None]
    places = (
        caches.places(state.prompts, config, jnp.zeros_like(ends), ends),
        caches.places(state.history, config, ends, cached),
    )
    keys = decoding.row_keys(key, rows.ids)
    start = Emitted(jnp.full((steps, b, g), -1, jnp.int32), jnp.zeros((steps, b, g), jnp.float32))

    def going_on(carry):
        n, _, running, *_ = carry
        return (n < steps) & jnp.any(running)

    def step(carry):
        n, token, running, chunk, emitted = carry
        hidden, new = decoding.decode_layers(
            weights,
            token[..., None],
            ends + cached + n,
            (state.prompts, state.history, chunk),
            (*places, caches.places(chunk, config, ends + cached, n)),
            config,
        )
        chunk = caches.append(chunk, new, n, hidden, config)
        length = rows.length + n
        drawn, logprob = decoding.choose(weights, head, hidden[:, :, 0], keys, length, config, options)
        emitted = Emitted(
            emitted.token.at[n].set(jnp.where(running, drawn, -1)),
            emitted.logprob.at[n].set(jnp.where(running, logprob, 0.0)),
        )
        running &= ~(decoding.ends_turn(drawn, options) | (length + 1 >= rows.limit))
        return n + 1, drawn, running, chunk, emitted

    chunk = caches.empty(config, b, g, steps, bounded=False)
    carry = (jnp.int32(0), rows.token, rows.running, chunk, start)
    *_, chunk, emitted = jax.lax.while_loop(going_on, step, carry)
    # Each drawn token cached the one before it, so as many were cached as drawn.
    count = jnp.sum(emitted.token >= 0, axis=0)
    slots, lanes = (x.reshape(-1) for x in jnp.indices((b, g)))
    slots = parts.local(slots, b)
    history = caches.write_rows(
        state.history,
        caches.read_rows(chunk, slots, lanes, config),
        slots,
        lanes,
        rows.length.reshape(-1) - 1,
        count.reshape(-1),
        config,
    )
    return state._replace(history=history), jax.tree.map(decoding.whole, emitted)


@functools.partial(jax.jit, static_argnames=("config", "options"), donate_argnames="state")
def observe(
    weights: decoding.Weights,
    state: Caches,
    new: Observations,
    key: PRNGKey,
    *,
    config: TransformerConfig,
    options: SamplingParams,
) -> tuple[Caches, Array, Array]:
    """Reads observations; the state is donated.

    Returns:
      the state, and the token (n,) int32 that follows each observation, with its log-prob (n,) float32.
    """
    w = new.tokens.shape[1]
    slots = parts.local(new.slots, state.lengths.shape[0])
    context = (
        caches.read_rows(state.prompts, slots, jnp.zeros_like(slots), config),
        caches.read_rows(state.history, slots, new.lanes, config),
    )
    ends, cached = (x[:, None, None] for x in (parts.take_rows(state.lengths, slots), new.lengths))
    places = (
        caches.places(state.prompts, config, jnp.zeros_like(ends), ends),
        caches.places(state.history, config, ends, cached),
    )
    positions = ends + cached + jnp.arange(w)
    # Few queries over many keys: the kernels are not built for that.
    plain = Transformer(dataclasses.replace(config, attention="xla"))
    hidden, segment = plain.apply({"params": weights.params}, new.tokens[:, None], positions, context, places)
    end = jnp.maximum(new.counts - 1, 0)[:, None, None]
    last = jnp.take_along_axis(hidden[:, 0], end, axis=1)
    head = plain.apply({"params": weights.params}, method="head")
    keys = decoding.row_keys(key, new.ids[:, None])
    length = (new.lengths + new.counts)[:, None]
    token, logprob = decoding.choose(weights, head, last, keys, length, config, options)
    history = caches.write_rows(
        state.history, caches.by_kind(segment, config), slots, new.lanes, new.lengths, new.counts, config
    )
    return state._replace(history=history), decoding.whole(token[:, 0]), decoding.whole(logprob[:, 0])
