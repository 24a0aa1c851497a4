"""Which contexts of an epoch are tasks of earlier epochs, and what they are judged by."""

import collections

import pytest

from genenv_jax.benchmarks.base import SeedStatistics
from genenv_jax.tasks.generation import Generation, TaskBatch
from genenv_jax.tasks.growth import Growth, GrowthConfig
from tests.toy import Toy

TOY = Toy()
SEEDS = TOY.tasks("seed")[:8]


def outcome(epoch, rows):
    """An epoch's generations, of (context, id, attempts, successes) each."""
    found = []
    for row, (context, name, attempts, successes) in enumerate(rows):
        task = TOY.task(name, f"text {name}", seed_id=context.id, generation=epoch)
        made = Generation(row, 0, context, SeedStatistics(), "", task=task)
        made.attempts, made.successes = attempts, successes
        found.append(made)
    return TaskBatch(found)


def grown(fits=lambda task: True, **settings):
    growth = Growth(GrowthConfig(**{"share": 0.5} | settings), fits, seed=3)
    counts = [("never", 8, 0), ("half", 8, 4), ("some", 8, 2), ("always", 400, 400)]
    growth.note(outcome(0, [(SEEDS[i], *row) for i, row in enumerate(counts)]))
    return growth


def names(growth, epoch=1):
    return [task.id for task in growth.contexts(epoch, SEEDS)]


def test_a_share_of_the_contexts_and_no_more_than_there_are():
    first = Growth(GrowthConfig(share=0.5), lambda task: True, seed=3)
    assert first.contexts(0, SEEDS) == list(SEEDS)
    found = names(grown())
    assert found[:5] == [seed.id for seed in SEEDS[:5]]
    assert sorted(found[5:]) == ["half", "never", "some"]  # what is solved has left
    assert names(grown(share=0.25))[:6] == [seed.id for seed in SEEDS[:6]]
    assert names(grown(share=0.0)) == [seed.id for seed in SEEDS]


def test_what_is_solved_half_of_the_time_comes_up_most():
    growth = grown(share=0.125)
    first = collections.Counter(names(growth, epoch)[-1] for epoch in range(600))
    # By ranks, whose weights are 1, 1/2 and 1/3.
    assert first["half"] / 600 == pytest.approx(6 / 11, abs=0.06)
    uniform = grown(share=0.125, priority="uniform")
    first = collections.Counter(names(uniform, epoch)[-1] for epoch in range(600))
    assert {name: n / 600 for name, n in first.items()} == pytest.approx(
        dict.fromkeys(("never", "half", "some", "always"), 0.25), abs=0.06
    )


def test_a_task_is_judged_by_what_came_of_it():
    growth = grown()
    half = next(task for task in growth.contexts(1, SEEDS) if task.id == "half")
    assert growth.statistics(half) == SeedStatistics(8, 4)
    assert growth.statistics(SEEDS[0]) is None
    growth.note(outcome(1, [(half, "a", 8, 1), (half, "b", 8, 2), (half, "c", 0, 0)]))
    assert growth.statistics(half) == SeedStatistics(16, 3)
    assert {"a", "b"} <= set(names(growth, 2) + names(growth, 3) + names(growth, 4))


def test_the_pool_is_bounded_and_holds_only_what_can_be_shown():
    uniform = grown(capacity=2, priority="uniform", share=1.0)
    assert sorted(names(uniform)[6:]) == ["always", "some"]  # the newest
    assert sorted(names(grown(capacity=1, share=1.0))[7:]) == ["half"]
    assert names(grown(fits=lambda task: task.id == "some", share=1.0))[7:] == ["some"]


def test_state_is_restored():
    growth, again = grown(), Growth(GrowthConfig(share=0.5), lambda task: True, seed=3)
    tasks = [
        g.task
        for g in outcome(0, [(SEEDS[0], n, 8, 1) for n in ("never", "half", "some")]).generations
    ]
    again.restore(growth.state(), tasks)
    assert again.state() == growth.state()
    assert all(names(again, epoch) == names(growth, epoch) for epoch in range(5))
    with pytest.raises(ValueError, match="tasks.jsonl lacks 'half'"):
        again.restore(growth.state(), tasks[:1])
