"""Which difficulty the simulator's prompts ask for, where a benchmark can say it (`Benchmark.askable`)."""

from collections.abc import Iterable, Sequence

import numpy as np

from genenv_jax.benchmarks.base import Benchmark, SeedStatistics, Task
from genenv_jax.players.simulator import SimulatorConfig
from genenv_jax.rl.rewards import curriculum_reward, rwr_weights
from genenv_jax.tasks.objective import CurriculumConfig
from genenv_jax.tasks.seeds import LatestStatistics


class AskedDifficulties(LatestStatistics):
    """Draws the difficulty that each prompt asks for, in proportion to exp(λ R_env(p̂)).

    p̂ is the agent's success rate at tasks of that difficulty, in the latest epoch that had some.  Without
    any, that of the next easier difficulty counts; if there is none, R_env is 1.  A simulator's update
    weighs its tasks by the same formula.  λ = 0 asks for all difficulties alike.
    """

    def __init__(self, benchmark: Benchmark, curriculum: CurriculumConfig, simulator: SimulatorConfig):
        super().__init__()
        self._benchmark, self._curriculum = benchmark, curriculum
        self._temperature = simulator.rwr_temperature

    def of(self, seed: Task, draws: np.random.Generator) -> SeedStatistics | None:
        """What the prompt for a variation of `seed` asks for; None if it cannot ask for a difficulty."""
        askable = self._benchmark.askable(seed)
        if not askable:
            return None
        return SeedStatistics(difficulty=int(draws.choice(askable, p=self._shares(askable))))

    def _shares(self, difficulties: Sequence[int]) -> np.ndarray:
        rewards, reward, c = [], 1.0, self._curriculum
        for difficulty in difficulties:
            if (p_hat := self[str(difficulty)].success_rate) is not None:
                reward = float(curriculum_reward(p_hat, c.alpha, c.beta))
            rewards.append(reward)
        weights = rwr_weights(rewards, self._temperature)
        return weights / weights.sum()

    def record_tasks(self, outcomes: Iterable[tuple[Task, int, int]]) -> None:
        """Records an epoch's (attempted task, attempts, successes)."""
        benchmark = self._benchmark
        asked = [outcome for outcome in outcomes if benchmark.askable(outcome[0])]
        self.record((str(int(benchmark.difficulty(task))), n, k) for task, n, k in asked)
