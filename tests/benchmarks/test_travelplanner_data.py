"""TravelPlanner's published files: counts, fields of the queries, checksums."""

import pytest

from genenv_jax.benchmarks.travelplanner import tasks
from genenv_jax.benchmarks.travelplanner.benchmark import TravelPlanner

pytestmark = pytest.mark.data


def test_counts_per_split_are_the_official_ones(data_dir):
    found = tasks.splits(tasks.find_directory(data_dir))
    levels = [f"{level}_{days}_days" for level in ("easy", "medium", "hard") for days in (3, 5, 7)]
    for split, count in (("train", 5), ("validation", 20)):
        if split in found:
            strata = [task.category for task in found[split]]
            assert {name: strata.count(name) for name in levels} == dict.fromkeys(levels, count)
            assert len(strata) == 9 * count
    # The training queries have 105 hard constraints, as in the official evaluator.
    asked = [len(tasks.query_of(task).asked) for task in found["train"]]
    assert len(asked) + sum(asked) == 105
    benchmark = TravelPlanner(data_dir=data_dir, verify_files=True)
    assert len(benchmark.tasks("seed")) == 27 and len(benchmark.tasks("eval")) == 18
    assert "313 flights" in benchmark.about()["flights"]


def test_validation_queries_can_be_held_out(data_dir):
    benchmark = TravelPlanner(data_dir=data_dir, eval="validation")
    if tasks.VALIDATION not in tasks.splits(tasks.find_directory(data_dir)):
        pytest.skip("no validation queries in the data directory")
    held_out = benchmark.tasks("eval")
    assert len(held_out) == 180 and len(benchmark.tasks("seed")) == 45
    answers = [benchmark.agent_answer(task) for task in held_out]
    solved = sum(benchmark.score(*pair).success for pair in zip(held_out, answers, strict=True))
    assert solved >= 143
    assert all(answer == "[]" or len(answer) > 500 for answer in answers)
    if "not comparable" in benchmark.about()["reference_information"]:
        assert solved < 180  # without flights
