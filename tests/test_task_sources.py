"""Tasks that do not come fresh from the simulator."""

import collections

import numpy as np
import pytest

from genenv_jax import task_sources
from genenv_jax.benchmarks.dial import Dial
from genenv_jax.config import default_config
from genenv_jax.curriculum import Curriculum
from tests.toy import Toy

DIAL = Dial(positions=5, num_seeds=8, eval_per_depth=4)


def curriculum(rates):
    """A curriculum that has seen the difficulties of DIAL with these success rates, in tenths."""
    made = Curriculum(DIAL.tasks("seed"), 0, 0)
    for name, rate in zip(DIAL.difficulties, rates, strict=True):
        made.record(f"difficulty {name}", 10, rate)
    return made


def test_fixed_tasks_are_made_once_and_come_up_in_turn(tmp_path):
    calls = []

    def make():
        calls.append(1)
        return task_sources.teacher_tasks(DIAL, 5, 0)

    fixed = task_sources.FixedTasks(tmp_path / "fixed.jsonl", make, 3)
    drawn = [task.id for epoch in range(5) for task in fixed.choose(epoch, 2)]
    assert sorted(drawn[:5]) == sorted(drawn[5:]) == [f"teacher-{i}" for i in range(5)]
    assert drawn[:5] != drawn[5:]
    again = task_sources.FixedTasks(tmp_path / "fixed.jsonl", make, 3)
    assert [task.id for task in again.choose(3, 2)] == drawn[6:8]
    assert again.tasks() == fixed.tasks() and len(calls) == 1
    other = task_sources.FixedTasks(tmp_path / "fixed.jsonl", make, 4)
    assert [task.id for epoch in range(5) for task in other.choose(epoch, 2)] != drawn


def test_no_tasks_are_no_fixed_tasks(tmp_path):
    path = tmp_path / "fixed.jsonl"
    fixed = task_sources.FixedTasks(path, list, 0)
    with pytest.raises(ValueError, match=r"no task for .*fixed\.jsonl passes the gate"):
        fixed.tasks()
    assert not fixed.exist()
    path.touch()
    with pytest.raises(ValueError, match="damaged: it is empty"):
        fixed.tasks()


@pytest.mark.parametrize(
    ("count", "per_seed", "expected"), [(7, 0.0, 7), (0, 3.3, 33), (0, 0.01, 1), (0, 0.0, 40)]
)
def test_how_many_tasks_a_teacher_writes(count, per_seed, expected):
    tasks = default_config().tasks
    tasks.count, tasks.teacher.per_seed = count, per_seed
    assert task_sources.teacher_count(tasks, seeds=10, variations=4) == expected


def test_damaged_fixed_tasks_are_named(tmp_path):
    path = tmp_path / "fixed.jsonl"
    path.write_text('{"id": 1}\n')
    with pytest.raises(ValueError, match=r"fixed\.jsonl: damaged"):
        task_sources.FixedTasks(path, list, 0).tasks()


def test_the_teacher_covers_all_difficulties_and_holds_nothing_out_twice():
    tasks = task_sources.teacher_tasks(DIAL, 60, 0)
    counts = collections.Counter(task.category for task in tasks)
    assert set(counts) == set(DIAL.difficulties) and min(counts.values()) >= 5
    canonical = [DIAL.canonical(task) for task in tasks]
    assert len(set(canonical)) == 60 and not set(canonical) & DIAL.held_out
    assert all(DIAL.verify(task) is None for task in tasks)
    assert [t.id for t in tasks] == [t.id for t in task_sources.teacher_tasks(DIAL, 60, 0)]


def test_the_oracle_asks_for_what_is_solved_half_of_the_time():
    made = curriculum([10, 8, 4, 2, 0, 0])
    tasks = task_sources.oracle_tasks(DIAL, made, 4000, 0.5, seed=0, epoch=0)
    shares = collections.Counter(task.category for task in tasks)
    share = {name: shares[name] / 4000 for name in DIAL.difficulties}
    # A quarter at depth 2 (0.8), three quarters at depth 3 (0.4): 0.5; and a tenth to all alike.
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
    shares = task_sources.frontier_shares(np.array(rates), 0.5)
    assert shares == pytest.approx(expected)


def test_attempts_are_noted_by_difficulty():
    made = Curriculum(DIAL.tasks("seed"), 0, 0)
    tasks = [DIAL.draw(np.random.default_rng(i), f"depth_{1 + i % 2}", str(i)) for i in range(4)]
    generations = task_sources.as_generations(tasks)
    for g, successes in zip(generations, (3, 1, 2, 0), strict=True):
        g.attempts, g.successes = 4, successes
    task_sources.record_difficulties(made, generations)
    assert made.statistics("difficulty depth_1").success_rate == 5 / 8
    assert made.statistics("difficulty depth_2").success_rate == 1 / 8
    assert made.statistics("difficulty depth_3").success_rate is None


@pytest.mark.parametrize("source", ["teacher", "oracle"])
def test_a_benchmark_that_draws_no_tasks_is_refused(source):
    with pytest.raises(ValueError, match=f"{source}.*draws tasks itself, which 'toy' does not"):
        task_sources.check(source, Toy())
    task_sources.check(source, DIAL)
    with pytest.raises(ValueError, match="oracle"):  # a server does not know what the agent can do
        task_sources.check("oracle", Toy(), "http://h/v1")
    task_sources.check("teacher", Toy(), "http://h/v1")
    task_sources.check("static", Toy())
