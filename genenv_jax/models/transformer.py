"""The decoder: one Linen module for all families, and for prefill, decoding, scoring and training.

The rows of a batch come in groups: `b` prompts, each with `g` continuations.  Attention reads a list
of key/value segments; a segment whose group axis is 1 is shared by the whole group.  So a prompt is
computed once, however many continuations it has, both in sampling and in training:

    prompt pass         tokens (b, 1, p)                               -> KV segment (l, b, 1, p, k, h)
    both, per layer     prompts (b, 1, p) and completions (b, g, c)    -> hidden     (b, g, c, d)
    decoding step       tokens (b, g, 1), context = (prompt, generated)

Rows are right-padded and causal, so within a pass no real token attends to padding.  The places of a
context segment's keys are computed from lengths, never from the pad token's id.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from genenv_jax.models.attention import SlidingWindow, causal_attention
from genenv_jax.models.attention_decode import CacheSegment, decode_attention, repeat_heads
from genenv_jax.models.config import TransformerConfig
from genenv_jax.models.lora import LoraConfig, init_a, split
from genenv_jax.models.matmul import matmul
from genenv_jax.models.rope import apply_rope, rope_tables
from genenv_jax.typing import Array, Params


class KVSegment(NamedTuple):
    """Keys (rotated) and values of a run of tokens, stacked over layers.

    k, v: (l, b, g or 1, s, k, h) in the compute dtype.  Inside one layer the leading axis is absent.
    """

    k: Array
    v: Array


def constrain(x: Array, batch: str, *features: str, length: str = "length") -> Array:
    """Shards (b, g, t, ...) by the logical names of the rows, the tokens and the later axes."""
    if x.shape[2] == 1:
        length = "length"  # a decoding step's one token is never split
    return nn.with_logical_constraint(x, (batch, "group", length, *features))


class RMSNorm(nn.Module):
    """Root-mean-square normalisation in float32 (Zhang and Sennrich, 2019), then a learned scale.

    With `offset` the factor is 1 + scale, in float32.
    """

    eps: float
    axis: str = "embed"
    offset: bool = False

    @nn.compact
    def __call__(self, x: Array) -> Array:
        init = nn.initializers.zeros if self.offset else nn.initializers.ones
        init = nn.with_logical_partitioning(init, (self.axis,))
        scale = self.param("scale", init, (x.shape[-1],))
        y = x.astype(jnp.float32)
        y = y * jax.lax.rsqrt(jnp.mean(jnp.square(y), axis=-1, keepdims=True) + self.eps)
        if self.offset:
            return (y * (1 + scale.astype(jnp.float32))).astype(x.dtype)
        return (y.astype(x.dtype) * scale.astype(x.dtype)).astype(x.dtype)


class Projection(nn.Module):
    """A matrix product over the last `contract` axes of the input, with an optional bias and adapter.

    The kernel has shape in_shape + out_shape and one logical name per axis.  It is cast to `dtype`, or to
    the input's dtype if None.
    """

    in_shape: tuple[int, ...]
    out_shape: tuple[int, ...]
    axes: tuple[str, ...]
    use_bias: bool = False
    lora: LoraConfig | None = None
    dtype: str | None = None

    @nn.compact
    def __call__(self, x: Array) -> Array:
        contract = len(self.in_shape)
        init = nn.initializers.variance_scaling(
            1.0,
            "fan_in",
            "normal",
            in_axis=tuple(range(contract)),
            out_axis=tuple(range(contract, len(self.axes))),
        )
        kernel = self.param(
            "kernel", nn.with_logical_partitioning(init, self.axes), self.in_shape + self.out_shape
        )
        if kernel.dtype == jnp.uint16:  # see `rules.cast_params`
            kernel = jax.lax.bitcast_convert_type(kernel, jnp.bfloat16)
        # Cast on the shard, so that devices exchange the compute dtype, and the gradient comes back
        # as a shard, not whole.
        kernel = nn.with_logical_constraint(kernel.astype(self.dtype or x.dtype), self.axes)
        # One plain matrix product: with several contracted or batch axes, XLA's CPU backend computes
        # the kernel's gradient ten times more slowly.
        rows, width = x.shape[: x.ndim - contract], math.prod(self.in_shape)
        y = matmul(x.reshape(-1, width), kernel.reshape(width, -1))
        y = y.reshape(*rows, *self.out_shape)
        if self.use_bias:
            init = nn.with_logical_partitioning(nn.initializers.zeros, self.axes[contract:])
            y = y + self.param("bias", init, self.out_shape).astype(x.dtype)
        if self.lora:
            y = y + self._adapter(x.reshape(-1, width)).reshape(y.shape)
        return checkpoint_name(y, "projection")

    def _adapter(self, x: Array) -> Array:
        """(α / r) (x A) B for x (rows, in)."""
        contract, rank = len(self.in_shape), self.lora.rank
        init = nn.with_logical_partitioning(init_a(contract), (*self.axes[:contract], "rank"))
        a = self.param("lora_a", init, (*self.in_shape, rank)).astype(x.dtype)
        init = nn.with_logical_partitioning(nn.initializers.zeros, ("rank", *self.axes[contract:]))
        b = self.param("lora_b", init, (rank, *self.out_shape)).astype(x.dtype)
        return self.lora.scale * matmul(matmul(x, a.reshape(-1, rank)), b.reshape(rank, -1))


class Attention(nn.Module):
    """The projections around `attend`, which maps queries, keys and values to (b, g, t, n, h)."""

    config: TransformerConfig

    @nn.compact
    def __call__(
        self,
        x: Array,
        rope: tuple[Array, Array],
        attend: Callable[[Array, Array, Array], Array],
        decoding: bool,
    ) -> tuple[Array, KVSegment]:
        c = self.config
        model = (c.hidden_size,)
        queries, pairs = (c.num_heads, c.head_dim), (c.num_kv_heads, c.head_dim)
        kv_axes = ("embed", "kv_heads", "head_dim")
        x = constrain(x, "projection_batch", "projection_embed")
        project = functools.partial(Projection, dtype=c.operand_dtype)
        q_axes = ("embed", "heads", "head_dim")
        q = project(model, queries, q_axes, c.qkv_bias, c.adapter("q"), name="q")(x)
        k = project(model, pairs, kv_axes, c.qkv_bias, c.adapter("k"), name="k")(x)
        v = project(model, pairs, kv_axes, c.qkv_bias, c.adapter("v"), name="v")(x)
        q = constrain(q, "batch", "heads", "head_dim")
        k = constrain(k, "batch", "kv_heads", "head_dim")
        v = constrain(v, "batch", "kv_heads", "head_dim")
        if c.qk_norm:
            q = RMSNorm(c.norm_eps, "head_dim", c.norm_offset, name="q_norm")(q)
            k = RMSNorm(c.norm_eps, "head_dim", c.norm_offset, name="k_norm")(k)
        if c.query_scalar not in (None, c.head_dim):
            q = q * (c.head_dim / c.query_scalar) ** 0.5  # the kernels divide by √h
        q, k = apply_rope(q, rope), apply_rope(k, rope)
        out = attend(q, k, v)
        out = constrain(out, "projection_batch", "heads", "head_dim")
        o_axes = ("heads", "head_dim", "embed")
        out = project(queries, model, o_axes, c.o_bias, c.adapter("o"), name="o")(out)
        if decoding:  # otherwise the kernel would be gathered
            out = constrain(out, "projection_batch", "projection_embed")
        return out, KVSegment(k, v)


ACTIVATIONS = {"silu": jax.nn.silu, "gelu": jax.nn.gelu}  # the second by its tanh form


class MLP(nn.Module):
    """Gated feed-forward network: SwiGLU, or GeGLU with the activation "gelu" (Shazeer, 2020)."""

    config: TransformerConfig

    @nn.compact
    def __call__(self, x: Array) -> Array:
        c = self.config
        project = functools.partial(Projection, dtype=c.operand_dtype)
        wide = ((c.hidden_size,), (c.intermediate_size,), ("embed", "mlp"))
        x = constrain(x, "projection_batch", "activation_embed")
        gate = project(*wide, c.mlp_bias, c.adapter("gate"), name="gate")(x)
        up = project(*wide, c.mlp_bias, c.adapter("up"), name="up")(x)
        narrow = ((c.intermediate_size,), (c.hidden_size,), ("mlp", "embed"))
        down = project(*narrow, c.mlp_bias, c.adapter("down"), name="down")
        return down(constrain(ACTIVATIONS[c.activation](gate) * up, "projection_batch", "mlp"))


# What each layer saves for the backward pass besides its input ("none": everything).
REMAT_POLICIES = {
    "full": None,  # nothing: every layer is recomputed
    # The projections' outputs, but not what their adapters add, which has the same size.
    "dots": jax.checkpoint_policies.save_only_these_names("projection"),
    # Like "full", but with the layers' inputs in host memory.
    "offload": jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[],
        names_which_can_be_offloaded=["layer_input"],
        offload_src="device",
        offload_dst="pinned_host",
    ),
}


class Shared(NamedTuple):
    """What all layers are given; the first three have an entry for each stream (see `DecoderLayer`).

    ropes: rotary tables; with sliding windows a pair, of layers without and with one.
    positions: (b, g, t) int32.
    places: for each context segment as in `Transformer.__call__`.
    apart: a context in which each kind of layer has segments of its own, stacked over its layers.
    """

    ropes: tuple
    positions: tuple[Array, ...]
    places: tuple
    apart: tuple = ()


class DecoderLayer(nn.Module):
    """One pre-norm block; `post_norms` adds norms after attention and MLP.

    Its signature is what `nn.scan` needs: carry first, then scanned inputs.

    The carry is a tuple of streams, each a (b, g or 1, t, d) run of tokens.  A stream attends to the
    context and to the streams before it.  With two streams in one layer, sharded weights are gathered
    once and get one gradient.  `kind` says whether the layer has a sliding window, and its index among the
    layers that agree in this; None: no layer has one.
    """

    config: TransformerConfig

    @nn.compact
    def __call__(self, streams, context, kind, shared):
        c = self.config
        norm = functools.partial(RMSNorm, c.norm_eps, offset=c.norm_offset)
        before_mlp, after = "mlp_norm", (lambda x: x,) * 2
        if c.post_norms:
            before_mlp = "mlp_pre_norm"
            after = norm(name="attention_post_norm"), norm(name="mlp_post_norm")
        norms = norm(name="attention_norm"), norm(name=before_mlp)
        attention, mlp = Attention(c, name="attention"), MLP(c, name="mlp")
        ropes, local = shared.ropes, None
        if kind is not None:
            local, index = kind
            ropes = jax.tree.map(lambda x, y: jnp.where(local, y, x), *ropes)
        decoding = _is_cache(shared.apart[0] if shared.apart else context)
        outputs, segments = (), ()
        for x, rope, at, places in zip(streams, ropes, shared.positions, shared.places, strict=True):
            x = checkpoint_name(x, "layer_input")
            if shared.apart:
                attend = functools.partial(_attend_apart, c, local, index, at, places, shared.apart)
            else:
                attend = functools.partial(_attend, c, local, at, places, (*context, *segments))
            y, segment = attention(norms[0](x), rope, attend, decoding)
            x = x + after[0](y)
            x = constrain(x, "batch", "activation_embed", length="residual_length")
            x = x + after[1](mlp(norms[1](x)))
            x = constrain(x, "batch", "activation_embed", length="residual_length")
            outputs, segments = (*outputs, x), (*segments, segment)
        return outputs, segments


def _is_cache(segments: Sequence[KVSegment | CacheSegment]) -> bool:
    return bool(segments) and isinstance(segments[0], CacheSegment)


def _attend(c: TransformerConfig, local, at, places, past, q: Array, k: Array, v: Array) -> Array:
    """Attention of new tokens at positions `at` to `past`, whose keys are at `places`, and to themselves.

    local: as in `SlidingWindow`; None: no window.
    """
    masks, window = [place >= 0 for place in places], None
    if local is not None:
        window = SlidingWindow(local, c.window.size, tuple(places))
        reach = jnp.where(local, c.window.size, jnp.iinfo(jnp.int32).max)
        masks = [mask & (at[..., None] - place < reach) for mask, place in zip(masks, places, strict=True)]
    if _is_cache(past):
        return decode_attention(q, k, v, list(zip(past, masks, strict=True)))
    own = repeat_heads((k, v), past[0].k.shape[-2]) if past else (k, v)
    past = [(kv.k, kv.v, mask) for kv, mask in zip(past, masks, strict=True)]
    return causal_attention(q, *own, past, c.attention, window)


def _attend_apart(c: TransformerConfig, local, index, at, places, apart, *qkv: Array) -> Array:
    """The same where each kind of layer has segments of its own, of which the layer's are at `index`."""

    def attend(kind: int) -> Array:
        past = [jax.tree.map(lambda x: x[index], segments[kind]) for segments in apart]
        return _attend(c, bool(kind) or None, at, [of[kind] for of in places], past, *qkv)

    return jax.lax.cond(local, lambda: attend(1), lambda: attend(0))


@functools.cache
def _stacked(num_layers: int, remat: str, unrolled: bool) -> type[nn.Module]:
    """The module of all layers.

    Flax edits `DecoderLayer` while it makes this class, which must not happen while threads trace programs.
    So it is made once, when a model's shapes are read.
    """
    layer = DecoderLayer
    if remat != "none":
        layer = nn.remat(layer, prevent_cse=False, policy=REMAT_POLICIES[remat])
    # The cache is read, and new keys are a scanned output, never the carry: on TPUs a carried cache is
    # copied once more.
    return nn.scan(
        layer,
        variable_axes={"params": 0},
        split_rngs={"params": True},
        in_axes=(0, 0, nn.broadcast),
        length=num_layers,
        unroll=num_layers if unrolled else 1,
        metadata_params={nn.PARTITION_NAME: "layers"},
    )


class Transformer(nn.Module):
    """Decoder-only language model.

    `apply(params, tokens, positions, context, places)` gives hidden states and the new tokens' KV
    segment.  `apply(params, hidden, method="logits")` gives logits, so that callers compute them only
    where needed.
    """

    config: TransformerConfig

    def setup(self):
        c = self.config
        self.embedding = self.param(
            "embedding",
            nn.with_logical_partitioning(nn.initializers.normal(0.02), ("vocab", "embed")),
            (c.vocab_size, c.hidden_size),
        )
        # With remat the layers stay in a loop: unrolled, XLA recomputes all of them before it needs the
        # first, which takes thrice the memory.
        unrolled = c.unroll_layers and c.remat == "none"
        self.layers = _stacked(c.num_layers, c.remat, unrolled)(c)
        self.norm = RMSNorm(c.norm_eps, offset=c.norm_offset)
        if not c.tie_embeddings:
            self.lm_head = Projection((c.hidden_size,), (c.vocab_size,), ("embed", "vocab"))

    def __call__(
        self,
        tokens: Array,
        positions: Array,
        context: tuple[tuple[KVSegment | CacheSegment, ...], ...] = (),
        places: tuple[tuple[Array, ...], ...] = (),
    ) -> tuple[Array, KVSegment]:
        """Runs the decoder over new tokens.

        Args:
          tokens: (b, g, t) int32, right-padded.
          positions: (b, g, t) int32, each token's place in its own sequence.
          context: earlier tokens, each a tuple with a KV segment for each of `config.layer_kinds`, stacked
            over its layers; group axis g, or 1 if the group shares it.  If t = 1 they may be caches (see
            `models.attention_decode`).
          places: for each context segment, the position of each key, int32 broadcastable to (b, g, t, s);
            negative where there is none.  All lie before the new tokens.  Those of layers with a sliding
            window may leave out what the window hides.
        Returns:
          hidden states (b, g, t, d) after the final norm, and the KV segment of these tokens.
        """
        (hidden,), (segment,) = self._run(((tokens, positions),), context, (places,))
        if self.is_initializing() and not self.config.tie_embeddings:
            self.lm_head(hidden)  # Linen creates a submodule's parameters at its first call
        return hidden, segment

    def grouped(
        self,
        prompts: Array,
        prompt_positions: Array,
        prompt_places: Array,
        rows: Array,
        positions: Array,
    ) -> tuple[Array, Array]:
        """Runs the decoder over prompts and their continuations together, layer by layer.

        Equivalent to two calls, the second with the first's segment as context, but it reads each
        layer's weights once and holds the prompts' keys and values for only one layer at a time.

        Args:
          prompts, prompt_positions: (b, 1, p) int32.
          prompt_places: (b, 1, 1, p) int32: the positions of the prompts' tokens; negative at padding.
          rows, positions: (b, g, t) int32.
        Returns:
          hidden states after the final norm: (b, 1, p, d) and (b, g, t, d).
        """
        streams = ((prompts, prompt_positions), (rows, positions))
        return self._run(streams, (), ((), (prompt_places,)))[0]

    def _run(self, streams, context, places):
        """Hidden states and KV segments of each stream of (tokens, positions)."""
        c = self.config
        x = tuple(self.embed(tokens) for tokens, _ in streams)
        shared = Shared(*self._at(tuple(at for _, at in streams)), places)
        if context and len(c.layer_kinds) == 1:
            context = tuple(segment for (segment,) in context)
            shared = shared._replace(places=tuple(tuple(place for (place,) in of) for of in places))
        elif context:
            context, shared = (), shared._replace(apart=context)
        kind = None
        if c.window is not None:
            kind = jnp.array(c.local_layers), jnp.array(c.index_in_kind, jnp.int32)
        x, segments = self.layers(x, context, kind, shared)
        return tuple(self.norm(h) for h in x), segments

    def _at(self, positions):
        """`Shared.ropes` and `Shared.positions`."""
        c = self.config

        def rotate(theta, scaling):
            return tuple(rope_tables(of, c.head_dim, theta, scaling) for of in positions)

        ropes = rotate(c.rope_theta, c.rope_scaling)
        return (ropes if c.window is None else (ropes, rotate(c.window.rope_theta, None))), positions

    def decode_unrolled(
        self,
        layers: tuple[Params, ...],
        tokens: Array,
        positions: Array,
        context: tuple[tuple[CacheSegment, ...], ...],
        places: tuple[tuple[Array, ...], ...],
    ) -> tuple[Array, tuple[KVSegment, ...]]:
        """A decoding step with separate parameters and caches for each layer.

        In a loop, slices of stacked parameters would be copied at every step.

        Args:
          layers: parameters of each layer.
          tokens, positions, places: as in `__call__`, with t = 1.
          context: caches, each a tuple with one segment per layer.
        Returns:
          hidden states (b, g, 1, d) after the final norm, and each layer's new KV segment.
        """
        c = self.config
        at, x, segments = self._at((positions,)), (self.embed(tokens),), []
        for i, params in enumerate(layers):
            local = c.local_layers[i]
            seen = tuple(of[c.layer_kinds.index(local)] for of in places)
            x, (segment,) = DecoderLayer(c, parent=None).apply(
                {"params": params},
                x,
                tuple(cache[i] for cache in context),
                None if c.window is None else (local, None),
                Shared(*at, (seen,)),
            )
            segments.append(segment)
        return self.norm(x[0]), tuple(segments)

    def embed(self, tokens: Array) -> Array:
        """Embeddings (b, g, t, d) of tokens (b, g, t) in the compute dtype."""
        x = jnp.take(self.embedding, tokens, axis=0).astype(self.config.dtype)
        if self.config.scale_embedding:
            x = x * jnp.asarray(self.config.hidden_size**0.5, x.dtype)
        # Each device looks up its part of the width for all rows, then the rows are redistributed.
        # Otherwise the table would be sent between devices.
        x = constrain(x, "head_batch", "lookup_embed")
        return constrain(x, "batch", "activation_embed", length="residual_length")

    @property
    def _head_by_token(self) -> bool:
        """Whether the head is the embedding as stored: a frozen one in float32 is not transposed."""
        c = self.config
        return c.tie_embeddings and c.operand_dtype == "float32" and c.lora is not None

    def head(self) -> Array:
        """The output projection, sharded by vocabulary: (v, d) if `_head_by_token`, else (d, v).

        A caller that computes logits in a loop calls this, and so redistributes it, before the loop.
        Under adapters it has the operands' dtype.  Without, its gradients are still to be added.
        """
        if self._head_by_token:  # CPUs would copy the table to transpose it
            return nn.with_logical_constraint(self.embedding, ("head_vocab", "activation_embed"))
        tied = self.config.tie_embeddings
        head = self.embedding if tied else self.lm_head.get_variable("params", "kernel")
        if self.config.lora:
            head = head.astype(self.config.operand_dtype)
        if tied:
            head = head.T
        return nn.with_logical_constraint(head, ("activation_embed", "head_vocab"))

    def logits(self, hidden: Array, head: Array | None = None) -> Array:
        """Float32 logits (..., v) of hidden states (..., d).

        Each device computes its part of the vocabulary for all rows, so the head is never gathered.
        """
        head = (self.head() if head is None else head).astype(self.config.operand_dtype)
        middle = (None,) * (hidden.ndim - 2)
        hidden = nn.with_logical_constraint(hidden, ("head_batch", *middle, "activation_embed"))
        # A plain matrix product, for the reason given in `Projection`.
        rows = hidden.reshape(-1, hidden.shape[-1])
        if self._head_by_token:
            logits = jax.lax.dot_general(rows, head, (((1,), (1,)), ((), ())))
        elif rows.dtype == jnp.float32:
            logits = matmul(rows, head)
        else:
            logits = jnp.matmul(rows, head, preferred_element_type=jnp.float32)
        logits = logits.reshape(*hidden.shape[:-1], -1)
        return nn.with_logical_constraint(logits, ("head_batch", *middle, "head_vocab"))


def init_params(config: TransformerConfig, key: Array):
    """Random float32 parameters; the leaves keep Linen's logical axis metadata."""
    token = jnp.zeros((1, 1, 1), jnp.int32)
    return Transformer(config).init(key, token, token)["params"]


def init_adapters(config: TransformerConfig, key: Array):
    """Fresh float32 adapters for `config.lora`, without Linen's metadata.

    Under jit, the rest of the model is never materialised.
    """
    return split(_unboxed(init_params(config, key)))[1]


@functools.cache  # tracing the initialiser takes a tenth of a second
def abstract_params(config: TransformerConfig) -> Params:
    """Shapes and logical axes of the parameters, boxed in Linen's metadata; allocates nothing."""
    # Without rules, Linen constrains nothing that it initialises, whichever mesh is active.
    with nn.logical_axis_rules(()):
        return jax.eval_shape(lambda: init_params(config, jax.random.key(0)))


def param_shapes(config: TransformerConfig) -> Params:
    """The parameter tree with a float32 jax.ShapeDtypeStruct for each array."""
    return _unboxed(abstract_params(config))


def _unboxed(params: Params) -> Params:
    """Without Linen's metadata.  Under an active mesh, a shape could not be constrained."""
    is_box = lambda x: isinstance(x, nn.LogicallyPartitioned)  # noqa: E731
    return jax.tree.map(lambda box: box.unbox(apply_constraint=False), params, is_leaf=is_box)
