"""Demonstrations of both roles, made of a benchmark's seed tasks, for supervised fine-tuning."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np

from genenv_jax.benchmarks.base import (
    Benchmark,
    Message,
    Rejection,
    SeedStatistics,
    Task,
    source_of,
)
from genenv_jax.benchmarks.subsets import stable_position

AGENT, SIMULATOR = "agent", "simulator"
_TRIES = 16  # seeds that are tried as a variation of another one


@dataclasses.dataclass(frozen=True)
class Demonstration:
    """What a player is shown, and what it should write.

    Attributes:
      role: "agent" or "simulator".
      messages: the player's conversation.
      completions: texts, each of which is a right one.
    """

    role: str
    messages: Sequence[Message]
    completions: tuple[str, ...]


def split_seeds(benchmark: Benchmark, validation_share: float) -> tuple[list[Task], list[Task]]:
    """(training, validation) seeds, by a stable hash; those of one record stay on one side."""
    sides: tuple[list[Task], list[Task]] = [], []
    for seed in benchmark.tasks("seed"):
        place = stable_position(f"validation:{source_of(benchmark, seed)}")
        sides[place < validation_share].append(seed)
    return sides


def seed_demonstrations(
    benchmark: Benchmark, seeds: Sequence[Task], variations: int, rng: np.random.Generator
) -> list[Demonstration]:
    """A demonstration of each role for each of the seeds, which are all that is read of the benchmark.

    The agent answers the seed with its reference answer.  The simulator is shown the seed, with a success
    rate drawn at random, and writes up to `variations` other seeds of its category that `parse` and `verify`
    accept as variations of it: of other records and with the same tools, if there are such.  Where none is
    accepted it writes the seed itself, which shows the form at least; a seed that it cannot write is the
    agent's only.
    """
    by_category: dict[str, list[Task]] = {}
    for seed in seeds:
        by_category.setdefault(seed.category, []).append(seed)
    found = []
    for seed in seeds:
        messages = benchmark.agent_messages(seed)
        found.append(Demonstration(AGENT, messages, (benchmark.agent_answer(seed),)))
        tenths = int(rng.integers(-1, 11))
        statistics = SeedStatistics() if tenths < 0 else SeedStatistics(10, tenths)
        category = by_category[seed.category]
        others = [category[i] for i in rng.permutation(len(category)) if category[i] is not seed]
        own = source_of(benchmark, seed)
        others.sort(
            key=lambda other: (source_of(benchmark, other) == own, other.tools != seed.tools)
        )
        written = _variations(benchmark, seed, others[:_TRIES], variations)
        if written := written or _variations(benchmark, seed, [seed], 1):
            shown = benchmark.simulator_messages(seed, statistics)
            found.append(Demonstration(SIMULATOR, shown, written))
    return found


def _variations(
    benchmark: Benchmark, seed: Task, tasks: Sequence[Task], most: int
) -> tuple[str, ...]:
    """The first tasks, at most so many, that pass as variations of `seed`, as a simulator writes them."""
    texts = (
        text
        for task in tasks
        if _is_variation(benchmark, text := benchmark.simulator_answer(task, seed), seed, task)
    )
    return tuple(itertools.islice(texts, most))


def _is_variation(benchmark: Benchmark, text: str, seed: Task, task: Task) -> bool:
    """Whether `text`, written for `seed`, is read as `task`, and passes."""
    read = benchmark.parse(text, seed, task.id, 0)
    if isinstance(read, Rejection) or benchmark.canonical(read) != benchmark.canonical(task):
        return False
    return benchmark.verify(read) is None
