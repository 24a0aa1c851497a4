"""API-Bank's published files: counts, and our reader against their printed calls."""

import json

import pytest

from genenv_jax.benchmarks.api_bank import calls
from genenv_jax.benchmarks.api_bank import tasks as records
from genenv_jax.benchmarks.api_bank.benchmark import APIBank

pytestmark = pytest.mark.data

COUNTS = {
    "level-1-api": 399, "level-2-api": 135, "level-3-batch-inf": 245, "level-1-response": 375,
    "level-2-response": 103, "level-3-batch-inf-response": 50, "lv3-api-train": 907,
    "lv3-response-train": 338,
}  # fmt: skip


@pytest.fixture(scope="module")
def splits(data_dir):
    """All tasks of the real files."""
    return records.splits(records.find_directory(data_dir))


def test_splits_have_the_official_number_of_tasks(splits):
    assert {name: len(tasks) for name, tasks in splits.items()} == COUNTS
    for tasks in splits.values():
        assert len({task.id for task in tasks}) == len(tasks)
        for text in (task.messages[0]["content"] for task in tasks):
            assert text.startswith("User:") and "Generate A" not in text


def test_levels_hold_the_official_number_of_tool_searches_and_samples(splits):
    for name, count in {"level-1-api": 0, "level-2-api": 45, "level-3-batch-inf": 114}.items():
        assert sum(task.answer["name"] == records.TOOL_SEARCHER for task in splits[name]) == count
    assert len({task.answer["sample"] for task in splits["level-3-batch-inf"]}) == 50
    called = {task.answer["name"] for task in splits["level-1-api"]}
    assert len(called) == 49


def test_gold_parameters_are_the_dialogues_and_agree_with_what_is_printed(splits, data_dir):
    # From the printed call, our reader gets the dialogue's values, quoted lists included.
    directory = records.find_directory(data_dir)
    lists = 0
    for name in ("level-1-api", "level-2-api"):
        printed = json.loads((directory / records.SPLITS[name].path).read_text())
        for record, task in zip(printed, splits[name], strict=True):
            call = calls.read_call(record["expected_output"], 4096)
            gold = task.answer["name"], task.answer["parameters"]
            assert (call.name, dict(call.arguments)) == gold
            lists += any(value.startswith("[") for value in call.arguments.values())
    assert lists == 41


def test_found_apis_bring_their_parameters_types(splits):
    task = splits["level-3-batch-inf"][3]
    assert task.answer["types"]["time"] == "str"
    weather = [t for t in splits["level-3-batch-inf"] if "latitude" in t.answer["parameters"]]
    assert weather and all(t.answer["types"]["latitude"] == "float" for t in weather)
    answers = [task.answer for task in splits["level-3-batch-inf"]]
    targets = [of["target"] for of in answers if of["name"] == records.TOOL_SEARCHER]
    assert len(targets) == 114 and all(targets)


def test_contents_that_must_be_equal_are_few(splits):
    exact = [task.id for tasks in splits.values() for task in tasks if task.answer.get("exact")]
    # Found by content: the database's time differs from the call's.
    assert len(exact) == 12
    assert all("Agenda" in task_id or "Reminder" in task_id for task_id in exact)


def test_the_files_are_the_published_ones(data_dir):
    directory = records.find_directory(data_dir)
    assert len(records.load(directory, list(COUNTS), verify_files=True)) == sum(COUNTS.values())


def test_the_default_split(data_dir):
    benchmark = APIBank(data_dir=data_dir)
    assert len(benchmark.tasks("seed")) == 842 and len(benchmark.tasks("eval")) == 399 + 135 + 245
