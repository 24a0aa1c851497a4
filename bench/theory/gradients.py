"""Policy gradients of single rollouts, on the device.

For a rollout y with reward r of a task with success rate p, REINFORCE with baseline p has the gradient
g = (r − p) s with the score s = ∇ log π(y).  Nothing here knows of language models but
`completion_logprob`: `log_prob` is any differentiable function, so that a test can use a policy whose
moments are known in closed form.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from genenv_jax.models.config import TransformerConfig
from genenv_jax.models.scoring import CompletionBatch, completion_logprobs
from genenv_jax.typing import Array, Params

LogProb = Callable[[Params, Any], Array]  # (parameters, example) -> () float32


class GroupGradients(NamedTuple):
    """What one group of n = blocks * m rollouts of a task says about its gradient.

    score_squares: (blocks, m), ‖∇ log π(y_i)‖².
    logprobs: (blocks, m), log π(y_i), nats.
    signal_square: unbiased estimate of ‖∇p‖², the part of a gradient that is no noise; may be
      negative.
    """

    score_squares: Array
    logprobs: Array
    signal_square: Array


def group_gradients(
    log_prob: LogProb, params: Params, examples: Any, rewards: Array
) -> GroupGradients:
    """Gradients of one task's rollouts, m of them at a time.

    Each block makes an estimate of ∇p of its own, (1/(m−1)) Σ (r_i − p̂_block) ∇ log π(y_i), which is
    unbiased since the block's mean leaves exactly 1/m of it out.  Blocks are independent, so the mean
    inner product of two different ones is an unbiased estimate of ‖∇p‖²: no square of noise is in it.

    Args:
      log_prob: log π of one example.
      params: the policy's parameters; gradients are with respect to all of them.
      examples: a tree whose leaves have leading axes (blocks, m), with blocks >= 2 and m >= 2.
      rewards: (blocks, m), 0 or 1.
    Memory: m gradients at a time, m * parameters * 4 bytes.
    """
    blocks, m = rewards.shape
    if blocks < 2 or m < 2:
        raise ValueError(f"{blocks} blocks of {m} rollouts: expected at least 2 of at least 2")
    in_block = (rewards - jnp.mean(rewards, axis=1, keepdims=True)) / (m - 1)
    gradient = jax.vmap(jax.value_and_grad(log_prob), (None, 0))

    def add(sums, part):
        of_blocks, own_squares = sums
        example, weights = part
        logp, scores = gradient(params, example)
        block = jax.tree.map(lambda x: jnp.tensordot(weights, x.astype(jnp.float32), 1), scores)
        sums = jax.tree.map(jnp.add, of_blocks, block), own_squares + _square(block)
        return sums, (jax.vmap(_square)(scores), logp)

    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.float32), params)
    start = (zeros, jnp.float32(0))
    sums, (squares, logp) = jax.lax.scan(add, start, (examples, in_block))
    of_blocks, own_squares = sums
    signal = (_square(of_blocks) - own_squares) / (blocks * (blocks - 1))
    return GroupGradients(squares, logp, signal)


def _square(tree: Params) -> Array:
    """Squared norm over all leaves."""
    return sum(jnp.sum(jnp.square(x.astype(jnp.float32))) for x in jax.tree.leaves(tree))


def completion_logprob(config: TransformerConfig, prompt: Array, prompt_length: Array) -> LogProb:
    """log π(completion | prompt) of a decoder, a `LogProb` of (tokens (c,), length ()).

    prompt: (p,) int32, right-padded.  prompt_length: () int32.
    """

    def log_prob(params: Params, example: tuple[Array, Array]) -> Array:
        tokens, length = example
        batch = CompletionBatch(
            prompt[None], prompt_length[None], tokens[None, None], length[None, None]
        )
        return jnp.sum(completion_logprobs(params, batch, config)[0])

    return log_prob


def make_task_gradients(
    config: TransformerConfig,
) -> Callable[[Params, Array, Array, Array, Array, Array], GroupGradients]:
    """A jitted function of one task's rollouts under a decoder.

    It takes (params, prompt (p,), prompt_length (), completions (blocks, m, c), lengths (blocks, m),
    rewards (blocks, m)), and is compiled once for each p and c.
    """

    def run(params, prompt, prompt_length, completions, lengths, rewards):
        log_prob = completion_logprob(config, prompt, prompt_length)
        return group_gradients(log_prob, params, (completions, lengths), rewards)

    return jax.jit(run)
