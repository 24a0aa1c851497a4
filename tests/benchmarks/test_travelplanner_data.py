"""TravelPlanner's published files: counts, fields of the queries, checksums."""

import json

import pytest

from genenv_jax.benchmarks.travelplanner import tasks
from genenv_jax.benchmarks.travelplanner.benchmark import TravelPlanner
from genenv_jax.benchmarks.travelplanner.queries import Query

pytestmark = pytest.mark.data

# Fields that an earlier reading of the texts (DERIVED/) has differently, and why ours is right.
DIFFERENT = {("train", 44): {"people_number": (2, 1)}}  # "for a pair"


def test_counts_per_split_are_the_official_ones(data_dir):
    found = tasks.splits(tasks.find_directory(data_dir))
    levels = [f"{level}_{days}_days" for level in ("easy", "medium", "hard") for days in (3, 5, 7)]
    for split, count in (("train", 5), ("validation", 20)):
        if split in found:
            strata = [task.category for task in found[split]]
            assert {name: strata.count(name) for name in levels} == dict.fromkeys(levels, count)
            assert len(strata) == 9 * count
    # 105 hard constraints are asked for in the training queries, as in the official evaluator.
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


@pytest.mark.parametrize("split", ["train", "validation"])
def test_fields_agree_with_an_earlier_reading(data_dir, split):
    directory = tasks.find_directory(data_dir)
    path = directory / f"DERIVED/{split}_queries_structured.jsonl"
    found = tasks.splits(directory).get(split)
    if found is None or not path.is_file():
        pytest.skip(f"no structured {split} queries")
    kept = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert len(kept) == len(found) > 0
    different = {}
    for task, record in zip(found, kept, strict=True):
        query = Query.from_json(task.answer["query"])
        ours = {**query.to_json(), "level": query.level, "query": task.messages[0]["content"]}
        for fields in (ours, record):
            local = fields["local_constraint"]
            local["cuisine"] = sorted(local["cuisine"] or [])
        fields = {
            name: (ours[name], record[name])
            for name in record
            if name != "idx" and ours[name] != record[name]
        }
        if fields:
            different[split, record["idx"]] = fields
    assert different == {key: value for key, value in DIFFERENT.items() if key[0] == split}
