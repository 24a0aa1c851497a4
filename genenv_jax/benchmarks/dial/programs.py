"""The programs of Dial in turns: calls, and choices between two calls by the dial's position."""

from __future__ import annotations

import dataclasses
import re

from genenv_jax.benchmarks.dial.tasks import OPERATIONS

Call = tuple[str, int]  # operation, argument
Made = tuple[str, int, int]  # operation, position, argument

# Not \d, which matches the digits of every script.
_TOOLS = "|".join(OPERATIONS)
_CALL = rf"({_TOOLS}) ([0-9])"
_CHOICE = re.compile(rf"if (even|odd|above [0-9]|below [0-9]) {_CALL} else {_CALL}")
_PLAIN = re.compile(_CALL)
_STATEMENT = re.compile(rf"Tools: {', '.join(OPERATIONS)}\.\nStart at ([0-9])\. ([a-z0-9 ,]{{1,400}})\.")


def passing(positions: int) -> dict[str, frozenset[int]]:
    """Each test of a dial, with the positions that pass it: some, but not all."""
    at = range(positions)
    return {
        "even": frozenset(at[::2]),
        "odd": frozenset(at[1::2]),
        **{f"above {n}": frozenset(at[n + 1 :]) for n in at[:-1]},
        **{f"below {n}": frozenset(at[:n]) for n in at[1:]},
    }


def words(call: Call | Choice) -> str:
    """A call or choice in the words of a task."""
    if isinstance(call, Choice):
        return f"if {call.test} {words(call.call)} else {words(call.otherwise)}"
    return f"{call[0]} {call[1]}"


def turned(made: Made, positions: int) -> int:
    """The dial's position after a call."""
    operation, at, n = made
    return OPERATIONS[operation](at, n) % positions


def write(made: Made) -> str:
    """A call as the agent writes it."""
    return f"{made[0]}({made[1]}, {made[2]})"


@dataclasses.dataclass(frozen=True)
class Choice:
    """One of two calls: the first if the dial's position passes the test."""

    test: str
    call: Call
    otherwise: Call


@dataclasses.dataclass(frozen=True)
class Program:
    """A start position and the calls to make, in order, some of them choices."""

    start: int
    calls: tuple[Call | Choice, ...]

    def statement(self) -> str:
        """The task in words."""
        calls = ", ".join(f"{number} {words(call)}" for number, call in enumerate(self.calls, 1))
        return f"Tools: {', '.join(OPERATIONS)}.\nStart at {self.start}. {calls}."

    def run(self, positions: int) -> list[Made]:
        """The calls that the program makes.  Raises KeyError for a test that the dial does not have."""
        at, made, tests = self.start, [], passing(positions)
        for call in self.calls:
            if isinstance(call, Choice):
                call = call.call if at in tests[call.test] else call.otherwise
            made.append((call[0], at, call[1]))
            at = turned(made[-1], positions)
        return made


def read_statement(text: str) -> Program | None:
    """Parses a task's words strictly; None if they do not follow the grammar."""
    match = _STATEMENT.fullmatch(text)
    if not match:
        return None
    calls: list[Call | Choice] = []
    for number, numbered in enumerate(match[2].split(", "), 1):
        given, _, item = numbered.partition(" ")
        if given != str(number):
            return None
        if plain := _PLAIN.fullmatch(item):
            calls.append((plain[1], int(plain[2])))
        elif choice := _CHOICE.fullmatch(item):
            first, second = (choice[2], int(choice[3])), (choice[4], int(choice[5]))
            calls.append(Choice(choice[1], first, second))
        else:
            return None
    return Program(int(match[1]), tuple(calls))
