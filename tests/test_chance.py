"""Tasks that are decided by chance: the coins of the attempts, their metrics, and whole runs with them."""

import json

import numpy as np
import pytest

from genenv_jax import chance
from genenv_jax.benchmarks import base, registry
from genenv_jax.benchmarks.base import Score
from genenv_jax.benchmarks.dial import COIN, Dial, Program
from tests.test_coevolve import cache, contents, params, run, same  # noqa: F401
from tests.toy import Toy

COINS = Dial(positions=5, num_seeds=32, eval_per_depth=2, coins=0.5)
PLAIN = COINS.task(Program(1, (("add", 2),)), id="plain", category="depth_1")
FLIP = COINS.task(
    COINS.with_coin(np.random.default_rng(0), Program(1, (("add", 2),))), id="flip", category=""
)


class Lucky(Toy):
    """Any answer is right, and tasks of an even length are a coin: p is 1/2 or 1, whatever is learnt."""

    chancy = True

    def chance(self, task):
        return 1.0 if len(self.text(task)) % 2 else 0.5

    def score(self, task, answer):
        return Score(1.0, True, True)


class Sure(Lucky):
    """The same without coins."""

    chancy = False


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    monkeypatch.setitem(registry._BENCHMARKS, "toy", (__name__, "Lucky"))


def outcomes(tasks, score, attempts, seed=0, benchmark=COINS):
    scored = {(i, j): ("text", score) for i in range(len(tasks)) for j in range(attempts)}
    return chance.draw_outcomes(benchmark, tasks, scored, np.random.default_rng(seed))


def test_a_coin_decides_what_could_succeed():
    got = outcomes([FLIP, PLAIN, FLIP], Score(1.0, True, True), 1000)
    rates = [np.mean([got[i, j][1].success for j in range(1000)]) for i in range(3)]
    assert rates[1] == 1.0 and abs(rates[0] - 0.5) < 0.07 and abs(rates[2] - 0.5) < 0.07
    unlucky = Score(0.0, False, True, chance.BAD_LUCK)
    assert all(score in (Score(1.0, True, True), unlucky) for _, score in got.values())
    first, last = ([got[i, j][1].success for j in range(1000)] for i in (0, 2))
    assert first != last  # coins of their own


def test_the_coins_do_not_depend_on_the_answers_or_their_order():
    right, wrong = Score(1.0, True, True), Score(0.0, False, True, "wrong_call")
    got = outcomes([FLIP], right, 200)
    assert got == outcomes([FLIP], right, 200) != outcomes([FLIP], right, 200, seed=1)
    mixed = {(0, j): ("", wrong if j % 3 == 0 else right) for j in reversed(range(200))}
    mixed = chance.draw_outcomes(COINS, [FLIP], mixed, np.random.default_rng(0))
    for j in range(200):
        assert mixed[0, j][1] == (wrong if j % 3 == 0 else got[0, j][1])


def test_without_coins_nothing_is_drawn():
    dial, rng = Dial(positions=5, num_seeds=2, eval_per_depth=1), np.random.default_rng(0)
    scored = {(0, 0): ("", Score(1.0, True, True))}
    assert chance.draw_outcomes(dial, [PLAIN], scored, rng) == scored
    assert rng.random() == np.random.default_rng(0).random()
    assert not chance.is_chancy(dial) and chance.is_chancy(COINS)
    assert not chance.is_chancy(Toy(2, 1)) and isinstance(dial, base.Chancy)
    assert chance.metrics(dial, "generated", [PLAIN]) == {}


def test_shares():
    tasks = [FLIP, PLAIN, PLAIN, PLAIN]
    assert chance.metrics(COINS, "agent", tasks) == {"agent/chancy_share": 0.25}
    assert chance.metrics(COINS, "agent", []) == {}
    assert chance.metrics(COINS, "generated", tasks, [3.0, 1.0, 0.0, 2.0]) == {
        "generated/chancy_share": 0.25,
        "generated/chancy_weight_share": 0.5,
    }
    assert list(chance.metrics(COINS, "generated", tasks, [0.0] * 4)) == ["generated/chancy_share"]


SETTINGS = {"agent.group_size": 10, "curriculum.seeds_per_epoch": 12, "evaluation.reroll": 6}


def tasks_of(workdir):
    lines = [json.loads(line) for line in (workdir / "tasks.jsonl").read_text().splitlines()]
    tasks = [(base.Task.from_json(g["task"]), g) for g in lines if g["task"]]
    return [(Lucky(1, 1).chance(task), g) for task, g in tasks]


@pytest.mark.slow
def test_rightly_answered_coins_come_to_one_half(cache, tmp_path):  # noqa: F811
    run(cache, tmp_path, epochs=2, **SETTINGS)
    drawn = tasks_of(tmp_path)
    coins = [g for p, g in drawn if p < 1]
    attempts, successes = (sum(g[name] for g in coins) for name in ("attempts", "successes"))
    assert attempts >= 200 and abs(successes / attempts - 0.5) < 4 * 0.5 / attempts**0.5
    assert len({g["successes"] for g in coins}) > 2  # each attempt has a coin of its own
    assert all(g["p_hat"] == 1 for p, g in drawn if p == 1)
    metrics = [json.loads(x) for x in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    for line in metrics[1:]:
        mine = [p for p, g in drawn if g["epoch"] == line["step"]]
        assert line["generated/chancy_share"] == pytest.approx(np.mean([p < 1 for p in mine]))
        assert 0 < line["agent/chancy_share"] < 1
        assert line["generated/p_rerolled_mean"] <= 1
    weights = [(p < 1, g["weight"]) for p, g in drawn if g["epoch"] == 1]
    share = sum(w for chancy, w in weights if chancy) / sum(w for _, w in weights)
    assert metrics[1]["generated/chancy_weight_share"] == pytest.approx(share)
    assert share > metrics[1]["generated/chancy_share"]  # p of 1/2 is what the reward asks for
    # Held-out scores know of no coins.
    accuracies = [v for line in metrics for k, v in line.items() if k.endswith("/accuracy")]
    assert accuracies and set(accuracies) == {1.0}


@pytest.mark.slow
def test_the_coins_are_the_same_when_a_run_is_continued(cache, tmp_path):  # noqa: F811
    settings = SETTINGS | {"curriculum.score": "progress", "agent.group_size": 4}
    whole = run(cache, tmp_path / "whole", epochs=3, **settings)
    run(cache, tmp_path / "parts", epochs=1, **settings)
    parts = run(cache, tmp_path / "parts", epochs=3, **settings)
    assert contents(tmp_path / "whole") == contents(tmp_path / "parts")
    for player in ("agent", "simulator"):
        assert same(params(whole, player), params(parts, player))


@pytest.mark.slow
def test_a_benchmark_without_coins_has_no_such_metrics(cache, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setitem(registry._BENCHMARKS, "toy", (__name__, "Sure"))
    run(cache, tmp_path, epochs=1)
    assert "chancy" not in (tmp_path / "metrics.jsonl").read_text()
    assert all(g["p_hat"] == 1 for _, g in tasks_of(tmp_path))


def test_the_flip_of_the_fixture_is_one():
    assert COINS.chance(FLIP) == 0.5 and COINS.chance(PLAIN) == 1.0
    assert COINS.program(FLIP).calls[0][0] == COIN
