"""Which contexts of an epoch are tasks of earlier epochs, and how they are judged."""

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
    counts = [("once", 8, 1), ("half", 8, 4), ("some", 8, 2), ("always", 400, 400)]
    growth.record(outcome(0, [(SEEDS[i], *row) for i, row in enumerate(counts)]))
    return growth


def names(growth, epoch=1):
    return [task.id for task in growth.contexts(epoch, SEEDS)]


def test_a_share_of_the_contexts_and_no_more_than_there_are():
    assert Growth(GrowthConfig(share=0.5), lambda task: True, seed=3).contexts(0, SEEDS) == list(SEEDS)
    found = names(grown())
    assert found[:4] == [seed.id for seed in SEEDS[:4]]
    assert sorted(found[4:]) == ["always", "half", "once", "some"]
    assert names(grown(share=0.25))[:6] == [seed.id for seed in SEEDS[:6]]
    assert names(grown(share=0.0)) == [seed.id for seed in SEEDS]


def test_a_task_is_judged_by_what_came_of_it():
    growth = grown()
    half = next(task for task in growth.contexts(1, SEEDS) if task.id == "half")
    assert growth[half.id] == SeedStatistics(8, 4)
    assert growth[SEEDS[0].id] is None
    growth.record(outcome(1, [(half, "a", 8, 1), (half, "b", 8, 2), (half, "c", 0, 0)]))
    assert growth[half.id] == SeedStatistics(16, 3)
    assert {"a", "b"} <= {name for epoch in range(2, 9) for name in names(growth, epoch)}


def test_a_task_that_nobody_solved_is_not_varied():
    growth = Growth(GrowthConfig(share=1.0), lambda task: True, seed=3)
    growth.record(outcome(0, [(SEEDS[0], "never", 8, 0), (SEEDS[1], "once", 8, 1)]))
    assert names(growth)[7:] == ["once"] and "never" not in names(growth)


def test_the_pool_is_bounded_and_holds_only_what_can_be_shown(monkeypatch):
    monkeypatch.setattr("genenv_jax.tasks.growth._CAPACITY", 2)
    assert sorted(names(grown(share=1.0))[6:]) == ["always", "some"]  # the newest
    assert names(grown(fits=lambda task: task.id == "some", share=1.0))[7:] == ["some"]
