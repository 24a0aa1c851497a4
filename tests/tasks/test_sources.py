"""Tasks that do not come fresh from the simulator."""

import collections
import types

import numpy as np
import pytest

from genenv_jax.benchmarks.dial.chains import Dial
from genenv_jax.tasks import fixed, oracle
from genenv_jax.tasks.generation import TaskBatch
from genenv_jax.tasks.simulated import static_tasks
from genenv_jax.tasks.sources import TasksConfig
from genenv_jax.tasks.teacher import TeacherConfig
from tests.toy import Toy

DIAL = Dial(positions=5, num_seeds=8, eval_per_depth=4)


def ids(source, *epochs):
    return [g.task.id for epoch in epochs for g in source.tasks(epoch).generations]


def test_fixed_tasks_are_made_once_and_come_up_in_turn(tmp_path):
    calls = []

    def make():
        calls.append(1)
        return fixed.generator_tasks(DIAL, 5, 0)

    path = tmp_path / "fixed.jsonl"
    source = fixed.FixedTasks(path, make, 2, 3)
    drawn = ids(source, *range(5))
    assert sorted(drawn[:5]) == sorted(drawn[5:]) == [f"teacher-{i}" for i in range(5)]
    assert drawn[:5] != drawn[5:]
    again = fixed.FixedTasks(path, make, 2, 3)
    assert ids(again, 3) == drawn[6:8]
    assert again.all() == source.all() and len(calls) == 1
    assert ids(fixed.FixedTasks(path, make, 2, 4), *range(5)) != drawn


def test_no_tasks_are_no_fixed_tasks(tmp_path):
    path = tmp_path / "fixed.jsonl"
    source = fixed.FixedTasks(path, list, 1, 0)
    with pytest.raises(ValueError, match=r"no task for .*fixed\.jsonl passes verification"):
        source.prepare()
    assert not fixed.exist(path)
    path.touch()
    with pytest.raises(ValueError, match="damaged: it is empty"):
        source.prepare()
    path.write_text('{"id": 1}\n')
    with pytest.raises(ValueError, match=r"fixed\.jsonl: damaged"):
        source.prepare()


@pytest.mark.parametrize(
    ("count", "per_seed", "expected"), [(7, 0.0, 7), (0, 3.3, 33), (0, 0.01, 1), (0, 0.0, 40)]
)
def test_how_many_tasks_a_teacher_writes(count, per_seed, expected):
    config = TasksConfig("teacher", count, TeacherConfig(per_seed=per_seed))
    assert config.teacher_count(seeds=10, variations=4) == expected


def test_the_generator_covers_all_difficulties_and_holds_nothing_out_twice():
    tasks = fixed.generator_tasks(DIAL, 60, 0)
    counts = collections.Counter(task.category for task in tasks)
    assert set(counts) == set(DIAL.difficulties) and min(counts.values()) >= 5
    canonical = [DIAL.canonical(task) for task in tasks]
    assert len(set(canonical)) == 60 and not set(canonical) & DIAL.held_out
    assert all(DIAL.verify(task) is None for task in tasks)
    assert [t.id for t in tasks] == [t.id for t in fixed.generator_tasks(DIAL, 60, 0)]


def test_the_oracle_asks_for_what_is_solved_half_of_the_time():
    source = oracle.OracleTasks(DIAL, 0.5, 4000, seed=0)
    rates = zip(DIAL.difficulties, [10, 8, 4, 2, 0, 0], strict=True)
    source.statistics.record((name, 10, successes) for name, successes in rates)
    shares = collections.Counter(g.task.category for g in source.tasks(0).generations)
    share = {name: shares[name] / 4000 for name in DIAL.difficulties}
    # A quarter at depth 2 (0.8), three quarters at depth 3 (0.4): 0.5; and a tenth spread evenly.
    assert share["depth_2"] == pytest.approx(0.9 / 4 + 0.1 / 6, abs=0.03)
    assert share["depth_3"] == pytest.approx(0.9 * 3 / 4 + 0.1 / 6, abs=0.03)
    assert all(share[name] > 0 for name in DIAL.difficulties)


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ([1.0, 0.6, 0.2], [0.0, 0.75, 0.25]),
        ([0.5, 0.3, 0.1], [1.0, 0.0, 0.0]),
        ([0.4, 0.3, 0.1], [1.0, 0.0, 0.0]),  # all are too hard: the easiest
        ([0.9, 0.8, 0.7], [0.0, 0.0, 1.0]),  # all are too easy: the hardest
        ([0.5, 0.5, 0.5], [1.0, 0.0, 0.0]),  # nothing is known yet
        ([0.2, 0.9, 0.1], [0.0, 0.5, 0.5]),  # rates need not fall
    ],
)
def test_shares_average_alpha(rates, expected):
    assert oracle.frontier_shares(np.array(rates), 0.5) == pytest.approx(expected)


def test_attempts_are_noted_by_difficulty():
    source, other = (oracle.OracleTasks(DIAL, 0.5, 4, seed=0) for _ in range(2))
    tasks = [DIAL.draw(np.random.default_rng(i), f"depth_{1 + i % 2}", str(i)) for i in range(4)]
    batch = TaskBatch.of_tasks(tasks)
    for g, successes in zip(batch.generations, (3, 1, 2, 0), strict=True):
        g.attempts, g.successes = 4, successes
    source.record(batch, [])
    other.restore(source.state(), [])
    for each in (source, other):
        assert each.statistics["depth_1"].success_rate == 5 / 8
        assert each.statistics["depth_2"].success_rate == 1 / 8
        assert each.statistics["depth_3"].success_rate is None


def test_static_tasks_differ_although_the_verifier_forgets_them():
    toy = Toy()
    rounds = [["red", "blue"], ["red", "green"], ["blue", "two", "one"]]

    def write(number, seeds, initial):
        assert initial
        return TaskBatch.of_tasks([toy.task(f"{number}-{text}", text) for text in rounds[number]])

    pool = types.SimpleNamespace(tasks=range(2), per_epoch=2, choose=lambda number: [])
    found = [task.id for task in static_tasks(types.SimpleNamespace(seeds=pool, write=write), toy, 4)]
    assert found == ["0-red", "0-blue", "1-green", "2-two"]


@pytest.mark.parametrize("source", ["teacher", "oracle"])
def test_a_benchmark_that_draws_no_tasks_is_refused(source):
    with pytest.raises(ValueError, match=f"{source}.*draws tasks itself, which 'toy' does not"):
        TasksConfig(source).check(Toy())
    TasksConfig(source).check(DIAL)
    TasksConfig("static").check(Toy())
    TasksConfig("teacher", teacher=TeacherConfig(url="http://h/v1", model="m")).check(Toy())
