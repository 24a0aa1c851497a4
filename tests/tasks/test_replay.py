"""Which tasks of D_train come up again: the buffer, and the priorities by hand and by simulation."""

import collections
import itertools
import math

import numpy as np
import pytest

from genenv_jax.tasks import replay
from genenv_jax.tasks.replay import TaskBuffer
from tests.toy import Toy

TOY = Toy()


def pool_of(counts, **options):
    """A pool of tasks "0", "1", ... with (attempts, successes, epoch) each."""
    pool = TaskBuffer(**options)
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
    assert TaskBuffer().choose(np.random.default_rng(0), 3, 0) == []


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
    again = TaskBuffer("prioritised")
    tasks = [TOY.task(f"{i}", f"task {i}") for i in range(9)]
    again.restore(pool.state(), tasks)
    assert again.state() == pool.state()
    draw = lambda p: [t.id for t in p.choose(np.random.default_rng(3), 4, 9)]  # noqa: E731
    assert draw(again) == draw(pool)
    with pytest.raises(ValueError, match="tasks.jsonl lacks '7'"):
        again.restore(pool.state(), [task for task in tasks if task.id != "7"])


# -- priorities -----------------------------------------------------------------------------------------


def test_priorities_by_hand():
    """Ranks 2, 1, 3 at β = 1: weights 1/2, 1, 1/3 over 11/6; staleness 1, 0, 3 over 4."""
    got = replay.priorities([0.5, 0.9, 0.1], [1, 0, 3], staleness_share=0.25)
    want = 0.75 * np.array([3, 6, 2]) / 11 + 0.25 * np.array([1, 0, 3]) / 4
    np.testing.assert_allclose(got, want, rtol=1e-12)
    got = replay.priorities([0.5, 0.9], [0, 0], staleness_share=0.0, temperature=0.5)
    np.testing.assert_allclose(got, [1 / 5, 4 / 5])  # rank to the power of -2


def test_priorities_at_the_ends():
    scores, staleness = [0.3, 0.8, 0.5], [2, 2, 6]
    only_stale = replay.priorities(scores, staleness, staleness_share=1.0)
    np.testing.assert_allclose(only_stale, [0.2, 0.2, 0.6])
    fresh = replay.priorities(scores, [0, 0, 0], staleness_share=1.0)
    np.testing.assert_allclose(fresh, [1 / 3] * 3)
    greedy = replay.priorities(scores, staleness, staleness_share=0.0, temperature=1e-3)
    np.testing.assert_allclose(greedy, [0, 1, 0], atol=1e-12)
    even = replay.priorities(scores, staleness, staleness_share=0.0, temperature=1e9)
    np.testing.assert_allclose(even, [1 / 3] * 3, rtol=1e-6)
    assert replay.priorities([], []).shape == (0,)
    assert replay.priorities([np.nan], [0]).tolist() == [1.0]


def test_equal_scores_have_equal_priorities():
    got = replay.priorities([0.5, 0.9, 0.5, np.nan, 0.5, np.nan], np.zeros(6), staleness_share=0.0)
    assert got[0] == got[2] == got[4]
    assert got[3] == got[5] < got[0] < got[1]
    h = sum(1 / rank for rank in range(1, 7))
    np.testing.assert_allclose(got[0], (1 / 2 + 1 / 3 + 1 / 4) / 3 / h, rtol=1e-12)


def test_priorities_do_not_depend_on_order_or_scale():
    rng = np.random.default_rng(0)
    scores, staleness = rng.integers(0, 5, 50) / 4, rng.integers(0, 9, 50)
    got = replay.priorities(scores, staleness)
    assert got.sum() == pytest.approx(1.0)
    order = rng.permutation(50)
    np.testing.assert_allclose(replay.priorities(scores[order], staleness[order]), got[order])
    np.testing.assert_allclose(replay.priorities(7 * scores - 3, 2 * staleness), got)


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (([1.0], [1, 2]), {}),
        (([[1.0]], [[1]]), {}),
        (([1.0], [-1]), {}),
        (([1.0], [np.inf]), {}),
        (([1.0], [1]), {"staleness_share": 1.5}),
        (([1.0], [1]), {"temperature": 0.0}),
    ],
)
def test_priorities_refuse(arguments, options):
    with pytest.raises(ValueError, match="expected"):
        replay.priorities(*arguments, **options)


def test_draw_has_the_probabilities_of_drawing_one_by_one():
    """All ordered pairs of four items, w_i / Σw · w_j / (Σw - w_i), within four standard errors."""
    weights, draws = np.array([0.1, 0.2, 0.3, 0.4]), 20_000
    rng = np.random.default_rng(1)
    counts = np.zeros((4, 4))
    for _ in range(draws):
        counts[tuple(replay.draw(rng, weights, 2))] += 1
    for i, j in itertools.product(range(4), repeat=2):
        want = 0.0 if i == j else weights[i] * weights[j] / (1 - weights[i])
        error = math.sqrt(max(want * (1 - want), 1e-12) / draws)
        assert abs(counts[i, j] / draws - want) <= 4 * error


def test_draw_takes_no_item_twice_and_none_without_weight():
    rng = np.random.default_rng(2)
    weights = np.array([0.0, 1e-300, 2.0, 0.0, 5.0, 1e300])
    for count in range(8):
        got = replay.draw(rng, weights, count)
        assert len(got) == min(count, 4) == len(set(got.tolist()))
        assert set(got.tolist()) <= {1, 2, 4, 5}
    first = replay.draw(np.random.default_rng(3), weights, 2)
    again = replay.draw(np.random.default_rng(3), weights / 2, 4)
    np.testing.assert_array_equal(
        again[:2], first
    )  # neither count nor scale changes who comes first
    assert replay.draw(rng, [], 3).tolist() == []
    for bad in ([-1.0], [np.nan], [np.inf], [[1.0]]):
        with pytest.raises(ValueError, match="finite weights"):
            replay.draw(rng, bad, 1)


def test_survivors():
    means = [0.5, 0.99, 0.2, 0.96, np.nan, 0.95]
    scores = [0.9, 1.0, 0.4, 1.0, np.nan, 0.4]
    assert replay.survivors(means, scores, capacity=0).tolist() == [0, 2, 4, 5]
    assert replay.survivors(means, scores, capacity=3).tolist() == [0, 2, 5]
    assert replay.survivors(means, scores, capacity=2).tolist() == [0, 5]  # the newer of equals
    assert replay.survivors(means, scores, capacity=9, solved=1.0).tolist() == [0, 1, 2, 3, 4, 5]
    assert replay.survivors([], [], capacity=3).tolist() == []
    with pytest.raises(ValueError, match="one shape"):
        replay.survivors([0.1], [], capacity=3)
