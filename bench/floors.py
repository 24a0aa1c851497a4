"""What a work costs at least: its matrix products' FLOPs, and bytes for the accelerators' roofline.

A multiply and an add are two FLOPs.  A floor counts what no exact method avoids: every prompt once, however
many completions it has; causal attention; logits only where they are used; and a backward pass of twice the
forward one.  Softmax, norms, rotations and the optimiser count zero, so no engine reaches a floor.
"""

from collections.abc import Mapping

import numpy as np
from workloads import Work


def token_flops(size: Mapping[str, int]) -> int:
    """FLOPs of one token through all layers' projections; no attention, no head."""
    d, f, h = size["hidden_size"], size["intermediate_size"], _head_dim(size)
    q, kv = size["num_attention_heads"] * h, size["num_key_value_heads"] * h
    return size["num_hidden_layers"] * 2 * (d * q + 2 * d * kv + q * d + 3 * d * f)


def head_flops(size: Mapping[str, int]) -> int:
    """FLOPs of the logits of one token."""
    return 2 * size["hidden_size"] * size["vocab_size"]


def attention_flops(size: Mapping[str, int], pairs: float) -> float:
    """FLOPs of `pairs` (query, key) pairs in all layers and heads: the scores and the weighted sum."""
    width = size["num_attention_heads"] * _head_dim(size)
    return 4.0 * size["num_hidden_layers"] * width * pairs


def _head_dim(size: Mapping[str, int]) -> int:
    return size.get("head_dim") or size["hidden_size"] // size["num_attention_heads"]


def update_flops(size: Mapping[str, int], work: Work, trained: bool = True) -> float:
    """FLOPs of a GRPO step on full-length completions.

    trained: whether projections and head are trained.  Frozen under adapters, they pass the gradient on
    but have none of their own; the adapters' own products are not counted.
    """
    projections, attention = _forward(size, work, np.full((work.prompts, work.group), work.new))
    return projections * (3 if trained else 2) + attention * 3


def work_flops(size: Mapping[str, int], work: Work) -> float:
    """FLOPs of a work; a pass over tokens costs the same, sampled or given."""
    if work.kind == "grpo":
        return update_flops(size, work)
    full = np.full((work.prompts, work.group), work.new)
    return sum(_forward(size, work, work.lengths() if work.kind == "ragged" else full))


def _forward(size: Mapping[str, int], work: Work, lengths: np.ndarray) -> tuple[float, float]:
    """FLOPs of a forward pass over prompts and completions: weights' products, attention's products.

    The last token of a completion is not processed; the prompt's last hidden state, computed
    once a group, predicts the first.  lengths: (prompts, group), at least 1.
    """
    p, passed = work.prompt_lengths()[:, None].astype(float), lengths - 1.0
    tokens = p.sum() + passed.sum()
    pairs = (p * (p + 1) / 2).sum() + (passed * p + passed * (passed + 1) / 2).sum()
    predicting = work.prompts + passed.sum()
    weights = tokens * token_flops(size) + predicting * head_flops(size)
    return weights, attention_flops(size, pairs)


def parameters(size: Mapping[str, int]) -> int:
    """Parameters in matrix products and the embedding table, tied; biases and norms are left out."""
    return token_flops(size) // 2 + size["hidden_size"] * size["vocab_size"]


def decode_step_bytes(
    size: Mapping[str, int], prompts: int, rows: int, prompt: int, generated: float
) -> float:
    """Bytes that one decoding step in bfloat16 must read: weights once, a prompt's cache once a group.

    generated: tokens in a row's own cache at that step.  The embedding is read as the head only if the
    two are tied, and a lookup's few rows are not counted; either way it is one table.
    """
    layers = size["num_hidden_layers"]
    local = layers - layers // size.get("sliding_window_pattern", 1)  # layers with a sliding window

    def tokens(count: float) -> float:  # in all layers together
        return (layers - local) * count + local * min(count, size.get("sliding_window", count))

    wide = 2 * size["num_key_value_heads"] * _head_dim(size)
    cached = wide * (prompts * tokens(prompt) + rows * tokens(generated))
    return 2 * (parameters(size) + cached)
