"""Where an epoch's tasks come from (`config.tasks`)."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks.base import Benchmark, Task
from genenv_jax.settings import Settings, choice, within
from genenv_jax.tasks.generation import TaskBatch
from genenv_jax.tasks.mixture import Item
from genenv_jax.tasks.teacher import TeacherConfig
from genenv_jax.typing import WarmUp

SIMULATOR, STATIC, TEACHER, ORACLE, SEEDS = "simulator", "static", "teacher", "oracle", "seeds"


@dataclasses.dataclass(frozen=True)
class TasksConfig(Settings):
    """`config.tasks`: where fresh training tasks come from; the simulator learns only from its own.

    Attributes:
      source: "simulator": its tasks, fresh in every epoch; "static": tasks that the initial simulator wrote
        once; "teacher": tasks of a fixed generator, drawn once; "oracle": tasks of the benchmark's generator
        at the difficulties that the agent solves with the target success rate; "seeds": the seed tasks, each
        once before any repeats.
      count: number of fixed tasks; 0: `teacher.per_seed` per seed if that is set, else
        `config.simulator.variations` per seed.
      teacher: the server and model that write a teacher's tasks.
    """

    source: str = choice(SIMULATOR, STATIC, TEACHER, ORACLE, SEEDS)
    count: int = within(0, 0, 2**24)
    teacher: TeacherConfig = TeacherConfig()

    def __post_init__(self):
        super().__post_init__()
        teacher = self.teacher
        if self.source != TEACHER and (teacher.url or teacher.per_seed):
            raise ValueError(f"source = {self.source!r}: expected 'teacher' where tasks.teacher is set")
        if self.count and teacher.per_seed:
            raise ValueError(
                f"count = {self.count}, tasks.teacher.per_seed = {teacher.per_seed}: expected one of "
                "them to be 0"
            )

    def teacher_count(self, seeds: int, variations: int) -> int:
        """How many tasks the teacher writes.

        seeds: how many there are.  variations: tasks per seed if neither `count` nor `per_seed` is set.
        """
        if self.teacher.per_seed and not self.count:
            return max(1, round(self.teacher.per_seed * seeds))
        return self.count or seeds * variations

    def check(self, benchmark: Benchmark) -> None:
        """Raises ValueError if the benchmark would have to draw tasks itself and cannot."""
        drawn = self.source == ORACLE or (self.source == TEACHER and not self.teacher.url)
        if drawn and not benchmark.difficulties:
            hint = "; a server may (config.tasks.teacher.url)" if self.source == TEACHER else ""
            raise ValueError(
                f"config.tasks.source = {self.source!r}: expected a benchmark that draws tasks itself, "
                f"which {benchmark.name!r} does not{hint}"
            )


class TaskSource:
    """Provides each epoch's tasks, and records how the agent fared on them.

    The defaults suit sources whose tasks are not written by the simulator, which then learns nothing.
    """

    def tasks(self, epoch: int) -> TaskBatch:
        """The epoch's generations, each with its verdict."""
        raise NotImplementedError

    def resume(self, epoch: int, state: Mapping[str, Any]) -> TaskBatch:
        """The tasks of an epoch that a run continues; `state` is their `TaskBatch.state`."""
        batch = self.tasks(epoch)
        batch.set_outcomes(state)
        return batch

    def record(self, batch: TaskBatch, items: Sequence[Item]) -> None:
        """Records the outcome of an epoch: what the simulator wrote, and all that the agent attempted."""

    def d_env(self, epoch: int, batch: TaskBatch) -> Iterator[dict[str, Any]]:
        """The epoch's lines of D_env: generations that the simulator learnt from."""
        return iter(())

    def prepare(self) -> None:
        """Called once, before a run begins.  Raises ValueError on failure."""

    def warm_up(self) -> list[WarmUp]:
        """Steps that compile everything `tasks` may run."""
        return []

    def state(self) -> Any:
        """The state to checkpoint, as plain JSON."""

    def restore(self, state: Any, tasks: Iterable[Task]) -> None:
        """Inverse of `state`; see `Stateful`."""
