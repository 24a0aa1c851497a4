"""The command: the whole of it on a policy for which Proposition 1 is exactly true, and its mistakes."""

import hashlib
import json

import numpy as np
import pytest

from bench.theory import __main__ as theory
from bench.theory import figures, moments
from configs import quickstart
from genenv_jax.benchmarks.base import Score
from genenv_jax.benchmarks.dial.chains import Dial
from genenv_jax.players import build
from tests.commands import QUICK, call


class Chance(Dial):
    """Success is a coin that the answer's text throws: known p, and independent of the score ∇ log π."""

    def rate(self, task):
        digest = hashlib.sha256(task.id.encode()).digest()
        return (digest[0] + 0.5) / 256

    def score(self, task, answer):
        digest = hashlib.sha256((task.id + "/" + answer).encode("utf-8", "replace")).digest()
        success = int.from_bytes(digest[:4], "big") < self.rate(task) * 2**32
        return Score(float(success), success, True)


def small_config(tmp_path):
    config = quickstart.get_config()
    config.warm_start.steps = 0
    config.model.make.num_layers = 1
    config.model.make.hidden_size, config.model.make.intermediate_size = 16, 16
    config.model.make.num_heads = config.model.make.num_kv_heads = 2
    config.model.make.cache_dir = str(tmp_path / "models")
    config.limits.agent_response = 8
    return config


@pytest.mark.slow
def test_the_whole_of_it_where_the_truth_is_known(tmp_path, monkeypatch):
    benchmark = Chance(positions=5)
    monkeypatch.setattr(build, "make_benchmark", lambda *_, **__: benchmark)
    result = theory.run(
        small_config(tmp_path), tmp_path / "out", tasks=40, rollouts=32, reference=128, ranked=256
    )
    assert json.loads((tmp_path / "out" / "theory.json").read_text()) == json.loads(
        json.dumps(result)
    )
    for name in ("proposition1", "theorem1"):
        assert (tmp_path / "out" / f"{name}.png").stat().st_size > 10_000
    part = result["proposition1"]
    assert len(part["tasks"]) == 40
    known = {task.id: task for split in ("seed", "eval") for task in benchmark.tasks(split)}
    true = np.array([benchmark.rate(known[record["task_id"]]) for record in part["tasks"]])
    found = np.array([record["p"] for record in part["tasks"]])
    assert np.abs(found - true).max() < 5 * 0.5 / np.sqrt(128)
    # ‖s‖² does not depend on success here, so that the statement holds: c = 1, the peak at 1/2.
    fit = part["summaries"]["normalised"]["fit"]
    assert fit["c"] == pytest.approx(1, abs=0.1)
    fit = part["summaries"]["squared_gradient"]["fit"]
    assert fit["peak"] == pytest.approx(0.5, abs=0.08)
    median, _ = part["failure_over_success"]["median"]
    assert median == pytest.approx(1, abs=0.15)
    assert max(record["logp_gap"] for record in part["tasks"]) < 1e-3
    pairs = result["theorem1"]["pairs"]
    assert len(pairs) == 4
    for pair in pairs:
        rates = [benchmark.rate(known[task]) for task in pair["tasks"]]
        np.testing.assert_allclose([pair["p1"], pair["p2"]], rates, atol=0.1)
        for row in pair["by_n"]:
            assert row["exact"] <= row["half_gap_bound"] <= row["bound"]
            if row["measured"]:
                low, high = row["measured"]["interval"]
                least, most = row["exact_interval"]
                assert low - 0.05 <= most and least <= high + 0.05
    text = theory.table(result)
    assert "Proposition 1" in text and f"| {pairs[0]['p1']:.3f}, " in text


def synthetic(rates, seed=0):
    """The part "proposition1" of tasks whose gradients are made up."""
    rng = np.random.default_rng(seed)
    tasks = build.make_benchmark(quickstart.get_config().benchmark).tasks("seed")[: len(rates)]
    measured = []
    for p in rates:
        r = (rng.random(64) < p).astype(float)
        squares = rng.gamma(10, 0.4, 64)
        measured.append(
            {
                "rollouts": 64,
                "successes": int(r.sum()),
                "squared_gradient": moments.squared_gradient(r, squares),
                "score_square": squares.mean(),
                "score_square_of_success": squares[r == 1].mean() if r.any() else None,
                "score_square_of_failure": squares[r == 0].mean() if not r.all() else None,
                "normalised": moments.squared_gradient(r, squares) / squares.mean(),
                "signal": rng.normal(p * (1 - p), 0.01),
                "logp_gap": 0.0,
            }
        )
    counts = rng.binomial(128, rates)
    return theory.proposition(tasks, measured, counts, 128, seed)


def test_figures_and_table_of_made_up_tasks(tmp_path):
    part = synthetic(np.linspace(0.02, 0.98, 20))
    assert part["summaries"]["squared_gradient"]["fit"]["c"] == pytest.approx(4, rel=0.15)
    assert part["failure_over_success"]["median"][0] == pytest.approx(1, abs=0.1)
    rng = np.random.default_rng(1)
    rates = np.array([[0.5, 0.8], [0.45, 0.1]])[..., None]
    second = theory.theorem(
        [("a", "b"), ("c", "d")], rng.random((2, 2, 512)) < rates, rng.random((2, 2, 512)) < rates,
        0.5, 0,
    )  # fmt: skip
    measured = [row["n"] for row in second["pairs"][0]["by_n"] if row["measured"]]
    assert measured == [2, 4, 8, 16, 32, 64]
    figures.draw_proposition(part, tmp_path / "p.png")
    figures.draw_theorem(second, tmp_path / "t.png")
    for name in "pt":
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    text = theory.table({"proposition1": part, "theorem1": second})
    assert text.count("| 64 |") == 2 and "peak at p = 0." in text
    json.dumps([part, second], allow_nan=False)


def test_a_policy_that_solves_nothing_is_said_to(tmp_path):
    part = synthetic(np.zeros(20))
    assert part["summaries"]["signal"]["fit"] is None
    second = theory.theorem([], np.zeros((0, 2, 64)), np.zeros((0, 2, 64)), 0.5, 0)
    figures.draw_proposition(part, tmp_path / "p.png")
    figures.draw_theorem(second, tmp_path / "t.png")
    text = theory.table({"proposition1": part, "theorem1": second})
    assert "no fit" in text and "not measured" in text


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--rollouts=20", "--rollouts=20: expected a multiple of 8"),
        ("--tasks=0", "--tasks=0: expected at least 1"),
    ],
)
def test_a_mistake_is_one_line(tmp_path, flag, message):
    result = call("bench.theory", QUICK, flag, f"--workdir={tmp_path / 'out'}")
    assert result.returncode == 2, result.stderr
    assert message in result.stderr.splitlines()[-1] and "Traceback" not in result.stderr
