"""A held-out request is recognised despite small changes, and other tasks are not mistaken for it."""

import dataclasses
import random

import pytest

from bench.bad_answers.common import RESTATEMENTS, word_in_five
from genenv_jax.benchmarks import base, registry
from genenv_jax.benchmarks.base import Rejection
from genenv_jax.benchmarks.bfcl.tasks import load
from genenv_jax.benchmarks.dial.chains import Dial
from genenv_jax.benchmarks.wording import fold, words
from genenv_jax.scoring.verification import Requests, VerificationConfig, Verifier
from tests.benchmarks.small import WRITERS
from tests.redteam.scenes import scene

_SINGLE_TURNS = ("simple_python", "multiple", "parallel", "parallel_multiple")
# Of the real benchmarks: options, and how many of the seeds match a held-out task.  BFCL asks 38 of its
# requests in two categories, word for word; 5 more, and 9 of API-Bank's, are near-copies; one
# of API-Bank's makes a held-out call in other words.
BENCHMARKS = {
    "api_bank": ("api_bank", {}, 7),
    "bamboogle": ("bamboogle", {}, 0),
    "bfcl_turns": ("bfcl", {}, 0),
    "bfcl_single": ("bfcl", {"seed_categories": _SINGLE_TURNS, "eval_categories": _SINGLE_TURNS}, 3),
}


def _changed(task, change):
    message = {**task.messages[-1], "content": change(task.messages[-1]["content"])}
    messages = (*task.messages[:-1], message)
    return dataclasses.replace(task, messages=messages, origin="generated", generation=0)


@pytest.mark.parametrize("name", ["api_bank", "bamboogle", "bfcl_single", "custom"])
def test_other_words_do_not_hide_what_is_asked_for(name):
    with scene(name) as opened:
        tasks = [t for t in opened.held_out if opened.benchmark.meanings(t)]
        assert tasks
        for task in tasks:
            numbers = [word for word in words(opened.benchmark.text(task)) if word[0].isdigit()]
            told = _changed(task, lambda said: f"Otra vez, por favor: {numbers}")  # noqa: B023
            assert opened.verifier.compare(told).reason == base.CONTAMINATED


def test_a_question_of_ones_own_is_known_by_two_numbers():
    with scene("custom") as opened:
        task = next(t for t in opened.tasks if t.answer["checker"] == "numeric")

        def said(text):
            return opened.benchmark.meanings(_changed(task, lambda _: text))

        assert said("Aus 2 Kisten je drei?") == []  # words of other languages are not numbers
        assert said("Aus 2 Kisten je 3?") == said("two boxes of three, please") != []
        assert said("Aus 2 Kisten je 4?") != said("Aus 2 Kisten je 3?")


@pytest.mark.data
@pytest.mark.parametrize("name", BENCHMARKS)
def test_sixty_held_out_tasks_and_all_seeds(name, data_dir):
    name, options, matching = BENCHMARKS[name]
    benchmark = registry.make_benchmark(name, data_dir=str(data_dir), **options)
    checker = Verifier(benchmark, [], benchmark.tasks("eval"), VerificationConfig())
    for task in random.Random(1).sample(benchmark.tasks("eval"), 60):
        for how, change in RESTATEMENTS.items():
            verdict = checker.compare(_changed(task, change))
            assert isinstance(verdict, Rejection), (task.id, how)
    seeds = benchmark.tasks("seed")
    assert sum(isinstance(checker.compare(seed), Rejection) for seed in seeds) == matching


def test_a_request_is_there_again_if_it_asks_for_the_same():
    index = Requests(0.8)
    text = "what is the weather like in oslo for 2 days"
    index.add(text, ["weather.get"])
    for other, want in [
        ("Tell me: what is the weather like, in Oslo, for two days? Thank you very much.", True),
        ("What is the weather like in Rome for 2 days?", True),  # one word of ten
        ("What is the weather like in Rome for 5 weeks?", False),
        (" ".join(reversed(text.split())), False),
        ("", False),
    ]:
        assert index.matches(other, ["weather.get"]) == want, other
        assert not index.matches(other, ["weather.get", "book"])
    off = Requests(0.0)
    off.add(text, ())
    assert not off.matches(text, ())


def test_a_request_of_few_words_is_no_part_of_every_longer_one():
    index = Requests(0.8)
    index.add("Get version", ["f"])
    assert index.matches("get VERSION!", ["f"])
    assert not index.matches("Get the names of all applications, and the version of each", ["f"])


def test_the_turns_of_a_held_out_conversation_are_requests_of_their_own(tmp_path):
    """A turn's `canonical` differs from a conversation's."""
    directory = str(WRITERS["bfcl"](tmp_path))
    turns = registry.make_benchmark("bfcl", data_dir=directory, seed_fraction=0.0).tasks("eval")
    categories = ["multi_turn_long_context"]
    of = {"seed_categories": (), "eval_categories": categories}
    benchmark = registry.make_benchmark("bfcl", data_dir=directory, **of)
    held_out = load("v4", categories, directory, "eval", "conversation")
    checker = Verifier(benchmark, [], held_out, VerificationConfig())
    assert turns and held_out
    for task in turns:
        assert checker.compare(_changed(task, word_in_five)).reason == base.CONTAMINATED


def test_dial_is_compared_by_similarity_alone():
    """Its texts are templates in which every word counts; folding changes only their case."""
    dial = Dial()
    for task in (*dial.tasks("seed"), *dial.tasks("eval")):
        assert fold(dial.text(task)) == dial.text(task).lower()


def test_hostile_requests_cost_little(bounded):
    vocabulary = [f"w{i}" for i in range(40)]
    index, rng = Requests(0.8), random.Random(0)
    for _ in range(1_000):
        index.add(" ".join(rng.choices(vocabulary, k=30)), ())
    for text in (" ".join(vocabulary), "w1 " * 4_000, "a" * 12_000, "1," * 6_000):
        assert not index.matches(text, ())
