"""The decoder: one Linen module for every family, prefill, decoding, scoring and training.

The rows of a batch come in groups: `b` prompts, each with `g` continuations.  Attention reads a list
of key/value segments, and a segment whose group axis is 1 is shared by the whole group.  So a prompt
is computed once however many continuations it has, in sampling and in training alike:

    prompt pass         tokens (b, 1, p)                               -> KV segment (l, b, 1, p, k, h)
    completion pass     tokens (b, g, c), context = (prompt,)          -> hidden     (b, g, c, d)
    decoding step       tokens (b, g, 1), context = (prompt, generated)

Rows are right-padded and causal, so padding is never attended to by a real token within a pass; a
context segment carries a mask made from lengths (never from the pad token's id).
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from genenv_jax.models.config import TransformerConfig
from genenv_jax.typing import Array


class KVSegment(NamedTuple):
    """Keys (rotated) and values of a run of tokens, stacked over layers.

    k, v: (l, b, g or 1, s, k, h) in the compute dtype.  Inside one layer the leading axis is absent.
    """

    k: Array
    v: Array


class RMSNorm(nn.Module):
    """Root-mean-square normalisation in float32 (Zhang and Sennrich, 2019), then a learnt scale."""

    eps: float

    @nn.compact
    def __call__(self, x: Array) -> Array:
        scale = self.param(
            "scale", nn.with_logical_partitioning(nn.initializers.ones, ("embed",)), (x.shape[-1],)
        )
        y = x.astype(jnp.float32)
        y = y * jax.lax.rsqrt(jnp.mean(jnp.square(y), axis=-1, keepdims=True) + self.eps)
        return (y.astype(x.dtype) * scale.astype(x.dtype)).astype(x.dtype)


class Projection(nn.Module):
    """A matrix product over the last `contract` axes of the input, with an optional bias.

    The kernel has shape in_shape + out_shape and one logical axis name for each of its axes.
    """

    in_shape: tuple[int, ...]
    out_shape: tuple[int, ...]
    axes: tuple[str, ...]
    use_bias: bool = False

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
        # One plain matrix product: with several contracted or batch axes, XLA's CPU backend computes
        # the kernel's gradient an order of magnitude more slowly.
        rows, width = x.shape[: x.ndim - contract], math.prod(self.in_shape)
        y = x.reshape(-1, width) @ kernel.astype(x.dtype).reshape(width, -1)
        y = y.reshape(*rows, *self.out_shape)
        if self.use_bias:
            init = nn.with_logical_partitioning(nn.initializers.zeros, self.axes[contract:])
            y = y + self.param("bias", init, self.out_shape).astype(x.dtype)
        return y


def rope_tables(positions: Array, head_dim: int, theta: float) -> tuple[Array, Array]:
    """Cosines and sines of rotary embeddings (Su et al., 2021), in float32.

    positions: integers (b, g, t).  Returns two arrays (b, g, t, 1, h / 2).
    """
    frequency = theta ** (-jnp.arange(0, head_dim, 2, dtype=jnp.float32) / head_dim)
    angle = positions[..., None, None].astype(jnp.float32) * frequency
    return jnp.cos(angle), jnp.sin(angle)


def apply_rope(x: Array, tables: tuple[Array, Array]) -> Array:
    """Rotates (b, g, t, heads, h); the pairs are (i, i + h / 2), as in Hugging Face checkpoints."""
    cos, sin = tables
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    rotated = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return rotated.astype(x.dtype)


def attend(q: Array, segments: list[tuple[Array, Array, Array]]) -> Array:
    """Grouped-query attention over several key/value segments under one softmax.

    Each segment is a plain batched matrix product in the layout that suits it, and the segments meet
    in the softmax's maximum and sum only, so that their scores are never concatenated or transposed:
        softmax([s1, s2]) @ [v1; v2] = (e1 @ v1 + e2 @ v2) / (Σe1 + Σe2),   ei = exp(si - max(s1, s2))

    Args:
      q: (b, g, t, n, h).
      segments: (keys, values, mask) each; keys and values (b, g or 1, s, k, h), mask boolean and
        broadcastable to (b, g, t, s), true where a query may look.  Every query may look somewhere.
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
        if keys.shape[1] == 1:  # shared by the group, whose rows then join the query axis
            layout, batch = (0, 3, 1, 4, 2, 5), (b, k)
            mask = mask[:, None, :, None]
        else:
            layout, batch = (0, 1, 3, 4, 2, 5), (b * g, k)
            mask = mask[:, :, None, None]
        queries = q.transpose(layout)
        rows = queries.shape[:-1]
        keys, values = (x.reshape(-1, s, k, h).swapaxes(1, 2) for x in (keys, values))
        scores = jnp.einsum(
            "...qh,...sh->...qs",
            queries.reshape(*batch, -1, h),
            keys,
            preferred_element_type=jnp.float32,
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
        weighted = weighted + out.reshape(*weights.shape[:-1], h).transpose(inverse).astype(
            jnp.float32
        )
    return (weighted / total).astype(q.dtype).reshape(b, g, t, n, h)


class Attention(nn.Module):
    """Self-attention of the new tokens over themselves (causal) and over the context segments."""

    config: TransformerConfig

    @nn.compact
    def __call__(
        self,
        x: Array,
        rope: tuple[Array, Array],
        context: tuple[KVSegment, ...],
        masks: tuple[Array, ...],
    ) -> tuple[Array, KVSegment]:
        c = self.config
        model = (c.hidden_size,)
        queries, pairs = (c.num_heads, c.head_dim), (c.num_kv_heads, c.head_dim)
        kv_axes = ("embed", "kv_heads", "head_dim")
        q = Projection(model, queries, ("embed", "heads", "head_dim"), c.qkv_bias, name="q")(x)
        k = Projection(model, pairs, kv_axes, c.qkv_bias, name="k")(x)
        v = Projection(model, pairs, kv_axes, c.qkv_bias, name="v")(x)
        q, k = apply_rope(q, rope), apply_rope(k, rope)
        t = x.shape[2]
        causal = jnp.tril(jnp.ones((1, 1, t, t), bool))
        segments = [(past.k, past.v, mask) for past, mask in zip(context, masks, strict=True)]
        out = attend(q, [*segments, (k, v, causal)])
        out = Projection(queries, model, ("heads", "head_dim", "embed"), name="o")(out)
        return out, KVSegment(k, v)


class MLP(nn.Module):
    """Gated feed-forward network, SwiGLU (Shazeer, 2020)."""

    config: TransformerConfig

    @nn.compact
    def __call__(self, x: Array) -> Array:
        c = self.config
        wide = ((c.hidden_size,), (c.intermediate_size,), ("embed", "mlp"))
        gate = Projection(*wide, name="gate")(x)
        up = Projection(*wide, name="up")(x)
        narrow = ((c.intermediate_size,), (c.hidden_size,), ("mlp", "embed"))
        return Projection(*narrow, name="down")(jax.nn.silu(gate) * up)


class DecoderLayer(nn.Module):
    """One pre-norm block.  Its signature is what `nn.scan` needs: carry first, then scanned inputs."""

    config: TransformerConfig

    @nn.compact
    def __call__(self, x, context, rope, masks):
        eps = self.config.norm_eps
        y, segment = Attention(self.config, name="attention")(
            RMSNorm(eps, name="attention_norm")(x), rope, context, masks
        )
        x = x + y
        x = x + MLP(self.config, name="mlp")(RMSNorm(eps, name="mlp_norm")(x))
        x = nn.with_logical_constraint(x, ("batch", "group", "length", "activation_embed"))
        return x, segment


class Transformer(nn.Module):
    """Decoder-only language model.

    `apply(params, tokens, positions, context, masks)` gives hidden states and the new tokens' KV
    segment; `apply(params, hidden, method="logits")` gives logits, so that a caller computes them only
    where they are needed.
    """

    config: TransformerConfig

    def setup(self):
        c = self.config
        self.embedding = self.param(
            "embedding",
            nn.with_logical_partitioning(nn.initializers.normal(0.02), ("vocab", "embed")),
            (c.vocab_size, c.hidden_size),
        )
        layer = nn.remat(DecoderLayer, prevent_cse=False) if c.remat else DecoderLayer
        # The cache enters as a scanned input and leaves as a scanned output, never as the carry: a
        # carried cache costs a second copy of itself on TPUs.
        self.layers = nn.scan(
            layer,
            variable_axes={"params": 0},
            split_rngs={"params": True},
            in_axes=(0, nn.broadcast, nn.broadcast),
            length=c.num_layers,
            unroll=c.num_layers if c.unroll_layers else 1,
            metadata_params={nn.PARTITION_NAME: "layers"},
        )(c)
        self.norm = RMSNorm(c.norm_eps)
        if not c.tie_embeddings:
            self.lm_head = Projection((c.hidden_size,), (c.vocab_size,), ("embed", "vocab"))

    def __call__(
        self,
        tokens: Array,
        positions: Array,
        context: tuple[KVSegment, ...] = (),
        masks: tuple[Array, ...] = (),
    ) -> tuple[Array, KVSegment]:
        """Runs the decoder over new tokens.

        Args:
          tokens: (b, g, t) int32, right-padded.
          positions: (b, g, t) int32, each token's place in its own sequence.
          context: KV segments of earlier tokens; group axis g, or 1 where the group shares it.
          masks: for each context segment a boolean array broadcastable to (b, g, t, s).
        Returns:
          hidden states (b, g, t, d) after the final norm, and the KV segment of these tokens.
        """
        c = self.config
        x = jnp.take(self.embedding, tokens, axis=0).astype(c.dtype)
        x = nn.with_logical_constraint(x, ("batch", "group", "length", "activation_embed"))
        rope = rope_tables(positions, c.head_dim, c.rope_theta)
        x, segment = self.layers(x, context, rope, masks)
        hidden = self.norm(x)
        if self.is_initializing() and not c.tie_embeddings:
            self.lm_head(hidden)  # Linen creates a submodule's parameters where it is first called
        return hidden, segment

    def logits(self, hidden: Array) -> Array:
        """Logits (..., v) in float32 of hidden states (..., d)."""
        if self.config.tie_embeddings:
            table = self.embedding.astype(hidden.dtype)
            return jnp.einsum("...d,vd->...v", hidden, table, preferred_element_type=jnp.float32)
        return self.lm_head(hidden).astype(jnp.float32)


def init_params(config: TransformerConfig, key: Array):
    """Random parameters in float32, with Linen's logical axis metadata still on the leaves."""
    token = jnp.zeros((1, 1, 1), jnp.int32)
    return Transformer(config).init(key, token, token)["params"]
