"""An epoch's tasks: what the simulator wrote, and what became of each generation."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from genenv_jax.benchmarks.base import Benchmark, Rejection, SeedStatistics, Task
from genenv_jax.benchmarks.shown import reference_text
from genenv_jax.rl.rewards import success_rate
from genenv_jax.sampling.engine import Rollouts


@dataclasses.dataclass
class Generation:
    """One text of the simulator and what became of it.

    Attributes:
      row, column: its context, and its place among that context's variations.
      seed_statistics: how the seed's variations fared the last time, which is what the context says.
      task, rejection: the task where it was accepted, else why not.
      attempts, successes: the agent's.
      response_tokens: of all attempts together.
      prompt_tokens: of the agent's prompt.
      p_hat: that of the update: its own, or that of its seed's variations.
      weight: in the update; 0 where it takes no part.
      rerolled: its success rate by rollouts that decide nothing; None where it was not measured.
    """

    row: int
    column: int
    seed: Task
    seed_statistics: SeedStatistics
    text: str
    task: Task | None = None
    rejection: Rejection | None = None
    attempts: int = 0
    successes: int = 0
    response_tokens: int = 0
    prompt_tokens: int = 0
    p_hat: float = float("nan")
    r_env: float = float("nan")
    weight: float = 0.0
    rerolled: float | None = None

    def set_verdict(self, outcome: Task | Rejection) -> None:
        """Takes the verifier's verdict."""
        if isinstance(outcome, Rejection):
            self.rejection = outcome
        else:
            self.task = outcome

    @property
    def success_rate(self) -> float:
        """The task's own success rate; NaN where it was not attempted."""
        return float(success_rate(self.successes, self.attempts))

    def record(self, epoch: int, benchmark: Benchmark) -> dict[str, Any]:
        """Its line in tasks.jsonl; epochs count from 1 there.  The benchmark writes the reference."""
        attempted = self.attempts > 0
        return {
            "epoch": epoch,
            "id": f"generated-{epoch}-{self.row}-{self.column}",
            "seed_id": self.seed.id,
            "context_success_rate": self.seed_statistics.success_rate,
            "text": self.text,
            "verdict": self.rejection.reason if self.rejection else "accepted",
            "detail": self.rejection.detail if self.rejection else "",
            "task": self.task.to_json() if self.task else None,
            "reference": reference_text(benchmark, self.task) if self.task else None,
            "attempts": self.attempts,
            "successes": self.successes,
            "p_hat": self.success_rate if attempted else None,
            "r_env": self.r_env if attempted else None,
            "weight": self.weight if attempted else None,
            "prompt_length": self.prompt_tokens if attempted else None,
            "response_length_mean": self.response_tokens / self.attempts if attempted else None,
        }


@dataclasses.dataclass(frozen=True)
class TaskBatch:
    """An epoch's generations.

    Attributes:
      generations: by context and place.
      rollouts: their tokens; None where the simulator did not write them.
    """

    generations: Sequence[Generation]
    rollouts: Rollouts | None = None

    @classmethod
    def of_tasks(cls, tasks: Sequence[Task]) -> TaskBatch:
        """Tasks that the simulator did not write in this epoch."""
        nothing = SeedStatistics()
        return cls([Generation(i, 0, t, nothing, "", task=t) for i, t in enumerate(tasks)])

    @property
    def accepted(self) -> list[Generation]:
        """Those that are tasks."""
        return [g for g in self.generations if g.task]

    def weights(self) -> np.ndarray:
        """(S, n) weights of the simulator's update; 0 where a generation takes no part."""
        table = np.zeros(self.rollouts.lengths.shape)
        for g in self.generations:
            table[g.row, g.column] = g.weight
        return table

    def r_env(self, invalid_reward: float) -> np.ndarray:
        """(S, n) R_env; of what was rejected `invalid_reward`, NaN where a task has none."""
        table = np.full(self.rollouts.lengths.shape, np.nan)
        for g in self.generations:
            if g.rejection or g.attempts:
                table[g.row, g.column] = invalid_reward if g.rejection else g.r_env
        return table
