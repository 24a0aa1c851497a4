"""Which generations count in the simulator's update, and under which prompts."""

from types import SimpleNamespace

import numpy as np
import pytest

from genenv_jax.benchmarks.base import Rejection, SeedStatistics
from genenv_jax.sampling.sampler import Rollouts
from genenv_jax.tasks.generation import Generation, TaskBatch
from genenv_jax.trainers.simulator import Hindsight, PolicyGradient
from tests.toy import Toy

SEED = Toy().tasks("seed")[0]


def advantages(*generations):
    """Advantages of one seed's generations: each R_env, None if rejected, "" without attempts that count."""

    def outcome(r_env):
        if r_env is None:
            return {"rejection": Rejection("unparsable", "")}
        return {"task": SEED, "attempts": int(r_env != ""), "r_env": r_env or 0.0}

    found = [Generation(0, i, SEED, SeedStatistics(), "", **outcome(r)) for i, r in enumerate(generations)]
    batch = TaskBatch(found, SimpleNamespace(lengths=np.zeros((1, len(found)), int)))
    return PolicyGradient._records(None, batch)[1][0]


def test_a_task_whose_attempts_do_not_count_has_no_part():
    assert advantages(0.9, "", None) == pytest.approx([0.45, 0.0, -0.45])
    assert advantages(0.9, "", 0.5) == pytest.approx([0.2, 0.0, -0.2])


def test_hindsight_trains_under_the_prompt_that_would_have_asked_for_the_task():
    toy, asked = Toy(), SeedStatistics.asked(0.5)
    seeds = toy.tasks("seed")[:2]
    # Of two seeds with two texts each, one is rejected.
    batch = TaskBatch(
        [
            Generation(row, column, seeds[row], asked, "", task=seeds[row], p_hat=p_hat, weight=weight)
            for row, column, p_hat, weight in ((0, 0, 0.2, 1.5), (0, 1, 1.0, 0.5), (1, 1, 0.7, 1.0))
        ],
        Rollouts([[0], [1]], *(np.arange(4).reshape(2, 2, 1) for _ in range(4))),
    )
    simulator = SimpleNamespace(model=SimpleNamespace(encode_messages=lambda m: m[-1]["content"]))
    rollouts, weights = Hindsight._records(SimpleNamespace(_simulator=simulator, _benchmark=toy), batch)
    texts = [toy.text(seed) for seed in seeds]
    assert rollouts.prompts == [f"{texts[0]}\n0.2", f"{texts[0]}\n1.0", f"{texts[1]}\n0.7"]
    assert rollouts.tokens[:, 0, 0].tolist() == [0, 1, 3] and rollouts.tokens.shape == (3, 1, 1)
    assert weights.tolist() == [[1.5], [0.5], [1.0]]
