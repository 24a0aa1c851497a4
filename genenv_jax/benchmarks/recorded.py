"""What benchmarks have in common whose tasks are loaded, and those of published records."""

from __future__ import annotations

import abc
import dataclasses
import itertools
import os
from collections.abc import Iterable, Sequence
from typing import Any

from genenv_jax.benchmarks.base import (
    BAD_ANSWER,
    WRONG_ANSWER,
    Message,
    Rejection,
    Score,
    Task,
    is_interactive,
)
from genenv_jax.benchmarks.options import check_integers, check_most
from genenv_jax.benchmarks.subsets import stable_position, stable_subset

# What reading a task raises whose fields are not those of its benchmark.
MALFORMED = (KeyError, TypeError, ValueError, AttributeError, IndexError)


@dataclasses.dataclass(kw_only=True, eq=False)
class Loaded(abc.ABC):
    """A benchmark whose tasks are loaded on first use.  Its options are the fields.

    `verify` and `score` are total: what they raise on a malformed task becomes a rejection or a score
    that is not valid.

    Args:
      max_seeds: at most so many seeds, chosen by a hash of its own; 0: all.
      max_eval: the same for held-out tasks.
      shots: worked examples in the agent's prompts, turns of user and assistant before the task.  They are
        seeds, of the task's category as far as there are any, chosen by a hash; episodes have none.
    Raises:
      ValueError: an option out of its range; names option, value and what was expected.
    """

    max_seeds: int = 0
    max_eval: int = 0
    shots: int = 0

    def __post_init__(self):
        check_most(max_seeds=self.max_seeds, max_eval=self.max_eval)
        check_integers(0, 8, shots=self.shots)
        self._tasks: dict[str, tuple[Task, ...]] = {}
        self._in_order: list[Task] | None = None  # the seeds, as examples take them

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

    def agent_messages(self, task: Task) -> list[Message]:
        """See `Benchmark.agent_messages`: `_prompt`, after `shots` worked examples."""
        own, examples = self._prompt(task), self.examples(task)
        if not examples:
            return own
        system = list(itertools.takewhile(lambda message: message["role"] == "system", own))
        turns = []
        for example in examples:
            shown, answer = self._worked(example)
            turns.append({"role": "user", "content": _one_turn(shown, system)})
            turns.append({"role": "assistant", "content": answer})
        return [*system, *turns, *own[len(system) :]]

    def examples(self, task: Task) -> list[Task]:
        """The seeds that are worked examples for `task`, none of a record that it was made of."""
        if not self.shots or is_interactive(self, task):
            return []
        if self._in_order is None:
            seeds = self.tasks("seed")
            if not seeds:
                raise ValueError(
                    f"shots = {self.shots}: expected seeds that can be worked examples"
                )
            self._in_order = sorted(seeds, key=lambda seed: stable_position(f"shot:{seed.id}"))
        made_of = {self.source(seed) for seed in self._in_order if seed.id == task.seed_id}
        made_of.add(self.source(task))
        others = [seed for seed in self._in_order if self.source(seed) not in made_of]
        return sorted(others, key=lambda seed: seed.category != task.category)[: self.shots]

    def source(self, task: Task) -> str:
        """See `Grouped.source`: a record of its own, unless a benchmark says otherwise."""
        return task.id

    @abc.abstractmethod
    def _prompt(self, task: Task) -> list[Message]:
        """What the agent reads of a task, system messages first; limits of its length count no examples."""

    def _worked(self, seed: Task) -> tuple[list[Message], str]:
        """A worked example: prompt and answer."""
        return self._prompt(seed), self.agent_answer(seed)

    def about(self) -> dict[str, str]:
        """See `Described.about`."""
        facts = self._facts()
        if self.shots:
            used = {seed.id for task in self.tasks("eval") for seed in self.examples(task)}
            facts["shots"] = f"{self.shots} worked examples, of the seeds {', '.join(sorted(used))}"
        return facts

    @abc.abstractmethod
    def _facts(self) -> dict[str, str]:
        """What `about` says beside the worked examples."""

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


@dataclasses.dataclass(kw_only=True, eq=False)
class Recorded(Loaded):
    """A benchmark whose tasks are read from published files.

    Args, beside those of `Loaded`:
      data_dir: where the files are; "" or None looks in the usual places.
      verify_files: compare every file that is read with the table of published files.
    """

    data_dir: str | os.PathLike[str] | None = ""
    verify_files: bool = False

    def __getstate__(self) -> dict[str, Any]:
        """Without the tasks, which a worker process reads again if it needs them; it works elsewhere."""
        place = os.path.abspath(self.data_dir) if self.data_dir else ""
        return self.__dict__ | {"_tasks": {}, "_in_order": None, "data_dir": place}


def _one_turn(messages: Sequence[Message], system: Sequence[Message]) -> str:
    """A prompt as one message, without the system messages that the task's own prompt has, too."""
    rest = [message for message in messages if message not in system]
    spoken = sum(message["role"] != "system" for message in rest)
    return "\n\n".join(
        message["content"]
        if spoken == 1 or message["role"] == "system"
        else f"{message['role'].capitalize()}: {message['content']}"
        for message in rest
    )
