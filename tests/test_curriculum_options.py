"""Whole runs of the toy with the curriculum's options: each does what it says, and resumes."""

import json
import pathlib

import jax
import numpy as np
import pytest

from genenv_jax.benchmarks import registry
from genenv_jax.benchmarks.base import SeedStatistics
from genenv_jax.coevolve import Coevolution
from genenv_jax.generation import Generation, assign_rewards
from genenv_jax.rl.difficulty import corrected_learning_progress
from tests.test_coevolve import cache, contents, params, run, same  # noqa: F401
from tests.toy import Toy, toy_config

# Beyond `epochs`, each of these exercises one option.
OPTIONS = {
    "policy gradient": {"simulator.method": "grpo", "simulator.invalid_reward": -0.1},
    "within the seed": {"simulator.weights_over": "seed"},
    "mixture": {"simulator.mixture": 0.25, "simulator.variations": 4},
    "mixture, policy gradient": {"simulator.mixture": 0.5, "simulator.method": "grpo"},
    "entropy": {"simulator.entropy_floor": 100.0, "simulator.entropy_coef": 0.1},
    "informative": {"agent.groups": "informative"},
    "frontier": {"agent.groups": "frontier"},
    "posterior": {"curriculum.estimate": "posterior"},
    "learnability": {"curriculum.score": "learnability"},
    "expected learnability": {
        "curriculum.score": "learnability",
        "curriculum.estimate": "posterior",
    },
    "progress": {"curriculum.score": "progress"},
    "static": {"tasks.source": "static", "tasks.count": 10},
    "static variations": {"tasks.source": "static"},
    "teacher": {"tasks.source": "teacher", "tasks.count": 9},
    "oracle": {"tasks.source": "oracle"},
    "prioritised": {"agent.replay_share": 0.4, "agent.replay_priority": "prioritised"},
    "rerolled": {"evaluation.reroll": 3},
}
FEW = ("mixture, policy gradient", "static")  # of the tests that are not `slow`


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    monkeypatch.setitem(registry._BENCHMARKS, "toy", ("tests.toy", "Drawing"))


def lines(workdir, name="metrics.jsonl"):
    return [json.loads(line) for line in (workdir / name).read_text().splitlines()]


@pytest.mark.parametrize(
    "name", [n if n in FEW else pytest.param(n, marks=pytest.mark.slow) for n in OPTIONS]
)
def test_a_run_with_the_option_learns_and_resumes(cache, tmp_path, name):  # noqa: F811
    whole = run(cache, tmp_path / "whole", epochs=2, **OPTIONS[name])
    run(cache, tmp_path / "parts", epochs=1, **OPTIONS[name])
    parts = run(cache, tmp_path / "parts", epochs=2, **OPTIONS[name])
    assert contents(tmp_path / "whole") == contents(tmp_path / "parts")
    for player in ("agent", "simulator"):
        assert same(params(whole, player), params(parts, player))
    last = lines(tmp_path / "whole")[-1]
    assert all(np.isfinite(value) for value in last.values() if value is not None)
    assert last["generated/distinct_signatures"] >= 1 and last["generated/difficulty_sd"] >= 0
    fresh = OPTIONS[name].get("tasks.source", "simulator") == "simulator"
    start = jax.device_get(whole.agent.reference.params)
    assert not same(params(whole, "agent"), start)
    # Which of the two updates ran shows in its metrics.
    policy_gradient = OPTIONS[name].get("simulator.method") == "grpo"
    assert ("simulator/clip_share" in last) is policy_gradient
    assert ("simulator/update_kl" in last) is (fresh and not policy_gradient)
    assert same(params(whole, "simulator"), start) is not fresh


def test_mixture_has_texts_of_both_writers(cache, tmp_path):  # noqa: F811
    run_config = toy_config(cache, {"simulator.mixture": 0.5, "simulator.learning_rate": 0.1})
    experiment = Coevolution(run_config, tmp_path)
    experiment.run()
    contexts = [[{"role": "user", "content": "red blue"}]] * 3
    key = jax.random.key(5)
    with experiment._mesh():
        mixed = experiment.simulator.generate(contexts, key)
        initial = experiment.simulator.generate_initial(contexts, key)
        start = experiment.simulator._start_logprobs(mixed, np.arange(3))
        first = experiment.simulator._initial_logprobs(mixed, np.arange(3))
    n = run_config.simulator.variations
    assert (
        mixed.tokens.shape == initial.tokens.shape and experiment.simulator.from_initial == n // 2
    )
    # Log-probs are those of whoever wrote a text, and of the simulator as it is at the update's start.
    assert np.allclose(mixed.logprobs[:, : n // 2], start[:, : n // 2], atol=1e-4)
    assert np.allclose(mixed.logprobs[:, n // 2 :], first[:, n // 2 :], atol=1e-4)
    assert not np.allclose(start, first, atol=1e-2)


@pytest.mark.slow
def test_all_rollouts_are_counted(cache, tmp_path):  # noqa: F811
    totals = {}
    for name in ("all", "informative", "frontier"):
        run(cache, tmp_path / name, epochs=1, **{"agent.groups": name})
        line = lines(tmp_path / name)[-1]
        totals[name] = line["rollouts/total"]
        group = toy_config(cache).agent.group_size
        assert line["rollouts/total"] == line["agent/tasks"] * group
        share = line["agent/trained_share"]
        assert share == 1 if name == "all" else 0 < share < 1
    assert len(set(totals.values())) == 1


def test_the_run_ends_when_its_rollouts_are_spent(cache, tmp_path):  # noqa: F811
    run(cache, tmp_path / "two", epochs=2)
    spent = [line.get("rollouts/total", 0) for line in lines(tmp_path / "two")]
    experiment = run(cache, tmp_path / "budget", epochs=50, rollouts=int(spent[1]) + 1)
    assert experiment.finished_epochs == 2
    again = run(cache, tmp_path / "budget", epochs=50, rollouts=int(spent[1]) + 1)
    assert again.finished_epochs == 2


@pytest.mark.slow
def test_static_tasks_are_the_same_every_epoch(cache, tmp_path):  # noqa: F811
    run(cache, tmp_path, epochs=3, **{"tasks.source": "static", "tasks.count": 7})
    fixed = {task["id"] for task in lines(tmp_path, "fixed_tasks.jsonl")}
    used = {record["task"]["id"] for record in lines(tmp_path, "tasks.jsonl")}
    assert len(fixed) == 7 and used == fixed
    assert lines(pathlib.Path(tmp_path), "d_env.jsonl") == []


@pytest.mark.slow
def test_measuring_again_changes_nothing(cache, tmp_path):  # noqa: F811
    plain = run(cache, tmp_path / "plain", epochs=2)
    again = run(cache, tmp_path / "again", epochs=2, **{"evaluation.reroll": 5})
    assert same(params(plain, "agent"), params(again, "agent"))
    for ours, theirs in zip(lines(tmp_path / "plain"), lines(tmp_path / "again"), strict=True):
        added = {name for name in theirs if name not in ours}
        assert {n: v for n, v in theirs.items() if n not in added} == ours
        assert all("reroll" in name or name == "generated/p_hat_gap" for name in added)
    assert 0 <= lines(tmp_path / "again")[-1]["generated/p_rerolled_mean"] <= 1


def generations_of(counts):
    """Generations of (row, column, (attempts, successes) before, attempts, successes) each."""
    seed = Toy(1, 1).tasks("seed")[0]
    return [
        Generation(
            row, column, seed, SeedStatistics(*before), "", task=seed, attempts=n, successes=k
        )
        for row, column, before, n, k in counts
    ]


def test_progress_is_what_noise_does_not_explain(tmp_path):
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
        generations = generations_of(counts)
        config = toy_config(
            tmp_path, {"curriculum.score": "progress", "simulator.success_rate_over": over}
        )
        assign_rewards(generations, config)
        for g, numbers in zip(generations, want, strict=False):
            assert g.r_env == pytest.approx(float(corrected_learning_progress(*numbers)))
            assert g.p_hat == numbers[2] / numbers[3]
        moved, _, still, fresh = (g.r_env for g in generations)
        assert moved > 0 > still  # nothing changed: less than chance alone would make of it
        assert fresh == 0.0  # never tried before
        assert all(g.weight > 0 for g in generations)
    posterior = generations_of(counts)
    config.curriculum.estimate = "posterior"
    assign_rewards(posterior, config)
    assert [g.r_env for g in posterior] == [g.r_env for g in generations]


@pytest.mark.parametrize("p", [0.0, 0.5, 0.9])
def test_noise_earns_nothing_on_average(tmp_path, p):
    """Seeds whose variations stay as hard as they are: a mean of 0, where |Δp̂| has one of up to 0.1."""
    rng = np.random.default_rng(1)
    k = rng.binomial(40, p, 1000), rng.binomial(40, p, 1000)
    generations = generations_of(
        (i, 0, (40, a), 40, b) for i, (a, b) in enumerate(zip(*k, strict=True))
    )
    config = toy_config(tmp_path, {"curriculum.score": "progress"})
    assign_rewards(generations, config)
    r_env = np.array([g.r_env for g in generations])
    assert abs(r_env.mean()) < 4 * r_env.std() / 1000**0.5 + 1e-12
    assert p == 0 or np.abs(k[1] - k[0]).mean() / 40 > 0.04
