"""p̂, R_env, filter and weights of an epoch's generations."""

import itertools

import numpy as np
import pytest
from scipy import stats

from genenv_jax.benchmarks.base import SeedStatistics
from genenv_jax.players.simulator import SimulatorConfig
from genenv_jax.rl.difficulty import corrected_learning_progress, fit_beta_prior
from genenv_jax.tasks.generation import Generation, TaskBatch
from genenv_jax.tasks.metrics import generation_metrics
from genenv_jax.tasks.objective import CurriculumConfig, Objective
from tests.toy import Drawing

TOY = Drawing()


def batch_of(counts, texts=("red green",)):
    """Generations of (row, column, (attempts, successes) before, attempts, successes) each, and of texts that
    come up in turn."""
    seeds = [TOY.task(text, text) for text in texts]
    return TaskBatch(
        [
            Generation(
                row, column, seed, SeedStatistics(*before), "", task=seed, attempts=n, successes=k
            )
            for (row, column, before, n, k), seed in zip(counts, itertools.cycle(seeds))
        ]
    )


def assigned(counts, curriculum=None, texts=("red green",), **simulator):
    batch = batch_of(counts, texts)
    config = SimulatorConfig(**{"success_rate_over": "task"} | simulator)
    Objective(CurriculumConfig(**(curriculum or {})), config, TOY).assign(batch)
    return batch.generations


COUNTS = [
    (0, 0, (), 10, 5),
    (0, 1, (), 10, 4),
    (1, 0, (), 10, 9),
    (1, 1, (), 10, 6),
    (2, 0, (), 0, 0),
]


def test_equation_3_and_the_filter_by_hand():
    found = assigned(COUNTS, rwr_temperature=2.0)
    assert [g.p_hat for g in found[:4]] == [0.5, 0.4, 0.9, 0.6]
    r_env = np.exp(-2 * (np.array([0.5, 0.4, 0.9, 0.6]) - 0.5) ** 2)
    assert [g.r_env for g in found[:4]] == pytest.approx(r_env)
    kept = np.exp(2.0 * r_env[[0, 1, 3]])
    weights = kept / kept.mean()
    # 0.9 is outside of 0.5 ± 0.1, and what was not attempted takes no part.
    assert [g.weight for g in found] == pytest.approx([weights[0], weights[1], 0, weights[2], 0])


def test_the_success_rate_of_a_seeds_variations_together():
    found = assigned(COUNTS, success_rate_over="batch")
    assert [g.p_hat for g in found[:4]] == [0.45, 0.45, 0.75, 0.75]
    assert [g.weight > 0 for g in found] == [True, True, False, False, False]


def test_weights_within_a_seed():
    wide = {"k_min": 0.5}
    found = assigned(COUNTS, wide, weights_over="seed", rwr_temperature=3.0)
    for rows in (found[:2], found[2:4]):
        r_env = np.array([g.r_env for g in rows])
        expected = 2 * np.exp(3 * r_env) / np.exp(3 * r_env).sum()
        assert [g.weight for g in rows] == pytest.approx(expected)
    none = assigned([(0, 0, (), 4, 0)], weights_over="seed")
    assert [g.weight for g in none] == [0.0]


KINDS = ("abc", "red", "a")  # of lengths 3, 3 and 1: two kinds


def test_weights_within_a_kind():
    found = assigned(COUNTS[:3], {"k_min": 0.5}, KINDS, weights_over="signature", rwr_temperature=3)
    r_env = np.array([g.r_env for g in found[:2]])
    assert [g.weight for g in found[:2]] == pytest.approx(
        2 * np.exp(3 * r_env) / np.exp(3 * r_env).sum()
    )
    assert found[2].weight == pytest.approx(1.0)


@pytest.mark.parametrize("over", ["all", "seed"])
def test_coverage_gives_every_kind_that_is_left_the_same_weight(over):
    def of_kinds(coverage):
        options = {"weights_over": over, "rwr_temperature": 3.0, "coverage": coverage}
        weights = [g.weight for g in assigned(COUNTS[:3], {"k_min": 0.5}, KINDS, **options)]
        return np.array(weights)

    plain, half, full = of_kinds(0.0), of_kinds(0.5), of_kinds(1.0)
    # Two thirds of the records are of the first kind.
    for weights, coverage in ((half, 0.5), (full, 1.0)):
        by_hand = plain / np.array([2 / 3, 2 / 3, 1 / 3]) ** coverage
        assert weights == pytest.approx(by_hand / by_hand.mean())
    kept = assigned(
        [*COUNTS[:2], COUNTS[3]], {"k_min": 0.11}, KINDS, coverage=1.0, rwr_temperature=0.0
    )
    assert [g.weight for g in kept] == pytest.approx([0.75, 0.75, 1.5])


def test_coverage_is_of_weights():
    with pytest.raises(ValueError, match="coverage = 1.0: expected method = 'rwr'"):
        SimulatorConfig(coverage=1.0, method="grpo")


def test_learnability_needs_two_attempts():
    found = assigned([(0, 0, (), 4, 2), (1, 0, (), 1, 1)], {"score": "learnability"})
    assert [g.r_env for g in found] == pytest.approx([4 * 2 * 2 / (4 * 3), 0.0])
    assert all(g.weight > 0 for g in found)  # the filter is about alpha


@pytest.mark.parametrize(
    ("score", "value"),
    [
        ("alpha", lambda p: np.exp(-2 * (p - 0.5) ** 2)),
        ("learnability", lambda p: 4 * p * (1 - p)),
    ],
)
def test_a_posterior_is_an_expectation(score, value):
    """Against the integral over the posterior whose prior is fitted to these tasks."""
    counts = [(i, 0, (), 8, k) for i, k in enumerate((0, 1, 2, 5, 8))]
    found = assigned(counts, {"score": score, "estimate": "posterior"})
    a, b = fit_beta_prior([k for *_, k in counts], [8] * 5)
    for g, (*_, n, k) in zip(found, counts, strict=True):
        p = stats.beta(a + k, b + n - k)
        assert g.p_hat == pytest.approx(p.mean())
        assert g.r_env == pytest.approx(p.expect(value), abs=2e-4)


def test_progress_is_what_noise_does_not_explain():
    counts = [
        (0, 0, (20, 4), 10, 8),
        (0, 1, (20, 4), 10, 6),
        (1, 0, (20, 10), 10, 5),
        (2, 0, (), 4, 1),
    ]
    for over, want in {
        "task": [(4, 20, 8, 10), (4, 20, 6, 10), (10, 20, 5, 10)],
        "batch": [(4, 20, 14, 20), (4, 20, 14, 20), (10, 20, 5, 10)],
    }.items():
        generations = assigned(counts, {"score": "progress"}, success_rate_over=over)
        for g, numbers in zip(generations, want, strict=False):
            assert g.r_env == pytest.approx(float(corrected_learning_progress(*numbers)))
            assert g.p_hat == numbers[2] / numbers[3]
        moved, _, still, fresh = (g.r_env for g in generations)
        assert moved > 0 > still  # nothing changed: less than chance alone would make of it
        assert fresh == 0.0  # never tried before
        assert all(g.weight > 0 for g in generations)
    posterior = {"score": "progress", "estimate": "posterior"}
    again = assigned(counts, posterior, success_rate_over="batch")
    assert [g.r_env for g in again] == [g.r_env for g in generations]


@pytest.mark.parametrize("p", [0.0, 0.5, 0.9])
def test_noise_earns_nothing_on_average(p):
    """Seeds whose variations stay as hard as they are: a mean of 0, where |Δp̂| has one of up to 0.1."""
    rng = np.random.default_rng(1)
    k = rng.binomial(40, p, 1000), rng.binomial(40, p, 1000)
    counts = ((i, 0, (40, a), 40, b) for i, (a, b) in enumerate(zip(*k, strict=True)))
    r_env = np.array([g.r_env for g in assigned(counts, {"score": "progress"})])
    assert abs(r_env.mean()) < 4 * r_env.std() / 1000**0.5 + 1e-12
    assert p == 0 or np.abs(k[1] - k[0]).mean() / 40 > 0.04


def test_metrics_by_hand():
    batch = batch_of(COUNTS)
    for g, rate in zip(batch.generations, (0.6, 0.3, 0.9, None, None), strict=True):
        g.r_env, g.rerolled = 0.5, rate
    batch.generations[4].task = None
    batch.generations[3].seed = TOY.task("parent", "of an earlier epoch", origin="generated")
    batch.generations[4].set_verdict(TOY.parse("1234567", TOY.tasks("seed")[0], "x", 0))
    found = generation_metrics(batch.generations, TOY, 0.5, 0.1)
    assert found["generated/count"] == 5 and found["generated/valid_share"] == 0.8
    assert found["generated/rejected/unparsable"] == 1
    assert found["generated/grown_share"] == 0.2
    assert found["generated/p_hat_mean"] == pytest.approx(0.6)
    assert found["generated/p_hat_in_band"] == 0.75
    assert found["generated/solved_all"] == found["generated/solved_none"] == 0
    # One kind of task, so there is no entropy.
    assert found["generated/distinct_signatures"] == 1
    assert found["generated/signature_entropy"] == 0.0
    # Re-rolled: all three, and of those whose p̂ is in the band the first two.
    assert found["generated/p_rerolled_mean"] == pytest.approx(0.6)
    assert found["generated/p_rerolled_in_band"] == pytest.approx(0.45)
    assert found["generated/p_rerolled_gap"] == pytest.approx(0.15)
    assert found["generated/p_hat_gap"] == pytest.approx(0.05)
    nothing = generation_metrics(batch.generations[4:], TOY, 0.5, 0.1)
    assert nothing == {
        "generated/count": 1,
        "generated/valid_share": 0.0,
        "generated/grown_share": 0.0,
        "generated/rejected/unparsable": 1,
    }
