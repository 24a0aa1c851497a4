"""Demonstrations for the supervised warm start of the embedded defaults' base models.

The agent's demonstrator is biased and noisy on purpose.  A small model trained on correct answers would
be right from the start or fail outright, and reinforcement learning would have nothing to do.  Trained on
these demonstrations, its success falls smoothly with depth and its greedy answer is wrong for some tools,
so learning has to change the argmax and not only sharpen it.

  misunderstood (a fixed share of all calls and tests, `DialTasks.misunderstood`):
      right 30 % (`DialTasks.grasp`), mistaken in a fixed way 60 %, random 10 %
  others:
      right 90 %, random 10 %

A misunderstood call is mistaken for one with another argument, which in some positions has the same result;
a misunderstood test takes the other branch.

The simulator's demonstrator writes valid variations that are mostly longer than their seed.  The success
statistics beside a seed are those of the agent's demonstrator, so they say how hard the seed is.  The
demonstrator does not act on them: the simulator has to learn to.  It acts on a rate that is asked for
(`DialTasks.asked`).
"""

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
from genenv_jax.benchmarks.success_record import ALIKE, OWN, RECENT

Pair = tuple[list[Message], Completion]  # a player's prompt and what it writes
Wrong = dict[Call | str, int | None]  # misunderstood calls, with the argument used instead, and tests

_RIGHT = 0.9  # share of answers that are not random: right ones, or mistaken ones if misunderstood
# Shares of variations with -1, 0, +1, +2 calls relative to their seed.
_MORE_CALLS = (0.15, 0.25, 0.35, 0.25)
# Variations of each depth to choose from if a success rate is asked for.  If calls are right in .1 or .9 of
# the cases, rates asked for and chosen have correlation .78; with one variation of each depth, .48.
_TRIED = 6
_RENAMED = 0.2  # share of Dial's demonstrations with renamed tools
_REFUSED = 0.03  # share of the answers in turns that the environment refuses


class Demonstrations(abc.ABC):
    """Draws demonstrations for both roles; none contains a task that `dial` holds out."""

    def __init__(self, dial: DialTasks):
        self.dial = dial

    def misunderstandings(self, rng: np.random.Generator) -> Wrong:
        """Draws what is misunderstood."""
        some, arguments = self.some(rng, self.dial.plain), self.dial.arguments
        others = {(name, n): [m for m in arguments if m != n] or [n] for name, n in some}
        return {call: int(rng.choice(of)) for call, of in others.items()}

    @abc.abstractmethod
    def of_agent(self, rng: np.random.Generator, wrong: Wrong) -> Iterable[Pair]:
        """The agent's pairs for one task."""

    def pairs(self, rng: np.random.Generator) -> Iterator[Pair]:
        """Endless pairs, alternating between roles; the first draws choose the misunderstandings."""
        wrong = self.misunderstandings(rng)
        while True:
            yield from self.of_agent(rng, wrong)
            yield self.of_simulator(rng, wrong)

    @abc.abstractmethod
    def chances(self, program: Any, wrong: Wrong) -> list[float]:
        """The chance that the agent's demonstrator writes each call and test of a program right."""

    def of_simulator(self, rng: np.random.Generator, wrong: Wrong) -> Pair:
        """A pair for the simulator: a seed with the demonstrator's success at it, and a variation of it."""
        depth = int(rng.integers(1, self.dial.max_depth + 1))
        seed = self.draw(self.dial.random_program, rng, depth)
        program = self.dial.program(seed)
        if self.dial.asked and rng.random() < self.dial.asked:
            statistics = SeedStatistics.asked(rng.integers(11) / 10)
            task = self.asked(rng, program, statistics.success_rate, wrong)
        else:
            task = self.draw(self.variation, rng, program)
            solved = rng.binomial(10, np.prod(self.chances(program, wrong)))
            at = (OWN, ALIKE, RECENT)[rng.integers(3)]
            known = rng.integers(11)
            statistics = SeedStatistics(10, int(solved), at) if known else SeedStatistics()
        return self.dial.simulator_messages(seed, statistics), self.dial.simulator_answer(task)

    def asked(self, rng: np.random.Generator, seed: Any, rate: float, wrong: Wrong) -> Task:
        """Among variations of `seed` of each depth, the one with success rate nearest to `rate`."""
        depths = [*range(1, self.dial.max_depth + 1)] * _TRIED
        tasks = [self.draw(self.variation, rng, seed, depth) for depth in depths]
        chances = [np.prod(self.chances(self.dial.program(task), wrong)) for task in tasks]
        return tasks[int(np.argmin(np.abs(np.array(chances) - rate)))]

    def variation(self, rng: np.random.Generator, seed: Any, depth: int = 0) -> Any:
        """A program similar to `seed`: another start, some calls kept, `depth` calls or usually longer."""
        if not depth:
            step = int(rng.choice(4, p=_MORE_CALLS)) - 1
            depth = int(np.clip(len(seed.calls) + step, 1, self.dial.max_depth))
        fresh = self.dial.random_program(rng, depth)
        kept = [
            seed.calls[i] if i < len(seed.calls) and rng.random() < 0.5 else call
            for i, call in enumerate(fresh.calls)
        ]
        return dataclasses.replace(fresh, calls=tuple(kept))

    def draw(self, make: Any, *arguments: Any) -> Task:
        """A task from a program that `make` draws and that is not held out."""
        return self.dial.fresh(functools.partial(make, *arguments), self.dial.held_out, id="", category="")

    def any_depth(self, rng: np.random.Generator) -> int:
        """A random depth for an agent demonstration."""
        return int(rng.choice([*range(1, self.dial.max_depth + 1), *self.dial.deeper]))

    def some(self, rng: np.random.Generator, things: list) -> list:
        """A random subset of `things`, of the misunderstood share."""
        count = round(self.dial.misunderstood * len(things))
        return [things[i] for i in rng.permutation(len(things))[:count]]

    def chance(self, misunderstood: bool) -> float:
        """The chance of a right one, see `written`."""
        return self.dial.grasp if misunderstood else _RIGHT

    def written(self, rng: np.random.Generator, true: int, mistaken: int | None, any_of: Any) -> int:
        """One of three at random: `true`, `mistaken` (None if it is understood) or a draw from `any_of`."""
        draw, found = rng.random(), int(rng.choice(any_of))
        right = self.chance(mistaken is not None)
        if mistaken is not None and draw < _RIGHT:
            found = mistaken
        return true if draw < right else found


class Demonstrator(Demonstrations):
    """Demonstrations for Dial."""

    def chances(self, program: Any, wrong: Wrong) -> list[float]:
        return [self.chance(call in wrong) for call in program.calls]

    def trace(self, rng: np.random.Generator, program: Any, wrong: Wrong) -> str:
        """A noisy trace of `program`; each call starts from the written result, right or wrong."""
        results, at, positions = [], program.start, self.dial.positions
        for operation, n in program.calls:
            step, mistaken = OPERATIONS[operation], None
            if (operation, n) in wrong:
                mistaken = step(at, wrong[operation, n]) % positions
            at = self.written(rng, step(at, n) % positions, mistaken, positions)
            results.append(at)
        return program.trace(results)

    def of_agent(self, rng: np.random.Generator, wrong: Wrong) -> Iterable[Pair]:
        depth, renamed = self.any_depth(rng), rng.random() < _RENAMED
        task = self.draw(self.dial.random_program, rng, depth, renamed)
        return [(self.dial.agent_messages(task), self.trace(rng, self.dial.program(task), wrong))]


class TurnsDemonstrator(Demonstrations):
    """Demonstrations for Dial in turns; the agent's are episodes."""

    def misunderstandings(self, rng: np.random.Generator) -> Wrong:
        """Adds tests."""
        return super().misunderstandings(rng) | dict.fromkeys(self.some(rng, list(self.dial.tests)))

    def chances(self, program: Any, wrong: Wrong) -> list[float]:
        choices = [call for call in program.calls if isinstance(call, Choice)]
        of_tests = [self.chance(choice.test in wrong) for choice in choices]
        calls = [c.call if isinstance(c, Choice) else c for c in program.calls]
        return of_tests + [self.chance(call in wrong) for call in calls]

    def answers(self, rng: np.random.Generator, task: Task, wrong: Wrong) -> list[str]:
        """The answers of an episode: right or wrong calls from the dial's current position, then the end."""
        program, answers, spare = self.dial.program(task), [], self.dial.spare_turns
        at = program.start
        for number, call in enumerate(program.calls, 1):
            if isinstance(call, Choice):
                passes = at in self.dial.tests[call.test]
                mistaken = not passes if call.test in wrong else None
                taken = self.written(rng, passes, mistaken, 2)
                call = call.call if taken else call.otherwise
            operation, n = call
            n = self.written(rng, n, wrong.get(call), self.dial.arguments)
            while spare and rng.random() < _REFUSED:
                answers.append(f"{number} {self.refusal(rng, operation, at, n)}")
                spare -= 1
            answers.append(f"{number} {write((operation, at, n))}")
            at = turned((operation, at, n), self.dial.positions)
        return [*answers, f"{len(program.calls) + 1} done {at}"]

    def refusal(self, rng: np.random.Generator, operation: str, at: int, n: int) -> str:
        """A call that the environment refuses: of an unknown tool, or from the wrong position."""
        if rng.integers(2):
            return write((str(rng.choice(NEW_NAMES)), at, n))
        return write((operation, (at + n) % self.dial.positions, n))

    def episode(self, rng: np.random.Generator, wrong: Wrong) -> tuple[Task, list[str]]:
        """A task and the answers to give to its episode."""
        task = self.draw(self.dial.random_program, rng, self.any_depth(rng))
        return task, self.answers(rng, task, wrong)

    def of_agent(self, rng: np.random.Generator, wrong: Wrong) -> Iterable[Pair]:
        return [play(self.dial, *self.episode(rng, wrong))]
