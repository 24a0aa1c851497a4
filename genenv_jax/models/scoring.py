"""Log-probs of completions under a model, shared by training and scoring.

A prompt passes through the network once, and its g completions read its keys and values.  Results and
gradients are exact.  Logits are computed only at completion tokens, one chunk at a time.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from genenv_jax.models.config import TransformerConfig
from genenv_jax.models.platform import target_platform
from genenv_jax.models.transformer import Transformer
from genenv_jax.typing import Array, Params


class CompletionBatch(NamedTuple):
    """Prompts and their groups of completions, right-padded; masks come from the lengths.

    prompts: (b, p) int32.            prompt_lengths: (b,) int32, at least 1.
    completions: (b, g, c) int32.     completion_lengths: (b, g) int32; 0 marks an empty row.
    loss_mask: (b, g, c) bool, true at tokens the policy wrote, not the environment; None: all.
    """

    prompts: Array
    prompt_lengths: Array
    completions: Array
    completion_lengths: Array
    loss_mask: Array | None = None

    @property
    def mask(self) -> Array:
        """(b, g, c) float32: 1 at completion tokens, 0 at padding and at tokens from the environment."""
        c = self.completions.shape[-1]
        mask = jnp.arange(c) < self.completion_lengths[..., None]
        if self.loss_mask is not None:
            mask &= self.loss_mask
        return mask.astype(jnp.float32)


@jax.custom_vjp
def token_logprobs(logits: Array, tokens: Array) -> tuple[Array, Array]:
    """Log-probs of tokens (...) and entropies (...), in nats, under softmax of logits (..., v) float32.

    The gradient is a single expression of the logits.  Differentiating through `log_softmax` would save
    and read several arrays of the logits' size:

        d log p(token) / d logit_j = 1[j = token] - p_j
        d entropy / d logit_j = -p_j (log p_j + entropy)
    """
    return _token_logprobs(logits, tokens)[0]


def _token_logprobs(logits, tokens):
    top = jax.lax.stop_gradient(jnp.max(logits, axis=-1, keepdims=True))
    weight = jnp.exp(logits - top)
    mass = jnp.sum(weight, axis=-1)
    total = top[..., 0] + jnp.log(mass)
    # 0 log 0 is 0.  A plain sum of products would also take XLA's CPU backend up to four times as long.
    weighted = jnp.where(weight > 0, weight * logits, 0.0)
    entropy = total - jnp.sum(weighted, axis=-1) / mass
    # Not a gather: the vocabulary may be sharded, and only the end of this sum crosses devices.
    chosen = jnp.arange(logits.shape[-1]) == tokens[..., None]
    logp = jnp.sum(jnp.where(chosen, logits, 0.0), axis=-1) - total
    return (logp, entropy), (logits, tokens, total, entropy)


def _token_logprobs_gradient(saved, gradients):
    logits, tokens, total, entropy = saved
    of_logp, of_entropy = (x[..., None] for x in gradients)
    logp = logits - total[..., None]
    gradient = -jnp.exp(logp) * (of_logp + of_entropy * (logp + entropy[..., None]))
    chosen = jnp.arange(logits.shape[-1]) == tokens[..., None]
    return gradient + jnp.where(chosen, of_logp, 0.0), None


token_logprobs.defvjp(_token_logprobs, _token_logprobs_gradient)


def completion_logprobs(
    params: Params, batch: CompletionBatch, config: TransformerConfig
) -> tuple[Array, Array]:
    """Teacher-forced log π(token) and entropy at every completion token.

    Returns log-probs and entropies in nats, both (b, g, c) float32, and 0 where `batch.mask` is 0.
    """
    model = Transformer(config)
    b, p = batch.prompts.shape
    _, g, c = batch.completions.shape
    weights = {"params": params}
    prompts = batch.prompts[:, None], jnp.broadcast_to(jnp.arange(p), (b, 1, p))
    if c > 1:
        prompt_places = jnp.where(
            jnp.arange(p) < batch.prompt_lengths[:, None, None, None], jnp.arange(p), -1
        )
        # The last token's hidden state predicts nothing.  It is computed only if that keeps the width a
        # multiple of a tile (128), because TPUs compute whole tiles anyway.
        rows = batch.completions if c % 128 == 0 else batch.completions[:, :, :-1]
        positions = batch.prompt_lengths[:, None, None] + jnp.arange(rows.shape[-1])
        positions = jnp.broadcast_to(positions, rows.shape)
        hidden, rest = model.apply(weights, *prompts, prompt_places, rows, positions, method="grouped")
    else:
        hidden, _ = model.apply(weights, *prompts)
    last = jnp.take_along_axis(hidden[:, 0], (batch.prompt_lengths - 1)[:, None, None], axis=1)
    hidden = jnp.broadcast_to(last[:, None], (b, g, 1, last.shape[-1]))
    if c > 1:
        hidden = jnp.concatenate([hidden, rest[:, :, : c - 1]], axis=2)
    head = model.apply(weights, method="head")

    def score(args):
        hidden, target = args
        return token_logprobs(model.apply(weights, hidden, head, method="logits"), target)

    # Chunks split the completion tokens, not the batch axis, which therefore stays sharded.
    width = max(1, logit_chunk(config) // b)
    rows = hidden.reshape(b, g * c, -1), batch.completions.reshape(b, g * c)
    if g * c > width:
        pad = -(g * c) % width
        rows = jax.tree.map(lambda x: jnp.pad(x, [(0, 0), (0, pad)] + [(0, 0)] * (x.ndim - 2)), rows)
        chunks = jax.tree.map(lambda x: x.reshape(b, -1, width, *x.shape[2:]).swapaxes(0, 1), rows)
        # Recompute in the backward pass, so that only one chunk of logits is ever alive.
        chunks = jax.lax.map(jax.checkpoint(score), chunks)
        logp, entropy = (x.swapaxes(0, 1).reshape(b, -1)[:, : g * c] for x in chunks)
    else:
        logp, entropy = score(rows)
    mask = batch.mask
    return logp.reshape(b, g, c) * mask, entropy.reshape(b, g, c) * mask


def logit_chunk(config: TransformerConfig) -> int:
    """How many tokens' logits are computed at a time.

    On a CPU, few enough to stay in its cache, because they are read several times.  Elsewhere, enough
    for an efficient matrix product.
    """
    return max(256, 2**20 // config.vocab_size) if target_platform() == "cpu" else 2048


@functools.partial(jax.jit, static_argnames="config")
def score_completions(params: Params, batch: CompletionBatch, config: TransformerConfig) -> Array:
    """Log-probs (b, g, c) float32 of completions, jitted; see `completion_logprobs`."""
    return completion_logprobs(params, batch, config)[0]
