"""A policy: a model and its sampler as an `Answerer`, something that turns conversations into texts."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import jax
import numpy as np

from genenv_jax.benchmarks.base import Message
from genenv_jax.models.language_model import LanguageModel
from genenv_jax.parallel import processes
from genenv_jax.sampling.engine import Engine, Rollouts
from genenv_jax.scoring.attempts import OnAnswer
from genenv_jax.typing import Params, PRNGKey


@dataclasses.dataclass(frozen=True)
class Policy:
    """Samples from a model with an `Engine`.

    Attributes:
      model: tokenizer and chat template.
      engine: the sampler, whose group size is the number of samples.
      params: parameters of the decoder.
      key: of the draws; an answer depends on its conversation's place and sample, and on the turn.
    """

    model: LanguageModel
    engine: Engine
    params: Params
    key: PRNGKey

    @property
    def samples(self) -> int:
        """See `Answerer`."""
        return self.engine.options.group_size

    @property
    def at_once(self) -> int:
        """See `Answerer`."""
        return self.engine.batch_size

    @functools.cached_property
    def turns(self) -> Engine:
        """The engine that draws one sample a conversation."""
        options = dataclasses.replace(self.engine.options, group_size=1)
        return dataclasses.replace(self.engine, options=options)

    def answer(self, conversations: Sequence[list[Message]], on_answer: OnAnswer) -> Rollouts:
        """See `Answerer`.  Raises ValueError for a conversation that does not fit."""
        prompts = [self.model.encode_messages(messages) for messages in conversations]
        return self.engine(self.params, prompts, self.key, on_finished=on_answer)

    def answer_turn(
        self, conversations: Sequence[list[Message]], turn: int, on_answer: OnAnswer
    ) -> None:
        """See `Answerer`.  Raises ValueError for a conversation that does not fit."""
        key = jax.random.fold_in(self.key, processes.put(np.uint32(turn + 1)))
        prompts = [self.model.encode_messages(messages) for messages in conversations]
        self.turns(self.params, prompts, key, on_finished=on_answer)

    def fits(self, conversation: list[Message]) -> bool:
        """See `Answerer`: its tokens against the largest prompt width."""
        return len(self.model.encode_messages(conversation)) <= self.engine.prompt_buckets[-1]

    def text(self, completion: Sequence[int]) -> str:
        """See `Answerer`."""
        return self.model.decode(completion)
