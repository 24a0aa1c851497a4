"""Where an epoch's tasks come from, if not fresh from the simulator: the arms that it is compared with.

"static"   tasks that the initial simulator wrote once, before the first epoch
"teacher"  tasks of a stronger, fixed generator, drawn once: the benchmark's own, or a model behind a server
           (`teacher.py`)
"oracle"   the benchmark's own generator, every epoch, at the difficulties that the agent solves with the
           target success rate.  It is told what no simulator knows, and so shows what is to be had.
"""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Callable, Sequence

import numpy as np
from ml_collections import ConfigDict

from genenv_jax.benchmarks.base import Benchmark, Generative, SeedStatistics, Task
from genenv_jax.curriculum import Curriculum
from genenv_jax.generation import Generation
from genenv_jax.parallel import processes
from genenv_jax.run.streams import Stream, rng

SIMULATOR, STATIC, TEACHER, ORACLE = "simulator", "static", "teacher", "oracle"


def check(source: str, benchmark: Benchmark, server: str = "") -> None:
    """Raises ValueError where a benchmark has to be a source of tasks itself and cannot.

    server: `config.tasks.teacher.url`.
    """
    if source == TEACHER and server:
        return
    if source in (TEACHER, ORACLE) and not isinstance(benchmark, Generative):
        hint = "; a server may (config.tasks.teacher.url)" if source == TEACHER else ""
        raise ValueError(
            f"config.tasks.source = {source!r}: expected a benchmark that draws tasks itself, which "
            f"{benchmark.name!r} does not{hint}"
        )


def teacher_count(tasks: ConfigDict, seeds: int, variations: int) -> int:
    """How many tasks the teacher is asked for.

    Args:
      tasks: `config.tasks`: `count`, else `teacher.per_seed` for each seed.
      seeds, variations: how many seeds there are, and variations of each where neither is given.
    """
    if tasks.teacher.per_seed and not tasks.count:
        return max(1, round(tasks.teacher.per_seed * seeds))
    return tasks.count or seeds * variations


class FixedTasks:
    """Tasks that are made once and kept in a file of the workdir, which only the first process reads.

    Args:
      path: of the file.
      make: makes the tasks, at least one; called where there is no file yet, by every process of a run.
      seed: of the order in which they are taken.
    """

    def __init__(self, path: pathlib.Path, make: Callable[[], Sequence[Task]], seed: int):
        self._path, self._make, self._seed = path, make, seed
        self._tasks: list[Task] | None = None

    def exist(self) -> bool:
        """Whether they are made already.  Every process of a run calls this at the same time."""
        return processes.agree("fixed tasks", str(self._path.exists())) == "True"

    def tasks(self) -> list[Task]:
        """All of them.  Every process of a run calls this at the same time.

        Raises ValueError for a damaged file, or where not one task was made.
        """
        if self._tasks is None:
            if not self.exist():
                made = self._make()
                if not made:
                    raise ValueError(f"no task for {self._path} passes the gate: expected some")
                if processes.is_writer():
                    partial = self._path.with_suffix(".partial")
                    with partial.open("w") as file:
                        file.writelines(json.dumps(task.to_json()) + "\n" for task in made)
                    os.replace(partial, self._path)
            written = self._path.read_bytes() if processes.is_writer() else None
            try:
                lines = processes.broadcast(written).decode().splitlines()
                self._tasks = [Task.from_json(json.loads(line)) for line in lines]
            except (ValueError, TypeError, KeyError) as error:
                raise ValueError(f"{self._path}: damaged: {error}") from None
            if not self._tasks:
                raise ValueError(f"{self._path}: damaged: it is empty")
        return self._tasks

    def choose(self, epoch: int, count: int) -> list[Task]:
        """The tasks of an epoch: each comes up once before any comes up twice."""
        tasks = self.tasks()
        orders: dict[int, np.ndarray] = {}
        chosen = []
        for place in range(epoch * count, (epoch + 1) * count):
            lap, index = divmod(place, len(tasks))
            if lap not in orders:
                orders[lap] = rng(self._seed, Stream.FIXED_TASKS, lap).permutation(len(tasks))
            chosen.append(tasks[orders[lap][index]])
        return chosen


def teacher_tasks(benchmark: Generative, count: int, seed: int) -> list[Task]:
    """`count` distinct tasks of the benchmark's own generator, difficulties in turn."""
    draws = rng(seed, Stream.GENERATOR)
    known: dict[str, Task] = {}
    for attempt in range(100 * count):
        if len(known) == count:
            break
        difficulty = benchmark.difficulties[attempt % len(benchmark.difficulties)]
        task = benchmark.draw(draws, difficulty, f"teacher-{len(known)}")
        known.setdefault(benchmark.canonical(task), task)
    return list(known.values())


def oracle_tasks(
    benchmark: Generative, curriculum: Curriculum, count: int, alpha: float, seed: int, epoch: int
) -> list[Task]:
    """`count` tasks at the difficulties where the agent's success rate passes alpha.

    Each difficulty's rate is that of the last attempts at it, and 1/2 before there were any.  The tasks
    are divided between the two neighbouring difficulties on either side of alpha so that the expected
    success rate is alpha; a tenth goes to all difficulties alike, to keep their rates up to date.
    """
    draws = rng(seed, Stream.ORACLE, epoch)
    names = list(benchmark.difficulties)
    rates = np.array([_rate(curriculum.statistics(f"difficulty {name}")) for name in names])
    shares = 0.9 * frontier_shares(rates, alpha) + 0.1 / len(names)
    drawn = draws.choice(len(names), count, p=shares / shares.sum())
    return [
        benchmark.draw(draws, names[which], f"oracle-{epoch + 1}-{i}")
        for i, which in enumerate(drawn)
    ]


def _rate(statistics: SeedStatistics) -> float:
    return 0.5 if statistics.success_rate is None else statistics.success_rate


def frontier_shares(rates: np.ndarray, alpha: float) -> np.ndarray:
    """Shares of ascending difficulties whose success rates average alpha.

    Args:
      rates: (D,) success rates; need not fall strictly.
    Returns:
      (D,) shares that sum to 1: all on the difficulty closest to alpha where no neighbours lie on either
      side of it.
    """
    shares = np.zeros(len(rates))
    for low in range(len(rates) - 1):
        if rates[low] >= alpha >= rates[low + 1] and rates[low] > rates[low + 1]:
            part = (alpha - rates[low + 1]) / (rates[low] - rates[low + 1])
            shares[low], shares[low + 1] = part, 1.0 - part
            return shares
    shares[np.argmin(np.abs(rates - alpha))] = 1.0
    return shares


def as_generations(tasks: Sequence[Task]) -> list[Generation]:
    """Tasks that nobody wrote in this epoch, in the form in which the epoch counts."""
    return [
        Generation(row, 0, task, SeedStatistics(), "", task=task) for row, task in enumerate(tasks)
    ]


def record_difficulties(curriculum: Curriculum, generations: Sequence[Generation]) -> None:
    """Notes the agent's attempts by difficulty (the tasks' category), for the oracle."""
    counts: dict[str, list[int]] = {}
    for g in generations:
        count = counts.setdefault(g.task.category, [0, 0])
        count[0] += g.attempts
        count[1] += g.successes
    for category, (attempts, successes) in counts.items():
        curriculum.record(f"difficulty {category}", attempts, successes)
