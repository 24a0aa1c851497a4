"""Bamboogle's published files."""

import collections
import json

import pytest

from genenv_jax.benchmarks import data_files
from genenv_jax.benchmarks.bamboogle import tasks as records
from genenv_jax.benchmarks.bamboogle.benchmark import Bamboogle

pytestmark = pytest.mark.data


def test_three_published_copies_agree(data_dir):
    directory = records.find_directory(data_dir)
    tasks = records.load(directory, verify_files=True)
    ours = [(task.messages[0]["content"], task.answer["answers"][0]) for task in tasks]
    lines = (directory / "agentic-rag__test.jsonl").read_text().splitlines()
    second = [
        (row["prompt"][0]["content"].strip(), row["reward_model"]["ground_truth"].strip())
        for row in map(json.loads, lines)
    ]
    third = [
        (row["Question"].strip(), row["answer"][0].strip())
        for row in json.loads((directory / "SimpleDeepSearcher__bamboogle.json").read_text())
    ]
    assert ours == second == third and len(ours) == 125
    data_files.verify("bamboogle", directory)


def test_the_default_split(data_dir):
    benchmark = Bamboogle(data_dir=data_dir)
    assert len(benchmark.tasks("eval")) == 102
    count = collections.Counter(task.category for task in benchmark.tasks("seed"))
    assert 10 <= count[records.TWO_HOPS] <= 23 and count[records.ONE_HOP] > count[records.TWO_HOPS]
