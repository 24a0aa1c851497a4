"""The simulator π_env: writes variations of seed tasks and learns by reward-weighted regression."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from genenv_jax.benchmarks.base import Message
from genenv_jax.config import prompt_buckets
from genenv_jax.metrics import EpochMeans
from genenv_jax.models.language_model import LanguageModel
from genenv_jax.parallel import processes
from genenv_jax.players import learner
from genenv_jax.players.player import Player, Reference
from genenv_jax.players.residency import Residency
from genenv_jax.sampling.draw import SamplingParams
from genenv_jax.sampling.engine import Engine, OnFinished, Rollouts, ignore
from genenv_jax.typing import Params, PRNGKey


class Simulator(Player):
    """The simulator's model, state and compiled functions.

    Args:
      model, trained, reference, residency, put: see `Player`; the KL penalty is to the reference.
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
        c = config.simulator
        super().__init__(model, trained, reference, c, residency, put, config.memory.moments)
        self.buckets = prompt_buckets(config, config.limits.simulator_prompt)
        options = SamplingParams(
            config.limits.simulator_response, c.variations, model.eos_ids, temperature=c.temperature
        )
        at_once = config.sampling.batch_size or c.batch_size
        lanes = config.sampling.lanes
        self.engine = Engine(model.config, options, at_once, self.buckets, put, lanes)
        self._step = learner.make_rwr_step(
            model.config, self.optimizer, c.kl_coef, c.kl_cap or float("inf"), c.micro_batches
        )

    def generate(
        self,
        contexts: Sequence[Sequence[Message]],
        key: PRNGKey,
        on_finished: OnFinished = ignore,
    ) -> Rollouts:
        """`variations` generations from each context (a seed and its success statistics)."""
        prompts = [self.model.encode_messages(messages) for messages in contexts]
        self.enter("sample")
        return self.engine(self.params, prompts, key, on_finished=on_finished)

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
        initial = self._initial_logprobs(generations, used)
        self.enter("update")
        means, furthest, capped, steps, scale = EpochMeans(), 0.0, False, 0, 1.0
        for _ in range(c.update_epochs):
            for rows in self._minibatches(order.permutation(used)):
                batch = self._batch(generations, initial, weights, rows)
                self.state, metrics = self._step(self.state, self.frozen, batch)
                fetched = processes.fetch(
                    [metrics.pop(name) for name in ("step_scale", "update_kl")]
                )
                scale, kl = map(float, fetched)
                means.update(metrics)
                capped |= scale < 1
                if scale == 0:
                    break
                steps, furthest = steps + 1, max(furthest, kl)
            if scale == 0:  # the cap is reached: this epoch's update ends
                break
        learner.check_finite(result := means.compute(), "the simulator's update")
        return result | {"update_kl": furthest, "capped": float(capped), "steps": steps}

    def warm_up(self) -> None:
        """Compiles what `generate` and `update` may run, for every prompt width that is planned."""
        self.enter("sample")
        self.engine.warm_up(self.params)
        if not self.config.train:
            return
        rows, weights = np.zeros(1, int), np.zeros((1, self.config.variations))
        nothing = [Rollouts.empty([[0] * width], self.engine.options) for width in self.buckets]
        scored = [(part, self._initial_logprobs(part, rows)) for part in nothing]
        self.enter("update")
        for part, initial in scored:
            batch = self._batch(part, initial, weights, rows)
            self._step.lower(self.state, self.frozen, batch).compile()

    def _batch(
        self, generations: Rollouts, initial: np.ndarray, weights: np.ndarray, rows: np.ndarray
    ) -> learner.RWRBatch:
        """A mini-batch on the devices, filled up with empty rows."""
        batch = generations.take(rows).batch(self.buckets, self.config.minibatch_size)
        # The sampler's log-probs are those of the policy at the update's start.
        arrays = (generations.logprobs, initial, weights.astype(np.float32))
        return self._put(learner.RWRBatch(batch, *(self._rows(x, rows) for x in arrays)))

    def _minibatches(self, rows: np.ndarray) -> Iterator[np.ndarray]:
        size = self.config.minibatch_size
        yield from (rows[start : start + size] for start in range(0, len(rows), size))

    def _rows(self, x: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Some rows of an array, filled up to a mini-batch with zeros."""
        pad = self.config.minibatch_size - len(rows)
        return np.pad(x[rows], [(0, pad), *[(0, 0)] * (x.ndim - 1)])

    def _initial_logprobs(self, generations: Rollouts, used: np.ndarray) -> np.ndarray:
        """(S, n, c) log-probs under the initial simulator; 0 outside the rows `used`."""
        self.enter("score")
        result = np.zeros_like(generations.logprobs)
        for rows in self._minibatches(used):
            batch = generations.take(rows).batch(self.buckets, self.config.minibatch_size)
            logp = self.reference.logprobs(self._put(batch))
            result[rows] = processes.fetch(logp)[: len(rows)]
        return result
