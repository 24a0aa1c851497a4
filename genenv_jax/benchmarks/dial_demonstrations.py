"""Demonstrations from which the embedded default's base model is trained (its supervised warm start).

The agent's demonstrator is biased and noisy on purpose.  Trained on correct traces, a small model
would be right from the start or fail outright, and reinforcement learning would have nothing to do;
trained on these, its success falls smoothly with depth and its greedy answer is wrong for some tools,
so that learning has to change the argmax and not only sharpen it.

  misunderstood tools (a fixed share of all (operation, argument) pairs, `Dial.misunderstood`):
      right 30 % (`Dial.grasp`), mistaken in a fixed way 60 %, random 10 %
  other tools:
      right 90 %, random 10 %

A mistake (`Dial.mistakes`) is to take the call for one with another "argument", which in some positions comes
to the same, or to be off by a fixed "shift", which never does: then no choice of start and tools makes a
task easy, and the number of calls is all that makes it hard.

Written results are carried on, right or wrong, so the traces are consistent in themselves.
The simulator's demonstrator writes valid variations that are mostly longer than their seed, whatever the
success statistics say: to use them is what the simulator has to learn.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from genenv_jax.benchmarks.base import Message, SeedStatistics
from genenv_jax.benchmarks.dial import OPERATIONS, Dial, Program


@dataclasses.dataclass(frozen=True)
class Demonstrator:
    """Draws demonstrations for both roles.

    Attributes:
      dial: the benchmark; nothing that it holds out appears in a demonstration.
      right: how often a call that is understood is written rightly; one that is not is written rightly or
        in its mistaken way as often.
      renamed: share of the agent's demonstrations with renamed tools.
      depth_steps: probabilities that a variation has -1, 0, +1, +2 calls more than its seed.
    """

    dial: Dial
    right: float = 0.9
    renamed: float = 0.2
    depth_steps: tuple[float, float, float, float] = (0.15, 0.25, 0.35, 0.25)

    def misunderstandings(self, rng: np.random.Generator) -> dict[tuple[str, int], tuple[int, ...]]:
        """Each misunderstood call, and the next position that it is taken to lead to from each position."""
        arguments, positions = self.dial.arguments, self.dial.positions
        calls = [(operation, n) for operation in OPERATIONS for n in arguments]
        count = round(self.dial.misunderstood * len(calls))
        mistakes = {}
        for operation, n in [calls[i] for i in rng.permutation(len(calls))[:count]]:
            taken_for, shift = n, 0
            if self.dial.mistakes == "shift":
                shift = int(rng.integers(1, positions))
            else:
                taken_for = int(rng.choice([m for m in arguments if m != n]))
            step = OPERATIONS[operation]
            mistakes[operation, n] = tuple(
                (step(at, taken_for) + shift) % positions for at in range(positions)
            )
        return mistakes

    def trace(self, rng: np.random.Generator, program: Program, wrong: dict) -> str:
        """A noisy trace of `program`, consistent with its own written results."""
        results, at, positions = [], program.start, self.dial.positions
        for call in program.calls:
            true = OPERATIONS[call[0]](at, call[1]) % positions
            draw, right = rng.random(), self.right
            result = int(rng.integers(positions))
            if call in wrong:
                right = self.dial.grasp
                if draw < self.right:
                    result = wrong[call][at]
            if draw < right:
                result = true
            results.append(result)
            at = result
        return program.trace(results)

    def variation(self, rng: np.random.Generator, seed: Program) -> Program:
        """A program near `seed`: another start, some calls kept, usually longer."""
        step = int(rng.choice(4, p=self.depth_steps)) - 1
        depth = int(np.clip(len(seed.calls) + step, 1, self.dial.max_depth))
        fresh = self.dial.random_program(rng, depth)
        kept = [
            seed.calls[i] if i < len(seed.calls) and rng.random() < 0.5 else call
            for i, call in enumerate(fresh.calls)
        ]
        return Program(fresh.start, tuple(kept))

    def pairs(self, rng: np.random.Generator) -> Iterator[tuple[list[Message], str]]:
        """Endless (messages, completion) pairs, the roles in turn, held-out programs left out.

        The first draws of `rng` are the misunderstandings.
        """
        wrong = self.misunderstandings(rng)
        depths = [*range(1, self.dial.max_depth + 1), *self.dial.deeper]

        def draw(make, *arguments):
            while True:
                task = self.dial.task(make(rng, *arguments), id="", category="")
                if self.dial.canonical(task) not in self.dial.held_out:
                    return task

        while True:
            depth, renamed = int(rng.choice(depths)), rng.random() < self.renamed
            task = draw(self.dial.random_program, depth, renamed)
            yield self.dial.agent_messages(task), self.trace(rng, self.dial.program(task), wrong)
            seed = draw(self.dial.random_program, int(rng.integers(1, self.dial.max_depth + 1)))
            task = draw(self.variation, self.dial.program(seed))
            tenths = int(rng.integers(-1, 11))
            statistics = SeedStatistics() if tenths < 0 else SeedStatistics(10, tenths)
            yield self.dial.simulator_messages(seed, statistics), self.dial.simulator_answer(task)
