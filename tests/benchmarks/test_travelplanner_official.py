"""Our constraints against the official evaluator's, on verdicts that it gave."""

import json

import pytest

from bench.bad_answers.travelplanner import mutations
from bench.official import travelplanner as official
from genenv_jax.benchmarks.travelplanner import records
from genenv_jax.benchmarks.travelplanner.benchmark import TravelPlanner

pytestmark = pytest.mark.data

# Verdicts that differ: none.  Where the official code ends with an exception (`official.CRASH`) there is
# no verdict to compare with; we count the constraint as failed, and say so in `Score.detail`.
DIFFERENT: dict[tuple[str, int], str] = {}


@pytest.fixture(scope="module")
def kept():
    """The official verdicts."""
    return json.loads(official.VERDICTS.read_text())


@pytest.fixture(scope="module")
def judged(data_dir):
    """Every task with its plans and our scores; plans are written as JSON and as Python in turn."""
    directory = records.find_directory(data_dir)
    world = records.read_world(directory)
    benchmark = TravelPlanner(data_dir=data_dir)
    found = []
    for task in world.tasks[records.TRAIN]:
        plans = mutations(task, world)
        texts = [repr(p) if n % 2 else json.dumps(p) for n, p in enumerate(plans)]
        found.append((task, plans, [benchmark.score(task, text) for text in texts]))
    return benchmark, found


def test_plans_are_those_that_were_judged(judged, kept):
    _, found = judged
    plans = [plan for _, each, _ in found for plan in each]
    assert len(plans) >= 2_000
    assert official.digest(plans) == kept["plans"], (
        "the mutations changed: make bench/official/travelplanner.json anew"
    )


def test_every_verdict_equals_the_official_one(judged, kept):
    _, found = judged
    different = {}
    counts = {name: {letter: 0 for letter in "pfn-x"} for name in official.CONSTRAINTS}
    for task, plans, scores in found:
        codes = kept["verdicts"][task.id]
        assert len(codes) == len(plans)
        for number, (code, score) in enumerate(zip(codes, scores, strict=True)):
            theirs, ours = kept["kinds"][code], official.our_letters(score)
            for name, letter in zip(official.CONSTRAINTS, theirs, strict=True):
                counts[name][letter] += 1
            if ours != theirs:
                different[task.id, number] = f"{theirs} {ours}"
    assert different == DIFFERENT
    # Equality means something only where a constraint has been both passed and failed often.
    for name, letters in counts.items():
        assert letters["p"] >= 20 and letters["f"] >= 20, (name, letters)


def test_all_annotated_plans_pass(judged, kept):
    _, found = judged
    assert len(found) == 45
    assert all(scores[0].success and scores[0].reward == 1.0 for _, _, scores in found)
    first = {kept["kinds"][kept["verdicts"][task.id][0]] for task, _, _ in found}
    assert all(not set(letters) & set("f-x") for letters in first)


def test_rates_equal_the_official_ones(judged, kept):
    benchmark, found = judged
    assert len(kept["rates"]) == official.RUNS
    for number, rates in kept["rates"].items():
        results = []
        for task, plans, scores in found:
            score = scores[int(number) % len(plans)]
            # As in the official run, which a plan that crashes would have ended.
            crashes = official.CRASH in kept["kinds"][kept["verdicts"][task.id][int(number)]]
            results.append((task, benchmark.score(task, "[]") if crashes else score))
        metrics = benchmark.aggregate(results)
        ours = [metrics[name.lower().replace(" ", "_")] for name in official.RATES]
        assert ours == pytest.approx(rates, abs=1e-12), number
