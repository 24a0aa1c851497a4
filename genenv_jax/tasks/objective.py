"""The simulator's objective: p̂, R_env, filter and weights of an epoch's generations (Eq. 2 and 3)."""

import dataclasses
from collections.abc import Sequence

from genenv_jax.benchmarks.base import Benchmark, skills
from genenv_jax.players.simulator import SimulatorConfig
from genenv_jax.rl import rewards
from genenv_jax.rl.weights import coverage_weights
from genenv_jax.settings import Settings, within
from genenv_jax.tasks.generation import Generation, TaskBatch
from genenv_jax.tasks.growth import GrowthConfig


@dataclasses.dataclass(frozen=True)
class CurriculumConfig(Settings):
    """`config.curriculum`.

    Attributes:
      alpha: target success rate α of R_env.
      beta: how steeply R_env falls off on either side of α.
      k_min: generations with |p̂ − α| above it are left out of the simulator's update (with
        simulator.method = "rwr").
      seeds_per_epoch: seed tasks varied per epoch; 0: all.
      growth: tasks that outgrow the seeds, see `tasks.growth`.
    """

    alpha: float = within(0.5, 0, 1)
    beta: float = within(2.0, 0)
    k_min: float = within(0.1, 0, 1)
    seeds_per_epoch: int = within(0, 0, 2**20)
    growth: GrowthConfig = GrowthConfig()


class Objective:
    """See the module's docstring.

    benchmark: says which skills a task asks for.
    """

    def __init__(self, curriculum: CurriculumConfig, simulator: SimulatorConfig, benchmark: Benchmark):
        self._curriculum, self._simulator, self._benchmark = curriculum, simulator, benchmark

    def assign(self, batch: TaskBatch) -> None:
        """Sets p̂ (Eq. 2), R_env and, for generations that the simulator is trained on, the weight.

        A task of another difficulty than its prompt asked for earns nothing.  Rates are pooled, filtered and
        weighted for reward-weighted regression alone; the other methods compare a seed's variations.
        """
        attempted, c = [g for g in batch.generations if g.attempts], self._curriculum
        regression = self._simulator.method == "rwr"
        pools = regression and self._simulator.success_rate_over == "batch"
        groups: dict[tuple[int, bool], list[Generation]] = {}
        for g in attempted:
            groups.setdefault((g.row, g.is_as_asked(self._benchmark)), []).append(g)
        for (_, as_asked), group in groups.items():
            for g in group:
                pooled = group if pools else [g]
                counts = sum(x.successes for x in pooled), sum(x.attempts for x in pooled)
                g.p_hat = rewards.success_rate(*counts)
                r_env = rewards.curriculum_reward(g.p_hat, c.alpha, c.beta)
                g.r_env = float(r_env) if as_asked else 0.0
        kept = [g for g in attempted if g.is_as_asked(self._benchmark)]
        if regression:
            passes = rewards.difficulty_filter([g.p_hat for g in kept], c.alpha, c.k_min)
            kept = [g for g, keep in zip(kept, passes, strict=True) if keep]
        self._weigh(kept)

    def _weigh(self, kept: Sequence[Generation]) -> None:
        """Sets weights: by R_env in reward-weighted regression, else all equal."""
        c = self._simulator
        temperature = c.rwr_temperature if c.method == "rwr" else 0.0
        weights = rewards.rwr_weights([g.r_env for g in kept], temperature)
        if c.coverage and kept:
            of = [skills(self._benchmark, g.task) for g in kept]
            weights = coverage_weights(weights, of, c.coverage)
        for g, weight in zip(kept, weights, strict=True):
            g.weight = float(weight)
