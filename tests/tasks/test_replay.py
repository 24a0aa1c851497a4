"""Tasks of D_train that come up again."""

import collections

import numpy as np
import pytest

from genenv_jax.benchmarks.base import SeedStatistics
from genenv_jax.tasks.replay import TaskBuffer
from tests.toy import Toy

TOY = Toy()


def buffer_of(counts, **options):
    """A buffer of tasks "0", "1", ... with (attempts, successes) each."""
    buffer = TaskBuffer(**options)
    for i, count in enumerate(counts):
        buffer.add(TOY.task(f"{i}", f"task {i}"), *count)
    return buffer


def test_each_is_taken_alike_and_none_twice():
    buffer = buffer_of([(4, 4), (4, 0), (4, 2), (0, 0)])  # the last was never attempted
    rng = np.random.default_rng(0)
    seen = collections.Counter(t.id for _ in range(4000) for t in buffer.choose(rng, 1))
    assert {name: n / 4000 for name, n in seen.items()} == pytest.approx(
        dict.fromkeys("012", 1 / 3), abs=0.03
    )
    assert sorted(t.id for t in buffer.choose(rng, 9)) == ["0", "1", "2"]
    assert TaskBuffer().choose(rng, 3) == buffer.choose(rng, 0) == []


def test_the_newest_are_kept_with_their_last_attempts():
    buffer = buffer_of([(4, i) for i in range(4)], capacity=3)
    assert sorted(buffer.state()) == ["1", "2", "3"] and buffer["0"] is None
    buffer.update("2", 8, 1)
    buffer.update("3", 0, 0)  # nothing new
    buffer.update("unknown", 8, 4)
    assert (buffer["2"], buffer["3"]) == (SeedStatistics(8, 1), SeedStatistics(4, 3))
    assert len(buffer.state()) == 3


def test_the_state_brings_it_back():
    buffer, again = buffer_of([(4, 1), (4, 2)]), TaskBuffer()
    again.restore(buffer.state(), [TOY.task(f"{i}", f"task {i}") for i in range(3)])
    assert again.state() == buffer.state()
    for n in (1, 2):
        ours, theirs = (b.choose(np.random.default_rng(n), n) for b in (buffer, again))
        assert ours == theirs
    with pytest.raises(ValueError, match="tasks.jsonl lacks '1', which the checkpoint replays"):
        TaskBuffer().restore(buffer.state(), [TOY.task("0", "task 0")])
