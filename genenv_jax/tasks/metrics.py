"""The "generated/..." metrics of an epoch's generations."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from genenv_jax.benchmarks import thoughts
from genenv_jax.benchmarks.base import UNDECIDED, Benchmark, Task, skills
from genenv_jax.benchmarks.success_record import ASKED
from genenv_jax.rl.rewards import difficulty_filter
from genenv_jax.scoring.verification import grounding
from genenv_jax.tasks.generation import Generation


def generation_metrics(
    generations: Sequence[Generation], benchmark: Benchmark, alpha: float, k_min: float
) -> dict[str, float]:
    """Validity, rejections by reason, success rates, lengths and diversity.

    Success rates here are per task, whatever the update's p̂ is taken over.  "grown_share": share of the
    generations whose context is a task of an earlier epoch.  "p_hat_in_band": share of tasks within k_min of
    alpha.  "undecided_share": share of the accepted tasks where the benchmark cannot tell whether the
    reference follows from the request (`Benchmark.grounding`).  "as_asked_share": share of them that have the
    difficulty that their prompt asked for.
    """
    metrics: dict[str, float] = {
        "count": len(generations),
        "valid_share": np.mean([g.task is not None for g in generations]),
        "grown_share": np.mean([g.seed.origin == "generated" and g.seed is not g.task for g in generations]),
    }
    metrics |= thoughts.lengths([g.text for g in generations])
    reasons = Counter(g.rejection.reason for g in generations if g.rejection)
    metrics |= {f"rejected/{reason}": count for reason, count in reasons.items()}
    attempted = [g for g in generations if g.attempts]
    if attempted:
        rates = np.array([g.success_rate for g in attempted])
        metrics |= {
            "p_hat_mean": rates.mean(),
            "p_hat_in_band": difficulty_filter(rates, alpha, k_min).mean(),
            "solved_all": int((rates == 1).sum()),
            "solved_none": int((rates == 0).sum()),
            "task_length_mean": np.mean([g.prompt_tokens for g in attempted]),
            "r_env_mean": np.mean([g.r_env for g in attempted]),
            "p_hat_sd": rates.std(),
        }
    accepted = [g.task for g in generations if g.task]
    grounded = [grounding(benchmark, task) for task in accepted]
    if grounded and grounded[0] is not None:
        metrics["undecided_share"] = np.mean([found == UNDECIDED for found in grounded])
    metrics |= diversity(accepted, benchmark)
    asked = [g for g in generations if g.task and g.seed_statistics.difficulty is not None]
    if asked:
        metrics["as_asked_share"] = np.mean([g.is_as_asked(benchmark) for g in asked])
    metrics |= calibration(generations, alpha, k_min)
    metrics |= steering(attempted)
    return {f"generated/{name}": value for name, value in metrics.items()}


def diversity(tasks: Sequence[Task], benchmark: Benchmark) -> dict[str, float]:
    """How much tasks differ; {} if the benchmark cannot tell.

    Difficulty, number of kinds of task and their entropy (nats), and the entropy of the skills they need.
    """
    known = [of for task in tasks if (of := benchmark.difficulty(task)) is not None]
    if not known:
        return {}
    difficulties = np.array(known)
    kinds = Counter(benchmark.signature(task) for task in tasks)
    asked = Counter(skill for task in tasks for skill in skills(benchmark, task))
    return {
        "difficulty_mean": float(difficulties.mean()),
        "difficulty_sd": float(difficulties.std()),
        "distinct_signatures": len(kinds),
        "signature_entropy": _entropy(kinds),
        "skill_entropy": _entropy(asked),
    }


def _entropy(counts: Counter[str]) -> float:
    shares = np.array(list(counts.values())) / counts.total()
    return float(-(shares * np.log(shares)).sum())


def steering(attempted: Sequence[Generation]) -> dict[str, float]:
    """How closely tasks match the success rate asked for; {} if none was asked for.

    "asked_gap": mean success rate minus the mean asked for.  "asked_correlation": correlation of both over
    the tasks, if they vary; a task's own ten attempts limit it (docs/results/curriculum.md).
    """
    asked = [g for g in attempted if g.seed_statistics.at == ASKED]
    if not asked:
        return {}
    wanted = np.array([g.seed_statistics.success_rate for g in asked])
    rates = np.array([g.success_rate for g in asked])
    metrics = {"asked_gap": float(rates.mean() - wanted.mean())}
    if wanted.std() and rates.std():
        metrics["asked_correlation"] = float(np.corrcoef(wanted, rates)[0, 1])
    return metrics


def calibration(generations: Sequence[Generation], alpha: float, k_min: float) -> dict[str, float]:
    """Success rates over independent rollouts, of all re-rolled tasks and of those in the band.

    "p_rerolled_mean": over all.  "p_rerolled_in_band": mean independent rate of the tasks whose p̂ was within
    k_min of alpha.  "p_rerolled_gap": their mean |rate − alpha|; "p_hat_gap": the same with their own p̂.
    """
    rerolled = [g for g in generations if g.rerolled is not None]
    if not rerolled:
        return {}
    rates = np.array([g.rerolled for g in rerolled])
    p_hat = np.array([g.success_rate for g in rerolled])
    metrics = {"p_rerolled_mean": float(rates.mean())}
    inside = difficulty_filter(p_hat, alpha, k_min)
    if inside.any():
        metrics |= {
            "p_rerolled_in_band": float(rates[inside].mean()),
            "p_rerolled_gap": float(np.abs(rates[inside] - alpha).mean()),
            "p_hat_gap": float(np.abs(p_hat[inside] - alpha).mean()),
        }
    return metrics
