"""What the parts of a decoding step take by themselves, on the pieces that the sampler itself uses.

    products    all layers' projections on the rows of a step, their weights read from memory
    attention   one query a row over caches of the step's size, all layers
    logits      the output projection
    draw        a token of each row's logits, and its log-prob

What a step takes beyond them is norms, rotations, activations, writing to the cache and bookkeeping.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import protocol
from workloads import Work

from genenv_jax.models.attention_decode import decode_attention
from genenv_jax.models.config import TransformerConfig
from genenv_jax.models.transformer import Transformer
from genenv_jax.sampling import cache, decoding
from genenv_jax.sampling.draw import SamplingParams, next_token
from genenv_jax.typing import Array, Params

_REPEATS, _CALLS = 3, 4


def part_seconds(params: Params, config: TransformerConfig, work: Work) -> dict[str, float]:
    """CPU seconds of each part, the least of some repetitions; layers are unrolled, as on CPUs."""
    b, g, d = work.prompts, work.group, config.hidden_size
    keys = jax.random.split(jax.random.key(0), 4)
    kernels = _kernels(decoding.prepare(params, config=config).decoding)
    rows = {k.shape[0]: jax.random.normal(keys[0], (b * g, k.shape[0])) for k in kernels}
    hidden = jax.random.normal(keys[1], (b, g, d), config.dtype)
    logits = jax.random.normal(keys[2], (b, g, config.vocab_size), jnp.float32)
    options = SamplingParams(work.new, g, eos_ids=())
    row_keys, step = jax.random.split(keys[3], (b, g)), jnp.ones((b, g), jnp.int32)
    return {
        "products": _least(jax.jit(_products), kernels, rows),
        "attention": _least(*_attention(config, work, keys[0])),
        "logits": _least(jax.jit(_head(config)), {"params": params}, hidden),
        "draw": _least(jax.jit(lambda *args: next_token(*args, options)), logits, row_keys, step),
    }


def read_rate(megabytes: int = 512) -> float:
    """Bytes a second at which a core reads an array that no cache holds."""
    x = np.ones(megabytes * 2**18, np.float32)
    np.dot(x, x)
    return x.nbytes / min(protocol.timed(lambda: float(np.dot(x, x)))["cpu"] for _ in range(3))


def _kernels(layers: Any) -> list[Array]:
    """All layers' projections as (inputs, outputs)."""
    found = []
    for path, kernel in jax.tree_util.tree_leaves_with_path(layers):
        *_, module, name = (str(getattr(part, "key", part)) for part in path)
        if name == "kernel":
            inputs = kernel.shape[:-1] if module == "o" else kernel.shape[:1]
            found.append(kernel.reshape(int(np.prod(inputs)), -1))
    return found


def _products(kernels: list[Array], rows: dict[int, Array]) -> Array:
    # A maximum of each: all of a product is needed, and hardly anything is written.
    return jnp.stack([jnp.max(rows[k.shape[0]].astype(k.dtype) @ k) for k in kernels])


def _attention(config: TransformerConfig, work: Work, key: Array) -> tuple[Callable, Any, Array]:
    """A function with its arguments."""
    b, g, own = work.prompts, work.group, max(1, work.new // 2)
    caches = [cache.empty(config, b, 1, work.prompt), cache.empty(config, b, g, own)]
    lengths = jnp.asarray(work.prompt_lengths())
    q = jax.random.normal(key, (b, g, 1, config.num_heads, config.head_dim), config.dtype)

    def attend(caches: Any, q: Array) -> Array:
        prompt_mask = (jnp.arange(work.prompt) < lengths[:, None])[:, None, None]
        masks = prompt_mask, jnp.ones((b, g, 1, own), bool)
        kv = q[..., : config.num_kv_heads, :]
        out = [
            decode_attention(q, kv, kv, list(zip(layer, masks, strict=True)))
            for layer in zip(*caches, strict=True)
        ]
        return jnp.stack([jnp.max(x) for x in out])

    return jax.jit(attend), caches, q


def _head(config: TransformerConfig) -> Callable:
    return lambda variables, x: Transformer(config).apply(variables, x, method="logits")


def _least(function: Callable, *args: Any) -> float:
    jax.block_until_ready(function(*args))

    def calls() -> None:
        jax.block_until_ready([function(*args) for _ in range(_CALLS)])

    return min(protocol.timed(calls)["cpu"] for _ in range(_REPEATS)) / _CALLS
