"""The interface of samplers: tokens in; tokens and their log-probs out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from genenv_jax.models.config import TransformerConfig
from genenv_jax.models.scoring import CompletionBatch
from genenv_jax.sampling.draw import SamplingParams
from genenv_jax.typing import Params, PRNGKey, WarmUp

_ARRAYS = ("tokens", "lengths", "logprobs", "done", "loss_mask")  # of `Rollouts`
Key = tuple[int, int]  # row, sample


@dataclasses.dataclass(frozen=True)
class Completion:
    """A finished completion, on its way from its writer to its score.

    Attributes:
      row, sample: index of its prompt, and its index among the completions of the prompt.
      content: token ids, including the end token; from a server, text.
      ended: whether it ended by itself, rather than at the token limit.
    """

    row: int
    sample: int
    content: Any
    ended: bool

    @property
    def key(self) -> Key:
        return self.row, self.sample


OnCompletion = Callable[[Completion], object]


def ignore(completion: Completion) -> None:
    """An `OnCompletion` for callers that need completions only at the end."""


def bucket(length: int, buckets: Sequence[int], what: str) -> int:
    """The smallest of the ascending `buckets` that holds `length`.

    Raises ValueError, naming `what`, if none does.
    """
    for size in buckets:
        if length <= size:
            return size
    raise ValueError(f"{what} has {length} tokens, the limit is {buckets[-1]}")


def pad_rows(rows: Sequence[Sequence[int]], width: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Right-pads token lists to an int32 array (count, width); returns the array and lengths (count,)."""
    tokens, lengths = np.zeros((count, width), np.int32), np.zeros(count, np.int32)
    for i, row in enumerate(rows):
        tokens[i, : len(row)] = row
        lengths[i] = len(row)
    return tokens, lengths


def take_samples(x: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Reorders samples: from x (n, g, ...), takes the samples `order` (n, h) of each row; (n, h, ...)."""
    return np.take_along_axis(x, order.reshape(*order.shape, *[1] * (x.ndim - 2)), axis=1)


@dataclasses.dataclass
class Rollouts:
    """Completions of N prompts, in prompt order; host arrays.

    prompts: N token lists.  tokens: (N, g, c) int32.  lengths: (N, g).  logprobs: (N, g, c) float32,
    under the raw sampling policy.  done: (N, g) bool, false where the token limit cut a row off.
    loss_mask: (N, g, c) bool, true at the sampled tokens of an episode; the others are observations, with
    log-prob 0.  None: all tokens were sampled.
    """

    prompts: list[list[int]]
    tokens: np.ndarray
    lengths: np.ndarray
    logprobs: np.ndarray
    done: np.ndarray
    loss_mask: np.ndarray | None = None

    @property
    def num_generated(self) -> np.ndarray:
        """(N, g) number of sampled tokens; `lengths` also counts an episode's observations."""
        return self.lengths if self.loss_mask is None else self.loss_mask.sum(axis=-1)

    @classmethod
    def empty(cls, prompts: Sequence[Sequence[int]], options: SamplingParams, length: int = 0) -> Rollouts:
        """Rollouts with no tokens yet.  length: maximum tokens of an episode; 0: single completions."""
        n, g, c = len(prompts), options.group_size, length or options.max_new_tokens
        return cls(
            [list(prompt) for prompt in prompts],
            np.zeros((n, g, c), np.int32),
            np.zeros((n, g), np.int32),
            np.zeros((n, g, c), np.float32),
            np.zeros((n, g), bool),
            np.zeros((n, g, c), bool) if length else None,
        )

    def _map(self, function: Callable[..., np.ndarray], *others: Rollouts) -> dict[str, Any]:
        """Applies `function` to each array of this and the same arrays of `others`."""
        return {
            name: function(*(getattr(x, name) for x in (self, *others)))
            for name in _ARRAYS
            if getattr(self, name) is not None
        }

    def arrays(self) -> dict[str, np.ndarray]:
        """All fields as arrays by name, for storage; the prompts are padded."""
        longest = max(map(len, self.prompts), default=0)
        prompts, lengths = pad_rows(self.prompts, longest, len(self))
        return {"prompts": prompts, "prompt_lengths": lengths, **self._map(lambda x: x)}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Rollouts:
        """Inverse of `arrays`; ignores any other arrays."""
        prompts = zip(arrays["prompts"].tolist(), arrays["prompt_lengths"], strict=True)
        kept = {name: arrays[name] for name in _ARRAYS if name in arrays}
        return cls([tokens[:n] for tokens, n in prompts], **kept)

    @classmethod
    def concat(cls, parts: Sequence[Rollouts], axis: int = 0) -> Rollouts:
        """Joins rollouts along the prompts (0), or along the samples (1) of the same prompts."""
        first, *rest = parts
        if not rest:
            return first
        prompts = first.prompts if axis else [prompt for part in parts for prompt in part.prompts]
        return cls(prompts, **first._map(lambda *x: np.concatenate(x, axis), *rest))

    def __len__(self) -> int:
        return len(self.prompts)

    @property
    def token_count(self) -> int:
        """Tokens of all prompts (each counted once) and completions."""
        return sum(map(len, self.prompts)) + int(self.lengths.sum())

    def completion(self, i: int, j: int) -> Completion:
        """Completion j of prompt i."""
        tokens = self.tokens[i, j, : self.lengths[i, j]].tolist()
        return Completion(i, j, tokens, bool(self.done[i, j]))

    def take(self, rows: Sequence[int]) -> Rollouts:
        """The rollouts of the prompts `rows`."""
        rows = list(rows)
        return Rollouts([self.prompts[i] for i in rows], **self._map(lambda x: x[rows]))

    def only(self, kept: np.ndarray) -> Rollouts:
        """A copy in which completions are empty where `kept` (N, g) is false."""
        return dataclasses.replace(self, lengths=np.where(kept, self.lengths, 0))

    def samples(self, order: np.ndarray) -> Rollouts:
        """The samples `order` (N, h) of each prompt, in that order."""
        return dataclasses.replace(self, **self._map(lambda x: take_samples(x, order)))

    def cut(self, widths: Sequence[int]) -> Rollouts:
        """A copy cut to the smallest of the ascending widths that holds all completions."""
        width = bucket(int(self.lengths.max()), widths, "a completion")
        return dataclasses.replace(self, **self._map(lambda x: x[..., :width] if x.ndim == 3 else x))

    def batch(self, prompt_buckets: Sequence[int], count: int) -> CompletionBatch:
        """One training batch of `count` prompts: padded with empty rows, prompts in the smallest bucket."""
        width = bucket(max(map(len, self.prompts)), prompt_buckets, "a prompt")
        prompts, prompt_lengths = pad_rows(self.prompts, width, count)
        pad = count - len(self)
        return CompletionBatch(
            prompts,
            np.maximum(prompt_lengths, 1),
            np.pad(self.tokens, [(0, pad), (0, 0), (0, 0)]),
            np.pad(self.lengths, [(0, pad), (0, 0)]),
            None if self.loss_mask is None else np.pad(self.loss_mask, [(0, pad), (0, 0), (0, 0)]),
        )


class Sampler(Protocol):
    """Draws completions of prompts: a frozen dataclass, with the attributes of `episodes.EpisodeEngine`,
    most of which are described in `engine.Engine`.
    """

    config: TransformerConfig
    options: SamplingParams
    batch_size: int
    prompt_buckets: tuple[int, ...]
    episode: int
    seconds: dict[str, float]
    cache_bytes: int

    def drawing(self, **options: Any) -> Sampler:
        """The same sampler with other `options`."""

    def __call__(
        self,
        params: Params,
        prompts: Sequence[Sequence[int]],
        key: PRNGKey,
        *,
        on_completion: OnCompletion = ignore,
    ) -> Rollouts:
        """Samples completions of every prompt; see `engine.Engine`."""

    def play(
        self, params: Params, prompts: Sequence[Sequence[int]], environments: Any, key: PRNGKey
    ) -> Rollouts:
        """Plays episodes from every prompt; see `episodes.EpisodeEngine`."""

    def warm_up(self, params: Callable[[], Params], episodes: bool = False) -> list[WarmUp]:
        """Steps that compile every program of a call, or of `play`; `params` is called when one runs."""
