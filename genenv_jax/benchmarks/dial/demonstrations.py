"""Demonstrations from which the embedded defaults' base models are trained (their supervised warm start).

The agent's demonstrator is biased and noisy on purpose.  Trained on correct answers, a small model
would be right from the start or fail outright, and reinforcement learning would have nothing to do;
trained on these, its success falls smoothly with depth and its greedy answer is wrong for some tools,
so that learning has to change the argmax and not only sharpen it.

  misunderstood (a fixed share of all there is, `DialTasks.misunderstood`):
      right 30 % (`DialTasks.grasp`), mistaken in a fixed way 60 %, random 10 %
  others:
      right 90 %, random 10 %

A misunderstood call is taken for one with another argument, which in some positions comes to the same.  In
Dial, written results are carried on, right or wrong, so the traces are consistent in themselves.  In Dial in
turns, where the results are the tools', the call is made with the other argument; tests are misunderstood,
too, where the other branch is taken.  Now and then a call is made that the environment refuses, and then
another one.

The simulator's demonstrator writes valid variations that are mostly longer than their seed, whatever the
success statistics say: to use them is what the simulator has to learn.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from genenv_jax.benchmarks.base import Message, SeedStatistics, Task
from genenv_jax.benchmarks.demonstrations import Completion, play
from genenv_jax.benchmarks.dial.programs import Call, Choice, turned, write
from genenv_jax.benchmarks.dial.tasks import NEW_NAMES, OPERATIONS, DialTasks

Pair = tuple[list[Message], Completion]  # what a player is shown, and what it writes


_RIGHT = 0.9  # how often a call that is understood is written rightly, and another one rightly or mistaken
_MORE_CALLS = (
    0.15,
    0.25,
    0.35,
    0.25,
)  # shares of variations with -1, 0, +1, +2 calls more than their seed
_RENAMED = 0.2  # share of Dial's demonstrations with renamed tools
_REFUSED = 0.03  # share of the answers in turns that the environment refuses


class Demonstrations(abc.ABC):
    """Draws demonstrations for both roles; nothing that `dial` holds out appears in one."""

    def __init__(self, dial: DialTasks):
        self.dial = dial

    @abc.abstractmethod
    def misunderstandings(self, rng: np.random.Generator) -> Any:
        """What is misunderstood, and how."""

    @abc.abstractmethod
    def of_agent(self, rng: np.random.Generator, wrong: Any) -> Iterable[Pair]:
        """The pairs of the agent for one task; `wrong`: what is misunderstood."""

    def pairs(self, rng: np.random.Generator) -> Iterator[Pair]:
        """Endless (messages, completion) pairs, the roles in turn, held-out programs left out.

        The first draws of `rng` are the misunderstandings.
        """
        wrong = self.misunderstandings(rng)
        while True:
            yield from self.of_agent(rng, wrong)
            yield self.of_simulator(rng)

    def of_simulator(self, rng: np.random.Generator) -> Pair:
        """A pair of the simulator: a seed with a success rate, and a variation of it."""
        depth = int(rng.integers(1, self.dial.max_depth + 1))
        seed = self.draw(self.dial.random_program, rng, depth)
        task = self.draw(self.variation, rng, self.dial.program(seed))
        tenths = int(rng.integers(-1, 11))
        statistics = SeedStatistics() if tenths < 0 else SeedStatistics(10, tenths)
        return self.dial.simulator_messages(seed, statistics), self.dial.simulator_answer(task)

    def variation(self, rng: np.random.Generator, seed: Any) -> Any:
        """A program near `seed`: another start, some calls kept, usually longer."""
        step = int(rng.choice(4, p=_MORE_CALLS)) - 1
        depth = int(np.clip(len(seed.calls) + step, 1, self.dial.max_depth))
        fresh = self.dial.random_program(rng, depth)
        kept = [
            seed.calls[i] if i < len(seed.calls) and rng.random() < 0.5 else call
            for i, call in enumerate(fresh.calls)
        ]
        return dataclasses.replace(fresh, calls=tuple(kept))

    def draw(self, make: Any, *arguments: Any) -> Task:
        """A task of a program that `make` draws and that is not held out."""
        return self.dial.fresh(functools.partial(make, *arguments), id="", category="")

    def any_depth(self, rng: np.random.Generator) -> int:
        """A depth of the agent's demonstrations."""
        return int(rng.choice([*range(1, self.dial.max_depth + 1), *self.dial.deeper]))

    def taken_for(self, rng: np.random.Generator) -> dict[Call, int]:
        """The misunderstood calls, with the argument that each is taken to have."""
        return {
            (operation, n): int(rng.choice([m for m in self.dial.arguments if m != n] or [n]))
            for operation, n in self.some(rng, self.dial.plain)
        }

    def some(self, rng: np.random.Generator, things: list) -> list:
        """The share of things that is misunderstood."""
        count = round(self.dial.misunderstood * len(things))
        return [things[i] for i in rng.permutation(len(things))[:count]]

    def written(
        self, rng: np.random.Generator, true: int, mistaken: int | None, any_of: Any
    ) -> int:
        """What is true, how it is mistaken (None where it is understood), or one of `any_of` by chance."""
        draw, found = rng.random(), int(rng.choice(any_of))
        right = _RIGHT if mistaken is None else self.dial.grasp
        if mistaken is not None and draw < _RIGHT:
            found = mistaken
        return true if draw < right else found


class Demonstrator(Demonstrations):
    """Of Dial."""

    def misunderstandings(self, rng: np.random.Generator) -> dict[Call, int]:
        """See `taken_for`."""
        return self.taken_for(rng)

    def trace(self, rng: np.random.Generator, program: Any, wrong: dict[Call, int]) -> str:
        """A noisy trace of `program`, consistent with its own written results."""
        results, at, positions = [], program.start, self.dial.positions
        for operation, n in program.calls:
            step, mistaken = OPERATIONS[operation], None
            if (operation, n) in wrong:
                mistaken = step(at, wrong[operation, n]) % positions
            at = self.written(rng, step(at, n) % positions, mistaken, positions)
            results.append(at)
        return program.trace(results)

    def of_agent(self, rng: np.random.Generator, wrong: dict[Call, int]) -> Iterable[Pair]:
        depth, renamed = self.any_depth(rng), rng.random() < _RENAMED
        task = self.draw(self.dial.random_program, rng, depth, renamed)
        return [(self.dial.agent_messages(task), self.trace(rng, self.dial.program(task), wrong))]


@dataclasses.dataclass(frozen=True)
class Misunderstood:
    """What is misunderstood of Dial in turns: calls, with the argument that is taken instead, and tests."""

    calls: dict[Call, int]
    tests: frozenset[str]


class TurnsDemonstrator(Demonstrations):
    """Of Dial in turns: the agent's demonstrations are episodes."""

    def misunderstandings(self, rng: np.random.Generator) -> Misunderstood:
        return Misunderstood(self.taken_for(rng), frozenset(self.some(rng, list(self.dial.tests))))

    def answers(self, rng: np.random.Generator, task: Task, wrong: Misunderstood) -> list[str]:
        """The answers of an episode: calls, right or not, from where the dial then stands, and the end."""
        program, answers, spare = self.dial.program(task), [], self.dial.spare_turns
        at = program.start
        for number, call in enumerate(program.calls, 1):
            if isinstance(call, Choice):
                passes = at in self.dial.tests[call.test]
                mistaken = not passes if call.test in wrong.tests else None
                taken = self.written(rng, passes, mistaken, 2)
                call = call.call if taken else call.otherwise
            operation, n = call
            n = self.written(rng, n, wrong.calls.get(call), self.dial.arguments)
            while spare and rng.random() < _REFUSED:
                answers.append(f"{number} {self.refusal(rng, operation, at, n)}")
                spare -= 1
            answers.append(f"{number} {write((operation, at, n))}")
            at = turned((operation, at, n), self.dial.positions)
        return [*answers, f"{len(program.calls) + 1} done {at}"]

    def refusal(self, rng: np.random.Generator, operation: str, at: int, n: int) -> str:
        """A call that the environment refuses: of a tool that is not there, or from another position."""
        if rng.integers(2):
            return write((str(rng.choice(NEW_NAMES)), at, n))
        return write((operation, (at + n) % self.dial.positions, n))

    def episode(self, rng: np.random.Generator, wrong: Misunderstood) -> tuple[Task, list[str]]:
        """A task, and the answers to be given to its episode."""
        task = self.draw(self.dial.random_program, rng, self.any_depth(rng))
        return task, self.answers(rng, task, wrong)

    def of_agent(self, rng: np.random.Generator, wrong: Misunderstood) -> Iterable[Pair]:
        """See `Demonstrations.of_agent`: a whole episode."""
        return [play(self.dial, *self.episode(rng, wrong))]
