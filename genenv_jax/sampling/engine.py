"""From lists of prompts to completions: batches of fixed shapes, so that nothing is ever recompiled."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from genenv_jax.models.config import TransformerConfig
from genenv_jax.models.scoring import CompletionBatch
from genenv_jax.parallel import processes
from genenv_jax.sampling.sampler import SamplingParams, sample
from genenv_jax.typing import Params, PRNGKey

# (prompt, sample, its tokens with the end token, whether it ended by itself)
OnFinished = Callable[[int, int, list[int], bool], None]


def ignore(prompt: int, sample: int, tokens: list[int], done: bool) -> None:
    """What becomes of a finished completion where nobody waits for it."""


def bucket(length: int, buckets: Sequence[int], what: str) -> int:
    """The smallest of the ascending `buckets` that holds `length`.

    Raises ValueError naming `what` where none does.
    """
    for size in buckets:
        if length <= size:
            return size
    raise ValueError(f"{what} has {length} tokens, the limit is {buckets[-1]}")


def pad_rows(
    rows: Sequence[Sequence[int]], width: int, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Right-pads token lists to an int32 array (count, width); returns it and the lengths (count,)."""
    tokens, lengths = np.zeros((count, width), np.int32), np.zeros(count, np.int32)
    for i, row in enumerate(rows):
        tokens[i, : len(row)] = row
        lengths[i] = len(row)
    return tokens, lengths


@dataclasses.dataclass
class Rollouts:
    """Completions of N prompts, in the order of the prompts; host arrays.

    prompts: N token lists.  tokens: (N, g, c) int32.  lengths: (N, g).  logprobs: (N, g, c) float32,
    of the raw policy that sampled.  done: (N, g) bool, false where the token limit cut a row off.
    """

    prompts: list[list[int]]
    tokens: np.ndarray
    lengths: np.ndarray
    logprobs: np.ndarray
    done: np.ndarray

    def __len__(self) -> int:
        return len(self.prompts)

    def completion(self, i: int, j: int) -> list[int]:
        """Tokens of one completion, its end token included."""
        return self.tokens[i, j, : self.lengths[i, j]].tolist()

    def take(self, rows: Sequence[int]) -> Rollouts:
        """The rollouts of some of the prompts."""
        rows = list(rows)
        arrays = (x[rows] for x in (self.tokens, self.lengths, self.logprobs, self.done))
        return Rollouts([self.prompts[i] for i in rows], *arrays)

    def batch(self, prompt_buckets: Sequence[int], count: int) -> CompletionBatch:
        """As one training batch of `count` prompts, empty rows added, prompts in the smallest bucket."""
        width = bucket(max(map(len, self.prompts)), prompt_buckets, "a prompt")
        prompts, prompt_lengths = pad_rows(self.prompts, width, count)
        pad = count - len(self)
        return CompletionBatch(
            prompts,
            np.maximum(prompt_lengths, 1),
            np.pad(self.tokens, [(0, pad), (0, 0), (0, 0)]),
            np.pad(self.lengths, [(0, pad), (0, 0)]),
        )


@dataclasses.dataclass(frozen=True)
class Engine:
    """Samples any number of prompts in batches of `batch_size`.

    Attributes:
      config: of the decoder.
      options: of the sampler.
      batch_size: prompts a batch; a last, smaller batch is filled with empty rows.
      prompt_buckets: ascending prompt widths; each is compiled once.
      put: places a batch's host arrays on the devices.
    """

    config: TransformerConfig
    options: SamplingParams
    batch_size: int
    prompt_buckets: tuple[int, ...]
    put: Callable[[Any], Any] = lambda x: x

    def __call__(
        self,
        params: Params,
        prompts: Sequence[Sequence[int]],
        key: PRNGKey,
        first_row: int = 0,
        on_finished: OnFinished = ignore,
    ) -> Rollouts:
        """Samples g completions of every prompt.

        Args:
          params: parameters of the decoder.
          prompts: N token lists.
          key: typed key; the j-th sample of prompt i has row id (first_row + i) * g + j, whatever the
            batches are, so a sample depends on its prompt's place in the list and on nothing else.
          on_finished: called for each completion as it is finished, while the device goes on, in an
            order that is the same in every process.
        Raises:
          ValueError: a prompt is empty or longer than the largest bucket.
        """
        g, c, n = self.options.group_size, self.options.max_new_tokens, len(prompts)
        result = Rollouts(
            [list(prompt) for prompt in prompts],
            np.zeros((n, g, c), np.int32),
            np.zeros((n, g), np.int32),
            np.zeros((n, g, c), np.float32),
            np.zeros((n, g), bool),
        )
        widths = [bucket(len(p), self.prompt_buckets, f"prompt {i}") for i, p in enumerate(prompts)]
        if not all(prompts):
            raise ValueError(f"prompt {[len(p) for p in prompts].index(0)} is empty")
        # Prompts of one bucket go together; the order within a bucket stays.
        order = sorted(range(n), key=lambda i: widths[i])
        for width in sorted(set(widths)):
            rows = [i for i in order if widths[i] == width]
            for start in range(0, len(rows), self.batch_size):
                part = rows[start : start + self.batch_size]
                tokens, lengths = pad_rows([prompts[i] for i in part], width, self.batch_size)
                index = np.zeros(self.batch_size, np.int64)
                index[: len(part)] = part
                row_ids = ((first_row + index)[:, None] * g + np.arange(g)).astype(np.uint32)
                samples = sample(
                    params,
                    *self.put((tokens, lengths)),
                    key,
                    self.put(row_ids),
                    config=self.config,
                    options=self.options,
                )
                samples = processes.fetch(samples)
                count = len(part)
                result.tokens[part] = samples.tokens[:count]
                result.lengths[part] = samples.lengths[:count]
                result.logprobs[part] = samples.logprobs[:count]
                result.done[part] = samples.done[:count]
                for i in part:
                    for j in range(g):
                        on_finished(i, j, result.completion(i, j), bool(result.done[i, j]))
        return result
