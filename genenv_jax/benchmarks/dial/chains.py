"""Dial, the embedded default benchmark: chains of tool calls that turn a dial.

The dial has a few positions, for example 0 .. 4, and wraps around.  A task is a short program in words.
The answer is the sequence of tool calls with their results.  The difficulty is the number of calls (depth).

    Tools: add, subtract, multiply.                 add(3, 4) = 2
    Start at 3. add 4, multiply 4, subtract 1.  ->  multiply(2, 4) = 3
                                                    subtract(3, 1) = 2

A task may rename its tools ("Tools: zap = add, ..."); the answer must then use the new names.  The
simulator never sees such tasks, so they measure whether the agent learned the tools or just their
names.  The simulator writes the task and the reference calls; an interpreter runs both and rejects the
task if they disagree.
"""

import dataclasses
import functools
import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from genenv_jax.benchmarks import base
from genenv_jax.benchmarks.base import Message, Rejection, Score, Task
from genenv_jax.benchmarks.dial.demonstrations import Demonstrator, Pair
from genenv_jax.benchmarks.dial.tasks import NEW_NAMES, OPERATIONS, DialTasks, read_lines

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
    names: Mapping[str, str] = dataclasses.field(default_factory=lambda: {name: name for name in OPERATIONS})

    def run(self, positions: int) -> list[int]:
        """The dial's position after each call."""
        step = lambda at, call: OPERATIONS[call[0]](at, call[1]) % positions  # noqa: E731
        return list(itertools.accumulate(self.calls, step, initial=self.start))[1:]

    def statement(self) -> str:
        """The task in words."""
        tools = ", ".join(new if new == old else f"{new} = {old}" for old, new in self.names.items())
        steps = ", ".join(f"{self.names[operation]} {n}" for operation, n in self.calls)
        return f"Tools: {tools}.\nStart at {self.start}. {steps}."

    def trace(self, results: Sequence[int]) -> str:
        """The answer in words, with the given results; each call starts from the previous result."""
        starts = [self.start, *results[:-1]]
        return "\n".join(
            f"{self.names[operation]}({at}, {n}) = {result}"
            for (operation, n), at, result in zip(self.calls, starts, results, strict=True)
        )

    def reference(self) -> str:
        """The calls without results, as the simulator writes them."""
        return " ".join(f"{self.names[operation]}({n})" for operation, n in self.calls)


def read_statement(text: str) -> Program | None:
    """Parses a task's words strictly; None if they do not follow the grammar."""
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
    return Program(int(match[2]), tuple(calls), {old: names[old] for old in OPERATIONS})


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


@dataclasses.dataclass(kw_only=True, eq=False)
class Dial(DialTasks):
    """The benchmark object; the warm start teaches some (operation, argument) pairs wrongly."""

    name = "dial"
    agent_instruction = "Call the tools in order."
    rules_of_calls = (
        "Call the tools in order, all in one answer and each with its result. The first call is at the "
        "start, each other one at the result of the call before."
    )

    @property
    def choices(self) -> int:
        return len(self.plain)

    def splits(self):
        """Adds a split with renamed tools."""
        renamed = functools.partial(self.random_program, renamed=True)
        return [*super().splits(), ("renamed", range(1, self.max_depth + 1), renamed)]

    def random_program(self, rng: np.random.Generator, depth: int, renamed: bool = False) -> Program:
        """A uniformly random program of `depth` calls."""
        operations = rng.choice(list(OPERATIONS), depth)
        pairs = zip(operations, rng.choice(self.arguments, depth), strict=True)
        calls = tuple((str(operation), int(n)) for operation, n in pairs)
        start = int(rng.integers(self.positions))
        if not renamed:
            return Program(start, calls)
        new = rng.choice(NEW_NAMES, len(OPERATIONS), replace=False)
        return Program(start, calls, dict(zip(OPERATIONS, map(str, new), strict=True)))

    def specification(self, program: Program) -> dict[str, Any]:
        return {
            "start": program.start,
            "calls": [list(call) for call in program.calls],
            "names": [list(pair) for pair in program.names.items()],
        }

    @staticmethod
    def program(task: Task) -> Program:
        """The reference program of a task."""
        spec = task.answer
        calls = tuple((operation, n) for operation, n in spec["calls"])
        return Program(spec["start"], calls, dict(spec["names"]))

    def signature(self, task: Task) -> str:
        return " ".join(operation for operation, _ in self.program(task).calls)

    def skills(self, task: Task) -> Collection[str]:
        return {f"{operation} {n}" for operation, n in self.program(task).calls}

    def canonical(self, task: Task) -> str:
        # Uses the request, not the reference: they may differ in a task that is not verified yet.
        program = read_statement(self.text(task)) or self.program(task)
        return f"{program.start}: " + ", ".join(f"{o} {n}" for o, n in program.calls)

    def simulator_answer(self, task: Task, seed: Task | None = None) -> str:
        return f"{self.text(task)}\nCalls: {self.program(task).reference()}"

    def read_generation(self, text: str) -> tuple[str, int, dict[str, Any]] | Rejection:
        statement, mark, reference = text.partition("\nCalls: ")
        if not mark:
            return Rejection(base.UNPARSABLE, "no line 'Calls: ...'")
        asked = read_statement(statement)
        if asked is None:
            return Rejection(base.UNPARSABLE, "the task does not follow the grammar")
        by_name = {new: old for old, new in asked.names.items()}
        calls = _read_calls(reference.split(" "), _REFERENCE_CALL, by_name)
        if isinstance(calls, str):
            return Rejection(base.BAD_ANSWER, f"not a reference call: {calls!r}")
        answer = self.specification(Program(asked.start, calls, asked.names))
        return statement, len(asked.calls), answer

    def fault(self, task: Task) -> Rejection | None:
        """The program must run, and its calls must equal the reference's."""
        asked = read_statement(task.messages[-1]["content"])
        if len(asked.calls) > self.max_depth:
            return Rejection(base.TOO_DEEP, f"{len(asked.calls)} calls, at most {self.max_depth}")
        if any(old != new for old, new in asked.names.items()):
            return Rejection(base.BAD_TOOLS, "tools are renamed")
        reference = self.program(task)
        for program in (asked, reference):
            if program.start >= self.positions:
                return Rejection(base.NOT_EXECUTABLE, f"no position {program.start} on the dial")
            if unknown := [n for _, n in program.calls if n not in self.arguments]:
                return Rejection(base.NOT_EXECUTABLE, f"argument {unknown[0]} is out of range")
        if asked.calls != reference.calls:
            return Rejection(base.WRONG_ANSWER, "the reference calls are not the calls asked for")
        return None

    def demonstrations(self, rng: np.random.Generator) -> Iterator[Pair]:
        return Demonstrator(self).pairs(rng)

    def tools(self, task: Task) -> list[dict[str, Any]]:
        return [self.turning(old, new, 3) for old, new in self.program(task).names.items()]

    def example(self, task: Task) -> list[Message]:
        most = self.positions - 1
        calls = ("add", most), ("subtract", 1), ("multiply", most)
        shown = self.task(Program(1, calls, self.program(task).names), id="", category="")
        return [*shown.messages, {"role": "assistant", "content": self.agent_answer(shown)}]

    def agent_answer(self, task: Task) -> str:
        answer = self._trace(task)
        return self.as_calls(answer.split("\n")) if self.call_form else answer

    def own_form(self, task: Task, answer: str) -> str:
        lines = read_lines(answer) if self.call_form else []
        return "\n".join(lines) or answer

    def _trace(self, task: Task) -> str:
        program = self.program(task)
        return program.trace(program.run(self.positions))

    def verdict(self, task: Task, answer: str) -> Score:
        """Eq. 1 with a structured action: 1 if every call and every result is right, else 0."""
        expected = self._trace(task).split("\n")
        if len(answer := answer.strip()) > 64 * (len(expected) + 2):
            return Score(0.0, False, False, base.TOO_LONG)
        given = answer.split("\n")
        if not all(_ANSWER_CALL.fullmatch(line) for line in given):
            return Score(0.0, False, False, base.UNPARSABLE if answer else base.EMPTY)
        if given == expected:
            return Score(1.0, True, True)
        if len(given) != len(expected):
            return Score(0.0, False, True, "wrong_number_of_calls")
        first = next(pair for pair in zip(given, expected, strict=True) if pair[0] != pair[1])
        calls = {line.partition(" = ")[0] for line in first}
        return Score(0.0, False, True, "wrong_result" if len(calls) == 1 else "wrong_call")
