"""What the simulator wrote in an epoch and what became of it: p̂, R_env, weights and their metrics."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from genenv_jax.benchmarks.base import Benchmark, Rejection, SeedStatistics, Shaped, Task
from genenv_jax.rl import difficulty, rewards
from genenv_jax.rl.weights import within_seed_weights


@dataclasses.dataclass
class Generation:
    """One text of the simulator and what became of it.

    row, column: its context and its place among that context's variations.  before: how the seed's
    variations fared the last time, which is what the context says.  task: where it was accepted, else
    rejection says why not.  attempts and
    successes are the agent's, p_hat is that of the update (its own, or its batch's), weight is 0 where it
    takes no part in the update.
    """

    row: int
    column: int
    seed: Task
    before: SeedStatistics
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

    def settle(self, outcome: Task | Rejection) -> None:
        """Takes the gate's verdict."""
        if isinstance(outcome, Rejection):
            self.rejection = outcome
        else:
            self.task = outcome

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
            "context_success_rate": self.before.success_rate,
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
    """Fills in p̂ (Eq. 2), R_env and, where a generation passes the filter, its weight.

    Args:
      generations: of one epoch, with their attempts and successes.
      config: the run's; of `simulator` success_rate_over ("batch": p̂ is that of all variations of a seed
        together; "task": each has its own), rwr_temperature and weights_over; of `curriculum` alpha,
        beta, k_min, and `score` and `estimate`, which say what R_env is (`curriculum_scores`).
    """
    curriculum, simulator = config.curriculum, config.simulator
    attempted = [g for g in generations if g.attempts]
    batches: dict[tuple[int, ...], list[Generation]] = {}
    for g in attempted:
        key = (g.row,) if simulator.success_rate_over == "batch" else (g.row, g.column)
        batches.setdefault(key, []).append(g)
    groups = list(batches.values())
    if not groups:
        return
    p_hat, r_env = curriculum_scores(
        [sum(g.successes for g in group) for group in groups],
        [sum(g.attempts for g in group) for group in groups],
        [group[0].before for group in groups],
        curriculum,
    )
    for group, p, r in zip(groups, p_hat, r_env, strict=True):
        for g in group:
            g.p_hat, g.r_env = float(p), float(r)
    kept = attempted
    if curriculum.score == "alpha":  # the filter is about the distance to alpha
        passes = rewards.difficulty_filter(
            [g.p_hat for g in attempted], curriculum.alpha, curriculum.k_min
        )
        kept = [g for g, keep in zip(attempted, passes, strict=True) if keep]
    table = np.zeros((2, max(g.row for g in generations) + 1, simulator.variations))
    for g in kept:
        table[:, g.row, g.column] = g.r_env, 1.0
    if simulator.weights_over == "seed":
        weights = within_seed_weights(*table, simulator.rwr_temperature)
        for g in kept:
            g.weight = float(weights[g.row, g.column])
        return
    weights = rewards.rwr_weights([g.r_env for g in kept], simulator.rwr_temperature)
    for g, weight in zip(kept, weights, strict=True):
        g.weight = float(weight)


def curriculum_scores(
    successes: Sequence[int],
    attempts: Sequence[int],
    before: Sequence[SeedStatistics],
    curriculum: ConfigDict,
) -> tuple[np.ndarray, np.ndarray]:
    """p̂ and R_env of an epoch's tasks (or batches of them).

    Args:
      successes, attempts: (T,) of each; at least one attempt.
      before: (T,) how the seeds' variations fared the last time; read by "progress" alone, which takes the
        counts as they are, whatever the estimate.
      curriculum: the configuration's part.
    Returns:
      ((T,), (T,)) float64.
    """
    successes, attempts = np.asarray(successes, float), np.asarray(attempts, float)
    posterior = curriculum.estimate == "posterior"
    a = b = np.zeros(0)
    if posterior:
        prior = difficulty.fit_beta_prior(successes, attempts)
        a, b = difficulty.posterior(successes, attempts, prior)
        p_hat = difficulty.posterior_mean(a, b)
    else:
        p_hat = rewards.success_rate(successes, attempts)
    match curriculum.score:
        case "alpha" if posterior:
            shape = curriculum.alpha, curriculum.beta
            return p_hat, difficulty.expected_curriculum_reward(a, b, *shape)
        case "alpha":
            return p_hat, rewards.curriculum_reward(p_hat, curriculum.alpha, curriculum.beta)
        case "learnability" if posterior:
            return p_hat, difficulty.expected_learnability(a, b)
        case "learnability":
            # One attempt says nothing of it.
            return p_hat, np.nan_to_num(difficulty.learnability(successes, attempts))
    last = np.array([(b.successes, b.attempts) for b in before]).T
    progress = difficulty.corrected_learning_progress(*last, successes, attempts)
    # What was never tried before has shown no progress yet.
    return p_hat, np.nan_to_num(progress)


def diversity_metrics(tasks: Sequence[Task], benchmark: Benchmark) -> dict[str, float]:
    """How much the tasks of an epoch differ, where the benchmark can say.

    "generated/difficulty_mean", "generated/difficulty_sd", "generated/distinct_signatures" (how many kinds
    of task) and "generated/signature_entropy" (in nats).
    """
    if not tasks or not isinstance(benchmark, Shaped):
        return {}
    difficulties = np.array([benchmark.difficulty(task) for task in tasks])
    counts = np.array(list(Counter(benchmark.signature(task) for task in tasks).values()))
    shares = counts / counts.sum()
    return {
        "generated/difficulty_mean": float(difficulties.mean()),
        "generated/difficulty_sd": float(difficulties.std()),
        "generated/distinct_signatures": len(counts),
        "generated/signature_entropy": float(-(shares * np.log(shares)).sum()),
    }


def reroll_metrics(
    rerolled: Sequence[tuple[Generation, float]], config: ConfigDict
) -> dict[str, float]:
    """Success rates by independent rollouts, of all re-rolled tasks and of those that were kept.

    "generated/p_rerolled_mean"; "generated/p_rerolled_in_band": the mean of the independent rate over the
    tasks whose p̂ was within k_min of alpha; "generated/p_rerolled_gap": mean |rate - alpha| of those, where
    "generated/p_hat_gap" is what their own p̂ makes believe.
    """
    if not rerolled:
        return {}
    curriculum = config.curriculum
    rates = np.array([rate for _, rate in rerolled])
    p_hat = np.array([g.success_rate for g, _ in rerolled])
    inside = rewards.difficulty_filter(p_hat, curriculum.alpha, curriculum.k_min)
    metrics = {"generated/p_rerolled_mean": float(rates.mean())}
    if inside.any():
        alpha = curriculum.alpha
        metrics |= {
            "generated/p_rerolled_in_band": float(rates[inside].mean()),
            "generated/p_rerolled_gap": float(np.abs(rates[inside] - alpha).mean()),
            "generated/p_hat_gap": float(np.abs(p_hat[inside] - alpha).mean()),
        }
    return metrics


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
            "generated/p_hat_sd": rates.std(),
        }
    return metrics
