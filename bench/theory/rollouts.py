"""Rollouts of tasks and whether they succeeded, in stages that share no random number."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from genenv_jax.benchmarks.base import Benchmark, Task
from genenv_jax.models.language_model import LanguageModel
from genenv_jax.sampling.draw import SamplingParams
from genenv_jax.sampling.engine import Engine, Rollouts
from genenv_jax.scoring.requests import SCORE
from genenv_jax.scoring.scorer import Scorer
from genenv_jax.typing import Params, PRNGKey

_AT_ONCE = 32  # samples of a prompt that are drawn together
_ROWS = 640  # samples that decode at the same time

# Completions of T tasks, and (T, count) float: 1 for a success.
Sampled = tuple[Rollouts, np.ndarray]


@dataclasses.dataclass
class Sampler:
    """Samples from one policy at temperature 1.

    A sample depends on its place in the list of all that were ever drawn, and every call goes on where
    the one before ended.  So what a task is chosen by, what its success rate is estimated from and what
    is measured on it are independent.

    Attributes:
      model, params: the policy.
      benchmark: writes the prompts and scores.
      scorer: scores while the device goes on.
      limit: longest completion, tokens.
      buckets: prompt widths that are compiled.
      key: of the draws.
      drawn: prompts so far.
    """

    model: LanguageModel
    params: Params
    benchmark: Benchmark
    scorer: Scorer
    limit: int
    buckets: tuple[int, ...]
    key: PRNGKey
    drawn: int = 0

    def __call__(
        self, tasks: Sequence[Task], count: int, advance: Callable[[], object] = lambda: None
    ) -> Sampled:
        """Draws `count` rollouts of each task; `advance` is called for each one that is finished."""
        times = -(-count // _AT_ONCE)
        messages = map(self.benchmark.agent_messages, tasks)
        prompts = [prompt for m in messages for prompt in [self.model.encode_messages(m)] * times]
        scores = self.scorer.batch()

        def finished(row: int, sample: int, tokens: list[int], done: bool) -> None:
            del done  # an answer that was cut off is scored as it stands
            place = row % times * _AT_ONCE + sample
            if place < count:
                scores.add((row // times, place), tokens, SCORE, tasks[row // times])
                advance()

        options = SamplingParams(self.limit, _AT_ONCE, self.model.eos_ids)
        engine = Engine(self.model.config, options, _ROWS // _AT_ONCE, self.buckets)
        drawn = engine(self.params, prompts, self.key, first_row=self.drawn, on_completion=finished)
        self.drawn += len(prompts)
        successes = np.zeros((len(tasks), count))
        for (i, j), (_, score) in scores.collect().items():
            successes[i, j] = score.success

        def by_task(array: np.ndarray) -> np.ndarray:
            return array.reshape(len(tasks), times * _AT_ONCE, *array.shape[2:])[:, :count]

        arrays = (drawn.tokens, drawn.lengths, drawn.logprobs, drawn.done)
        return Rollouts(prompts[::times], *map(by_task, arrays)), successes
