"""The table of growth: its tasks, its arithmetic, and the script end to end at the smallest size."""

import math

import growth
import pytest

from tests.bench.test_scripts import rows_of, run


@pytest.mark.parametrize("name", ["dial", pytest.param("bfcl", marks=pytest.mark.data)])
def test_tasks_differ_and_come_in_epochs(name):
    world = growth.make_world(name)
    tasks = list(world.tasks(300))
    assert len({world.benchmark.canonical(task) for task in tasks}) == 300
    assert len({task.id for task in tasks}) == 300 and tasks == list(world.tasks(300))
    assert [task.generation for task in tasks] == [0] * 205 + [1] * 95
    for task in tasks[:20]:
        assert world.benchmark.score(task, world.benchmark.agent_answer(task)).success


def test_exponents_and_rows():
    row = {1000: 2.0, 10_000: 2.0, 100_000: 20.0}
    assert growth.exponent(row) == pytest.approx(1.0)
    assert growth.exponent({1: 1.0, 4: 8.0}) == pytest.approx(1.5)
    assert math.isnan(growth.exponent({1: 1.0})) and math.isnan(growth.exponent({}))
    table = growth.table("tasks", {"a": row})
    assert table.splitlines()[2:] == ["| a | 2 | 2 | 20 | 1.00 |"]


@pytest.mark.slow
def test_the_script_at_its_smallest():
    flags = [
        "--worlds=dial",
        "--sizes=1000",
        "--in_flight=64",
        "--processes=1,2",
        "--accepted=1000",
    ]
    text = run("growth.py", *flags)
    assert len(rows_of(text, "processes")) == 3 and rows_of(text, "scorer")
    (gate,) = rows_of(text, "gate, ms an epoch (dial)")
    assert float(gate["1,000"]) > 0
    # Ten attempts at each of the tasks, of which the valid ones are traces.
    (records,) = rows_of(text, "records in all, MiB (dial)")
    assert float(records["1,000"]) > 1_000 * 500 / 2**20
