"""Dial in turns, the second embedded default: the tools are called one at a time.

The environment holds the dial; docs/benchmarks.md has the rules.  A valid call is always made, whether the
program asks for it or not, and an episode with a call that it does not ask for is lost, even if the dial
reaches the same position.  The agent is not told: no reply depends on the program, so trying both branches of
a choice does not pay.  The simulator writes the task with the result of each call after it, "1 add 4
[add(3, 4) at 2], 2 if even ... [multiply(2, 3) at 1]", and an interpreter must get the same.
"""

import dataclasses
import itertools
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from genenv_jax.benchmarks import base
from genenv_jax.benchmarks.base import Message, Rejection, Score, Task
from genenv_jax.benchmarks.dial import programs
from genenv_jax.benchmarks.dial.demonstrations import Pair, TurnsDemonstrator
from genenv_jax.benchmarks.dial.episode import DialEpisode
from genenv_jax.benchmarks.dial.programs import Choice, Program, read_statement, turned, words, write
from genenv_jax.benchmarks.dial.tasks import OPERATIONS, DialTasks, read_lines, tool
from genenv_jax.benchmarks.options import check_integers

NO_CHOICE = "no_choice"  # a choice with a branch that is never taken, or with two equal branches
_REFERENCE = re.compile(rf"({'|'.join(OPERATIONS)})\(([0-9]), ([0-9])\) at ([0-9])")
_NOTE = re.compile(r" \[([^]\[]*)\]")
_CHOICES = 0.5  # share of the calls that are choices
_MOST_DEPTH = 8  # at this many calls, each call and the end still have a one-digit number


@dataclasses.dataclass(kw_only=True, eq=False)
class DialTurns(DialTasks):
    """The benchmark object; all its tasks are played in episodes.

    The warm start teaches some (operation, argument) pairs and tests wrongly.

    Attributes (those of `DialTasks`, and):
      spare_turns: how many calls may be refused in an episode.
    """

    name = "dial_turns"
    episodes = True
    agent_instruction = "Call the tools one at a time."
    rules_of_calls = (
        "Make the call of each step in order, one in an answer, where the dial stands; then you read its new "
        "position. Of a step with if and else make the call that the position decides. After the last step "
        "end with done and the position."
    )

    spare_turns: int = 2

    def __post_init__(self):
        check_integers(0, 8, spare_turns=self.spare_turns)
        deepest = max([self.max_depth, *self.deeper])
        if deepest > _MOST_DEPTH:
            raise ValueError(f"benchmark: a depth of {deepest}: expected at most {_MOST_DEPTH}")
        self.tests = programs.passing(self.positions)
        super().__post_init__()

    @property
    def choices(self) -> int:
        plain = len(self.plain)
        return plain + len(self.tests) * plain * (plain - 1)

    def random_program(self, rng: np.random.Generator, depth: int) -> Program:
        """A random program of `depth` calls, some of them choices; everything is drawn uniformly."""
        calls = []
        for choice in rng.random(depth) < _CHOICES:
            first, second = rng.choice(len(self.plain), 2, replace=False)
            call = self.plain[first]
            if choice:
                call = Choice(str(rng.choice(list(self.tests))), call, self.plain[second])
            calls.append(call)
        return Program(int(rng.integers(self.positions)), tuple(calls))

    def specification(self, program: Program) -> dict[str, Any]:
        """The start position, the calls, and the position after each."""
        made = program.run(self.positions)
        return {
            "start": program.start,
            "calls": [list(call) for call in made],
            "ends": [turned(call, self.positions) for call in made],
        }

    def program(self, task: Task) -> Program:
        """The program of a task, parsed from its words."""
        program = read_statement(self.text(task))
        if program is None:
            raise ValueError(f"task {task.id}: its words do not follow the grammar")
        return program

    def signature(self, task: Task) -> str:
        """Tests and operations in order, without numbers."""
        return re.sub(" [0-9]", "", ", ".join(map(words, self.program(task).calls)))

    def skills(self, task: Task) -> Collection[str]:
        return {f"{operation} {n}" for operation, _, n in _calls(task)}

    def canonical(self, task: Task) -> str:
        """The start and what each step does at every position, however its test is worded."""
        program, parts = self.program(task), []
        for call in program.calls:
            sides = (call.otherwise, call.call) if isinstance(call, Choice) else (call, call)
            passes = self.tests.get(call.test, ()) if isinstance(call, Choice) else ()
            parts.append(" ".join(words(sides[at in passes]) for at in range(self.positions)))
        return f"{program.start}: {', '.join(parts)}"

    def simulator_answer(self, task: Task, seed: Task | None = None) -> str:
        return _noted(self.text(task), task.answer)

    def read_generation(self, text: str) -> tuple[str, int, dict[str, Any]] | Rejection:
        statement = _NOTE.sub("", text)
        program = read_statement(statement)
        if program is None:
            return Rejection(base.UNPARSABLE, "the task does not follow the grammar")
        answer: dict[str, Any] = {"start": program.start, "calls": [], "ends": []}
        for note in _NOTE.findall(text):
            call = _REFERENCE.fullmatch(note)
            if not call:
                return Rejection(base.BAD_ANSWER, f"not a reference call: {note[:40]!r}")
            answer["calls"].append([call[1], int(call[2]), int(call[3])])
            answer["ends"].append(int(call[4]))
        if len(answer["calls"]) != len(program.calls) or _noted(statement, answer) != text:
            return Rejection(base.BAD_ANSWER, "expected a reference call after each call")
        return statement, len(program.calls), answer

    def fault(self, task: Task) -> Rejection | None:
        """The program must run and make the reference calls, and these must win."""
        program = self.program(task)
        if len(program.calls) > self.max_depth:
            return Rejection(base.TOO_DEEP, f"{len(program.calls)} calls, at most {self.max_depth}")
        if program.start >= self.positions:
            return Rejection(base.NOT_EXECUTABLE, f"no position {program.start} on the dial")
        for call in program.calls:
            sides = (call.call, call.otherwise) if isinstance(call, Choice) else (call,)
            for _, n in sides:
                if n not in self.arguments:
                    return Rejection(base.NOT_EXECUTABLE, f"argument {n} is out of range")
            if isinstance(call, Choice) and (call.test not in self.tests or len({*sides}) == 1):
                return Rejection(NO_CHOICE, words(call))
        if self.specification(program) != task.answer:
            return Rejection(base.WRONG_ANSWER, "the reference calls are not those that the task leads to")
        return super().fault(task)

    def demonstrations(self, rng: np.random.Generator) -> Iterator[Pair]:
        return TurnsDemonstrator(self).pairs(rng)

    def tools(self, task: Task) -> list[dict[str, Any]]:
        done = tool("done", "Ends the task after its last step.", 1)
        return [*(self.turning(name, name, 2) for name in OPERATIONS), done]

    def example(self, task: Task) -> list[Message]:
        calls = ("add", self.positions - 1), Choice("even", ("subtract", 1), ("add", 1))
        shown = self.task(Program(1, calls), id="", category="")
        said = [{"role": "assistant", "content": text} for text in self.agent_answers(shown)]
        role = "tool" if self.call_form else "user"
        read = [{"role": role, "content": f"at {end}"} for end in shown.answer["ends"]]
        turns = itertools.chain.from_iterable(itertools.zip_longest(said, read))
        return [*shown.messages, *filter(None, turns)]

    def episode(self, task: Task) -> DialEpisode:
        calls = _calls(task)
        turns = len(calls) + 1 + self.spare_turns
        opening, start = self.agent_messages(task), task.answer["start"]
        return DialEpisode(opening, start, self.positions, calls, turns, bool(self.call_form))

    def agent_answers(self, task: Task) -> list[str]:
        said = [*map(write, _calls(task)), f"done {task.answer['ends'][-1]}"]
        if self.call_form:
            return [self.as_calls([line]) for line in said]
        return [f"{number} {call}" for number, call in enumerate(said, 1)]

    def own_form(self, task: Task, answer: str) -> str:
        lines = read_lines(answer) if self.call_form else []
        return "\n".join(f"{number} {line}" for number, line in enumerate(lines, 1)) or answer

    def agent_answer(self, task: Task) -> str:
        return "\n".join(self.agent_answers(task))

    def verdict(self, task: Task, answer: str) -> Score:
        """Plays the lines of `answer` as an episode and scores it; they must end the episode."""
        if not answer.strip():
            return Score(0.0, False, False, base.EMPTY)
        episode, lines = self.episode(task), answer.strip().split("\n")
        score = episode.play(lines)
        if score.success and len(episode.answers) < len(lines):
            return Score(0.0, False, False, base.UNPARSABLE)
        return score


def _calls(task: Task) -> list[programs.Made]:
    """The reference calls of a task."""
    return [(operation, at, n) for operation, at, n in task.answer["calls"]]


def _noted(statement: str, answer: Mapping[str, Any]) -> str:
    """A task's words with the result of each call."""
    head, point, calls = statement.removesuffix(".").rpartition(". ")
    ends = zip(answer["calls"], answer["ends"], strict=True)
    notes = [f" [{write(tuple(call))} at {end}]" for call, end in ends]
    noted = itertools.zip_longest(calls.split(", "), notes, fillvalue="")
    return f"{head}{point}{', '.join(map(''.join, noted))}."
