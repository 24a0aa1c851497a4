"""The simulator's part of an epoch: it is trained on the agent's results on its tasks."""

import abc
import dataclasses

import numpy as np

from genenv_jax.benchmarks.base import Benchmark
from genenv_jax.parallel import processes
from genenv_jax.players import learner
from genenv_jax.players.simulator import Simulator
from genenv_jax.rl import rwr
from genenv_jax.rl.advantages import group_advantages
from genenv_jax.rl.losses import LossConfig
from genenv_jax.rl.rewards import effective_sample_size
from genenv_jax.run.metrics import EpochMeans
from genenv_jax.run.session import Session
from genenv_jax.run.streams import Stream
from genenv_jax.sampling.sampler import Rollouts, bucket, take_samples
from genenv_jax.tasks.generation import TaskBatch
from genenv_jax.trainers import divergence
from genenv_jax.trainers.grpo import GRPO
from genenv_jax.typing import WarmUp


class Frozen:
    """Does not train the simulator."""

    def step(self, epoch: int, batch: TaskBatch) -> dict[str, float]:
        """Metrics "simulator/..." of an epoch's update; none if the simulator wrote no tasks."""
        if batch.rollouts is None:
            return {}
        weights = batch.weights()
        return {
            "simulator/records": int((weights > 0).sum()),
            "simulator/effective_sample_size": effective_sample_size(weights[weights > 0]),
        }

    def warm_up(self) -> list[WarmUp]:
        """Functions that compile every program of a step, for every planned prompt width."""
        return []


class _Learning(Frozen, abc.ABC):
    """One update per epoch, in mini-batches of seeds.  benchmark: writes the simulator's prompts."""

    def __init__(self, simulator: Simulator, benchmark: Benchmark, session: Session):
        self._simulator, self._benchmark, self._session = simulator, benchmark, session

    @abc.abstractmethod
    def _records(self, batch: TaskBatch) -> tuple[Rollouts, np.ndarray]:
        """Generations of S contexts, and the (S, n) weight of each in the update; 0 leaves it out."""

    @abc.abstractmethod
    def _passes(
        self, generations: Rollouts, weights: np.ndarray, used: np.ndarray, order: np.random.Generator
    ) -> dict[str, float]:
        """Runs all optimiser steps of an update on the contexts `used`; returns their mean metrics.

        Adds the tokens processed to the session's count.

        order: shuffles the contexts in each pass.
        """

    def step(self, epoch: int, batch: TaskBatch) -> dict[str, float]:
        metrics, session = super().step(epoch, batch), self._session
        generations, weights = self._records(batch)
        metrics["simulator/records"] = records = int((weights != 0).sum())
        used, updated = np.flatnonzero((weights != 0).any(axis=1)), {}
        with session.phase("update simulator", records, "records"), session.measure("update simulator"):
            if used.size:
                updated = self._passes(generations, weights, used, session.rng(Stream.RECORDS, epoch))
                divergence.check(session, "simulator", updated, generations, weights)
        return metrics | {f"simulator/{name}": value for name, value in updated.items()}


class Regression(_Learning):
    """Reward-weighted regression on the generations that pass the filter, as in the paper.

    The metric "update_kl" is the largest KL from the update's start measured after a step.  It never exceeds
    `kl_cap`: a step that would exceed it is halved until it fits, and if no fraction fits, the update ends.
    """

    def __init__(self, simulator: Simulator, benchmark: Benchmark, session: Session):
        super().__init__(simulator, benchmark, session)
        c, cap = simulator.config, simulator.config.kl_cap or float("inf")
        self._update = learner.make_rwr_step(
            simulator.model.config, simulator.optimizer, c.kl_coef, cap, c.micro_batches
        )

    def warm_up(self) -> list[WarmUp]:
        return self._simulator.warm_up_updates(self._update, self._empty_batch)

    def _records(self, batch: TaskBatch) -> tuple[Rollouts, np.ndarray]:
        return batch.rollouts, batch.weights()

    def _own(self, weights: np.ndarray) -> np.ndarray:
        """(S, n) whether a record is the current simulator's."""
        n = weights.shape[1]
        return (weights != 0) & (np.arange(n) < n - self._simulator.config.num_from_initial)

    def _passes(self, generations, weights, used, order) -> dict[str, float]:
        simulator, c = self._simulator, self._simulator.config
        generations = generations.only(weights != 0)  # the others contribute to no term
        generations, weights, own = self._packed(generations, weights, self._own(weights))
        initial = simulator.reference_logprobs(generations, used)
        start = simulator.start_logprobs(generations, used)
        scored = 1 + simulator.scores_start
        self._session.tokens += scored * generations.take(used).token_count
        arrays = start, initial, weights.astype(np.float32), own.astype(np.float32)
        simulator.load_for("update")
        means, furthest, capped, steps = EpochMeans(), 0.0, False, 0
        minibatches = (
            rows
            for _ in range(c.update_epochs)
            for rows in learner.minibatches(order.permutation(used), c.minibatch_size)
        )
        for rows in minibatches:
            batch = self._batch(generations, rows, *arrays)
            simulator.state, metrics = self._update(simulator.state, simulator.frozen, batch)
            fetched = [metrics.pop(name) for name in ("step_scale", "update_kl")]
            scale, kl = map(float, processes.fetch(fetched))
            passes = 3 + rwr.measurements(scale)
            self._session.tokens += passes * generations.take(rows).token_count
            means.update(metrics)
            capped |= scale < 1
            if scale == 0:  # KL cap reached: this epoch's update ends
                break
            steps, furthest = steps + 1, max(furthest, kl)
        return means.compute() | {"update_kl": furthest, "capped": float(capped), "steps": steps}

    def _packed(
        self, generations: Rollouts, weights: np.ndarray, own: np.ndarray
    ) -> tuple[Rollouts, np.ndarray, np.ndarray]:
        """Moves each context's records to the front and cuts to the smallest compiled group that fits."""
        most = int((weights != 0).sum(axis=1).max())
        group = bucket(most, self._simulator.groups, "a context")
        if group == weights.shape[1]:
            return generations, weights, own
        order = np.argsort(weights == 0, axis=1, kind="stable")[:, :group]
        return generations.samples(order), take_samples(weights, order), take_samples(own, order)

    def _batch(self, generations: Rollouts, rows: np.ndarray, *arrays: np.ndarray) -> learner.RWRBatch:
        return self._simulator.put(learner.RWRBatch(*self._simulator.minibatch(generations, rows, *arrays)))

    def _empty_batch(self, nothing: Rollouts) -> learner.RWRBatch:
        simulator, row = self._simulator, np.zeros(1, int)
        initial = simulator.reference_logprobs(nothing, row)
        start = simulator.start_logprobs(nothing, row)
        zeros = np.zeros(nothing.lengths.shape, np.float32)
        return self._batch(nothing, row, start, initial, zeros, zeros)


class Hindsight(Regression):
    """Regression on every attempted task, under a prompt that asks for the task's own success rate.

    The simulator learns how often the agent solves which tasks, and is asked for those at α.  No filter,
    reward or seed selects what it learns from.  Prompts are relabelled like goals in hindsight experience
    replay (arXiv 1707.01495) and difficulties in DARC (2601.13761).
    """

    def _records(self, batch: TaskBatch) -> tuple[Rollouts, np.ndarray]:
        kept = [g for g in batch.generations if g.weight]
        rows, columns = (np.array([getattr(g, x) for g in kept], int) for x in ("row", "column"))
        generations = batch.rollouts.take(rows).samples(columns[:, None])
        encode, messages = self._simulator.model.encode_messages, self._benchmark.simulator_messages
        prompts = [encode(messages(g.seed, g.turned_out)) for g in kept]
        generations = dataclasses.replace(generations, prompts=prompts)
        return generations, np.array([[g.weight] for g in kept]).reshape(-1, 1)

    def _own(self, weights: np.ndarray) -> np.ndarray:
        # The initial simulator's texts count as well: no text was sampled from the prompt that it is trained
        # under, so an update's KL is over the records alone.
        return weights != 0


class PolicyGradient(_Learning):
    """GRPO whose advantage is R_env minus its mean over the seed's variations."""

    def __init__(self, simulator: Simulator, benchmark: Benchmark, session: Session):
        super().__init__(simulator, benchmark, session)
        c = simulator.config
        loss = LossConfig(kl_coef=c.kl_coef, entropy_coef=0.0)
        self._grpo = GRPO(simulator, loss, session, c.num_from_initial)

    def warm_up(self) -> list[WarmUp]:
        return self._grpo.warm_up()

    def _records(self, batch: TaskBatch) -> tuple[Rollouts, np.ndarray]:
        # Centred within its seed, a generation's advantage reflects the simulator's writing, not the seed.
        # Not divided by the std, so that seeds with near-equal rewards do not dominate the gradient.
        return batch.rollouts, group_advantages(batch.r_env(), "centred")

    def _passes(self, generations, weights, used, order) -> dict[str, float]:
        result = self._grpo.update(generations, weights, used, order.permutation)
        c = self._simulator.config
        steps = c.update_epochs * len(learner.minibatches(used, c.minibatch_size))
        return result | {"steps": steps}


def make_simulator_trainer(simulator: Simulator, benchmark: Benchmark, session: Session) -> Frozen:
    """The trainer that `config.simulator` names.  benchmark: writes the simulator's prompts."""
    if not simulator.trained:
        return Frozen()
    trainers = {"rwr": Regression, "grpo": PolicyGradient, "hindsight": Hindsight}
    return trainers[simulator.config.method](simulator, benchmark, session)
