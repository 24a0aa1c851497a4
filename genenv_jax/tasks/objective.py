"""The simulator's objective: p̂, R_env, filter and weights of an epoch's generations (Eq. 2 and 3)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from genenv_jax.benchmarks.base import Benchmark, skills
from genenv_jax.players.simulator import SimulatorConfig
from genenv_jax.rl import difficulty, rewards
from genenv_jax.rl.weights import coverage_weights, group_weights
from genenv_jax.settings import Settings, choice, within
from genenv_jax.tasks.generation import Generation, TaskBatch
from genenv_jax.tasks.growth import GrowthConfig


@dataclasses.dataclass(frozen=True)
class CurriculumConfig(Settings):
    """`config.curriculum`.

    alpha, beta: of R_env.  k_min: generations with |p̂ − α| above it are left out of the update.
    seeds_per_epoch: how many seed tasks an epoch varies; 0: all.
    score: what R_env is: "alpha": Eq. 3; "learnability": 4p(1−p); "progress": |Δp̂| since the seed's last
    variations, less what sampling alone makes of it.
    estimate: p̂: "mle": k / n; "posterior": the mean of a Beta posterior whose prior is fitted to the epoch's
    tasks, and scores are expectations under it.
    growth: see `tasks.growth`.
    """

    alpha: float = within(0.5, 0, 1)
    beta: float = within(2.0, 0)
    k_min: float = within(0.1, 0, 1)
    seeds_per_epoch: int = within(0, 0)
    score: str = choice("alpha", "learnability", "progress")
    estimate: str = choice("mle", "posterior")
    growth: GrowthConfig = GrowthConfig()


# (successes, attempts, successes before, attempts before), (T,) each -> p̂ and R_env, (T,) each.
Scores = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def alpha_scores(alpha: float, beta: float) -> Scores:
    """R_env = exp(−β(p̂ − α)²)."""

    def scores(successes, attempts, *before):
        p_hat = rewards.success_rate(successes, attempts)
        return p_hat, rewards.curriculum_reward(p_hat, alpha, beta)

    return scores


def learnability_scores(successes, attempts, *before) -> tuple[np.ndarray, np.ndarray]:
    """R_env is the unbiased estimate of 4p(1−p); 0 after one attempt, which says nothing of it."""
    p_hat = rewards.success_rate(successes, attempts)
    return p_hat, np.nan_to_num(difficulty.learnability(successes, attempts))


def progress_scores(
    successes, attempts, successes_before, attempts_before
) -> tuple[np.ndarray, np.ndarray]:
    """R_env is the corrected learning progress; 0 for what was never tried before."""
    progress = difficulty.corrected_learning_progress(
        successes_before, attempts_before, successes, attempts
    )
    return rewards.success_rate(successes, attempts), np.nan_to_num(progress)


def posterior_scores(expected: Callable[..., np.ndarray]) -> Scores:
    """p̂ is the posterior mean and R_env `expected(a, b)`, under a prior fitted to these tasks."""

    def scores(successes, attempts, *before):
        prior = difficulty.fit_beta_prior(successes, attempts)
        a, b = difficulty.posterior(successes, attempts, prior)
        return difficulty.posterior_mean(a, b), expected(a, b)

    return scores


def posterior_mean_with(scores: Scores) -> Scores:
    """p̂ is the posterior mean, R_env that of `scores`."""

    def both(*counts):
        p_hat, _ = posterior_scores(lambda a, b: a)(*counts)
        return p_hat, scores(*counts)[1]

    return both


def make_scores(config: CurriculumConfig) -> Scores:
    """The scores that `score` and `estimate` name."""
    alpha, beta = config.alpha, config.beta
    plain: dict[str, Scores] = {
        "alpha": alpha_scores(alpha, beta),
        "learnability": learnability_scores,
        "progress": progress_scores,
    }
    uncertain: dict[str, Scores] = {
        "alpha": posterior_scores(
            lambda a, b: difficulty.expected_curriculum_reward(a, b, alpha, beta)
        ),
        "learnability": posterior_scores(difficulty.expected_learnability),
        # Noise is taken off by the counts themselves.
        "progress": posterior_mean_with(progress_scores),
    }
    return (uncertain if config.estimate == "posterior" else plain)[config.score]


class Objective:
    """See the module's docstring.

    Args:
      curriculum: `config.curriculum`.
      simulator: `config.simulator`.
      benchmark: says of what kind a task is, where weights depend on it.
    """

    def __init__(
        self, curriculum: CurriculumConfig, simulator: SimulatorConfig, benchmark: Benchmark
    ):
        self._curriculum, self._simulator, self._benchmark = curriculum, simulator, benchmark
        self._scores = make_scores(curriculum)

    def assign(self, batch: TaskBatch) -> None:
        """Fills in p̂ (Eq. 2), R_env and, where a generation passes the filter, its weight."""
        attempted = [g for g in batch.generations if g.attempts]
        if not attempted:
            return
        groups: dict[tuple[int, ...], list[Generation]] = {}
        over_batch = self._simulator.success_rate_over == "batch"
        for g in attempted:
            groups.setdefault((g.row,) if over_batch else (g.row, g.column), []).append(g)
        counts = [
            (
                sum(g.successes for g in group),
                sum(g.attempts for g in group),
                group[0].before.successes,
                group[0].before.attempts,
            )
            for group in groups.values()
        ]
        scored = self._scores(*np.array(counts, float).T)
        for group, p_hat, r_env in zip(groups.values(), *scored, strict=True):
            for g in group:
                g.p_hat, g.r_env = float(p_hat), float(r_env)
        self._weigh(self._filtered(attempted))

    def _filtered(self, attempted: Sequence[Generation]) -> list[Generation]:
        """Those close to alpha, where R_env is about the distance to it; else all."""
        c = self._curriculum
        if c.score != "alpha":
            return list(attempted)
        passes = rewards.difficulty_filter([g.p_hat for g in attempted], c.alpha, c.k_min)
        return [g for g, keep in zip(attempted, passes, strict=True) if keep]

    def _weigh(self, kept: Sequence[Generation]) -> None:
        c, rewarded = self._simulator, [g.r_env for g in kept]
        if c.weights_over == "all":
            weights = rewards.rwr_weights(rewarded, c.rwr_temperature)
        else:
            by_kind = c.weights_over == "signature"
            groups = [self._benchmark.signature(g.task) if by_kind else g.row for g in kept]
            weights = group_weights(rewarded, groups, c.rwr_temperature)
        if c.coverage:
            of = [skills(self._benchmark, g.task) for g in kept]
            weights = coverage_weights(weights, of, c.coverage)
        for g, weight in zip(kept, weights, strict=True):
            g.weight = float(weight)
