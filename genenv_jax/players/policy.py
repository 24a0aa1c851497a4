"""A policy: a model and its sampler behind the `ChatModel` interface."""

import contextlib
import dataclasses
import functools
from collections.abc import Sequence

import jax
import numpy as np

from genenv_jax.benchmarks.base import Message
from genenv_jax.models.language_model import LanguageModel
from genenv_jax.parallel import processes
from genenv_jax.players.conversations import Conversations
from genenv_jax.sampling.sampler import Rollouts, Sampler
from genenv_jax.scoring.attempts import Attempt, ChatModel
from genenv_jax.typing import Params, PRNGKey


@dataclasses.dataclass(frozen=True)
class Policy(ChatModel):
    """Samples from a model.

    sampler: its group size is the number of samples.
    key: PRNG key; an answer also depends on its conversation's index, its sample and the turn.
    """

    model: LanguageModel
    sampler: Sampler
    params: Params
    key: PRNGKey

    @property
    def samples(self) -> int:
        return self.sampler.options.group_size

    @property
    def max_concurrent(self) -> int:
        return self.sampler.batch_size

    @property
    def continues(self) -> bool:
        """See `ChatModel`: it has room for episodes, and a chat template that can continue them."""
        return bool(self.sampler.episode) and not self.model.why_not_continuable

    @functools.cached_property
    def turns(self) -> Sampler:
        """The sampler that draws one sample per conversation."""
        return self.sampler.drawing(group_size=1)

    def answer(self, conversations, on_completion, turn=None) -> Rollouts:
        """See `ChatModel`.  Raises ValueError for a conversation that does not fit."""
        prompts = [self.model.encode_messages(messages) for messages in conversations]
        sampler, key = self.sampler, self.key
        if turn is not None:
            sampler, key = self.turns, jax.random.fold_in(key, processes.put(np.uint32(turn + 1)))
        return sampler(self.params, prompts, key, on_completion=on_completion)

    def play(
        self, tasks, episodes, on_end, waiting=contextlib.nullcontext
    ) -> tuple[list[list[Attempt]], Rollouts]:
        """See `ChatModel`.  An episode that does not open, or whose opening does not fit, ends there."""
        played = Conversations(self.model, tasks, episodes, on_end, waiting)
        prompts = played.open(self.samples, self.max_concurrent, self.sampler.prompt_buckets[-1])
        rollouts = self.sampler.play(self.params, prompts, played, self.key)
        attempts = [[played.attempts[i, j] for j in range(self.samples)] for i in range(len(tasks))]
        return attempts, rollouts

    def fits(self, conversation: list[Message]) -> bool:
        """See `ChatModel`: whether its tokens fit the largest prompt width."""
        return self.tokens(conversation) <= self.sampler.prompt_buckets[-1]

    def tokens(self, conversation: list[Message]) -> int:
        return len(self.model.encode_messages(conversation))

    def text(self, completion: Sequence[int]) -> str:
        return self.model.decode(completion)
