import itertools

import numpy as np
import pytest

from genenv_jax.benchmarks.base import Score
from genenv_jax.evaluate.intervals import (
    evaluation_metrics,
    intervals,
    pass_at_k,
    share_sizes,
    wilson_interval,
)
from genenv_jax.scoring.attempts import Attempt
from tests.evaluate.games import Games


def results(successes, category="all", ended=True):
    """For each row of successes, the attempts at one task."""
    games = Games()

    def attempt(i, j, success):
        score = Score(float(success), bool(success), True)
        return Attempt(games.task(f"{category}-{i}", i, category), j, ("answer",), ended, score)

    return [[attempt(i, j, s) for j, s in enumerate(row)] for i, row in enumerate(successes)]


def bounds(attempts, benchmark=None, **options):
    benchmark = benchmark or Games()
    return intervals(benchmark, attempts, share_sizes(benchmark, attempts), **options)


@pytest.mark.parametrize(("n", "c"), [(1, 0), (1, 1), (5, 0), (5, 2), (6, 5), (4, 4)])
def test_pass_at_k_is_the_share_of_draws_with_a_success(n, c):
    samples = [True] * c + [False] * (n - c)
    for k in range(1, n + 1):
        draws = list(itertools.combinations(samples, k))
        assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, draws)) / len(draws))


def test_metrics_of_several_samples():
    metrics = evaluation_metrics(Games(), results([[1, 1, 1, 1, 1], [0, 0, 0, 0, 1], [0, 0, 0, 0, 0]]))
    assert metrics["accuracy"] == pytest.approx(6 / 15)
    assert metrics["pass@1"] == pytest.approx(metrics["accuracy"])
    names = ("accuracy", "valid_share", "truncated_share")
    assert set(metrics) == {*names, *(f"pass@{k}" for k in (1, 2, 4, 5))}
    assert metrics["pass@2"] == pytest.approx((1 + 0.4 + 0) / 3)
    assert metrics["pass@5"] == pytest.approx(2 / 3)
    metrics = evaluation_metrics(Games(), results([[1], [0]], ended=False))
    assert metrics == {"accuracy": 0.5, "valid_share": 1.0, "truncated_share": 1.0}


def test_answers_that_fail_by_their_form_are_told_from_wrong_ones():
    games = Games()
    scores = [
        Score(1.0, True, True), Score(0.0, False, True, "wrong"), Score(0.0, False, False, "no_call"),
        Score(0.0, False, False, "no_call"), Score(0.0, False, False, "unparsable"),
    ]  # fmt: skip
    task = games.task("a", 0, "all")
    attempts = [[Attempt(task, 0, ("",), True, score)] for score in scores]
    shares = {"accuracy": 0.2, "valid_share": 0.4, "truncated_share": 0.0}
    shares |= {"invalid_no_call": 0.4, "invalid_unparsable": 0.2}
    assert evaluation_metrics(games, attempts) == pytest.approx(shares)


def test_intervals_are_those_of_the_binomial_for_one_sample_a_task():
    rows = np.random.default_rng(0).random((400, 1)) < 0.3
    p = rows.mean()
    low, high = bounds(results(rows), resamples=2000)["accuracy"]
    half = 1.96 * np.sqrt(p * (1 - p) / 400)
    assert (low, high) == pytest.approx((p - half, p + half), abs=0.006)


def test_samples_of_a_task_are_not_taken_for_independent():
    once = np.random.default_rng(1).random((60, 1)) < 0.5
    same = np.repeat(once, 20, axis=1)  # every task is either always or never solved
    width = lambda rows: np.diff(bounds(results(rows))["accuracy"])  # noqa: E731
    assert width(same) == pytest.approx(width(once), rel=0.1)


def test_categories_keep_their_sizes():
    sure = results([[1]] * 30, "sure") + results([[0]] * 10, "never")
    # All resamples are alike, which says nothing about other tasks.
    assert bounds(sure, resamples=50)["accuracy"] == wilson_interval(0.75, 40)


def test_categories_of_one_task_are_drawn_from_together():
    """Drawn apart they would add no width, as if these ten tasks were all there are."""
    apart = [of for i in range(10) for of in results([[i % 2]], f"c{i}")]
    rows = results([[i % 2] for i in range(10)])
    (low, high), (low_of_one, high_of_one) = (bounds(x)["accuracy"] for x in (apart, rows))
    assert low < 0.3 and high > 0.7
    assert (low, high) == (low_of_one, high_of_one)


class Split(Games):
    """Two splits, named in the metrics where both occur; a count; a constant score."""

    def aggregate(self, results):
        by_split = {}
        for task, score in results:
            by_split.setdefault(task.category, []).append(score.success)
        several = len(by_split) > 1
        return {
            f"{split}/{name}" if several else name: value
            for split, of in by_split.items()
            for name, value in (
                ("accuracy", sum(of) / len(of)),
                ("errors", float(len(of) - sum(of))),
                ("f1", 0.5),
            )
        }


def test_where_all_verdicts_agree_a_share_has_wilsons_interval_of_its_tasks():
    attempts = results([[0, 0]] * 8, "hard") + results([[1, 1]] * 30, "easy")
    sizes = share_sizes(Split(), attempts)
    every = ("valid_share", "truncated_share", "pass@1", "pass@2")
    assert sizes == {"hard/accuracy": 8, "easy/accuracy": 30} | {f"all/{n}": 38 for n in every}
    found = bounds(attempts, Split(), resamples=20)
    low, high = found["hard/accuracy"]
    assert low == 0 and high == pytest.approx(1.96**2 / (8 + 1.96**2), abs=1e-4)
    assert found["easy/accuracy"] == wilson_interval(1.0, 30) and found["easy/accuracy"][1] == 1
    assert found["all/truncated_share"] == wilson_interval(0.0, 38)
    assert set(found) == set(sizes)  # neither a count nor a constant is a share


def test_wilsons_interval_is_that_of_the_literature():
    """Brown, Cai and DasGupta, Statistical Science 16 (2001), Eq. 4: roots of (p̂ − p)² = z² p(1 − p) / n."""
    for share, n in ((0.0, 5), (0.3, 10), (1.0, 7), (0.493, 144)):
        for p in wilson_interval(share, n):
            assert (share - p) ** 2 == pytest.approx(1.959964**2 * p * (1 - p) / n, abs=1e-7)
