"""Sampling inside jit: prompts enter slots, and lanes decode their completions.

    slot 0: prompt "Name a pet."         cache (k, p, h), read by all lanes of the slot
      lane 0:  A | cat | <eos> | A       sample 0, then sample 2
      lane 1:  The | dog | barks | at    sample 1
    slot 1: ...

A slot holds one prompt and its group of g samples; its lanes decode at the same time.  A lane that
finishes a sample takes the slot's next one in the same step, because the first token of every sample
was drawn when the prompt was admitted.  When all samples of a slot are finished, another prompt is
admitted to it.

All lanes write their keys and values to the same column of a cyclic cache, step mod s, so nothing needs
scattering: a lane that has cached n tokens of its sample has them in the last n columns.

A sample depends only on its prompt, the key and its row id: not on the other rows, the slots, the
padding or the mesh.  This makes a resumed or re-batched run reproduce its samples.

On a mesh, prompts are read as in training, gathering one layer's weights at a time.  A decoding step
has too few tokens for that, so its weights stay sharded (`rules.decoding_rules`).
"""

import functools
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from genenv_jax.models.config import TransformerConfig
from genenv_jax.models.layers import KVSegment
from genenv_jax.models.transformer import Transformer
from genenv_jax.parallel import rules
from genenv_jax.sampling import cache as caches
from genenv_jax.sampling import parts
from genenv_jax.sampling.cache import Cache
from genenv_jax.sampling.draw import SamplingParams, next_token
from genenv_jax.typing import Array, Params, PRNGKey


class Weights(NamedTuple):
    """Parameters in the form that sampling reads.

    params: all parameters, sharded as they are stored: as `rules.cast_params` casts them, or as given if the
      layers are unrolled.
    decoding: parameters for decoding steps: sharded by `rules.decoding_rules`; or one tree per layer if
      the layers are unrolled; or (), to use `params`.
    """

    params: Params
    decoding: Params | tuple[Params, ...]


class State(NamedTuple):
    """The state of decoding: b slots, each with `lanes` lanes and g samples.

    prompts: cache (b, 1, k, p, h).           prompt_lengths: (b,) int32.
    generated: cache (b, lanes, k, s, h).     step: () int32, columns written so far.
    sample: (b, lanes) int32, the lane's sample within its group; -1 where the lane is idle.
    length: (b, lanes) int32, number of tokens in the lane's sample; the last one is not cached yet.
    token: (b, lanes) int32, that last token.
    pending: (b, g) bool, samples that no lane has taken yet.
    first: (b, g) int32, first token of every sample.
    limits: (b, g) int32, length limit of every sample.
    row_ids: (b, g) uint32.   key: typed key.
    wanted: () int32, decoding pauses when there is room for this many prompts.
    room: () int32, prompts that each batch shard (`parts`) takes at a time.
    """

    prompts: Cache
    prompt_lengths: Array
    generated: Cache
    step: Array
    sample: Array
    length: Array
    token: Array
    pending: Array
    first: Array
    limits: Array
    row_ids: Array
    key: PRNGKey
    wanted: Array
    room: Array


class Prompts(NamedTuple):
    """Prompts to admit, each at a place in its slot's batch shard (`parts`).

    tokens: (n, p) int32, right-padded.   lengths: (n,) int32; 0 marks an empty row, without samples.
    row_ids: (n, g) integers that identify the samples within the run.
    limits: (n, g) int32, length limits, at least 1 and at most `max_new_tokens`.
    slots: (n,) int32, the slot of each; b: none.   wanted: (n,) int32, the new `State.wanted`, n times.
    """

    tokens: Array
    lengths: Array
    row_ids: Array
    limits: Array
    slots: Array
    wanted: Array


class Emitted(NamedTuple):
    """The tokens drawn, replicated on every device: (steps, b, lanes) each.

    sample: int32, the token's sample within its group; -1 where there is no token.
    position: int32, its index in the completion.   token: int32.   logprob: float32.
    """

    sample: Array
    position: Array
    token: Array
    logprob: Array


def cast(params: Params, config: TransformerConfig) -> Params:
    """`Weights.params` of given parameters; cast ones stay as they are."""
    return params if caches.per_layer(config) else rules.cast_params(params, config)


def prepare(params: Params, *, config: TransformerConfig) -> Weights:
    """Casts parameters to the dtypes they are used in, and lays all out for decoding."""
    params = cast(params, config)
    return Weights(params, _for_steps(params, config))


@functools.partial(jax.jit, static_argnames="config")
def _for_steps(params: Params, config: TransformerConfig) -> Params | tuple[Params, ...]:
    """`Weights.decoding` of `Weights.params`."""
    if caches.per_layer(config):
        layers = rules.cast_params(params, config)["layers"]
        return tuple(
            jax.tree.map(lambda x: x[i], layers)  # noqa: B023
            for i in range(config.num_layers)
        )
    if rules.current_mesh() is None:
        return ()
    with rules.decoding(config):
        return rules.stored_params(params, config)


@functools.partial(jax.jit, static_argnames=("config", "slots", "lanes", "group", "prompt", "length"))
def empty_state(
    key: PRNGKey, *, config: TransformerConfig, slots: int, lanes: int, group: int, prompt: int, length: int
) -> State:
    """A state without prompts: room for prompts of `prompt` tokens and samples of `length` + 1 tokens."""

    def rows(width: int, dtype=jnp.int32) -> Array:
        return by_rows(jnp.zeros((slots, width), dtype))

    return State(
        prompts=caches.empty(config, slots, 1, prompt),
        prompt_lengths=by_rows(jnp.zeros(slots, jnp.int32)),
        generated=caches.empty(config, slots, lanes, length),
        step=jnp.int32(0),
        sample=rows(lanes) - 1,
        length=rows(lanes),
        token=rows(lanes),
        pending=rows(group, bool),
        first=rows(group),
        limits=rows(group),
        row_ids=rows(group, jnp.uint32),
        key=key,
        wanted=jnp.int32(slots),
        room=jnp.int32(0),
    )


def first_tokens(weights, prompts, row_ids, key, config, options) -> tuple[Array, Array, KVSegment]:
    """Reads prompts: `tokens` (n, p), right-padded, of `lengths` (n,), where 0 counts as 1.

    Returns the first token (n, g) of each sample, their log-probs (n, g), and the prompts' keys and values
    (l, n, 1, p, k, h).
    """
    n, p = prompts.tokens.shape
    model, variables = Transformer(config), {"params": weights.params}
    positions = jnp.broadcast_to(jnp.arange(p), (n, 1, p))
    hidden, segment = model.apply(variables, prompts.tokens[:, None], positions)
    end = jnp.maximum(prompts.lengths - 1, 0)[:, None, None]
    last = jnp.take_along_axis(hidden[:, 0], end, axis=1)
    head = model.apply(variables, method="head")
    keys, step = row_keys(key, row_ids), jnp.zeros(row_ids.shape, jnp.int32)
    return *choose(weights, head, last, keys, step, config, options), segment


def admit(
    weights: Weights, state: State, prompts: Prompts, *, config: TransformerConfig, options: SamplingParams
) -> tuple[State, Array, Array]:
    """Reads prompts into slots whose samples are all finished, and draws the first token of each sample.

    The state is donated.

    Returns:
      the state, and the first tokens (n, g) int32 with their log-probs (n, g) float32, replicated on
      every device.  A sample that ends with its first token takes no lane.
    """
    # Leave out the completion cache, so that one program serves all its sizes.
    cache, state = state.generated, state._replace(generated=())
    state, *first = read_prompts(weights, state, prompts, config=config, options=options)
    return state._replace(generated=cache), *first


@functools.partial(jax.jit, static_argnames=("config", "options"), donate_argnames="state")
def read_prompts(weights, state, prompts, *, config, options) -> tuple[State, Array, Array]:
    """`admit` for a state without `generated`, jitted."""
    first, logprob, segment = first_tokens(weights, prompts, prompts.row_ids, state.key, config, options)
    ends = ends_turn(first, options) | (prompts.limits <= 1) | (prompts.lengths == 0)[:, None]
    b, lanes = state.sample.shape
    slots = parts.local(prompts.slots, b)

    def put(x: Array, new: Array) -> Array:
        return by_rows(parts.put_rows(x, slots, new))

    state = state._replace(
        prompts=caches.insert(state.prompts, caches.from_prompts(segment, prompts.lengths, config), slots),
        prompt_lengths=put(state.prompt_lengths, prompts.lengths),
        sample=put(state.sample, jnp.full((len(slots), lanes), -1, jnp.int32)),
        pending=put(state.pending, ~ends),
        first=put(state.first, first),
        limits=put(state.limits, prompts.limits),
        row_ids=put(state.row_ids, prompts.row_ids),
        wanted=prompts.wanted[0],
        room=jnp.int32(len(slots) // rules.batch_shards()),
    )
    return _take_samples(state), whole(first), whole(logprob)


@functools.partial(jax.jit, static_argnames=("config", "options", "steps"), donate_argnames="state")
def decode(
    weights: Weights, state: State, *, config: TransformerConfig, options: SamplingParams, steps: int
) -> tuple[State, Emitted]:
    """Decodes up to `steps` tokens per lane; pauses when `state.wanted` prompts fit or all lanes are idle.

    The state is donated.  No sample may outgrow the tokens that the state has room for (`empty_state`).
    """
    head = Transformer(config).apply({"params": weights.params}, method="head")
    b, lanes = state.sample.shape
    emitted = Emitted(
        jnp.full((steps, b, lanes), -1, jnp.int32),
        jnp.zeros((steps, b, lanes), jnp.int32),
        jnp.zeros((steps, b, lanes), jnp.int32),
        jnp.zeros((steps, b, lanes), jnp.float32),
    )

    def running(carry):
        n, state, _ = carry
        idle = jnp.all(state.sample < 0, axis=1).reshape(rules.batch_shards(), -1).sum(axis=1)
        room, idle = jnp.sum(jnp.stack([jnp.minimum(idle, state.room), idle]), axis=1)
        return (n < steps) & (room < state.wanted) & (idle < b)

    def step(carry):
        n, state, emitted = carry
        state, new = _step(weights, head, state, config, options)
        emitted = jax.tree.map(lambda x, row: jax.lax.dynamic_update_index_in_dim(x, row, n, 0), emitted, new)
        return n + 1, state, emitted

    _, state, emitted = jax.lax.while_loop(running, step, (jnp.int32(0), state, emitted))
    return state, jax.tree.map(whole, emitted)


@functools.partial(jax.jit, static_argnames=("config", "length"))
def resize(state: State, *, config: TransformerConfig, length: int) -> State:
    """Changes the cache to one for `length` tokens, which must hold the samples."""
    return state._replace(generated=caches.resize(state.generated, length, state.step, config))


def _step(weights, head, state: State, config, options) -> tuple[State, Emitted]:
    """Decodes one token for every lane that has a sample."""
    lanes, active = state.sample.shape[1], state.sample >= 0
    sample = jnp.maximum(state.sample, 0)
    start, cached = state.prompt_lengths[:, None, None], (state.length - 1)[..., None]
    places = (
        caches.places(state.prompts, config, jnp.zeros_like(start), start),
        caches.places(state.generated, config, start, cached, state.step),
    )
    hidden, new = decode_layers(
        weights, state.token[..., None], start + cached, (state.prompts, state.generated), places, config
    )
    generated = caches.append(state.generated, new, state.step, hidden, config)
    keys = row_keys(state.key, jnp.take_along_axis(state.row_ids, sample, axis=1))
    token, logprob = choose(weights, head, hidden[:, :, 0], keys, state.length, config, options)
    limit = jnp.take_along_axis(state.limits, sample, axis=1)
    ends = ends_turn(token, options) | (state.length + 1 >= limit)
    emitted = Emitted(state.sample, state.length, token, logprob)
    state = state._replace(
        generated=generated,
        step=state.step + 1,
        sample=jnp.where(ends, -1, state.sample),
        length=state.length + active,
        token=token,
    )
    if lanes < state.pending.shape[1]:
        state = _take_samples(state)
    return state, emitted


def decode_layers(
    weights: Weights, tokens: Array, positions: Array, context: tuple, places: tuple, config
) -> tuple[Array, tuple]:
    """Hidden states (b, lanes, 1, d) of one token per lane, and their keys and values."""
    model = Transformer(config)
    with rules.decoding(config):
        if caches.per_layer(config):
            return model.apply(
                {"params": weights.params},
                weights.decoding,
                tokens,
                positions,
                context,
                places,
                method="decode_unrolled",
            )
        params = weights.decoding or weights.params
        return model.apply({"params": params}, tokens, positions, context, places)


def choose(weights, head, hidden, keys, step, config, options) -> tuple[Array, Array]:
    """Tokens and log-probs (b, g) drawn from hidden states (b, g or 1, d); step: see `next_token`."""
    model = Transformer(config)
    logits = model.apply({"params": weights.params}, hidden, head, method="logits")
    logits = jnp.broadcast_to(logits, (*step.shape, logits.shape[-1]))
    # Reshard from a part of the vocabulary for all rows to the whole vocabulary for some rows, over
    # "fsdp" first: a single step would gather everything.
    for vocab in ("vocab", None):
        logits = nn.with_logical_constraint(logits, ("batch", "group", vocab))
    return next_token(logits, keys, step, options)


def _take_samples(state: State) -> State:
    """Gives idle lanes the pending samples of their slot, lowest first."""
    idle, pending = state.sample < 0, state.pending
    lane_rank = jnp.cumsum(idle, axis=1) - 1
    sample_rank = jnp.cumsum(pending, axis=1) - 1
    match = idle[:, :, None] & pending[:, None, :] & (lane_rank[:, :, None] == sample_rank[:, None, :])
    taken = jnp.any(match, axis=2)
    sample = jnp.argmax(match, axis=2).astype(jnp.int32)
    first = jnp.take_along_axis(state.first, sample, axis=1)
    return state._replace(
        sample=jnp.where(taken, sample, state.sample),
        length=jnp.where(taken, 1, state.length),
        token=jnp.where(taken, first, state.token),
        pending=pending & ~jnp.any(match, axis=1),
    )


def row_keys(key: PRNGKey, row_ids: Array) -> PRNGKey:
    """One key per row (b, g)."""
    return jax.vmap(jax.vmap(lambda row: jax.random.fold_in(key, row)))(row_ids)


def ends_turn(token: Array, options: SamplingParams) -> Array:
    """Whether tokens are end tokens."""
    return jnp.any(token[..., None] == jnp.asarray(options.eos_ids, jnp.int32), axis=-1)


def by_rows(x: Array) -> Array:
    """Shards an array (b, ...) by rows."""
    return nn.with_logical_constraint(x, ("batch", *(None,) * (x.ndim - 1)))


def whole(x: Array) -> Array:
    """Replicates the array on every device."""
    return nn.with_logical_constraint(x, (None,) * x.ndim)
