"""Fresh, base and replayed tasks: how many of each, and in which order."""

import collections

import pytest

from genenv_jax.tasks.generation import TaskBatch
from genenv_jax.tasks.mixture import Mixture
from genenv_jax.tasks.replay import TaskBuffer
from tests.toy import Toy

TOY = Toy()
SEEDS = TOY.tasks("seed")


def batch(epoch, count, solved=2):
    tasks = [TOY.task(f"{epoch}-{i}", f"t{epoch} {i}", origin="generated") for i in range(count)]
    made = TaskBatch.of_tasks(tasks)
    for g in made.generations:
        g.attempts, g.successes = 4, solved
    return made


def kinds(items):
    return collections.Counter(item.task.origin if item.generation else "again" for item in items)


def test_shares_are_of_the_generations_that_are_asked_for():
    """So that a simulator which writes little of use does not starve the agent."""
    mixture = Mixture(SEEDS, 16, 0.2, 0.0, TaskBuffer(), seed=0)
    for accepted in (16, 3, 0):
        assert kinds(mixture.draw(0, batch(0, accepted))) == +collections.Counter(generated=accepted, again=4)
    base = {item.task.id for item in mixture.draw(0, batch(0, 16)) if not item.generation}
    assert base <= {seed.id for seed in SEEDS} and len(base) == 4


def test_replayed_tasks_are_those_of_earlier_epochs():
    buffer = TaskBuffer()
    mixture = Mixture(SEEDS, 10, 0.0, 0.5, buffer, seed=0)
    first = batch(0, 10)
    assert kinds(mixture.draw(0, first)) == {"generated": 10}
    mixture.record(first)
    replayed = [item.task.id for item in mixture.draw(1, batch(1, 10)) if not item.generation]
    assert len(replayed) == 10 and all(name.startswith("0-") for name in replayed)
    mixture.record(batch(1, 10))
    assert len(buffer.state()) == 20


def test_nothing_is_kept_where_nothing_is_replayed():
    buffer = TaskBuffer()
    Mixture(SEEDS, 10, 0.5, 0.0, buffer, seed=0).record(batch(0, 10))
    assert not buffer.state()


@pytest.mark.parametrize("other", [{"seed": 1}, {"epoch": 1}])
def test_the_order_follows_from_seed_and_epoch(other):
    def order(seed=0, epoch=0):
        items = Mixture(SEEDS, 16, 0.2, 0.0, TaskBuffer(), seed).draw(epoch, batch(0, 16))
        return [item.task.id for item in items]

    assert order() == order() != order(**other)
    assert order() != sorted(order())
