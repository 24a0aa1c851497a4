"""Which difficulty the simulator's prompts ask for, where a benchmark can say it (`Benchmark.askable`)."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from genenv_jax.benchmarks.base import Benchmark, SeedStatistics, Task
from genenv_jax.rl.rewards import curriculum_reward, rwr_weights
from genenv_jax.tasks.seeds import LatestStatistics


class AskedDifficulties:
    """Draws the difficulty that each prompt asks for, in proportion to exp(λ R_env(p̂)).

    p̂ is the agent's success rate at tasks of that difficulty, in the latest epoch that had some; before
    that, R_env is 1.  A simulator's update weighs its tasks by the same formula.

    alpha, beta: of R_env.
    temperature: λ; 0: all difficulties alike.
    """

    def __init__(self, benchmark: Benchmark, alpha: float, beta: float, temperature: float):
        self._benchmark, self._temperature = benchmark, temperature
        self._reward = alpha, beta
        self._latest = LatestStatistics()

    def of(self, seed: Task, draws: np.random.Generator) -> SeedStatistics | None:
        """What the prompt for a variation of `seed` asks for; None if it cannot ask for a difficulty."""
        askable = self._benchmark.askable(seed)
        if not askable:
            return None
        return SeedStatistics(difficulty=int(draws.choice(askable, p=self._shares(askable))))

    def _shares(self, difficulties: Sequence[int]) -> np.ndarray:
        rates = [self._latest[str(d)].success_rate for d in difficulties]
        rewards = [1.0 if p_hat is None else curriculum_reward(p_hat, *self._reward) for p_hat in rates]
        weights = rwr_weights(rewards, self._temperature)
        return weights / weights.sum()

    def record(self, outcomes: Iterable[tuple[Task, int, int]]) -> None:
        """Records an epoch's (attempted task, attempts, successes)."""
        benchmark = self._benchmark
        asked = [outcome for outcome in outcomes if benchmark.askable(outcome[0])]
        self._latest.record((str(int(benchmark.difficulty(task))), n, k) for task, n, k in asked)

    def state(self) -> dict[str, list[int]]:
        """The state to checkpoint, as plain JSON."""
        return self._latest.state()

    def restore(self, state: Mapping[str, Sequence[int]]) -> None:
        """Inverse of `state`."""
        self._latest.restore(state)
