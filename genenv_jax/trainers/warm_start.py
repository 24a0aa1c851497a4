"""Supervised training of a model before the co-evolution."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence

import jax
import numpy as np

from genenv_jax.benchmarks.base import Message
from genenv_jax.models.language_model import LanguageModel
from genenv_jax.models.scoring import CompletionBatch
from genenv_jax.players import learner
from genenv_jax.players.optimizer import OptimizerConfig, make_optimizer
from genenv_jax.players.prompts import LimitsConfig
from genenv_jax.run.progress import Progress
from genenv_jax.sampling.engine import pad_rows
from genenv_jax.settings import Settings, within
from genenv_jax.typing import Params


@dataclasses.dataclass(frozen=True)
class WarmStartConfig(Settings):
    """`config.warm_start`: supervised training of a made model before the co-evolution; 0 steps: none."""

    steps: int = within(0, 0)
    batch_size: int = within(64, 1)
    learning_rate: float = within(3e-3, 0)
    warmup_steps: int = within(50, 0)


def train(
    c: WarmStartConfig,
    limits: LimitsConfig,
    pairs: Iterable[tuple[Sequence[Message], str]],
    model: LanguageModel,
    params: Params,
) -> Params:
    """`steps` steps of maximum likelihood on (messages, completion) pairs, each used once.

    Pairs that exceed the limits are left out.

    Returns:
      the trained parameters, on the host.
    Raises:
      ValueError: the loss is not finite in the end.
    """
    if not c.steps:
        return params
    optimizer = make_optimizer(
        OptimizerConfig(c.learning_rate, min(c.warmup_steps, c.steps // 2), c.steps, b2=0.98)
    )
    state = learner.init_state(params, optimizer)
    step = learner.make_supervised_step(model.config, optimizer)
    widths = (
        max(limits.agent_prompt, limits.simulator_prompt),
        max(limits.agent_response, limits.simulator_response),
    )

    def encoded():
        for messages, completion in pairs:
            prompt = model.encode_messages(messages)
            answer = [*model.encode(completion), model.eos_ids[0]]
            if len(prompt) <= widths[0] and len(answer) <= widths[1]:
                yield prompt, answer

    examples = encoded()
    with Progress(0).phase("train base model", c.steps, "steps") as phase:
        for _ in range(c.steps):
            prompts, answers = zip(*itertools.islice(examples, c.batch_size), strict=True)
            prompt_tokens, prompt_lengths = pad_rows(prompts, widths[0], c.batch_size)
            tokens, lengths = pad_rows(answers, widths[1], c.batch_size)
            batch = CompletionBatch(
                prompt_tokens, prompt_lengths, tokens[:, None], lengths[:, None]
            )
            state, metrics = step(state, {}, batch)
            phase.advance()
    loss = float(metrics["loss"])
    if not np.isfinite(loss):
        raise ValueError(
            f"the warm start diverged (loss {loss}): lower config.warm_start.learning_rate"
        )
    return jax.device_get(state.params)
