"""Builds the task source that a configuration names."""

from __future__ import annotations

import functools
import pathlib
from typing import TYPE_CHECKING

from genenv_jax.benchmarks.base import Benchmark, Task
from genenv_jax.players.simulator import Simulator
from genenv_jax.run.session import Session
from genenv_jax.scoring.scorer import Scorer
from genenv_jax.scoring.verification import Verifier
from genenv_jax.tasks.fixed import FixedTasks, exist, generator_tasks
from genenv_jax.tasks.oracle import OracleTasks
from genenv_jax.tasks.seeds import SeedSource, SeedTasks
from genenv_jax.tasks.simulated import SimulatorTasks, static_tasks
from genenv_jax.tasks.sources import ORACLE, SEEDS, SIMULATOR, STATIC, TaskSource
from genenv_jax.tasks.teacher import Teacher

if TYPE_CHECKING:
    from genenv_jax.config import Config

_FILE = "fixed_tasks.jsonl"


def open_teacher(config: Config, benchmark: Benchmark, workdir: pathlib.Path) -> Teacher | None:
    """The teacher behind a server, if one is configured and its tasks are not written yet, else None.

    Anything missing is reported here, before a model is loaded.  Raises what `Teacher` raises.
    """
    if not config.tasks.teacher.url or exist(workdir / _FILE):
        return None
    return Teacher(benchmark, config.tasks.teacher, workdir, config.seed)


def make_source(
    config: Config,
    seeds: SeedTasks,
    simulator: Simulator,
    benchmark: Benchmark,
    scorer: Scorer,
    verifier: Verifier,
    session: Session,
    teacher: Teacher | None,
) -> TaskSource:
    """The source that `config.tasks` names.

    teacher: from `open_teacher`.
    """
    per_epoch = seeds.per_epoch * config.simulator.variations
    simulated = SimulatorTasks(config, seeds, simulator, benchmark, scorer, verifier, session)
    if config.tasks.source == SIMULATOR:
        return simulated
    if config.tasks.source == ORACLE:
        return OracleTasks(benchmark, config.curriculum.alpha, per_epoch, config.seed)
    if config.tasks.source == SEEDS:
        return SeedSource(SeedTasks(seeds.tasks, per_epoch, config.seed))
    count = config.tasks.teacher_count(len(seeds.tasks), config.simulator.variations)
    if config.tasks.source == STATIC:
        make = functools.partial(static_tasks, simulated, benchmark, config.tasks.count)
    elif teacher is None:
        make = functools.partial(generator_tasks, benchmark, count, config.seed)
    else:

        def make() -> list[Task]:
            with session.phase("ask the teacher", count, "tasks") as display:
                decide, scoring = verifier.decide, config.scoring
                return teacher.write(count, seeds.tasks, decide, scoring, display.advance)

    return FixedTasks(session.workdir / _FILE, make, per_epoch, config.seed)
