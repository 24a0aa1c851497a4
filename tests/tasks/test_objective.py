"""p̂, R_env, filter and weights of an epoch's generations."""

import itertools

import numpy as np
import pytest

from genenv_jax.benchmarks.base import SeedStatistics
from genenv_jax.benchmarks.success_record import ASKED
from genenv_jax.players.simulator import SimulatorConfig
from genenv_jax.tasks.generation import Generation, TaskBatch
from genenv_jax.tasks.metrics import diversity, generation_metrics
from genenv_jax.tasks.objective import CurriculumConfig, Objective
from tests.toy import Drawing

TOY = Drawing()


def batch_of(counts, texts=("red green",)):
    """Generations of (row, column, (attempts, successes) before, attempts, successes) each, with texts taken
    in turn."""
    seeds = [TOY.task(text, text) for text in texts]
    return TaskBatch(
        [
            Generation(row, column, seed, SeedStatistics(*before), "", task=seed, attempts=n, successes=k)
            for (row, column, before, n, k), seed in zip(counts, itertools.cycle(seeds))
        ]
    )


def assigned(counts, curriculum=None, texts=("red green",), **simulator):
    batch = batch_of(counts, texts)
    config = SimulatorConfig(**{"success_rate_over": "task"} | simulator)
    Objective(CurriculumConfig(**(curriculum or {})), config, TOY).assign(batch)
    return batch.generations


COUNTS = [(0, 0, (), 10, 5), (0, 1, (), 10, 4), (1, 0, (), 10, 9), (1, 1, (), 10, 6), (2, 0, (), 0, 0)]


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


def test_hindsight_trains_under_actual_rates():
    found = assigned(COUNTS, method="hindsight")
    assert [g.turned_out for g in found[:4]] == [SeedStatistics(10, k, ASKED) for k in (5, 4, 9, 6)]


@pytest.mark.parametrize("method", ["grpo", "hindsight"])
def test_only_regression_pools_filters_and_weighs(method):
    found = assigned(COUNTS, {"k_min": 0.0}, success_rate_over="batch", method=method, rwr_temperature=9.0)
    assert [g.p_hat for g in found[:4]] == [0.5, 0.4, 0.9, 0.6]
    assert [g.weight for g in found] == [1, 1, 1, 1, 0]


@pytest.mark.parametrize("asked", [None, 2, 3])
def test_a_task_of_another_difficulty_than_asked_for_is_paid_nothing(asked):
    """The task has two words."""
    batch = batch_of([(0, 0, (), 10, 5), (1, 0, (), 10, 5)])
    batch.generations[0].seed_statistics = SeedStatistics(difficulty=asked)
    Objective(CurriculumConfig(), SimulatorConfig(success_rate_over="task"), TOY).assign(batch)
    first, second = batch.generations
    assert (second.r_env, second.weight) == (1.0, 1.0)
    assert (first.r_env, first.weight) == ((0.0, 0.0) if asked == 3 else (1.0, 1.0))
    shares = generation_metrics(batch.generations, TOY, 0.5, 0.1)
    assert shares.get("generated/as_asked_share") == {None: None, 2: 1.0, 3: 0.0}[asked]


def test_a_success_rate_of_the_batch_is_of_the_tasks_that_were_asked_for():
    """Two of a seed's tasks have two words, as asked; two others have three."""
    texts = ("red green", "red green blue")
    batch = batch_of([(0, i, (), 10, k) for i, k in enumerate((5, 10, 4, 10))], texts)
    for g in batch.generations:
        g.seed_statistics = SeedStatistics(difficulty=2)
    Objective(CurriculumConfig(), SimulatorConfig(success_rate_over="batch"), TOY).assign(batch)
    assert [g.p_hat for g in batch.generations] == [0.45, 1.0, 0.45, 1.0]
    assert [g.weight for g in batch.generations] == [1.0, 0.0, 1.0, 0.0]


KINDS = ("abc", "red", "a")  # of lengths 3, 3 and 1: two kinds


def test_coverage_gives_every_kind_that_is_left_the_same_weight():
    def of_kinds(coverage):
        options = {"rwr_temperature": 3.0, "coverage": coverage}
        return np.array([g.weight for g in assigned(COUNTS[:3], {"k_min": 0.5}, KINDS, **options)])

    plain, half, full = of_kinds(0.0), of_kinds(0.5), of_kinds(1.0)
    # Two thirds of the records are of the first kind.
    for weights, coverage in ((half, 0.5), (full, 1.0)):
        by_hand = plain / np.array([2 / 3, 2 / 3, 1 / 3]) ** coverage
        assert weights == pytest.approx(by_hand / by_hand.mean())
    kept = assigned([*COUNTS[:2], COUNTS[3]], {"k_min": 0.11}, KINDS, coverage=1.0, rwr_temperature=0.0)
    assert [g.weight for g in kept] == pytest.approx([0.75, 0.75, 1.5])


def test_coverage_is_of_weights():
    with pytest.raises(ValueError, match="coverage = 1.0: method = 'grpo' has no weights"):
        SimulatorConfig(coverage=1.0, method="grpo")


def test_only_weights_allow_another_temperature():
    """The gradient of "grpo" is of the policy that sampled."""
    assert SimulatorConfig(variations=3, temperature=0.7).draws == (3, 0.7)
    with pytest.raises(ValueError, match="temperature = 0.7: expected 1.0 with method = 'grpo'"):
        SimulatorConfig(temperature=0.7, method="grpo")


def test_metrics_by_hand(monkeypatch):
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
    # Re-rolled: all three count, in the band only the first two.
    assert found["generated/p_rerolled_mean"] == pytest.approx(0.6)
    assert found["generated/p_rerolled_in_band"] == pytest.approx(0.45)
    assert found["generated/p_rerolled_gap"] == pytest.approx(0.15)
    assert found["generated/p_hat_gap"] == pytest.approx(0.05)
    assert not any("asked" in name for name in found)
    # Asked for .6, .2 and .8, with the rates .5, .4 and .9; the fourth prompt asked for nothing.
    for g, k in zip(batch.generations[:3], (6, 2, 8), strict=True):
        g.seed_statistics = SeedStatistics(10, k, ASKED)
    found = generation_metrics(batch.generations, TOY, 0.5, 0.1)
    assert found["generated/asked_gap"] == pytest.approx(0.6 - 1.6 / 3)
    correlation = np.corrcoef([0.6, 0.2, 0.8], [0.5, 0.4, 0.9])[0, 1]
    assert found["generated/asked_correlation"] == pytest.approx(correlation)
    unknown = TOY.task("unknown", "no difficulty")
    difficulty = lambda task: None if task is unknown else 4.0  # noqa: E731
    monkeypatch.setattr(Drawing, "difficulty", staticmethod(difficulty))
    assert diversity([unknown, TOY.task("a", "b")], TOY)["difficulty_mean"] == 4
    assert diversity([unknown], TOY) == {}
    monkeypatch.undo()
    fixed = TaskBatch.of_tasks([batch.generations[3].seed])
    assert generation_metrics(fixed.generations, TOY, 0.5, 0.1)["generated/grown_share"] == 0
    nothing = {"count": 1, "valid_share": 0.0, "grown_share": 0.0, "rejected/unparsable": 1}
    found = generation_metrics(batch.generations[4:], TOY, 0.5, 0.1)
    assert found == {f"generated/{name}": value for name, value in nothing.items()}
