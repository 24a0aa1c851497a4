"""Whole conversations: our verdicts against those that the official multi-turn checker gave.

They differ where the official executor does more than call the function (`bfcl/backends.py`): `DIFFERENT`.
"""

import collections
import json

import pytest

from bench.bad_answers.bfcl_conversations import COUNT
from bench.official import bfcl_conversations as official
from genenv_jax.benchmarks.base import Rejection, Score
from genenv_jax.benchmarks.bfcl import backends
from genenv_jax.benchmarks.bfcl.benchmark import BFCL, reason_word
from genenv_jax.benchmarks.bfcl.categories import MULTI_TURN

pytestmark = [
    pytest.mark.data,
    pytest.mark.skipif(not backends.is_installed(), reason=backends.INSTALL),
]


# (id, play): the official verdict and why ours is another.
DIFFERENT = {
    # `travel_date=set_budget_limit()` is read as a text.  The official executor puts the name of an object,
    # which holds the conversation's number, before what looks like a method in it; the price depends on the
    # sum of the digits in the date, and those of "191" make it the reference's price by chance.
    ("multi_turn_miss_param_191", 1): "",
}


@pytest.fixture(scope="module")
def kept():
    """The official verdicts."""
    return json.loads(official.VERDICTS.read_text())


@pytest.fixture(scope="module")
def benchmark(data_dir):
    """All four categories as whole conversations."""
    return BFCL(
        data_dir=data_dir,
        seed_categories=(),
        eval_categories=MULTI_TURN,
        multi_turn_rule="conversation",
    )


def _played(benchmark, task, play) -> Score | None:
    """The verdict of an episode that is given the answers of a play.

    A change may have made an answer undecodable; it would end the turn, where the official evaluator, which
    sees only what was written in the end, passes over it.  So it is not given.
    """
    episode = benchmark.episode(task)
    for turn in play:
        for answer in turn:
            if answer is not turn[-1] and not _is_executed(answer):
                continue
            score = episode.step(answer)
            if score is not None:
                return score
    return None


def _is_executed(answer: str) -> bool:
    calls = backends.decode(answer)
    return not isinstance(calls, Rejection) and bool(calls)


def test_plays_are_those_that_were_judged(benchmark, kept):
    texts = [
        json.dumps(play) for task in benchmark.tasks("eval") for play in official.plays_of(task)
    ]
    assert len(texts) == 4_800
    assert official.digest(texts) == kept["texts"], (
        "the plays changed: make bench/official/bfcl_conversations.json anew"
    )


@pytest.mark.slow
def test_verdicts_equal_the_official_checker(benchmark, kept):
    counts = collections.Counter()
    different = []
    tasks = benchmark.tasks("eval")
    for task in tasks:
        letters = kept["verdicts"][task.id]
        for index, (letter, play) in enumerate(zip(letters, official.plays_of(task), strict=True)):
            expected = kept["errors"][official.LETTERS.index(letter)]
            counts[expected == ""] += 1
            if (task.id, index) in DIFFERENT:
                assert DIFFERENT[task.id, index] == expected
                assert (
                    benchmark.score(task, json.dumps(play)).reason == "execution_response_mismatch"
                )
                continue
            for score in (benchmark.score(task, json.dumps(play)), _played(benchmark, task, play)):
                same = score is not None and score.success == (expected == "")
                if not same or not _same_reason(expected, score.reason):
                    different.append((task.id, index, expected, score))
    assert not different
    assert counts.total() == len(tasks) * COUNT
    # Both kinds of verdict must be well represented for equality to mean anything.
    assert 0.5 < counts[True] / counts.total() < 0.75


def _same_reason(official_error: str, ours: str) -> bool:
    if official_error == "multi_turn:force_terminated":
        return ours != ""  # the episode may have ended at an earlier turn that failed
    return ours == reason_word(official_error)


def test_every_reference_is_accepted(benchmark):
    passed = collections.Counter()
    for task in benchmark.tasks("eval"):
        passed[task.category] += benchmark.score(task, benchmark.agent_answer(task)).success
    assert passed == dict.fromkeys(MULTI_TURN, 200)
