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
from genenv_jax.models.scoring import score_completions
from genenv_jax.players import learner
from genenv_jax.rl.advantages import group_advantages
from genenv_jax.rl.grpo import GRPOConfig
from genenv_jax.sampling.engine import Engine, Rollouts
from genenv_jax.sampling.sampler import SamplingParams
from genenv_jax.typing import Params, PRNGKey


class Agent:
    """The agent's model, state and compiled functions.

    Args:
      model: configuration and tokenizer.
      params: initial parameters; they stay the reference policy of the KL term.
      config: the run's configuration.
      put: places host arrays on the devices.
    """

    def __init__(
        self,
        model: LanguageModel,
        params: Params,
        config: ConfigDict,
        put: Callable[[Any], Any] = lambda x: x,
    ):
        self.model, self.reference, self.config, self._put = model, params, config.agent, put
        self.buckets = prompt_buckets(config, config.limits.agent_prompt)
        options = SamplingParams(
            config.limits.agent_response,
            config.agent.group_size,
            model.eos_ids,
            temperature=config.agent.temperature,
        )
        self.engine = Engine(model.config, options, config.agent.batch_size, self.buckets, put)
        optimizer = learner.make_optimizer(
            learner.OptimizerConfig(
                config.agent.learning_rate,
                weight_decay=config.agent.weight_decay,
                grad_clip=config.agent.grad_clip,
            )
        )
        self.state = learner.init_state(params, optimizer)
        names = ("clip_low", "clip_high", "dual_clip", "kl_coef", "kl_estimator", "entropy_coef")
        loss = GRPOConfig(
            **{k: config.agent[k] for k in names}, aggregation=config.agent.aggregation
        )
        self._step = learner.make_grpo_step(
            model.config, loss, optimizer, config.agent.micro_batches
        )

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
        on_batch: Callable[[int], None] = lambda completions: None,
    ) -> Rollouts:
        """Groups of answers to every task, in the order of the tasks."""
        prompts = [self.prompt(benchmark, task) for task in tasks]
        return self.engine(self.state.params, prompts, key, on_batch=on_batch)

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
        means, gap = EpochMeans(), None
        for _ in range(c.update_epochs):
            for start in range(0, len(rollouts), c.minibatch_size):
                rows = range(start, min(start + c.minibatch_size, len(rollouts)))
                part = rollouts.take(rows)
                pad = c.minibatch_size - len(part)
                batch = self._put(part.batch(self.buckets, c.minibatch_size))
                old = self._put(np.pad(part.logprobs, [(0, pad), (0, 0), (0, 0)]))
                # Without a KL term the reference is not needed, and scoring with it would be waste.
                ref = (
                    score_completions(self.reference, batch, self.model.config)
                    if c.kl_coef
                    else old
                )
                advantage = self._put(np.pad(advantages[list(rows)], [(0, pad), (0, 0)]))
                self.state, metrics = self._step(
                    self.state, learner.GRPOBatch(batch, old, ref, advantage)
                )
                gap = metrics["sampler_trainer_logp_gap"] if gap is None else gap
                means.update(metrics)
        result = means.compute() | {"sampler_trainer_logp_gap": float(jax.device_get(gap))}
        learner.check_finite(result, "the agent's update")
        return result
