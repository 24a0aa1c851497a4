"""Which tasks of D_train come up again."""

import collections

import numpy as np
import pytest

from genenv_jax.replay_pool import ReplayPool
from tests.toy import Toy

TOY = Toy()


def pool_of(counts, **options):
    """A pool of tasks "0", "1", ... with (attempts, successes, epoch) each."""
    pool = ReplayPool(**options)
    for i, (attempts, successes, epoch) in enumerate(counts):
        pool.add(TOY.task(f"{i}", f"task {i}"), attempts, successes, epoch)
    return pool


def shares(pool, count=1, epoch=9, draws=4000):
    rng = np.random.default_rng(0)
    seen = collections.Counter(t.id for _ in range(draws) for t in pool.choose(rng, count, epoch))
    return {name: n / draws for name, n in seen.items()}


def test_uniform_replay_takes_each_alike_and_none_twice():
    pool = pool_of([(4, 4, 0), (4, 0, 5), (4, 2, 8), (0, 0, 0)])  # the last was never attempted
    assert len(pool) == 3
    assert shares(pool) == pytest.approx({"0": 1 / 3, "1": 1 / 3, "2": 1 / 3}, abs=0.03)
    assert sorted(t.id for t in pool.choose(np.random.default_rng(1), 9, 9)) == ["0", "1", "2"]
    pool.trim()
    assert len(pool) == 3
    assert ReplayPool().choose(np.random.default_rng(0), 3, 0) == []


def test_prioritised_replay_likes_what_is_learnable():
    pool = pool_of([(8, 8, 5), (8, 4, 5), (8, 0, 5)], priority="prioritised", staleness_share=0.0)
    found = shares(pool)
    assert found["1"] == pytest.approx(
        1 / (1 + 1 / 2 + 1 / 3), abs=0.03
    )  # the first of three ranks
    assert found["0"] < 0.35 and found["2"] < 0.35


def test_prioritised_replay_likes_what_is_stale():
    pool = pool_of([(8, 4, 9), (8, 4, 3), (8, 4, 6)], priority="prioritised", staleness_share=1.0)
    assert shares(pool) == pytest.approx({"1": 6 / 9, "2": 3 / 9}, abs=0.03)
    pool.note("1", 8, 4, 9)
    pool.note("unknown", 8, 4, 9)
    assert shares(pool) == pytest.approx({"2": 1.0}, abs=0.03)


def test_solved_tasks_and_the_least_worth_leave():
    counts = [(40, 40, 0), (40, 20, 0), (40, 10, 0), (40, 1, 0)]
    pool = pool_of(counts, priority="prioritised")
    pool.trim()
    assert set(pool.state()) == {"1", "2", "3"}
    small = pool_of(counts, priority="prioritised", capacity=2)
    small.trim()
    assert set(small.state()) == {"1", "2"}


def test_a_restored_pool_goes_on_alike():
    pool = pool_of([(8, i, i) for i in range(8)], priority="prioritised")
    again = ReplayPool("prioritised")
    tasks = {f"{i}": TOY.task(f"{i}", f"task {i}") for i in range(9)}
    again.restore(pool.state(), tasks)
    assert again.state() == pool.state()
    draw = lambda p: [t.id for t in p.choose(np.random.default_rng(3), 4, 9)]  # noqa: E731
    assert draw(again) == draw(pool)
    with pytest.raises(ValueError, match="tasks.jsonl lacks '7'"):
        again.restore(pool.state(), {name: task for name, task in tasks.items() if name != "7"})
