"""The simulator π_env: writes variations of seed tasks and learns by reward-weighted regression."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from genenv_jax.benchmarks.base import Message
from genenv_jax.config import prompt_buckets
from genenv_jax.metrics import EpochMeans
from genenv_jax.models.language_model import LanguageModel
from genenv_jax.models.scoring import score_completions
from genenv_jax.players import learner
from genenv_jax.sampling.engine import Engine, Rollouts
from genenv_jax.sampling.sampler import SamplingParams
from genenv_jax.typing import Params, PRNGKey


class Simulator:
    """The simulator's model, state and compiled functions.

    Args:
      model: configuration and tokenizer.
      params: initial parameters; the KL penalty is towards them.
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
        c = config.simulator
        self.model, self.initial, self.config, self._put = model, params, c, put
        self.buckets = prompt_buckets(config, config.limits.simulator_prompt)
        options = SamplingParams(
            config.limits.simulator_response, c.variations, model.eos_ids, temperature=c.temperature
        )
        self.engine = Engine(model.config, options, c.batch_size, self.buckets, put)
        optimizer = learner.make_optimizer(
            learner.OptimizerConfig(
                c.learning_rate, weight_decay=c.weight_decay, grad_clip=c.grad_clip
            )
        )
        self.state = learner.init_state(params, optimizer)
        self._step = learner.make_rwr_step(
            model.config, optimizer, c.kl_coef, c.kl_cap or float("inf"), c.micro_batches
        )

    def generate(
        self,
        contexts: Sequence[Sequence[Message]],
        key: PRNGKey,
        on_batch: Callable[[int], None] = lambda completions: None,
    ) -> Rollouts:
        """`variations` generations from each context (a seed and its success statistics)."""
        prompts = [self.model.encode_messages(messages) for messages in contexts]
        return self.engine(self.state.params, prompts, key, on_batch=on_batch)

    def update(
        self, generations: Rollouts, weights: np.ndarray, order: np.random.Generator
    ) -> dict[str, float]:
        """Reward-weighted regression on one epoch's generations.

        Args:
          generations: of S contexts, as this simulator wrote them since its last update.
          weights: (S, n); 0 leaves a generation out.
          order: shuffles the contexts of each pass.
        Returns:
          metrics averaged over the optimiser steps, and "update_kl", the largest KL from the update's
          start that was measured after a step: never above `kl_cap`.  Empty where all weights are 0.
        """
        c = self.config
        used = np.flatnonzero((weights > 0).any(axis=1))
        if not used.size:
            return {}
        means, furthest, capped, steps = EpochMeans(), 0.0, False, 0
        for _ in range(c.update_epochs):
            used = order.permutation(used)
            for start in range(0, len(used), c.minibatch_size):
                rows = used[start : start + c.minibatch_size]
                part = generations.take(rows)
                pad = c.minibatch_size - len(part)
                batch = self._put(part.batch(self.buckets, c.minibatch_size))
                # The sampler's log-probs are those of the policy at the update's start.
                started = self._put(np.pad(part.logprobs, [(0, pad), (0, 0), (0, 0)]))
                initial = score_completions(self.initial, batch, self.model.config)
                weight = np.pad(weights[rows], [(0, pad), (0, 0)]).astype(np.float32)
                self.state, metrics = self._step(
                    self.state, learner.RWRBatch(batch, started, initial, self._put(weight))
                )
                scale = float(metrics.pop("step_scale"))
                furthest = max(furthest, float(metrics.pop("update_kl"))) if scale else furthest
                means.update(metrics)
                steps, capped = steps + 1, capped or scale < 1
                if scale == 0:  # the cap is reached: this epoch's update ends
                    break
            if capped and scale == 0:
                break
        return means.compute() | {"update_kl": furthest, "capped": float(capped), "steps": steps}
