"""The common part of the two dial benchmarks: the tools, and tasks that are short programs in words.

This module has the data set, the simulator's prompt, the parsing of its output, and the metrics.  Each
benchmark defines the grammar of its calls and how they are answered.
"""

import abc
import dataclasses
import functools
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np

from genenv_jax.benchmarks import base
from genenv_jax.benchmarks.base import Message, Rejection, SeedStatistics, Task, chat
from genenv_jax.benchmarks.calls import read_calls, write_calls
from genenv_jax.benchmarks.options import check_integers, check_shares
from genenv_jax.benchmarks.success_record import ALIKE, ASKED, OWN, RECENT
from genenv_jax.benchmarks.tools import ToolBenchmark, tools_message

OPERATIONS = {
    "add": lambda position, n: position + n,
    "subtract": lambda position, n: position - n,
    "multiply": lambda position, n: position * n,
}
# Tool names in renamed tasks.  They are not words of any language, so a model has no prior about them.
NEW_NAMES = ("zap", "nix", "hop", "wug", "dax", "fep", "kiv", "lum")
SIMULATOR_INSTRUCTION = "Write a task that is solved half of the time."
# Whose success, in one word.
_SOLVED = {OWN: "Solved", ALIKE: "Alike", RECENT: "Recent", ASKED: "Wanted"}
_DEEPEST = 64  # calls of a task
_MISSES = 10_000  # draws in a row without a new program: there are too few
_SIGNS = {"add": "+", "subtract": "-", "multiply": "*"}
# The numbers of a call, in the order in which a line has them: add(position, number) = result.
_NUMBERS = {
    "position": "where the dial stands before the call",
    "number": "the number from the request",
    "result": "where the dial stands after the call",
}
_LINES = ("{}", "{} {}", "{}({}, {})", "{}({}, {}) = {}")  # by how many numbers a call has


def tool(name: str, description: str, count: int) -> dict[str, Any]:
    """The description of a tool whose calls have the first `count` of `_NUMBERS`."""
    told = [*_NUMBERS.items()][:count]
    properties = {key: {"type": "integer", "description": of} for key, of in told}
    parameters = {"type": "object", "properties": properties, "required": [*properties]}
    return {"name": name, "description": description, "parameters": parameters}


def read_lines(answer: str) -> list[str]:
    """The calls in an answer of a model that was shown tools, as lines; [] if there are none.  Total."""
    found = read_calls(answer)
    lines = []
    for call in [] if isinstance(found, Rejection) else found:
        for name, numbers in call.items():
            keys = [*_NUMBERS][: len(numbers)]
            if set(keys) != set(numbers):
                return []
            values = [numbers[key] for key in keys]
            if not all(type(value) is int and 0 <= value <= 9 for value in values):
                return []
            lines.append(_LINES[len(values)].format(name, *values))
    return lines


def _is_frequency(share: Any) -> bool:
    return isinstance(share, int | float) and 0 <= share < math.inf


class Program(Protocol):
    """A start position and the calls to make from there."""

    start: int
    calls: Sequence[Any]

    def statement(self) -> str:
        """The task in words."""


@dataclasses.dataclass(kw_only=True, eq=False)
class DialTasks(ToolBenchmark):
    """Seeds, held-out tasks and generations of a dial benchmark.

    Attributes:
      seed: random seed of the data set; the same seed gives the same tasks.
      positions: number of positions of the dial, at most 10.
      max_depth: maximum number of calls in a seed task or a simulator task.
      deeper: depths of held-out tasks beyond max_depth.  The base model has seen demonstrations of
        this length, but neither the seeds nor the simulator's tasks ever have it.
      num_seeds: number of seed tasks.
      seed_depths: relative frequency of depths 1 .. max_depth among the seeds.
      eval_per_depth: held-out tasks for each depth and split, if the depth has enough programs.
      misunderstood: share of the calls (and tests) that the warm start teaches wrongly.
      grasp: how often demonstrations get these right, at most 0.9.
      asked: share of the simulator's demonstrations whose prompts ask for a success rate, as those of
        simulator.method = "hindsight" do.
    """

    agent_instruction: ClassVar[str]
    rules_of_calls: ClassVar[str]  # how to call the tools
    max_generation = 1000
    # Whether the prompt states the rules.  A model that is made here learns them from demonstrations.
    explained = False

    seed: int = 0
    positions: int = 10
    max_depth: int = 6
    deeper: Sequence[int] = (7, 8)
    num_seeds: int = 64
    seed_depths: Sequence[float] = (0.1, 0.1, 0.15, 0.2, 0.25, 0.2)
    eval_per_depth: int = 24
    misunderstood: float = 0.5
    grasp: float = 0.3
    asked: float = 0.0

    def __post_init__(self):
        super().__post_init__()
        check_integers(2, 10, positions=self.positions)
        check_integers(0, 2**16, num_seeds=self.num_seeds, eval_per_depth=self.eval_per_depth)
        check_shares(misunderstood=self.misunderstood, asked=self.asked)
        self.deeper = tuple(self.deeper)
        check_integers(1, _DEEPEST, max_depth=self.max_depth)
        for depth in self.deeper:
            check_integers(self.max_depth + 1, _DEEPEST, deeper=depth)
        if not all(map(_is_frequency, self.seed_depths)) or not any(self.seed_depths):
            raise ValueError(f"seed_depths = {self.seed_depths}: expected frequencies, not all of them 0")
        if not 0 <= self.grasp <= 0.9:
            raise ValueError(f"grasp = {self.grasp}: expected between 0 and 0.9")
        if len(self.seed_depths) != self.max_depth:
            expected = f"expected max_depth = {self.max_depth} entries"
            raise ValueError(f"seed_depths = {self.seed_depths}: {expected}")
        self.arguments = tuple(range(1, self.positions))
        self.plain = [(operation, n) for operation in OPERATIONS for n in self.arguments]
        rng = np.random.default_rng(self.seed)
        self._eval = self._draw_eval(rng)
        self.held_out = frozenset(self.canonical(task) for task in self._eval)
        self._seeds = self._draw_seeds(rng)

    def use_template(self, written_call: str, made: bool = False) -> None:
        super().use_template(written_call, made)
        self.explained = not made

    @property
    @abc.abstractmethod
    def choices(self) -> int:
        """Number of different calls that a program may have at each step."""

    @abc.abstractmethod
    def random_program(self, rng: np.random.Generator, depth: int) -> Program:
        """A uniformly random program of `depth` calls."""

    @abc.abstractmethod
    def program(self, task: Task) -> Program:
        """The program of a task."""

    @abc.abstractmethod
    def specification(self, program: Program) -> Mapping[str, Any]:
        """The checker's data (`Task.answer`)."""

    @abc.abstractmethod
    def tools(self, task: Task) -> list[dict[str, Any]]:
        """The descriptions of the tools for a chat template."""

    @abc.abstractmethod
    def example(self, task: Task) -> list[Message]:
        """A task with the names of `task`, and its reference answer, as turns."""

    @abc.abstractmethod
    def read_generation(self, text: str) -> tuple[str, int, Mapping[str, Any]] | Rejection:
        """Parses a generation into the task's words, its number of calls and the checker's data."""

    def splits(self) -> list[tuple[str, Sequence[int], Callable[..., Program]]]:
        """The held-out splits: name, depths, and the function that draws a program of a given depth."""
        return [
            ("in_distribution", range(1, self.max_depth + 1), self.random_program),
            ("deeper", self.deeper, self.random_program),
        ]

    def task(self, program: Program, **fields: Any) -> Task:
        """Makes a task from a program; `fields` are the task's other attributes."""
        messages = ({"role": "user", "content": program.statement()},)
        return Task(benchmark=self.name, messages=messages, answer=self.specification(program), **fields)

    def _draw_eval(self, rng: np.random.Generator) -> list[Task]:
        tasks: list[Task] = []
        taken: set[str] = set()
        for split, depths, random_program in self.splits():
            for depth in depths:
                space = self.positions * self.choices**depth
                # Holding out much of a small space would leave little to train on.
                for drawn in range(min(self.eval_per_depth, max(1, space // 16))):
                    task = self.fresh(
                        functools.partial(random_program, rng, depth),
                        taken,
                        id=f"{self.name}-{split}-{depth}-{drawn}",
                        category=f"{split}/depth_{depth}",
                        origin="eval",
                    )
                    taken.add(self.canonical(task))
                    tasks.append(task)
        return tasks

    def _draw_seeds(self, rng: np.random.Generator) -> list[Task]:
        seeds, taken, count = [], set(self.held_out), self.num_seeds
        weights = np.asarray(self.seed_depths, float)
        misses = 0
        while len(seeds) < count and misses < _MISSES:
            misses += 1
            depth = int(rng.choice(len(weights), p=weights / weights.sum())) + 1
            task = self.task(
                self.random_program(rng, depth),
                id=f"{self.name}-seed-{len(seeds)}",
                category=f"depth_{depth}",
            )
            if self.canonical(task) not in taken:
                taken.add(self.canonical(task))
                seeds.append(task)
                misses = 0
        if len(seeds) < count:
            raise ValueError(f"num_seeds = {count}: the world has too few distinct programs")
        return seeds

    def load(self, split: str) -> Sequence[Task]:
        return self._seeds if split == "seed" else self._eval

    @property
    def difficulties(self) -> tuple[str, ...]:
        return tuple(f"depth_{depth}" for depth in range(1, self.max_depth + 1))

    def draw(self, rng: np.random.Generator, difficulty: str, task_id: str) -> Task:
        depth = self.difficulties.index(difficulty) + 1
        make = functools.partial(self.random_program, rng, depth)
        return self.fresh(make, self.held_out, id=task_id, category=difficulty, origin="generated")

    def fresh(self, make: Callable[[], Program], taken: Collection[str], **fields: Any) -> Task:
        """A task from the first program drawn by `make` whose canonical form is not taken."""
        while True:
            task = self.task(make(), **fields)
            if self.canonical(task) not in taken:
                return task

    def difficulty(self, task: Task) -> float:
        return float(len(self.program(task).calls))

    def prompt(self, task: Task) -> list[Message]:
        if not self.explained:
            return [{"role": "system", "content": self.agent_instruction}, *task.messages]
        dial = f"A dial has the positions 0 to {self.positions - 1}, and results are modulo {self.positions}."
        system = {"role": "system", "content": f"{dial} {self.rules_of_calls}"}
        if self.call_form:
            return [tools_message(self.tools(task)), system, *task.messages]
        return [system, *self.example(task), *task.messages]

    def turning(self, operation: str, name: str, count: int) -> dict[str, Any]:
        """The description of a tool that turns the dial, see `tool`."""
        to = f"(position {_SIGNS[operation]} number) modulo {self.positions}"
        return tool(name, f"Turns the dial to {to}.", count)

    def as_calls(self, lines: Sequence[str]) -> str:
        """Lines as calls in the form of the chat template."""
        parts = (re.findall("[a-z]+|[0-9]", line) for line in lines)
        calls = [{name: dict(zip(_NUMBERS, map(int, of), strict=False))} for name, *of in parts]
        return write_calls(calls, self.call_form)

    def simulator_messages(self, seed: Task, statistics: SeedStatistics) -> list[Message]:
        # Tenths instead of counts: one digit says how hard the tasks were.
        rate = statistics.success_rate
        solved = "unknown" if rate is None else f"{round(10 * rate)} of 10"
        if statistics.at == ASKED and rate == 1:
            solved = "all of 10"  # as short as the other rates, which have one digit
        return chat(SIMULATOR_INSTRUCTION, f"{self.text(seed)}\n{_SOLVED[statistics.at]}: {solved}")

    def read(self, text: str, seed: Task) -> Task | Rejection:
        if not text.isascii() or not all(c.isprintable() or c == "\n" for c in text):
            return Rejection(base.NOT_TEXT, "characters outside printable ASCII")
        read = self.read_generation(text.strip())
        if isinstance(read, Rejection):
            return read
        statement, depth, answer = read
        # The words stay as the simulator wrote them; `verify` checks them against the reference calls.
        messages = ({"role": "user", "content": statement},)
        return dataclasses.replace(seed, category=f"depth_{depth}", messages=messages, answer=answer)

    def aggregate(self, results: Sequence[tuple[Task, base.Score]]) -> dict[str, float]:
        """Accuracy for each "split/depth_d", and for each split the unweighted mean over its depths.

        "beyond_seeds" is the mean over depths above that of every seed, if the split also has other depths.
        """
        by_category: dict[str, list[float]] = {}
        depths: dict[str, float] = {}
        for task, score in results:
            by_category.setdefault(task.category, []).append(float(score.success))
            depths[task.category] = self.difficulty(task)
        metrics = {category: float(np.mean(values)) for category, values in by_category.items()}
        deepest = max((self.difficulty(seed) for seed in self._seeds), default=0)
        by_split: dict[str, list[float]] = {}
        beyond: dict[str, list[float]] = {}
        for category, accuracy in metrics.items():
            split = category.rpartition("/")[0]
            by_split.setdefault(split, []).append(accuracy)
            if depths[category] > deepest:
                beyond.setdefault(split, []).append(accuracy)
        means = {f"{split}/accuracy": np.mean(values) for split, values in by_split.items()}
        for split, values in beyond.items():
            if len(values) < len(by_split[split]):
                means[f"{split}/beyond_seeds"] = np.mean(values)
        return metrics | {name.lstrip("/"): float(value) for name, value in means.items()}
