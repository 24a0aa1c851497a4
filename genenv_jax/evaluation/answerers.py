"""Who answers in an evaluation: something that turns conversations into texts.

`EngineAnswerer` samples from a model on this machine's devices; `genenv_jax.evaluation.endpoint` asks a
server.  What follows is the same for both.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
import numpy as np

from genenv_jax.benchmarks.base import Message
from genenv_jax.models.language_model import LanguageModel
from genenv_jax.parallel import processes
from genenv_jax.sampling.engine import Engine
from genenv_jax.typing import Params, PRNGKey

# (conversation, sample, the completion, whether it ended by itself)
OnAnswer = Callable[[int, int, Any, bool], None]


class Answerer(Protocol):
    """What an evaluation needs of a model.

    Attributes:
      samples: answers to each conversation.
      at_once: how many conversations are worth asking about together.
    """

    samples: int
    at_once: int

    def answer(self, conversations: Sequence[list[Message]], on_answer: OnAnswer) -> None:
        """Answers every conversation `samples` times; `on_answer` takes each as it is finished."""

    def answer_turn(
        self, conversations: Sequence[list[Message]], turn: int, on_answer: OnAnswer
    ) -> None:
        """Answers every conversation once: the turn `turn` (from 0) of a round of episodes."""

    def fits(self, conversation: list[Message]) -> bool:
        """Whether a conversation is short enough to be answered."""

    def text(self, completion: Any) -> str:
        """A completion as text.  Called from several threads."""


@dataclasses.dataclass(frozen=True)
class EngineAnswerer:
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

    def answer(self, conversations: Sequence[list[Message]], on_answer: OnAnswer) -> None:
        """See `Answerer`.  Raises ValueError for a conversation that does not fit."""
        prompts = [self.model.encode_messages(messages) for messages in conversations]
        self.engine(self.params, prompts, self.key, on_finished=on_answer)

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
