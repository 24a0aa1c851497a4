"""Which difficulty the simulator is asked for."""

import collections
import json

import numpy as np
import pytest

from genenv_jax.benchmarks.base import SeedStatistics
from genenv_jax.players.simulator import SimulatorConfig
from genenv_jax.tasks.difficulties import AskedDifficulties
from genenv_jax.tasks.objective import CurriculumConfig
from tests.toy import Asking, Toy

TOY = Asking()
SEED = TOY.tasks("seed")[0]
ATTEMPTS = [("red", 8, 4), ("blue", 8, 8), ("red one", 8, 0), ("red one two four", 8, 8)]


def asking(benchmark=TOY, temperature=2.0):
    simulator = SimulatorConfig(train=False, rwr_temperature=temperature)
    return AskedDifficulties(benchmark, CurriculumConfig(beta=4.0), simulator)


def asked_for(difficulties, count=4000):
    draws = np.random.default_rng(0)
    found = [difficulties.of(SEED, draws) for _ in range(count)]
    assert set(found) <= {SeedStatistics(difficulty=d) for d in TOY.askable(SEED)}
    return collections.Counter(statistics.difficulty for statistics in found)


def attempted(difficulties, attempts=ATTEMPTS):
    difficulties.record_tasks((TOY.task(text, text), n, k) for text, n, k in attempts)
    return difficulties


@pytest.mark.parametrize(
    ("attempts", "rates"),
    [
        (ATTEMPTS, [0.75, 0.0, 0.0]),  # three words are unseen and count as two
        ([("red one", 8, 8)], [0.5, 1.0, 1.0]),  # what is easier than all tasks so far counts as half solved
    ],
)
def test_shares_by_hand(attempts, rates):
    counts = asked_for(attempted(asking(), attempts))
    weights = np.exp(2.0 * np.exp(-4 * (np.array(rates) - 0.5) ** 2))
    assert [counts[d] / 4000 for d in (1, 2, 3)] == pytest.approx(weights / weights.sum(), abs=0.03)


@pytest.mark.parametrize(("temperature", "attempts"), [(2.0, []), (0.0, ATTEMPTS)])
def test_all_alike_before_the_first_attempts_and_without_lambda(temperature, attempts):
    counts = asked_for(attempted(asking(temperature=temperature), attempts))
    assert min(counts.values()) > 1200 and len(counts) == 3


def test_only_the_latest_epoch_with_such_tasks_counts():
    one, other = attempted(asking()), attempted(asking(), [("red one two", 8, 4)])
    attempted(one, [("green", 8, 1), ("two", 0, 0)])
    state = json.loads(json.dumps(one.state()))
    assert state == {"1": [8, 1], "2": [8, 0], "4": [8, 8]}
    other.restore(state)  # instead of what it had
    assert other.state() == state and asked_for(one) == asked_for(other)


def test_a_benchmark_that_cannot_say_a_difficulty_is_not_asked_for_one():
    difficulties = asking(Toy())
    difficulties.record_tasks([(SEED, 8, 4)])
    assert difficulties.of(SEED, None) is None and difficulties.state() == {}
