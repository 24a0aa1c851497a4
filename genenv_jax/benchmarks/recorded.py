"""What the benchmarks of published records have in common."""

from __future__ import annotations

import abc
import dataclasses
import os
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

from genenv_jax.benchmarks.base import BAD_ANSWER, WRONG_ANSWER, Rejection, Score, Task
from genenv_jax.benchmarks.options import check_most
from genenv_jax.benchmarks.subsets import stable_subset

# What reading a task raises whose fields are not those of its benchmark.
MALFORMED = (KeyError, TypeError, ValueError, AttributeError, IndexError)


@dataclasses.dataclass(kw_only=True, eq=False)
class Recorded(abc.ABC):
    """A benchmark whose tasks are read from files, on first use.  Its options are the fields.

    `verify` and `score` are total: what they raise on a malformed task becomes a rejection or a score
    that is not valid.

    Args:
      data_dir: where the files are; "" or None looks in the usual places.
      verify_files: compare every file that is read with the table of published files.
      max_seeds: at most so many seeds, chosen by a hash of its own; 0: all.
      max_eval: the same for held-out tasks.
    Raises:
      ValueError: an option out of its range; names option, value and what was expected.
    """

    data_dir: str | os.PathLike[str] | None = ""
    verify_files: bool = False
    max_seeds: int = 0
    max_eval: int = 0

    def __post_init__(self):
        check_most(max_seeds=self.max_seeds, max_eval=self.max_eval)
        self._tasks: dict[str, tuple[Task, ...]] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Without the tasks, which a worker process reads again if it needs them at all."""
        return self.__dict__ | {"_tasks": {}}

    def tasks(self, split: str) -> Sequence[Task]:
        """See `Benchmark.tasks`; read on first use and kept."""
        if split not in ("seed", "eval"):
            raise ValueError(f"split {split!r}: expected 'seed' or 'eval'")
        if split not in self._tasks:
            most = self.max_seeds if split == "seed" else self.max_eval
            self._tasks[split] = tuple(stable_subset(self._all(split), most))
        return self._tasks[split]

    @abc.abstractmethod
    def _all(self, split: str) -> list[Task]:
        """The tasks of a split before `max_seeds` and `max_eval`, so that neither depends on the other."""

    def _sound(self, candidates: Iterable[Task], held_out: Iterable[Task]) -> list[Task]:
        """The candidates that pass `verify` and ask nothing that a held-out task asks (`canonical`)."""
        taken = {self.canonical(task) for task in held_out}
        return [
            task
            for task in candidates
            if self.canonical(task) not in taken and self.verify(task) is None
        ]

    @abc.abstractmethod
    def canonical(self, task: Task) -> str:
        """See `Benchmark.canonical`."""

    @abc.abstractmethod
    def agent_answer(self, task: Task) -> str:
        """See `Benchmark.agent_answer`."""

    def verify(self, task: Task) -> Rejection | None:
        """See `Benchmark.verify`; BAD_ANSWER for a malformed task, else what `_fault` finds."""
        try:
            return self._fault(task)
        except MALFORMED as error:
            return Rejection(BAD_ANSWER, f"malformed task: {type(error).__name__}: {error}"[:200])

    @abc.abstractmethod
    def _fault(self, task: Task) -> Rejection | None:
        """Why a task is rejected, or None."""

    def _reference_fault(self, task: Task) -> Rejection | None:
        """WRONG_ANSWER unless the task's own reference answer earns full reward."""
        score = self.score(task, self.agent_answer(task))
        return None if score.reward == 1.0 else Rejection(WRONG_ANSWER, score.reason)

    def score(self, task: Task, answer: str) -> Score:
        """See `Benchmark.score`; not valid for a task that `verify` calls malformed, else by `_score`."""
        try:
            return self._score(task, answer)
        except MALFORMED as error:
            return Score(0.0, False, False, f"malformed_task_{type(error).__name__.lower()}")

    @abc.abstractmethod
    def _score(self, task: Task, answer: str) -> Score:
        """The verdict on an answer to a well-formed task."""


def letters(text: str) -> str:
    """The letters and digits of a text, without case, punctuation and white space."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return "".join(character for character in folded if character.isalnum())
