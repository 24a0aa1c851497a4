"""A second sampler: it rereads the whole text for each token, without a cache, slots or chunks."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from genenv_jax.models.config import TransformerConfig
from genenv_jax.models.transformer import Transformer
from genenv_jax.sampling.decoding import row_keys
from genenv_jax.sampling.draw import SamplingParams, next_token
from genenv_jax.sampling.sampler import Rollouts, ignore, pad_rows


@dataclasses.dataclass(frozen=True)
class Uncached:
    """A `Sampler` that takes the place of `EpisodeEngine`."""

    config: TransformerConfig
    options: SamplingParams
    batch_size: int
    prompt_buckets: tuple[int, ...]
    put: Callable[[Any], Any] = jax.device_put
    lanes: int = 0
    episode: int = 0
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    cache_bytes = 0

    def drawing(self, **options):
        return dataclasses.replace(self, options=dataclasses.replace(self.options, **options))

    def warm_up(self, params, episodes=False):
        return []

    def __call__(self, params, prompts, key, *, on_completion=ignore):
        rollouts, g = Rollouts.empty(prompts, self.options), self.options.group_size
        width = self.prompt_buckets[-1] + self.options.max_new_tokens
        for i, prompt in enumerate(prompts):
            ids = np.arange(i * g, (i + 1) * g, dtype=np.uint32)[None]
            texts, left = np.tile(pad_rows([prompt], width, 1)[0], (1, g, 1)), set(range(g))
            for step in range(self.options.max_new_tokens):
                given = self.put((texts, np.int32(len(prompt)), np.int32(step), ids))
                token, logprob = jax.device_get(
                    _next(params, *given, key, config=self.config, options=self.options)
                )
                for j in sorted(left):
                    texts[0, j, len(prompt) + step] = rollouts.tokens[i, j, step] = token[0, j]
                    rollouts.logprobs[i, j, step] = logprob[0, j]
                    rollouts.lengths[i, j] = step + 1
                    rollouts.done[i, j] = done = token[0, j] in self.options.eos_ids
                    if done or step + 1 == self.options.max_new_tokens:
                        left.remove(j)
                        on_completion(rollouts.completion(i, j))
                texts = texts.copy()  # the device may still read the one before
                if not left:
                    break
        return rollouts


@functools.partial(jax.jit, static_argnames=("config", "options"))
def _next(params, texts, length, step, ids, key, *, config, options):
    """The next token and its log-prob (1, g) of texts (1, g, t) after `length` + `step` tokens."""
    model, variables = Transformer(config), {"params": params}
    rows = texts.reshape(-1, 1, texts.shape[-1])
    hidden, _ = model.apply(variables, rows, jnp.broadcast_to(jnp.arange(rows.shape[-1]), rows.shape))
    logits = model.apply(variables, jnp.take(hidden[:, 0], length + step - 1, axis=1)[None], method="logits")
    return next_token(logits, row_keys(key, ids), jnp.full(ids.shape, step), options)
