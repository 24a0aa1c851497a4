"""The agent π_agent: attempts tasks in groups of rollouts and learns from them by GRPO."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from genenv_jax.benchmarks.base import TOO_LONG, Benchmark, Rejection, Task
from genenv_jax.config import prompt_buckets
from genenv_jax.metrics import EpochMeans
from genenv_jax.models.language_model import LanguageModel
from genenv_jax.models.scoring import CompletionBatch, score_completions
from genenv_jax.parallel import processes
from genenv_jax.players import learner
from genenv_jax.players.player import Player, Reference
from genenv_jax.players.residency import Residency
from genenv_jax.rl.advantages import group_advantages
from genenv_jax.rl.grpo import GRPOConfig
from genenv_jax.rl.replay import truncated_weights
from genenv_jax.sampling.draw import SamplingParams
from genenv_jax.sampling.engine import Engine, OnFinished, Rollouts, ignore
from genenv_jax.trace_pool import Traces
from genenv_jax.typing import Array, Params, PRNGKey


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
        # Without a cap of its own a weight has the guard that the loss has for ratios.
        self.replay_cap = c.replay_truncation or math.exp(20.0)

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

    def rollout_reference(
        self,
        benchmark: Benchmark,
        tasks: Sequence[Task],
        key: PRNGKey,
        on_finished: OnFinished = ignore,
    ) -> Rollouts:
        """Groups of answers of the reference to every task."""
        prompts = [self.prompt(benchmark, task) for task in tasks]
        self.enter("score")
        engine = dataclasses.replace(self.engine, config=self.reference.config)
        return engine(self.reference.params, prompts, key, on_finished=on_finished)

    def weigh(self, traces: Traces) -> Traces:
        """Stale traces as the next update takes them.

        Their log-probs become those of the agent as it is now, π, and a token that was sampled with
        probability μ gets the weight min(π / μ, `replay_truncation`); see `rl.grpo`.
        """
        rollouts, size = traces.rollouts, self.config.minibatch_size
        logprobs = np.zeros_like(rollouts.logprobs)
        self.enter("sample")
        for start in range(0, len(rollouts), size):
            rows = range(start, min(start + size, len(rollouts)))
            batch = self._put(rollouts.take(rows).batch(self.buckets, size))
            logprobs[rows] = processes.fetch(self._logprobs(batch))[: len(rows)]
        weights = truncated_weights(logprobs, rollouts.logprobs, traces.mask, cap=self.replay_cap)
        return dataclasses.replace(
            traces,
            rollouts=dataclasses.replace(rollouts, logprobs=logprobs),
            weights=weights.astype(np.float32),
        )

    def update(
        self, rollouts: Rollouts, rewards: np.ndarray, replayed: Traces | None = None
    ) -> dict[str, float]:
        """One pass (or `update_epochs`) of GRPO over a batch of rollouts.

        Args:
          rollouts: of T tasks, as this agent sampled them since its last update.
          rewards: (T, g), R_agent of each rollout.
          replayed: stale traces to train on beside them, from `weigh` since the last update.
        Returns:
          metrics averaged over the optimiser steps; "sampler_trainer_logp_gap" is that of the first
          step, before the parameters have moved, so it is rounding and nothing else.
        """
        c = self.config
        weights = np.ones(rollouts.tokens.shape, np.float32) if c.replay_traces else None
        if replayed is not None and len(replayed):
            rollouts, rewards, weights = _side_by_side(rollouts, rewards, replayed)
        advantages = group_advantages(rewards, scale=c.advantage_scale, ddof=c.advantage_ddof)
        batches = [
            self._batch(rollouts, advantages, weights, range(start, start + c.minibatch_size))
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
        weights = (
            np.zeros(nothing[0].tokens.shape, np.float32) if self.config.replay_traces else None
        )
        batches = [self._batch(part, advantages, weights, range(1)) for part in nothing]
        if self.config.replay_traces:
            for batch in batches:
                self._logprobs(batch.rollouts)
        batches = self._scored(batches)
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

    def _logprobs(self, batch: CompletionBatch) -> Array:
        """Log-probs (b, g, c) of completions under the agent as it is now."""
        return score_completions(self.params, batch, self.model.config)

    def _batch(
        self,
        rollouts: Rollouts,
        advantages: np.ndarray,
        weights: np.ndarray | None,
        rows: range,
    ) -> learner.GRPOBatch:
        """A mini-batch on the devices, filled up with empty rows; old log-probs stand for the reference's."""
        rows = [row for row in rows if row < len(rollouts)]
        part, pad = rollouts.take(rows), self.config.minibatch_size - len(rows)
        tokens = [(0, pad), (0, 0), (0, 0)]
        batch, old, advantage, weight = self._put(
            (
                part.batch(self.buckets, self.config.minibatch_size),
                np.pad(part.logprobs, tokens),
                np.pad(advantages[rows], [(0, pad), (0, 0)]),
                None if weights is None else np.pad(weights[rows], tokens),
            )
        )
        return learner.GRPOBatch(batch, old, old, advantage, weight)


def _side_by_side(
    rollouts: Rollouts, rewards: np.ndarray, replayed: Traces
) -> tuple[Rollouts, np.ndarray, np.ndarray]:
    """Fresh and replayed groups, spread evenly so that every mini-batch has both; their rewards and weights.

    Fresh tokens have weight 1.
    """
    places = [(np.arange(n) + 0.5) / n for n in (len(rollouts), len(replayed))]
    order = np.argsort(np.concatenate(places), kind="stable")
    fresh = np.ones(rollouts.tokens.shape, np.float32)
    return (
        Rollouts.one_after_the_other([rollouts, replayed.rollouts]).take(order),
        np.concatenate([rewards, replayed.rewards])[order],
        np.concatenate([fresh, replayed.weights])[order],
    )
