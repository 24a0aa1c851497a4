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

import math
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from genenv_jax.models.attention import causal_attention
from genenv_jax.models.config import TransformerConfig
from genenv_jax.models.rope import apply_rope, rope_tables
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
        past = [(kv.k, kv.v, mask) for kv, mask in zip(context, masks, strict=True)]
        out = causal_attention(q, k, v, past, c.attention)
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


# What the backward pass keeps of a layer besides its input ("none": everything).
REMAT_POLICIES = {
    "full": None,  # nothing: every layer is computed again
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,  # the projections' outputs
}


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
        layer = DecoderLayer
        if c.remat != "none":
            layer = nn.remat(layer, prevent_cse=False, policy=REMAT_POLICIES[c.remat])
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
