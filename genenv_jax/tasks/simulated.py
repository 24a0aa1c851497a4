"""Tasks that the simulator writes."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from genenv_jax.benchmarks.base import Benchmark, Message, SeedStatistics, Task
from genenv_jax.players.simulator import Simulator
from genenv_jax.run.checkpoint import unpack_arrays
from genenv_jax.run.session import Session
from genenv_jax.run.streams import Stream
from genenv_jax.sampling.sampler import Completion, Key, OnCompletion, Rollouts
from genenv_jax.scoring import requests
from genenv_jax.scoring.attempts import Waiting
from genenv_jax.scoring.scorer import Scorer
from genenv_jax.scoring.verification import Verifier
from genenv_jax.tasks.difficulties import AskedDifficulties
from genenv_jax.tasks.generation import Generation, TaskBatch
from genenv_jax.tasks.growth import Growth
from genenv_jax.tasks.mixture import Item
from genenv_jax.tasks.seeds import SeedTasks, SuccessRecords
from genenv_jax.tasks.sources import TaskSource
from genenv_jax.typing import WarmUp

if TYPE_CHECKING:
    from genenv_jax.config import Config

# Share of the gap between α and an epoch's mean success rate that is added to the next request.
_CORRECTION = 0.5
_ROUNDS = 50  # maximum passes over all seeds to reach a given number of static tasks


class SimulatorTasks(TaskSource):
    """n variations of each context (a task to vary), conditioned on the agent's success at it."""

    def __init__(
        self,
        config: Config,
        seeds: SeedTasks,
        simulator: Simulator,
        benchmark: Benchmark,
        scorer: Scorer,
        verifier: Verifier,
        session: Session,
    ):
        self.seeds, self._simulator, self._benchmark = seeds, simulator, benchmark
        self._scorer, self._verifier, self._admit = scorer, verifier, config.verification.admit
        self._session, self._records = session, SuccessRecords(benchmark)
        fits = functools.partial(simulator.has_room, benchmark)
        self._growth = Growth(config.curriculum.growth, fits, config.seed)
        self._difficulties = AskedDifficulties(benchmark, config.curriculum, config.simulator)
        self._alpha = self._asked = config.curriculum.alpha

    def tasks(self, epoch: int) -> TaskBatch:
        batch = self.write(epoch, self._contexts(epoch))
        self._session.tokens += self._simulator.sampled_tokens(batch.rollouts)
        return batch

    def resume(self, epoch: int, state: Mapping[str, Any]) -> TaskBatch:
        contexts, n = self._contexts(epoch), self._simulator.config.variations
        written = zip(state["texts"], requests.unpack(state["verdicts"]), strict=True)
        inspected = [(divmod(i, n), *pair) for i, pair in enumerate(written)]
        statistics = self._statistics(epoch, contexts)
        rollouts = Rollouts.of_arrays(unpack_arrays(state["rollouts"]))
        batch = TaskBatch(_decided(inspected, contexts, statistics, self._verifier), rollouts)
        batch.set_outcomes(state)
        return batch

    def _contexts(self, epoch: int) -> list[Task]:
        return self._growth.contexts(epoch, self.seeds.choose(epoch))

    def write(self, epoch: int, seeds: Sequence[Task], initial: bool = False) -> TaskBatch:
        """Variations of `seeds` by the simulator, or by the initial one."""
        session, statistics = self._session, self._statistics(epoch, seeds)
        key = session.key(Stream.GENERATE_STATIC if initial else Stream.GENERATE, epoch)
        total = len(seeds) * self._simulator.config.variations
        with session.phase("generate", total, "tasks") as display:

            def generate(contexts: Sequence[list[Message]], on_completion: OnCompletion) -> Rollouts:
                with session.measure("generate"):
                    return self._simulator.generate(contexts, key, on_completion, initial)

            return write_tasks(
                self._benchmark,
                seeds,
                statistics,
                generate,
                self._scorer,
                self._verifier,
                self._admit,
                epoch,
                display.advance,
                lambda: session.measure("verify"),
            )

    def _statistics(self, epoch: int, seeds: Sequence[Task]) -> list[SeedStatistics]:
        """What each seed's prompt states or asks for."""
        draws = self._session.rng(Stream.ASKED, epoch)
        if not self._simulator.config.asks:
            return [
                self._difficulties.of(seed, draws) or self._growth[seed.id] or self._records.of(seed)
                for seed in seeds
            ]
        return asked_rates(self._asked, len(seeds), self._simulator.config.random_rates, draws)

    def record(self, batch: TaskBatch, items: Sequence[Item]) -> None:
        own = {seed.id for seed in self.seeds.tasks}
        varied = [item.generation.seed if item.generation else item.task for item in items]
        self._records.record(
            (seed.id if seed.id in own else "", item.task, item.attempts, item.successes)
            for seed, item in zip(varied, items, strict=True)
        )
        self._difficulties.record_tasks((item.task, item.attempts, item.successes) for item in items)
        self._growth.record(batch)
        tried = [g.success_rate for g in batch.generations if g.attempts]
        if self._simulator.config.asks and tried:
            # Ask for a higher rate if tasks were harder than α, for a lower one if they were easier.
            self._asked += _CORRECTION * (self._alpha - float(np.mean(tried)))
            self._asked = min(max(self._asked, 0.0), 1.0)

    def d_env(self, epoch: int, batch: TaskBatch) -> Iterator[dict[str, Any]]:
        for g in batch.generations:
            if g.weight > 0:
                shown = g.turned_out if self._simulator.config.asks else g.seed_statistics
                messages = self._benchmark.simulator_messages(g.seed, shown)
                yield {
                    "epoch": epoch + 1,
                    "task_id": g.task.id,
                    "context": [dict(message) for message in messages],
                    "text": g.text,
                    "p_hat": g.p_hat,
                    "r_env": g.r_env,
                    "weight": g.weight,
                }

    def warm_up(self) -> list[WarmUp]:
        return self._simulator.warm_up()

    def state(self) -> dict[str, Any]:
        return {
            "seeds": self._records.state(),
            "difficulties": self._difficulties.state(),
            "grown": self._growth.state(),
            "asked": self._asked,
        }

    def restore(self, state: dict[str, Any], tasks: Iterable[Task]) -> None:
        self._records.restore(state["seeds"])
        self._difficulties.restore(state["difficulties"])
        self._growth.restore(state["grown"], tasks)
        self._asked = state["asked"]


def asked_rates(rate: float, count: int, explore: float, draws: np.random.Generator) -> list[SeedStatistics]:
    """What `count` prompts ask for: the success rate `rate`, and a share `explore` of them a random one."""
    # Stochastic rounding to tenths keeps the mean.
    tenths = np.floor(10 * rate + draws.random(count))
    explored = draws.permutation(count)[: math.ceil(explore * count)]
    tenths[explored] = draws.integers(11, size=len(explored))
    return [SeedStatistics.asked(k / 10) for k in tenths]


def write_tasks(
    benchmark: Benchmark,
    seeds: Sequence[Task],
    statistics: Sequence[SeedStatistics],
    generate: Callable[[Sequence[list[Message]], OnCompletion], Rollouts | None],
    scorer: Scorer,
    verifier: Verifier,
    admit: str,
    epoch: int,
    on_written: Callable[[], object],
    waiting: Waiting = contextlib.nullcontext,
) -> TaskBatch:
    """Variations of seeds, each with its verdict.

    Args:
      statistics: what each seed's prompt states or asks for.
      generate: samples from the simulator's prompts, and calls back with each finished text.
      scorer: parses and inspects the texts meanwhile.
      verifier, admit: see `scoring.verification`.
      epoch: counted from 0; part of the tasks' ids.
      on_written: called when a text is finished.
      waiting: makes a context manager to be active while waiting for verdicts.
    """
    contexts = [benchmark.simulator_messages(*pair) for pair in zip(seeds, statistics, strict=True)]
    inspections = scorer.batch()

    def finished(completion: Completion) -> None:
        seed = seeds[completion.row]
        task_id = f"generated-{epoch + 1}-{completion.row}-{completion.sample}"
        inspections.add(completion, requests.VERIFY, completion.ended, seed, task_id, epoch, admit)
        on_written()

    rollouts = generate(contexts, finished)
    with waiting():
        inspected = inspections.collect()
    texts = [(c.key, c.content, outcome) for c, outcome in inspected]
    return TaskBatch(_decided(texts, seeds, statistics, verifier), rollouts)


def _decided(
    inspected: Iterable[tuple[Key, str, requests.Outcome]],
    seeds: Sequence[Task],
    statistics: Sequence[SeedStatistics],
    verifier: Verifier,
) -> list[Generation]:
    """The generations of inspected texts.  Decided texts keep their verdicts."""
    generations = []
    # In order, since the later of two copies is rejected.
    for (row, column), text, outcome in inspected:
        generation = Generation(row, column, seeds[row], statistics[row], text)
        generation.set_verdict(verifier.decide(outcome))
        generations.append(generation)
    return generations


def static_tasks(simulated: SimulatorTasks, benchmark: Benchmark, count: int) -> list[Task]:
    """Different tasks that the initial simulator writes, in as many rounds over the seeds as needed.

    count: how many; 0: as many as one round over all seeds yields.
    Raises ValueError if too few pass verification.
    """
    once = math.ceil(len(simulated.seeds.tasks) / simulated.seeds.per_epoch)
    tasks: dict[str, Task] = {}
    rounds = 0
    while len(tasks) < (count or math.inf) and rounds < (once * _ROUNDS if count else once):
        batch = simulated.write(rounds, simulated.seeds.choose(rounds), initial=True)
        for g in batch.accepted:  # by a verifier that may have forgotten earlier rounds
            tasks.setdefault(benchmark.canonical(g.task), g.task)
        rounds += 1
    if len(tasks) < count:
        raise ValueError(
            f"config.tasks.count = {count}: the initial simulator wrote {len(tasks)} tasks that pass "
            f"verification in {rounds} rounds"
        )
    return list(tasks.values())[: count or None]
