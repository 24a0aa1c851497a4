"""pass@k and bootstrap intervals."""

import itertools

import numpy as np
import pytest

from genenv_jax.benchmarks.base import Score
from genenv_jax.evaluate.intervals import bootstrap_intervals, evaluation_metrics, pass_at_k
from tests.evaluate.games import Games


def results(successes, category="all"):
    """A task for each row of successes."""
    games = Games()
    return [
        (games.task(f"{category}-{i}", i, category), [Score(float(s), bool(s), True) for s in row])
        for i, row in enumerate(successes)
    ]


@pytest.mark.parametrize(("n", "c"), [(1, 0), (1, 1), (5, 0), (5, 2), (6, 5), (4, 4)])
def test_pass_at_k_is_the_share_of_draws_with_a_success(n, c):
    samples = [True] * c + [False] * (n - c)
    for k in range(1, n + 1):
        draws = list(itertools.combinations(samples, k))
        assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, draws)) / len(draws))


@pytest.mark.parametrize(("n", "c", "k"), [(2, 3, 1), (2, 1, 3), (2, 1, 0), (2, -1, 1)])
def test_pass_at_k_refuses_what_makes_no_sense(n, c, k):
    with pytest.raises(ValueError, match="expected c <= n"):
        pass_at_k(n, c, k)


def test_metrics_of_several_samples():
    rows = [[1, 1, 1, 1, 1], [0, 0, 0, 0, 1], [0, 0, 0, 0, 0]]
    metrics = evaluation_metrics(Games(), results(rows))
    assert metrics["accuracy"] == pytest.approx(6 / 15)
    assert metrics["pass@1"] == pytest.approx(metrics["accuracy"])
    assert set(metrics) == {"accuracy", "valid_share", "pass@1", "pass@2", "pass@4", "pass@5"}
    assert metrics["pass@2"] == pytest.approx((1 + 0.4 + 0) / 3)
    assert metrics["pass@5"] == pytest.approx(2 / 3)
    assert set(evaluation_metrics(Games(), results([[1], [0]]))) == {"accuracy", "valid_share"}


def test_answers_that_fail_by_their_form_are_told_from_wrong_ones():
    games = Games()
    scores = [
        Score(1.0, True, True),
        Score(0.0, False, True, "wrong"),
        Score(0.0, False, False, "no_call"),
        Score(0.0, False, False, "no_call"),
        Score(0.0, False, False, "unparsable"),
    ]
    task = games.task("a", 0, "all")
    metrics = evaluation_metrics(games, [(task, [score]) for score in scores])
    assert metrics == pytest.approx(
        {"accuracy": 0.2, "valid_share": 0.4, "invalid_no_call": 0.4, "invalid_unparsable": 0.2}
    )


def test_intervals_are_those_of_the_binomial_for_one_sample_a_task():
    rng = np.random.default_rng(0)
    rows = rng.random((400, 1)) < 0.3
    p = rows.mean()
    low, high = bootstrap_intervals(Games(), results(rows), resamples=2000)["accuracy"]
    half = 1.96 * np.sqrt(p * (1 - p) / 400)
    assert (low, high) == pytest.approx((p - half, p + half), abs=0.006)


def test_samples_of_a_task_are_not_taken_for_independent():
    rng = np.random.default_rng(1)
    once = rng.random((60, 1)) < 0.5
    same = np.repeat(once, 20, axis=1)  # every task is either always or never solved
    width = lambda rows: np.diff(bootstrap_intervals(Games(), results(rows))["accuracy"])  # noqa: E731
    assert width(same) == pytest.approx(width(once), rel=0.1)


def test_categories_keep_their_sizes():
    sure = results([[1]] * 30, "sure") + results([[0]] * 10, "never")
    assert bootstrap_intervals(Games(), sure, resamples=50)["accuracy"] == (0.75, 0.75)


def test_the_seed_decides_the_intervals():
    rows = results([[1], [0], [1], [1], [0]])
    first, again, other = (
        bootstrap_intervals(Games(), rows, resamples=30, seed=seed) for seed in (1, 1, 2)
    )
    assert first == again and first != other
