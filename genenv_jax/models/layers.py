"""The decoder's layers: norms, projections with adapters, attention over segments of keys and values."""

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
from genenv_jax.models.lora import LoraConfig, init_a
from genenv_jax.models.matmul import matmul
from genenv_jax.models.rope import apply_rope
from genenv_jax.typing import Array


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
