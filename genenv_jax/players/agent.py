"""The agent π_agent: attempts tasks in groups of rollouts and learns from them by GRPO."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from genenv_jax.benchmarks.base import TOO_LONG, Benchmark, Rejection, Task
from genenv_jax.config import prompt_buckets
from genenv_jax.metrics import EpochMeans
from genenv_jax.models.language_model import LanguageModel
from genenv_jax.players import learner
from genenv_jax.players.player import Player, Reference
from genenv_jax.players.residency import Residency
from genenv_jax.rl.advantages import group_advantages
from genenv_jax.rl.grpo import GRPOConfig
from genenv_jax.sampling.draw import SamplingParams
from genenv_jax.sampling.engine import Engine, OnFinished, Rollouts, ignore
from genenv_jax.typing import Params, PRNGKey


class Agent(Player):
    """The agent's model, state and compiled functions.

    Args:
      model, trained, reference, residency, put: see `Player`.
      config: the run's configuration.
    """

    def __init__(
        self,
        model: LanguageModel,
        trained: Params,
        reference: Reference,
        config: ConfigDict,
        residency: Residency,
        put: Callable[[Any], Any],
    ):
        c = config.agent
        super().__init__(model, trained, reference, c, residency, put, config.memory.moments)
        self.buckets = prompt_buckets(config, config.limits.agent_prompt)
        options = SamplingParams(
            config.limits.agent_response, c.group_size, model.eos_ids, temperature=c.temperature
        )
        at_once = config.sampling.batch_size or c.batch_size
        lanes = config.sampling.lanes
        self.engine = Engine(model.config, options, at_once, self.buckets, put, lanes)
        names = ("clip_low", "clip_high", "dual_clip", "kl_coef", "kl_estimator", "entropy_coef")
        loss = GRPOConfig(**{k: c[k] for k in names}, aggregation=c.aggregation)
        self._step = learner.make_grpo_step(model.config, loss, self.optimizer, c.micro_batches)

    def prompt(self, benchmark: Benchmark, task: Task) -> list[int]:
        """Token ids from which the agent answers a task."""
        return self.model.encode_messages(benchmark.agent_messages(task))

    def check_length(self, benchmark: Benchmark, task: Task) -> Rejection | None:
        """A rejection where the task's prompt is longer than the agent reads."""
        length, limit = len(self.prompt(benchmark, task)), self.buckets[-1]
        return (
            Rejection(TOO_LONG, f"{length} prompt tokens, limit {limit}")
            if length > limit
            else None
        )

    def rollout(
        self,
        benchmark: Benchmark,
        tasks: Sequence[Task],
        key: PRNGKey,
        on_finished: OnFinished = ignore,
    ) -> Rollouts:
        """Groups of answers to every task, in the order of the tasks."""
        prompts = [self.prompt(benchmark, task) for task in tasks]
        self.enter("sample")
        return self.engine(self.params, prompts, key, on_finished=on_finished)

    def update(self, rollouts: Rollouts, rewards: np.ndarray) -> dict[str, float]:
        """One pass (or `update_epochs`) of GRPO over a batch of rollouts.

        Args:
          rollouts: of T tasks, as this agent sampled them since its last update.
          rewards: (T, g), R_agent of each rollout.
        Returns:
          metrics averaged over the optimiser steps; "sampler_trainer_logp_gap" is that of the first
          step, before the parameters have moved, so it is rounding and nothing else.
        """
        c = self.config
        advantages = group_advantages(rewards, scale=c.advantage_scale, ddof=c.advantage_ddof)
        batches = [
            self._batch(rollouts, advantages, range(start, start + c.minibatch_size))
            for start in range(0, len(rollouts), c.minibatch_size)
        ]
        batches = self._scored(batches)
        self.enter("update")
        means, gap = EpochMeans(), None
        for _ in range(c.update_epochs):
            for batch in batches:
                self.state, metrics = self._step(self.state, self.frozen, batch)
                gap = metrics["sampler_trainer_logp_gap"] if gap is None else gap
                means.update(metrics)
        result = means.compute() | {"sampler_trainer_logp_gap": float(jax.device_get(gap))}
        learner.check_finite(result, "the agent's update")
        return result

    def warm_up(self) -> None:
        """Compiles what `rollout` and `update` may run, for every prompt width that is planned."""
        self.enter("sample")
        self.engine.warm_up(self.params)
        if not self.config.train:
            return
        nothing = [Rollouts.empty([[0] * width], self.engine.options) for width in self.buckets]
        advantages = np.zeros((1, self.config.group_size))
        batches = self._scored([self._batch(part, advantages, range(1)) for part in nothing])
        self.enter("update")
        for batch in batches:
            self._step.lower(self.state, self.frozen, batch).compile()

    def _scored(self, batches: list[learner.GRPOBatch]) -> list[learner.GRPOBatch]:
        """The batches with the reference's log-probs."""
        # Without a KL term the reference is not needed, and scoring with it would be waste.
        if not self.config.kl_coef:
            return batches
        self.enter("score")
        return [
            batch._replace(ref_logp=self.reference.logprobs(batch.rollouts)) for batch in batches
        ]

    def _batch(self, rollouts: Rollouts, advantages: np.ndarray, rows: range) -> learner.GRPOBatch:
        """A mini-batch on the devices, filled up with empty rows; old log-probs stand for the reference's."""
        rows = [row for row in rows if row < len(rollouts)]
        part, pad = rollouts.take(rows), self.config.minibatch_size - len(rows)
        old = np.pad(part.logprobs, [(0, pad), (0, 0), (0, 0)])
        batch, old, advantage = self._put(
            (
                part.batch(self.buckets, self.config.minibatch_size),
                old,
                np.pad(advantages[rows], [(0, pad), (0, 0)]),
            )
        )
        return learner.GRPOBatch(batch, old, old, advantage)
