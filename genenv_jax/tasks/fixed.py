"""Tasks that are made once and stay the same in every epoch."""

import json
import pathlib
from collections.abc import Callable, Sequence

from genenv_jax.benchmarks.base import Benchmark, Task
from genenv_jax.parallel import processes
from genenv_jax.run.jsonl import write_jsonl
from genenv_jax.run.streams import Stream, rng
from genenv_jax.tasks.generation import TaskBatch
from genenv_jax.tasks.seeds import shuffled_epochs
from genenv_jax.tasks.sources import TaskSource


def exist(path: pathlib.Path) -> bool:
    """Whether the file of tasks exists already.  Every process of a run calls this at the same time."""
    return processes.agree("fixed tasks", str(path.exists())) == "True"


class FixedTasks(TaskSource):
    """Tasks that are made once and kept in a workdir file that only the first process reads.

    make: makes the tasks, at least one; every process of a run calls it if there is no file yet.
    """

    def __init__(self, path: pathlib.Path, make: Callable[[], Sequence[Task]], per_epoch: int, seed: int):
        self._path, self._make, self._per_epoch, self._seed = path, make, per_epoch, seed
        self._tasks: list[Task] = []

    def all(self) -> list[Task]:
        """All tasks.  Every process of a run calls this at the same time.

        Raises ValueError if the file is damaged, or if no task was made.
        """
        if not self._tasks:
            if not exist(self._path):
                made = self._make()
                if not made:
                    raise ValueError(f"no task for {self._path} passes verification: expected some")
                if processes.is_writer():
                    write_jsonl(self._path, (task.to_json() for task in made))
            written = self._path.read_bytes() if processes.is_writer() else None
            try:
                lines = processes.broadcast(written).decode().splitlines()
                self._tasks = [Task.from_json(json.loads(line)) for line in lines]
            except (ValueError, TypeError, KeyError) as error:
                raise ValueError(f"{self._path}: damaged: {error}") from None
            if not self._tasks:
                raise ValueError(f"{self._path}: damaged: it is empty")
        return self._tasks

    def prepare(self) -> None:
        self.all()

    def tasks(self, epoch: int) -> TaskBatch:
        """See `TaskSource`; every task comes up once before any comes up twice."""
        tasks, n = self.all(), self._per_epoch
        order = shuffled_epochs(self._seed, Stream.FIXED_TASKS, len(tasks), epoch * n, n)
        return TaskBatch.of_tasks([tasks[i] for i in order])


def generator_tasks(benchmark: Benchmark, count: int, seed: int) -> list[Task]:
    """Up to `count` distinct tasks from the benchmark's own generator, cycling through its difficulties."""
    draws = rng(seed, Stream.GENERATOR)
    known: dict[str, Task] = {}
    for attempt in range(100 * count):
        if len(known) == count:
            break
        difficulty = benchmark.difficulties[attempt % len(benchmark.difficulties)]
        task = benchmark.draw(draws, difficulty, f"teacher-{len(known)}")
        known.setdefault(benchmark.canonical(task), task)
    return list(known.values())
