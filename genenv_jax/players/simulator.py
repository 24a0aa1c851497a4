"""The simulator π_env: writes variations of seed tasks and learns from what the agent makes of them.

By reward-weighted regression, as in the paper, or by policy gradient within each seed's variations.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from genenv_jax.benchmarks.base import Message
from genenv_jax.config import prompt_buckets
from genenv_jax.metrics import EpochMeans
from genenv_jax.models.language_model import LanguageModel
from genenv_jax.models.scoring import CompletionBatch, score_completions
from genenv_jax.parallel import processes
from genenv_jax.players import learner
from genenv_jax.players.player import Player, Reference
from genenv_jax.players.residency import Residency
from genenv_jax.rl.grpo import GRPOConfig
from genenv_jax.sampling.draw import SamplingParams
from genenv_jax.sampling.engine import Engine, OnFinished, Rollouts, ignore
from genenv_jax.typing import Array, Params, PRNGKey


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
        # How many of a seed's variations the initial simulator writes.
        self.from_initial = round(c.mixture * c.variations)
        self._engines = [
            (own, dataclasses.replace(self.engine, config=shape, options=_group(options, count)))
            for own, shape, count in (
                (True, model.config, c.variations - self.from_initial),
                (False, reference.config, self.from_initial),
            )
            if count
        ]
        if c.method == "grpo":
            loss = GRPOConfig(
                clip_low=c.clip,
                clip_high=c.clip,
                kl_coef=c.kl_coef,
                entropy_coef=c.entropy_coef,
            )
            self._step = learner.make_grpo_step(model.config, loss, self.optimizer, c.micro_batches)
        else:
            self._step = learner.make_rwr_step(
                model.config,
                self.optimizer,
                c.kl_coef,
                c.kl_cap or float("inf"),
                c.micro_batches,
                with_entropy=c.entropy_coef > 0,
            )

    def generate(
        self,
        contexts: Sequence[Sequence[Message]],
        key: PRNGKey,
        on_finished: OnFinished = ignore,
    ) -> Rollouts:
        """`variations` generations from each context (a seed and its success statistics).

        The last `from_initial` of each are the initial simulator's.  "logprobs" are those of whoever wrote.
        """
        prompts = [self.model.encode_messages(messages) for messages in contexts]
        self.enter("both" if self.from_initial else "sample")
        parts: list[Rollouts] = []
        for own, engine in self._engines:
            first = sum(part.lengths.shape[1] for part in parts)

            def finished(i: int, j: int, tokens: list[int], done: bool, first: int = first) -> None:
                on_finished(i, first + j, tokens, done)

            params = self.params if own else self.reference.params
            # The first writer draws as if it were the only one.
            drawn = jax.random.fold_in(key, processes.put(np.uint32(first))) if first else key
            parts.append(engine(params, prompts, drawn, on_finished=finished))
        return Rollouts.side_by_side(parts)

    def generate_initial(
        self,
        contexts: Sequence[Sequence[Message]],
        key: PRNGKey,
        on_finished: OnFinished = ignore,
    ) -> Rollouts:
        """`variations` generations of the initial simulator from each context."""
        prompts = [self.model.encode_messages(messages) for messages in contexts]
        self.enter("score")
        engine = dataclasses.replace(self.engine, config=self.reference.config)
        return engine(self.reference.params, prompts, key, on_finished=on_finished)

    def update(
        self, generations: Rollouts, weights: np.ndarray, order: np.random.Generator
    ) -> dict[str, float]:
        """One update on an epoch's generations.

        Args:
          generations: of S contexts, as this simulator wrote them since its last update.
          weights: (S, n).  RWR: w of each record.  GRPO: advantages.  0 leaves a generation out.
          order: shuffles the contexts of each pass.
        Returns:
          metrics averaged over the optimiser steps.  RWR: and "update_kl", the largest KL from the update's
          start that was measured after a step: never above `kl_cap`.  Empty where all weights are 0.
        """
        used = np.flatnonzero((weights != 0).any(axis=1))
        if not used.size:
            return {}
        initial = self._initial_logprobs(generations, used)
        if self.config.method == "grpo":
            result = self._policy_gradient(generations, initial, weights, order, used)
        else:
            result = self._regression(generations, initial, weights, order, used)
        learner.check_finite(result, "the simulator's update")
        return result

    def _regression(
        self,
        generations: Rollouts,
        initial: np.ndarray,
        weights: np.ndarray,
        order: np.random.Generator,
        used: np.ndarray,
    ) -> dict[str, float]:
        c = self.config
        start = self._start_logprobs(generations, used)
        entropy_coef = self._entropy_coef(generations)
        self.enter("update")
        means, furthest, capped, steps, scale = EpochMeans(), 0.0, False, 0, 1.0
        for _ in range(c.update_epochs):
            for rows in self._minibatches(order.permutation(used)):
                batch = self._batch(generations, start, initial, weights, rows, entropy_coef)
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
        return means.compute() | {"update_kl": furthest, "capped": float(capped), "steps": steps}

    def _policy_gradient(
        self,
        generations: Rollouts,
        initial: np.ndarray,
        advantages: np.ndarray,
        order: np.random.Generator,
        used: np.ndarray,
    ) -> dict[str, float]:
        self.enter("update")
        means, steps = EpochMeans(), 0
        for _ in range(self.config.update_epochs):
            for rows in self._minibatches(order.permutation(used)):
                batch = self._grpo_batch(generations, initial, advantages, rows)
                self.state, metrics = self._step(self.state, self.frozen, batch)
                means.update(metrics)
                steps += 1
        return means.compute() | {"steps": steps}

    def warm_up(self) -> None:
        """Compiles what `generate` and `update` may run, for every prompt width that is planned."""
        self.enter("both" if self.from_initial else "sample")
        for own, engine in self._engines:
            engine.warm_up(self.params if own else self.reference.params)
        if not self.config.train:
            return
        rows, weights = np.zeros(1, int), np.zeros((1, self.config.variations))
        nothing = [Rollouts.empty([[0] * width], self.engine.options) for width in self.buckets]
        scored = [
            (part, self._initial_logprobs(part, rows), self._start_logprobs(part, rows))
            for part in nothing
        ]
        self.enter("update")
        for part, initial, start in scored:
            if self.config.method == "grpo":
                batch = self._grpo_batch(part, initial, weights, rows)
            else:
                batch = self._batch(part, start, initial, weights, rows, 0.0)
            self._step.lower(self.state, self.frozen, batch).compile()

    def _batch(
        self,
        generations: Rollouts,
        start: np.ndarray,
        initial: np.ndarray,
        weights: np.ndarray,
        rows: np.ndarray,
        entropy_coef: float,
    ) -> learner.RWRBatch:
        """A mini-batch on the devices, filled up with empty rows."""
        batch = generations.take(rows).batch(self.buckets, self.config.minibatch_size)
        arrays = (start, initial, weights.astype(np.float32))
        coefficients = np.full(self.config.minibatch_size, entropy_coef, np.float32)
        arrays = [self._rows(x, rows) for x in arrays]
        return self._put(learner.RWRBatch(batch, *arrays, coefficients))

    def _grpo_batch(
        self, generations: Rollouts, initial: np.ndarray, advantages: np.ndarray, rows: np.ndarray
    ) -> learner.GRPOBatch:
        """A mini-batch on the devices; the ratio is taken to whoever wrote a generation."""
        batch = generations.take(rows).batch(self.buckets, self.config.minibatch_size)
        arrays = (generations.logprobs, initial, advantages.astype(np.float32))
        return self._put(learner.GRPOBatch(batch, *(self._rows(x, rows) for x in arrays)))

    def _entropy_coef(self, generations: Rollouts) -> float:
        """The bonus's coefficient: `entropy_coef` where the generations' entropy is below the floor.

        -log π of the simulator's own tokens, averaged, estimates its entropy without bias.
        """
        own = slice(0, self.config.variations - self.from_initial)
        tokens = generations.lengths[:, own].sum()
        entropy = -generations.logprobs[:, own].sum() / max(tokens, 1)
        return self.config.entropy_coef if entropy < self.config.entropy_floor else 0.0

    def _minibatches(self, rows: np.ndarray) -> Iterator[np.ndarray]:
        size = self.config.minibatch_size
        yield from (rows[start : start + size] for start in range(0, len(rows), size))

    def _rows(self, x: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Some rows of an array, filled up to a mini-batch with zeros."""
        pad = self.config.minibatch_size - len(rows)
        return np.pad(x[rows], [(0, pad), *[(0, 0)] * (x.ndim - 1)])

    def _start_logprobs(self, generations: Rollouts, used: np.ndarray) -> np.ndarray:
        """(S, n, c) log-probs at the update's start; 0 outside the rows `used`.

        The sampler's, unless somebody else wrote some of the generations.
        """
        if not self.from_initial:
            return generations.logprobs
        self.enter("both")
        return self._logprobs(
            generations,
            used,
            lambda batch: score_completions(self.params, batch, self.model.config),
        )

    def _initial_logprobs(self, generations: Rollouts, used: np.ndarray) -> np.ndarray:
        """(S, n, c) log-probs under the initial simulator; 0 outside the rows `used`."""
        self.enter("score")
        return self._logprobs(generations, used, self.reference.logprobs)

    def _logprobs(
        self, generations: Rollouts, used: np.ndarray, score: Callable[[CompletionBatch], Array]
    ) -> np.ndarray:
        result = np.zeros_like(generations.logprobs)
        for rows in self._minibatches(used):
            batch = generations.take(rows).batch(self.buckets, self.config.minibatch_size)
            result[rows] = processes.fetch(score(self._put(batch)))[: len(rows)]
        return result


def _group(options: SamplingParams, count: int) -> SamplingParams:
    """The same sampling with another group size."""
    return dataclasses.replace(options, group_size=count)
