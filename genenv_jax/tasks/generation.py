"""An epoch's tasks: what the simulator wrote, and each generation's outcome."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from genenv_jax.benchmarks.base import Benchmark, Rejection, SeedStatistics, Task
from genenv_jax.benchmarks.shown import reference_text
from genenv_jax.rl.rewards import success_rate
from genenv_jax.run.checkpoint import pack_arrays
from genenv_jax.sampling.sampler import Rollouts
from genenv_jax.scoring import requests

# What the agent's attempts add to a generation.
_OUTCOME = ("attempts", "successes", "response_tokens", "prompt_tokens", "rerolled")


@dataclasses.dataclass
class Generation:
    """One text that the simulator wrote, and its outcome.

    Attributes:
      row, column: index of its context, and its index among that context's variations.
      seed_statistics: what the prompt states or asks for.
      task, rejection: the task if it was accepted, else the reason why not.
      attempts, successes: how often the agent attempted and solved it.
      response_tokens: total over all attempts.
      prompt_tokens: length of the agent's prompt.
      p_hat: p̂ used in the update, over this task or over its seed's variations.
      weight: weight in the update; 0 if it is left out.
      rerolled: success rate over extra rollouts that affect nothing else; None if not measured.
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
        """Stores the verifier's verdict."""
        if isinstance(outcome, Rejection):
            self.rejection = outcome
        else:
            self.task = outcome

    @property
    def turned_out(self) -> SeedStatistics:
        """The success rate that its prompt should have asked for."""
        return SeedStatistics.asked(self.p_hat)

    @property
    def success_rate(self) -> float:
        """The task's own success rate; NaN if it was not attempted."""
        return success_rate(self.successes, self.attempts)

    def is_as_asked(self, benchmark: Benchmark) -> bool:
        """Whether the accepted task has the difficulty that its prompt asked for, if any."""
        asked = self.seed_statistics.difficulty
        return asked is None or asked == benchmark.difficulty(self.task)

    def record(self, epoch: int, benchmark: Benchmark) -> dict[str, Any]:
        """Its record in tasks.jsonl, where epochs count from 1.  The benchmark renders the reference."""
        attempted = self.attempts > 0
        return {
            "epoch": epoch,
            "id": f"generated-{epoch}-{self.row}-{self.column}",
            "seed_id": self.seed.id,
            "context_success_rate": self.seed_statistics.success_rate,
            "context_success_at": self.seed_statistics.at if self.seed_statistics.attempts else None,
            "context_difficulty": self.seed_statistics.difficulty,
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
      generations: ordered by row and column.
      rollouts: their tokens; None if the simulator did not write them.
    """

    generations: Sequence[Generation]
    rollouts: Rollouts | None = None

    @classmethod
    def of_tasks(cls, tasks: Sequence[Task]) -> TaskBatch:
        """Tasks that the simulator did not write in this epoch."""
        return cls([Generation(i, 0, t, SeedStatistics(), "", task=t) for i, t in enumerate(tasks)])

    def state(self) -> dict[str, Any]:
        """What a mid-epoch checkpoint stores, as plain JSON; see `TaskSource.resume`."""
        outcomes = [[getattr(g, name) for name in _OUTCOME] for g in self.generations]
        return {
            "texts": [g.text for g in self.generations],
            "verdicts": requests.pack([g.task or g.rejection for g in self.generations]),
            "outcomes": outcomes,
            "rollouts": pack_arrays(self.rollouts.arrays()) if self.rollouts is not None else None,
        }

    def set_outcomes(self, state: Mapping[str, Any]) -> None:
        """Restores the outcomes of the agent's attempts from `state`."""
        for g, values in zip(self.generations, state["outcomes"], strict=True):
            for name, value in zip(_OUTCOME, values, strict=True):
                setattr(g, name, value)

    @property
    def accepted(self) -> list[Generation]:
        """The generations that were accepted as tasks."""
        return [g for g in self.generations if g.task]

    def weights(self) -> np.ndarray:
        """(S, n) weights of the simulator's update; 0 for generations that are left out."""
        table = np.zeros(self.rollouts.lengths.shape)
        for g in self.generations:
            table[g.row, g.column] = g.weight
        return table

    def r_env(self) -> np.ndarray:
        """(S, n) R_env: 0 for rejected generations, NaN for tasks without attempts."""
        table = np.full(self.rollouts.lengths.shape, np.nan)
        for g in self.generations:
            if g.rejection or g.attempts:
                table[g.row, g.column] = 0.0 if g.rejection else g.r_env
        return table
