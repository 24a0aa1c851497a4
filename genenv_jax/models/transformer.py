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

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp

from genenv_jax.models.attention_decode import CacheSegment
from genenv_jax.models.config import TransformerConfig
from genenv_jax.models.layers import (
    REMAT_POLICIES,
    DecoderLayer,
    KVSegment,
    Projection,
    RMSNorm,
    Shared,
    constrain,
)
from genenv_jax.models.lora import split
from genenv_jax.models.matmul import matmul
from genenv_jax.models.rope import rope_tables
from genenv_jax.typing import Array, Params


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
        self, prompts: Array, prompt_positions: Array, prompt_places: Array, rows: Array, positions: Array
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
