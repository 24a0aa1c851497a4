"""The generators make what their kinds say, the tally counts, and samples agree with the official code."""

import collections
import random

import pytest

from bench.agreement import tally
from bench.bad_answers import alfworld, api_bank, bad_answers, bamboogle
from bench.bad_answers import bfcl as bfcl_answers
from bench.bad_answers import bfcl_source as source_answers
from genenv_jax.benchmarks.api_bank.calls import Call, read_call
from genenv_jax.benchmarks.bamboogle.scoring import extract, normalize
from genenv_jax.benchmarks.base import Rejection
from genenv_jax.benchmarks.bfcl.benchmark import BFCL
from genenv_jax.benchmarks.bfcl.source_calls import decode_source_calls
from genenv_jax.benchmarks.safe_parse import parse_calls
from tests.benchmarks.bfcl_tasks import seed_task
from tests.benchmarks.test_api_bank import CALL
from tests.redteam.scenes import scene

TRUTH = [
    {"weather.get": {"city": ["Oslo-Lillestrøm"], "days": [2, ""]}},
    {"book": {"guests": [7], "dishes": [["fish", "rice"]], "contact": [{"name": ["Ann", "A."]}]}},
]


def task(truth=None):
    return seed_task("parallel", truth=TRUTH if truth is None else truth)


def made(seed, count=100):
    return list(bfcl_answers.answers(task(), random.Random(seed), count))


def test_answers_are_the_same_for_a_seed_and_others_for_another():
    assert made(1) == made(1) != made(2)
    kinds = collections.Counter(kind for kind, _ in made(1))
    assert set(kinds.values()) == {1} and kinds["reference"] == 1
    # No value of the task is a truth value or a float, and every default is given.
    left = {kind for kind in bfcl_answers.CHANGES if "boolean" in kind or "float" in kind}
    ever = {kind for seed in range(20) for kind, _ in made(seed)}
    assert {*bfcl_answers.FORMS, *bfcl_answers.CHANGES} - ever == left | {"default given"}


@pytest.mark.parametrize("seed", range(3))
def test_kinds_of_calls_are_what_they_say(seed):
    found = dict(made(seed))
    reference = parse_calls(found["reference"])
    count = sum(len(arguments) for call in reference for arguments in call.values())

    def arguments(kind):
        calls = parse_calls(found[kind])
        assert not isinstance(calls, Rejection), (kind, found[kind])
        return sum(len(arguments) for call in calls for arguments in call.values())

    benchmark = BFCL()
    assert benchmark.score(task(), found["reference"]).success
    for kind in ("arguments in another order", "fence", "number: arithmetic of the same value"):
        if kind in found:
            assert parse_calls(found[kind]) == reference, kind
    assert sorted(map(str, parse_calls(found["calls in another order"]))) == sorted(
        map(str, reference)
    )
    assert arguments("argument dropped") == count - 1
    assert arguments("unknown argument added") == arguments("declared argument added") == count + 1
    assert found["reference"].startswith(found["cut short"])
    for kind in ("argument dropped", "other function", "unknown argument added", "prose", "return"):
        score = benchmark.score(task(), found[kind])
        assert not score.success or kind in ("argument dropped", "other function"), kind
    if "text: case" in found:
        assert found["text: case"].lower() == found["reference"].lower() != found["text: case"]
    for kind in ("beyond limits", "number: arithmetic beyond numbers", "not text"):
        calls = parse_calls(found[kind])
        assert isinstance(calls, Rejection) or kind == "number: arithmetic beyond numbers"


@pytest.mark.parametrize("language", ["java", "javascript"])
def test_answers_in_java_and_javascript(language):
    truth = [{"weather.get": {"city": ["Oslo"], "days": [2]}}]
    own = seed_task("simple", language=language, truth=truth)
    found = list(source_answers.source_answers(own, random.Random(0), 60))
    assert found == list(source_answers.source_answers(own, random.Random(0), 60))
    assert len(found) == 60 and {*source_answers.FORMS} <= {kind for kind, _ in found}
    assert not any("CALL" in text or "LANGUAGE" in text for _, text in found)
    reference = decode_source_calls(found[0][1], language)
    assert found[0][0] == "reference" and not isinstance(reference, Rejection)
    for kind, text in found:
        if kind in ("fence", "arguments in another order"):
            assert decode_source_calls(text, language) == reference, text


def test_texts_without_a_call():
    own = seed_task("irrelevance", category="irrelevance", truth=[])
    kinds = source_answers.NO_CALL
    found = dict(source_answers.no_call_answers(own, random.Random(3), len(kinds)))
    assert set(found) == set(kinds)
    assert not any("NAME" in text or "KEY" in text for text in found.values())
    for kind in ("call", "call without arguments"):
        assert parse_calls(found[kind]), found[kind]
    for kind in ("broken call", "nothing", "refusal"):
        calls = parse_calls(found[kind])
        assert isinstance(calls, Rejection) or calls == [], found[kind]


def test_answers_to_questions():
    found = list(bamboogle.answers("Where?", "the Tarn Water", "1893", random.Random(0)))
    assert found == list(bamboogle.answers("Where?", "the Tarn Water", "1893", random.Random(0)))
    by_kind = collections.defaultdict(list)
    for kind, text in found:
        by_kind[kind].append(normalize(extract(text)))
    assert set(by_kind) == {*bamboogle.FORMS, *bamboogle.CHANGES, "another answer"}
    assert set(by_kind["tagged"]) == set(by_kind["case"]) == {"tarn water"}
    assert by_kind["another answer"] == ["1893"]


def test_answers_that_are_calls_of_apis():
    found = dict(api_bank.answers(CALL, random.Random(1)))
    assert found == dict(api_bank.answers(CALL, random.Random(1)))
    assert set(found) == {*api_bank.FORMS, *api_bank.CHANGES}
    gold = read_call(found["gold"], 8_192)
    assert gold == Call(CALL.answer["name"], CALL.answer["parameters"])
    for kind in ("prose", "fence or quotes"):
        assert read_call(found[kind], 8_192) == gold, found[kind]
    assert (
        isinstance(read_call(found["no call"], 8_192), Rejection)
        or not read_call(found["no call"], 8_192).arguments
    )
    replies = dict(api_bank.replies("It is done. Bye.", "Hello.", random.Random(0)))
    assert replies["gold"] == "It is done. Bye." and not replies["nothing"].strip(". AI:\n")


def test_ways_through_a_game():
    way = [f"go to desk {i}" for i in range(8)]
    rng = random.Random(0)
    make = {
        kind: change for kind, change in alfworld.CHANGES.items() if kind != "random commands first"
    }
    found = {kind: change(way, None, rng) for kind, change in make.items()}
    assert way[: len(found["cut short"])] == found["cut short"] != way
    assert len(found["one command left out"]) == 7 and len(found["at the limit of steps"]) in (
        50,
        51,
    )
    assert [c for c in found["commands inserted"] if c in way] == way != found["commands inserted"]
    assert sorted(found["two commands exchanged"]) == way


def test_tally_counts_every_class_of_disagreement():
    cases = [
        tally.Case("a", task(), "yes"),
        tally.Case("a", task(), "no"),
        tally.Case("b", task(), "maybe"),
    ]
    counted = tally.Tally()
    counted.run(
        cases,
        lambda case: tally.Verdict(case.text != "no", "no" if case.text == "no" else ""),
        lambda case: tally.Verdict(case.text == "yes", "" if case.text == "yes" else "wrong"),
    )
    counted.add(cases[0], tally.Verdict(True, "", 1), tally.Verdict(True, "", 2))
    outcomes = (tally.BOTH, tally.NEITHER, tally.OFFICIAL, tally.OURS, tally.OTHER)
    assert [counted.total(outcome) for outcome in outcomes] == [
        1,
        1,
        0,
        1,
        1,
    ] and counted.total() == 4
    assert counted.classes[tally.OURS, "wrong", ""] == {"b": 1}
    text = counted.table()
    assert "| b | 1 | 0 | 0 | 0 | 1 | 0 |" in text and "| all | 4 | 1 | 1 | 0 | 1 | 1 |" in text
    assert (
        "only accepted here; official: wrong; here: accepted: 1\n  b: 1, as parallel_0: 'maybe'"
        in text
    )


@pytest.mark.parametrize("name", ["api_bank", "bamboogle", "bfcl_single", "travelplanner", "dial"])
def test_every_benchmark_has_bad_answers(name):
    with scene(name) as opened:
        for task in opened.tasks[:3]:
            made = [list(bad_answers(opened.benchmark, task, random.Random(1))) for _ in range(2)]
            assert made[0] == made[1] and all(isinstance(text, str) for _, text in made[0])
            assert len({kind for kind, _ in made[0]}) >= (27 if name == "dial" else 40)
