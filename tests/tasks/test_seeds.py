"""Which seeds come up when, and what is remembered about them."""

import functools
import json
from types import SimpleNamespace

import numpy as np
import pytest

from genenv_jax.benchmarks.base import SeedStatistics, Task
from genenv_jax.benchmarks.success_record import ALIKE, ASKED, OWN, RECENT, success_record
from genenv_jax.config import Config
from genenv_jax.players.simulator import SimulatorConfig
from genenv_jax.run.streams import rng
from genenv_jax.tasks.seeds import LatestStatistics, SeedTasks, SuccessRecords
from genenv_jax.tasks.simulated import SimulatorTasks
from tests.toy import Toy


def seeds(count):
    return [Task(f"seed-{i}", "x", "", ({"role": "user", "content": str(i)},)) for i in range(count)]


def ids(tasks):
    return [task.id for task in tasks]


@pytest.mark.parametrize("count", [1, 2, 7, 12])
@pytest.mark.parametrize("per_epoch", [0, 1, 2, 3, 5, 7, 12, 20])
def test_every_seed_once_before_any_twice(count, per_epoch):
    """Over epochs of any size, even above the number of seeds; 0 means all."""
    chooser = SeedTasks(seeds(count), per_epoch, seed=3)
    chosen = [ids(chooser.choose(epoch)) for epoch in range(30)]
    assert all(len(epoch) == (per_epoch or count) for epoch in chosen)
    sequence = [seed for epoch in chosen for seed in epoch]
    for start in range(0, len(sequence) - count + 1, count):
        assert len(set(sequence[start : start + count])) == count
    tail = sequence[len(sequence) // count * count :]
    assert len(set(tail)) == len(tail)


def test_the_order_is_random_and_repeats_itself():
    def sequence(seed):
        return [ids(SeedTasks(seeds(12), 12, seed).choose(epoch)) for epoch in range(3)]

    assert sequence(0) == sequence(0)
    assert sequence(0) != sequence(1)
    assert len({tuple(epoch) for epoch in sequence(0)}) == 3  # a new order each time round
    # An epoch needs none of those before it.
    chooser = SeedTasks(seeds(12), 5, seed=0)
    later = chooser.choose(9)
    for epoch in range(9):
        chooser.choose(epoch)
    assert ids(chooser.choose(9)) == ids(later)


def test_statistics_are_of_the_last_epoch_with_attempts():
    statistics = LatestStatistics()
    assert statistics["seed-0"] == SeedStatistics(0, 0)
    assert statistics["seed-0"].success_rate is None
    statistics.record([("seed-0", 5, 1), ("seed-1", 8, 0), ("seed-0", 3, 1)])  # an epoch's add up
    assert statistics["seed-0"] == SeedStatistics(8, 2)
    assert statistics["seed-1"].success_rate == 0.0
    statistics.record([("seed-0", 4, 3)])  # replaces, does not add
    assert statistics["seed-0"] == SeedStatistics(4, 3)
    statistics.record([("seed-0", 0, 0)])  # no variation was valid: nothing new is known
    assert statistics["seed-0"] == SeedStatistics(4, 3)


class Skilled(Toy):
    """Its tasks need the skills in their category."""

    def skills(self, task):
        return task.category.split()


def task(name, needs):
    return Task(name, "x", needs, ())


def test_the_simulator_is_told_of_the_seed_of_tasks_like_it_or_of_all():
    records, other = SuccessRecords(Skilled()), SuccessRecords(Skilled())
    first, second, third = task("0", "add"), task("1", "add turn"), task("2", "jump")
    assert records.of(first) == SeedStatistics()
    outcomes = [
        ("0", task("generated", "add"), 8, 2),
        ("", task("replayed", "turn swim"), 8, 7),
        ("9", task("9", "swim"), 4, 4),  # base data
    ]
    records.record(outcomes)
    records.record([("3", task("none", "jump"), 0, 0)])  # without attempts nothing new is known
    other.restore(json.loads(json.dumps(records.state())))
    for each in (records, other):
        assert each.of(first) == SeedStatistics(8, 2)
        assert each.of(second) == SeedStatistics(16, 9, ALIKE)
        assert each.of(third) == SeedStatistics(20, 13, RECENT)
        assert each.of(task("9", "x")) == SeedStatistics(4, 4)


@pytest.mark.parametrize("at", [OWN, ALIKE, RECENT])
def test_the_prompt_says_at_which_tasks(at):
    words = {OWN: "this task or variations of it", ALIKE: "the same skills", RECENT: "recent tasks"}
    text = success_record(SeedStatistics(8, 1, at))
    assert "solved 1 of 8 attempts at" in text and words[at] in text and "easier" in text


def test_the_prompt_asks_for_a_success_rate():
    asked = SeedStatistics.asked(0.26)
    assert asked == SeedStatistics(10, 3, ASKED) and asked.success_rate == 0.3
    said = success_record(asked, who="assistant", what="question")
    assert said == "Write a question of which the assistant would solve 3 of 10 attempts."


@pytest.mark.parametrize(("share", "random"), [(0.0, 0), (0.0004, 1), (0.1, 220), (1.0, 2200)])
def test_a_share_of_the_prompts_asks_for_a_random_rate(share, random):
    """Rounded up, and uniform over the tenths that a prompt can say; the others ask for α."""
    simulator = SimpleNamespace(
        config=SimulatorConfig(method="hindsight", random_rates=share), has_room=lambda benchmark, task: True
    )
    session = SimpleNamespace(rng=functools.partial(rng, 0))
    source = SimulatorTasks(Config(), None, simulator, Toy(), None, None, session)
    counts = np.bincount([s.successes for s in source._statistics(0, seeds(2200))], minlength=11)
    assert counts.sum() == 2200 and random * 0.75 <= np.delete(counts, 5).sum() <= random
    if share == 1:
        assert counts.min() > 150 and counts.max() < 250
