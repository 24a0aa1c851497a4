"""Tasks whose outcome is a matter of chance: the attempts' coins, and how many of the tasks are of that kind.

A task that nobody can solve more often than half of the time stays at p = 1/2 for ever.  A curriculum that
asks for p = 1/2 may take such noise for the frontier (the "noisy TV" of Burda et al., 2018, arXiv
1808.04355); one that asks for progress should not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from genenv_jax.benchmarks.base import Benchmark, Chancy, Score, Task

BAD_LUCK = "bad_luck"  # why an answer failed that could have succeeded

Scored = dict[tuple[int, int], tuple[str, Score]]


def is_chancy(benchmark: Benchmark) -> bool:
    """Whether the benchmark, as it is configured, has tasks that are decided by chance."""
    return isinstance(benchmark, Chancy) and benchmark.chancy


def draw_outcomes(
    benchmark: Benchmark,
    tasks: Sequence[Task],
    scored: Mapping[tuple[int, int], tuple[str, Score]],
    rng: np.random.Generator,
) -> Scored:
    """The scores of attempts after chance has had its say.

    Every attempt at a task of `chance` c < 1 succeeds with probability c if its answer could succeed, and
    otherwise fails with reward 0 and reason `BAD_LUCK`.  Each such attempt takes one number of `rng`,
    right or wrong, so that the draws depend on the tasks alone and not on the answers.

    Args:
      tasks: by the first number of the keys of `scored`.
      scored: text and score by (task, attempt).
      rng: of this use alone.
    """
    if not is_chancy(benchmark):
        return dict(scored)
    chances = [benchmark.chance(task) for task in tasks]
    outcomes: Scored = {}
    for (i, j), (text, score) in sorted(scored.items(), key=lambda item: item[0]):
        if chances[i] < 1.0 and rng.random() >= chances[i] and score.success:
            score = dataclasses.replace(score, reward=0.0, success=False, reason=BAD_LUCK)
        outcomes[i, j] = text, score
    return outcomes


def metrics(
    benchmark: Benchmark, prefix: str, tasks: Sequence[Task], weights: Sequence[float] | None = None
) -> dict[str, float]:
    """How much of what is trained on is decided by chance; {} where no task can be, or there are none.

    "<prefix>/chancy_share": share of the tasks.  "<prefix>/chancy_weight_share": their share of the weight in
    the simulator's update, so that it is the larger one where the curriculum's reward favours noise.

    Args:
      weights: (T,) non-negative, of each task; None: not asked for.
    """
    if not is_chancy(benchmark) or not tasks:
        return {}
    chancy = np.array([benchmark.chance(task) < 1.0 for task in tasks])
    found = {f"{prefix}/chancy_share": float(chancy.mean())}
    if weights is not None and sum(weights) > 0:
        found[f"{prefix}/chancy_weight_share"] = float(chancy @ np.asarray(weights) / sum(weights))
    return found
