"""Dial, the embedded default benchmark: chains of tool calls that turn a dial.

The dial has a few positions, 0 .. 4 say, and wraps around.  A task is a short program in words; the
answer is the sequence of tool calls with the result of each; difficulty is the number of calls (depth),
since one wrong result spoils everything after it.

    Tools: add, subtract, multiply.                 add(3, 4) = 2
    Start at 3. add 4, multiply 4, subtract 1.  ->  multiply(2, 4) = 3
                                                    subtract(3, 1) = 2

A task may rename its tools ("Tools: zap = add, ..."), and the answer must use the new names: the
simulator never sees such tasks, so they measure whether what was learnt is about the tools or about
their names.  What the simulator writes is the task and the reference calls; an interpreter runs both
and they must agree.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Mapping, Sequence

import numpy as np

from genenv_jax.benchmarks import base
from genenv_jax.benchmarks.base import Message, Rejection, Score, SeedStatistics, Task
from genenv_jax.benchmarks.options import check_integers
from genenv_jax.rl.rewards import agent_reward

OPERATIONS = {
    "add": lambda position, n: position + n,
    "subtract": lambda position, n: position - n,
    "multiply": lambda position, n: position * n,
}
# Names that renamed tasks use.  They are words of no language, so nothing is known of them beforehand.
NEW_NAMES = ("zap", "nix", "hop", "wug", "dax", "fep", "kiv", "lum")

AGENT_INSTRUCTION = "Call the tools in order."
SIMULATOR_INSTRUCTION = "Write a task that is solved half of the time."

# Not \d, which matches the digits of every script.
_STATEMENT = re.compile(r"Tools: ([a-z =,]{1,200})\.\nStart at ([0-9])\. ([a-z0-9 ,]{1,400})\.")
_STEP = re.compile(r"([a-z]{1,16}) ([0-9])")
_REFERENCE_CALL = re.compile(r"([a-z]{1,16})\(([0-9])\)")
_ANSWER_CALL = re.compile(r"[a-z]{1,16}\([0-9], [0-9]\) = [0-9]")


@dataclasses.dataclass(frozen=True)
class Program:
    """A start position and the calls (operation, argument) to make, under standard names.

    `names` maps each operation to the name that the task gives it.
    """

    start: int
    calls: tuple[tuple[str, int], ...]
    names: tuple[tuple[str, str], ...] = tuple((name, name) for name in OPERATIONS)

    def run(self, positions: int) -> list[int]:
        """The dial's position after each call."""
        step = lambda at, call: OPERATIONS[call[0]](at, call[1]) % positions  # noqa: E731
        return list(itertools.accumulate(self.calls, step, initial=self.start))[1:]

    def statement(self) -> str:
        """The task in words."""
        names = dict(self.names)
        tools = ", ".join(new if new == old else f"{new} = {old}" for old, new in self.names)
        steps = ", ".join(f"{names[operation]} {n}" for operation, n in self.calls)
        return f"Tools: {tools}.\nStart at {self.start}. {steps}."

    def trace(self, results: Sequence[int]) -> str:
        """The answer in words, with the given results; each call starts from the result before it."""
        names, starts = dict(self.names), [self.start, *results[:-1]]
        return "\n".join(
            f"{names[operation]}({at}, {n}) = {result}"
            for (operation, n), at, result in zip(self.calls, starts, results, strict=True)
        )

    def reference(self) -> str:
        """The calls without their results, as the simulator writes them."""
        names = dict(self.names)
        return " ".join(f"{names[operation]}({n})" for operation, n in self.calls)


def read_statement(text: str) -> Program | None:
    """Reads a task's words, strictly; None where they do not follow the grammar."""
    match = _STATEMENT.fullmatch(text)
    if not match:
        return None
    names, items = {}, match[1].split(", ")
    for item in items:
        new, _, old = item.partition(" = ")
        names[old or new] = new
    by_name = {new: old for old, new in names.items()}
    if set(names) != set(OPERATIONS) or not len(by_name) == len(items) == len(OPERATIONS):
        return None
    calls = _read_calls(match[3].split(", "), _STEP, by_name)
    if isinstance(calls, str):
        return None
    return Program(int(match[2]), tuple(calls), tuple((old, names[old]) for old in OPERATIONS))


def _read_calls(
    items: Sequence[str], pattern: re.Pattern[str], by_name: Mapping[str, str]
) -> tuple[tuple[str, int], ...] | str:
    """Calls under standard names, or the first item that is not one."""
    calls = []
    for item in items:
        call = pattern.fullmatch(item)
        if not call or call[1] not in by_name:
            return item[:40]
        calls.append((by_name[call[1]], int(call[2])))
    return tuple(calls)


class Dial:
    """The benchmark object.

    Args:
      seed: of the generator that draws the data set; the same seed gives the same tasks.
      positions: positions of the dial, at most 10.
      max_depth: most calls that a task of the seeds or of the simulator may have.
      deeper: depths of held-out tasks beyond max_depth.  The base model has seen demonstrations of
        such length; neither the seeds nor the simulator's tasks ever have it.
      num_seeds: size of the seed set.
      seed_depths: relative frequency of depths 1 .. max_depth among the seeds.
      eval_per_depth: held-out tasks of each depth and split, where the depth has enough programs.
      misunderstood: share of the (operation, argument) pairs that the warm start teaches wrongly.
      grasp: how often it gets these right, at most 0.9.
      mistakes: what it does with them otherwise, "argument" or "shift"; see `dial_demonstrations`.
    """

    name = "dial"

    def __init__(
        self,
        seed: int = 0,
        positions: int = 10,
        max_depth: int = 6,
        deeper: Sequence[int] = (7, 8),
        num_seeds: int = 64,
        seed_depths: Sequence[float] = (0.1, 0.1, 0.15, 0.2, 0.25, 0.2),
        eval_per_depth: int = 24,
        misunderstood: float = 0.5,
        grasp: float = 0.3,
        mistakes: str = "argument",
    ):
        if not 2 <= positions <= 10:
            raise ValueError(f"benchmark.positions = {positions}: expected 2 to 10")
        counts = {"benchmark.num_seeds": num_seeds, "benchmark.eval_per_depth": eval_per_depth}
        check_integers(0, **counts)
        if max_depth < 1 or any(depth <= max_depth for depth in deeper):
            raise ValueError(
                f"benchmark.deeper = {tuple(deeper)}: expected depths above max_depth = {max_depth} >= 1"
            )
        if min(seed_depths, default=0) < 0 or sum(seed_depths) <= 0:
            raise ValueError("benchmark.seed_depths: expected frequencies, not all of them 0")
        if not 0 <= misunderstood <= 1:
            raise ValueError(f"benchmark.misunderstood = {misunderstood}: expected between 0 and 1")
        if not 0 <= grasp <= 0.9:
            raise ValueError(f"benchmark.grasp = {grasp}: expected between 0 and 0.9")
        if mistakes not in ("argument", "shift"):
            raise ValueError(f"benchmark.mistakes = {mistakes!r}: expected 'argument' or 'shift'")
        if len(seed_depths) != max_depth:
            raise ValueError(
                f"benchmark.seed_depths has {len(seed_depths)} entries: expected max_depth = {max_depth}"
            )
        self.positions, self.max_depth, self.deeper = positions, max_depth, tuple(deeper)
        self.arguments = tuple(range(1, positions))
        self.misunderstood, self.grasp, self.mistakes = misunderstood, grasp, mistakes
        rng = np.random.default_rng(seed)
        self._eval = self._draw_eval(rng, eval_per_depth)
        self.held_out = frozenset(self.canonical(task) for task in self._eval)
        self._seeds = self._draw_seeds(rng, num_seeds, np.asarray(seed_depths, float))

    # -- data ---------------------------------------------------------------------------------------

    def random_program(
        self, rng: np.random.Generator, depth: int, renamed: bool = False
    ) -> Program:
        """A uniform program of `depth` calls."""
        operations = rng.choice(list(OPERATIONS), depth)
        calls = tuple(
            (str(o), int(n))
            for o, n in zip(operations, rng.choice(self.arguments, depth), strict=True)
        )
        start = int(rng.integers(self.positions))
        if not renamed:
            return Program(start, calls)
        new = rng.choice(NEW_NAMES, len(OPERATIONS), replace=False)
        return Program(start, calls, tuple(zip(OPERATIONS, map(str, new), strict=True)))

    def task(self, program: Program, **fields) -> Task:
        """Wraps a program as a task; `fields` are the task's other attributes."""
        return Task(
            benchmark=self.name,
            messages=({"role": "user", "content": program.statement()},),
            answer={
                "start": program.start,
                "calls": [list(call) for call in program.calls],
                "names": [list(pair) for pair in program.names],
            },
            **fields,
        )

    @staticmethod
    def program(task: Task) -> Program:
        """The reference program of a task."""
        spec = task.answer
        calls = tuple((operation, n) for operation, n in spec["calls"])
        return Program(spec["start"], calls, tuple(tuple(pair) for pair in spec["names"]))

    def _draw_eval(self, rng, per_depth) -> list[Task]:
        tasks, taken = [], set()
        splits = [("in_distribution", range(1, self.max_depth + 1)), ("deeper", self.deeper)]
        for split, depths in [*splits, ("renamed", range(1, self.max_depth + 1))]:
            for depth in depths:
                space = self.positions * (len(OPERATIONS) * len(self.arguments)) ** depth
                # Holding out much of a small space would leave little of it to train on.
                count, drawn = min(per_depth, max(1, space // 16)), 0
                while drawn < count:
                    program = self.random_program(rng, depth, renamed=split == "renamed")
                    if (program.start, program.calls) in taken:
                        continue
                    taken.add((program.start, program.calls))
                    category = f"{split}/depth_{depth}"
                    task_id = f"dial-{split}-{depth}-{drawn}"
                    tasks.append(self.task(program, id=task_id, category=category, origin="eval"))
                    drawn += 1
        return tasks

    def _draw_seeds(self, rng, count, weights) -> list[Task]:
        seeds, taken = [], set(self.held_out)
        for _ in range(100 * count):
            if len(seeds) == count:
                break
            depth = int(rng.choice(len(weights), p=weights / weights.sum())) + 1
            task = self.task(
                self.random_program(rng, depth),
                id=f"dial-seed-{len(seeds)}",
                category=f"depth_{depth}",
            )
            if self.canonical(task) not in taken:
                taken.add(self.canonical(task))
                seeds.append(task)
        if len(seeds) < count:
            raise ValueError(
                f"benchmark.num_seeds = {count}: the world has too few distinct programs"
            )
        return seeds

    def tasks(self, split: str) -> Sequence[Task]:
        if split not in ("seed", "eval"):
            raise ValueError(f"split {split!r}: expected 'seed' or 'eval'")
        return self._seeds if split == "seed" else self._eval

    @property
    def difficulties(self) -> tuple[str, ...]:
        """See `base.Generative`."""
        return tuple(f"depth_{depth}" for depth in range(1, self.max_depth + 1))

    def draw(self, rng: np.random.Generator, difficulty: str, task_id: str) -> Task:
        """See `base.Generative`."""
        depth = self.difficulties.index(difficulty) + 1
        while True:
            program = self.random_program(rng, depth)
            task = self.task(program, id=task_id, category=difficulty, origin="generated")
            if self.canonical(task) not in self.held_out:
                return task

    def signature(self, task: Task) -> str:
        """See `base.Shaped`: the operations in their order, without arguments."""
        return " ".join(operation for operation, _ in self.program(task).calls)

    def difficulty(self, task: Task) -> float:
        """See `base.Shaped`: the number of calls."""
        return float(len(self.program(task).calls))

    # -- prompts ------------------------------------------------------------------------------------

    def agent_messages(self, task: Task) -> list[Message]:
        return [{"role": "system", "content": AGENT_INSTRUCTION}, *task.messages]

    def simulator_messages(self, seed: Task, statistics: SeedStatistics) -> list[Message]:
        # Tenths rather than counts: the context says how hard the seed's variations are, in one digit.
        rate = statistics.success_rate
        solved = "unknown" if rate is None else f"{round(10 * rate)} of 10"
        example = seed.messages[-1]["content"]
        return [
            {"role": "system", "content": SIMULATOR_INSTRUCTION},
            {"role": "user", "content": f"{example}\nSolved: {solved}"},
        ]

    def simulator_answer(self, task: Task, seed: Task | None = None) -> str:
        return f"{task.messages[-1]['content']}\nCalls: {self.program(task).reference()}"

    def agent_answer(self, task: Task) -> str:
        program = self.program(task)
        return program.trace(program.run(self.positions))

    # -- the simulator's text -----------------------------------------------------------------------

    def parse(self, text: str, seed: Task, task_id: str, generation: int) -> Task | Rejection:
        limit = 1000
        if not text.strip():
            return Rejection(base.EMPTY)
        if len(text) > limit:
            return Rejection(base.TOO_LONG, f"{len(text)} characters, at most {limit}")
        if not text.isascii() or not all(c.isprintable() or c == "\n" for c in text):
            return Rejection(base.NOT_TEXT, "characters outside printable ASCII")
        statement, mark, reference = text.strip().partition("\nCalls: ")
        if not mark:
            return Rejection(base.UNPARSABLE, "no line 'Calls: ...'")
        program = read_statement(statement)
        if program is None:
            return Rejection(base.UNPARSABLE, "the task does not follow the grammar")
        by_name = {new: old for old, new in program.names}
        calls = _read_calls(reference.split(" "), _REFERENCE_CALL, by_name)
        if isinstance(calls, str):
            return Rejection(base.BAD_ANSWER, f"not a reference call: {calls!r}")
        answer = Program(program.start, calls, program.names)
        task = self.task(
            answer,
            id=task_id,
            category=f"depth_{len(program.calls)}",
            seed_id=seed.id,
            origin="generated",
            generation=generation,
        )
        # The words stay as the simulator wrote them; `verify` holds them against the reference calls.
        return dataclasses.replace(task, messages=({"role": "user", "content": statement},))

    def verify(self, task: Task) -> Rejection | None:
        asked = read_statement(task.messages[-1]["content"])
        if len(asked.calls) > self.max_depth:
            return Rejection(base.TOO_DEEP, f"{len(asked.calls)} calls, at most {self.max_depth}")
        if any(old != new for old, new in asked.names):
            return Rejection(base.BAD_TOOLS, "tools are renamed")
        reference = self.program(task)
        for program in (asked, reference):
            if program.start >= self.positions:
                return Rejection(base.NOT_EXECUTABLE, f"no position {program.start} on the dial")
            unknown = [n for _, n in program.calls if n not in self.arguments]
            if unknown:
                return Rejection(base.NOT_EXECUTABLE, f"argument {unknown[0]} is out of range")
        if asked.calls != reference.calls:
            return Rejection(base.WRONG_ANSWER, "the reference calls are not the calls asked for")
        return None

    def canonical(self, task: Task) -> str:
        # What is asked rather than the reference, which differs where a task is not proven.
        program = read_statement(task.messages[-1]["content"]) or self.program(task)
        return f"{program.start}: " + ", ".join(f"{o} {n}" for o, n in program.calls)

    def text(self, task: Task) -> str:
        return task.messages[-1]["content"]

    # -- the agent's text ---------------------------------------------------------------------------

    def score(self, task: Task, answer: str) -> Score:
        """Eq. 1 with a structured action: 1 where every call and every result is right, else 0."""
        program = self.program(task)
        expected = program.trace(program.run(self.positions)).split("\n")
        if len(answer := answer.strip()) > 64 * (len(expected) + 2):
            return Score(0.0, False, False, base.TOO_LONG)
        given = answer.split("\n")
        if not all(_ANSWER_CALL.fullmatch(line) for line in given):
            return Score(0.0, False, False, base.UNPARSABLE if answer else base.EMPTY)
        reward = agent_reward(given, expected)
        if reward == 1.0:
            return Score(reward, True, True)
        if len(given) != len(expected):
            return Score(0.0, False, True, "wrong_number_of_calls")
        call = lambda line: line.partition(" = ")[0]  # noqa: E731
        first = next(i for i in range(len(given)) if given[i] != expected[i])
        wrong_result = call(given[first]) == call(expected[first])
        return Score(0.0, False, True, "wrong_result" if wrong_result else "wrong_call")

    def aggregate(self, results: Sequence[tuple[Task, Score]]) -> dict[str, float]:
        """Accuracy by "split/depth_d", and by split as the unweighted mean over its depths."""
        by_category: dict[str, list[float]] = {}
        for task, score in results:
            by_category.setdefault(task.category, []).append(float(score.success))
        metrics = {category: float(np.mean(values)) for category, values in by_category.items()}
        by_split: dict[str, list[float]] = {}
        for category, accuracy in metrics.items():
            by_split.setdefault(category.rpartition("/")[0], []).append(accuracy)
        return metrics | {
            f"{split}/accuracy".lstrip("/"): float(np.mean(values))
            for split, values in by_split.items()
        }
