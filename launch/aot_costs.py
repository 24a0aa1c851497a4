"""Floating-point operations, memory traffic and least seconds of a run's programs, from formulas.

The compiler's own figures count a loop's body once, but here layers, decoding steps, logit chunks and
micro-batches are loops.
"""

from __future__ import annotations

import math

import jax
from aot import Slice
from aot_programs import Program, Work
from flax import traverse_util
from jax.sharding import Mesh

from genenv_jax.models.config import TransformerConfig
from genenv_jax.parallel.rules import param_shapes
from genenv_jax.sampling import cache as caches


def _sizes(config: TransformerConfig) -> tuple[int, int]:
    """Number of parameters in the layers' matrices, and in the output projection."""
    flat = traverse_util.flatten_dict(param_shapes(config.base), sep="/")
    layers = sum(
        math.prod(x.shape)
        for name, x in flat.items()
        if name.startswith("layers/") and name.endswith("/kernel")
    )
    return layers, config.hidden_size * config.vocab_size


def _pairs(config: TransformerConfig, tokens: int) -> float:
    """Query-key pairs in the attention of so many tokens, in all layers together."""

    def of(window: int) -> float:
        most = min(tokens, window)
        return most * (most + 1) / 2 + (tokens - most) * window

    return sum(of(config.window.size if local else tokens) for local in config.local_layers)


def _cached(config: TransformerConfig, tokens: int) -> int:
    """How many of so many tokens all layers together cache."""
    return sum(caches.columns(config, local, tokens) for local in config.local_layers)


def flops(program: Program, work: Work, config: TransformerConfig) -> float:
    """Operations of all chips together, with all rows at full length.

    Counts 2 per weight and token, 4 n h per query-key pair, and the logits of completion
    tokens; three times that with a gradient (twice under LoRA, because frozen weights have no gradient
    and the adapters' own is left out).  Excludes what remat recomputes, and the RWR step's KL
    measurements after the first.
    """
    layers, head = _sizes(config)
    per_pair = 4 * config.num_heads * config.head_dim
    prompts, rows = program.prompts, program.prompts * work.group
    prompt_tokens, tokens = prompts * work.prompt, rows * work.completion
    if program.name.startswith("prefill"):
        pairs = prompts * _pairs(config, work.prompt)
        return 2 * layers * prompt_tokens + per_pair * pairs + 2 * head * prompts
    if program.steps:
        pairs = _cached(config, work.prompt) + _cached(config, work.completion)
        rows = prompts * (work.lanes or work.group)
        return rows * program.steps * (2 * (layers + head) + per_pair * pairs)
    forward = 2 * layers * (prompt_tokens + tokens) + 2 * head * tokens
    alone = _pairs(config, work.prompt)
    forward += (
        per_pair * prompts * (alone + work.group * (_pairs(config, work.prompt + work.completion) - alone))
    )
    if program.phase != "update":
        return forward
    gradient = forward * (2 if config.lora else 3)
    return gradient + (forward if program.player == "simulator" else 0)


def recomputed(program: Program, work: Work, config: TransformerConfig) -> float:
    """Operations of all chips that `flops` excludes: the forward pass that remat repeats for the gradient."""
    if program.phase != "update" or config.remat not in ("full", "offload"):
        return 0.0
    passes = (2 if config.lora else 3) + (program.player == "simulator")
    return flops(program, work, config) / passes


def least_seconds(program: Program, work: Work, config: TransformerConfig, mesh: Mesh, part: Slice) -> float:
    """The roofline: the time for a chip's operations or bytes at its published rates, whichever is longer.

    It excludes collectives and activations, so it is a bound, not a forecast.
    """
    operations, bandwidth = part.peaks
    computed = flops(program, work, config) + recomputed(program, work, config)
    moved = memory_traffic(program, work, config, mesh)
    return max(computed / part.chips / operations, moved / bandwidth)


def memory_traffic(program: Program, work: Work, config: TransformerConfig, mesh: Mesh) -> float:
    """Least bytes that one chip moves between its memory and its cores, with all rows at full length.

    Counts weights in the compute dtype once per pass (gathered over "fsdp" in a pass over prompts, only
    the chip's own part in a decoding step), keys and values that decoding reads, and in an update the
    float32 train state and gradient, read once and written once.  Activations are not counted.
    """
    layers, head = _sizes(config)
    width = jax.numpy.dtype(config.dtype).itemsize
    rows, tensor = mesh.shape["data"] * mesh.shape["fsdp"], mesh.shape["tensor"]
    gathered = width * layers / tensor
    own_head = width * head / (tensor * mesh.shape["fsdp"])
    if program.phase == "sample":
        if not program.steps:
            return gathered + own_head
        kv_parts = rows * math.gcd(tensor, config.num_kv_heads)
        token = 2 * width * config.num_kv_heads * config.head_dim
        tokens = _cached(config, work.prompt) + (work.lanes or work.group) * _cached(config, work.completion)
        cache = program.prompts * token * tokens / kv_parts
        return program.steps * (gathered / mesh.shape["fsdp"] + own_head + cache)
    if program.phase == "score":
        return gathered + own_head
    passes = 4 if program.player == "simulator" else 3  # forward, recomputed forward, backward
    weights = work.micro_batches * passes * (gathered + own_head)
    if config.lora:
        return weights
    return weights + 2 * 4 * 4 * (layers + 2 * head) / (tensor * mesh.shape["fsdp"])
