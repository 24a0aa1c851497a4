"""What the simulator wrote in an epoch and what became of it: p̂, R_env, weights and their metrics."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from genenv_jax.benchmarks.base import Rejection, Task
from genenv_jax.rl import rewards


@dataclasses.dataclass
class Generation:
    """One text of the simulator and what became of it.

    row, column: its context and its place among that context's variations.  task: where it was
    accepted, else rejection says why not.  attempts and successes are the agent's, p_hat is that of the
    update (its own, or its batch's), weight is 0 where it takes no part in the update.
    """

    row: int
    column: int
    seed: Task
    context_success_rate: float | None
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

    @property
    def success_rate(self) -> float:
        """The task's own success rate; NaN where it was not attempted."""
        return float(rewards.success_rate(self.successes, self.attempts))

    def record(self, epoch: int, task_id: str) -> dict[str, Any]:
        """Its line in tasks.jsonl."""
        attempted = self.attempts > 0
        return {
            "epoch": epoch,
            "id": task_id,
            "seed_id": self.seed.id,
            "context_success_rate": self.context_success_rate,
            "text": self.text,
            "verdict": self.rejection.reason if self.rejection else "accepted",
            "detail": self.rejection.detail if self.rejection else "",
            "task": self.task.to_json() if self.task else None,
            "attempts": self.attempts,
            "successes": self.successes,
            "p_hat": self.success_rate if attempted else None,
            "r_env": self.r_env if attempted else None,
            "weight": self.weight if attempted else None,
            "response_length_mean": self.response_tokens / self.attempts if attempted else None,
        }


def assign_rewards(generations: Sequence[Generation], config: ConfigDict) -> None:
    """Fills in p̂ (Eq. 2), R_env (Eq. 3) and, where a generation passes the filter, its RWR weight.

    Args:
      generations: of one epoch, with their attempts and successes.
      config: the run's; alpha, beta and k_min of `curriculum`, success_rate_over ("batch": p̂ is that
        of all variations of a seed together; "task": each has its own) and rwr_temperature of
        `simulator`.
    """
    curriculum, simulator = config.curriculum, config.simulator
    attempted = [g for g in generations if g.attempts]
    batches: dict[tuple[int, ...], list[Generation]] = {}
    for g in attempted:
        key = (g.row,) if simulator.success_rate_over == "batch" else (g.row, g.column)
        batches.setdefault(key, []).append(g)
    for batch in batches.values():
        successes, attempts = sum(g.successes for g in batch), sum(g.attempts for g in batch)
        p_hat = float(rewards.success_rate(successes, attempts))
        for g in batch:
            g.p_hat = p_hat
            g.r_env = float(rewards.curriculum_reward(p_hat, curriculum.alpha, curriculum.beta))
    kept = [
        g
        for g in attempted
        if rewards.difficulty_filter(g.p_hat, curriculum.alpha, curriculum.k_min)
    ]
    weights = rewards.rwr_weights([g.r_env for g in kept], simulator.rwr_temperature)
    for g, weight in zip(kept, weights, strict=True):
        g.weight = float(weight)


def generation_metrics(generations: Sequence[Generation], config: ConfigDict) -> dict[str, float]:
    """Metrics "generated/...": validity, rejections by reason, success rates of the tasks, lengths.

    Success rates here are the tasks' own, whatever the update's p̂ is taken over.
    """
    metrics: dict[str, float] = {
        "generated/count": len(generations),
        "generated/valid_share": np.mean([g.task is not None for g in generations]),
    }
    for g in generations:
        if g.rejection:
            name = f"generated/rejected/{g.rejection.reason}"
            metrics[name] = metrics.get(name, 0) + 1
    attempted = [g for g in generations if g.attempts]
    if attempted:
        rates = np.array([g.success_rate for g in attempted])
        curriculum = config.curriculum
        inside = rewards.difficulty_filter(rates, curriculum.alpha, curriculum.k_min)
        metrics |= {
            "generated/p_hat_mean": rates.mean(),
            "generated/p_hat_in_band": inside.mean(),
            "generated/solved_all": int((rates == 1).sum()),
            "generated/solved_none": int((rates == 0).sum()),
            "generated/task_length_mean": np.mean([g.prompt_tokens for g in attempted]),
            "generated/r_env_mean": np.mean([g.r_env for g in attempted]),
        }
    return metrics
