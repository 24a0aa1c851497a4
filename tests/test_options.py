"""Whole runs of the toy with the curriculum's options: each does what it says, and resumes."""

import jax
import numpy as np
import optax
import pytest

from genenv_jax.benchmarks import registry
from genenv_jax.coevolve import Coevolution
from genenv_jax.config import validate
from genenv_jax.models.scoring import CompletionBatch
from genenv_jax.players import learner, player
from genenv_jax.rl import rwr
from genenv_jax.sampling.engine import Engine
from tests.runs import (
    EPISODES,
    OFTEN,
    assert_close,
    contents,
    kill,
    lines,
    params,
    run,
    same,
    struck,
    toy_config,
)

# Besides `epochs`, each of these exercises an option, or several that do not interact.
OPTIONS = {
    "policy gradient": {"simulator.method": "grpo", "agent.update_epochs": 2},
    "hindsight": {
        "simulator.method": "hindsight", "simulator.mixture": 0.25, "simulator.variations": 4,
        "simulator.coverage": 0.5,
    },
    "tasks of all kinds": {
        "agent.base_share": 0.2, "curriculum.growth.share": 0.5, "evaluation.reroll": 4,
        "simulator.mixture": 0.25, "verification.near_duplicate": 0.8, "verification.pool_epochs": 2,
    },
    "coverage, replay": {
        "simulator.coverage": 0.5, "agent.replay_share": 0.4,
        "verification.admit": "parsed", "limits.response_buckets": (3, 12),
    },
    "mixture, policy gradient": {"simulator.mixture": 0.5, "simulator.method": "grpo"},
    "informative groups, of which some wait": {"agent.groups": "informative"},
    "static": {"tasks.source": "static", "tasks.count": 10},
    "static variations": {"tasks.source": "static"},
    "teacher": {"tasks.source": "teacher", "tasks.count": 9},
    "oracle": {"tasks.source": "oracle"},
    "trainer's log-probs, another schedule": {
        "model.dtype": "bfloat16", "agent.update_epochs": 2, "optimizer.warmup_steps": 3,
        "optimizer.decay_steps": 40, "optimizer.b2": 0.95,
        "memory.moments": "bfloat16",
    },
    "trainer's log-probs, policy gradient": {
        "model.dtype": "bfloat16", "simulator.method": "grpo", "simulator.mixture": 0.5,
    },
    "narrow operands": {"model.matmul_dtype": "bfloat16"},
    "adapters that wait in host memory": {
        "lora.rank": 4, "agent.learning_rate": 1e-2, "memory.offload": "phase",
        "memory.moments": "bfloat16",
    },
    "all weights wait in host memory": {"memory.offload": "phase"},
    "a limit that is passed within the epoch": {"rollouts": 80},
    "episodes": EPISODES | {"agent.batch_size": 4},
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [n if n == "hindsight" else pytest.param(n, marks=pytest.mark.slow) for n in OPTIONS]
)
def test_a_run_with_the_option_learns_and_resumes(cache, tmp_path, monkeypatch, name):
    """Killed in the second batch of both epochs, and in the first batch after an epoch's checkpoint."""
    if name == "episodes":
        monkeypatch.setitem(registry._BENCHMARKS, "toy", ("tests.toy", "Talking"))
    settings = {"epochs": 2} | OPTIONS[name]
    whole = run(cache, tmp_path / "whole", **settings)
    batch = settings.get("agent.batch_size", 8)
    for place in ((0, batch), (1, 0), (1, batch)):
        begun = struck(cache, tmp_path / "parts", place, kill, **settings, **OFTEN)
        assert begun[-1] == place or name.startswith("a limit")
    parts = run(cache, tmp_path / "parts", **settings)  # writes no mid-epoch checkpoints
    assert contents(tmp_path / "whole") == contents(tmp_path / "parts")
    for role in ("agent", "simulator"):
        assert same(*(getattr(e, role).state for e in (whole, parts)))
    last = lines(tmp_path / "whole")[-1]
    assert all(np.isfinite(value) for value in last.values() if value is not None)
    assert last["generated/distinct_signatures"] >= 1 and last["generated/difficulty_sd"] >= 0
    fresh = settings.get("tasks.source", "simulator") == "simulator"
    # The metrics show which update ran.
    policy_gradient = settings.get("simulator.method") == "grpo"
    assert ("simulator/clip_share" in last) is policy_gradient
    assert ("simulator/update_kl" in last) is (fresh and not policy_gradient)
    assert whole.simulator.trained is fresh
    if "lora.rank" not in settings:
        start = jax.device_get(whole.agent.reference.params)
        assert not same(params(whole, "agent"), start)
        assert not fresh or not same(params(whole, "simulator"), start)


def test_both_players_have_the_configured_optimiser(cache, tmp_path):
    """Step by step under a constant gradient: the learning rate, and 1 − b2 in the second moment."""
    options = {"optimizer.warmup_steps": 2, "optimizer.decay_steps": 4, "optimizer.b2": 0.75}
    options |= {"optimizer.weight_decay": 0.0, "warm_start.steps": 0, "simulator.learning_rate": 2e-3}
    experiment = Coevolution(validate(toy_config(cache, options)), tmp_path)
    for player_, rate in ((experiment.agent, 1e-3), (experiment.simulator, 2e-3)):
        optimizer, x = player_.optimizer, {"w": np.ones(1, np.float32)}
        state, rates = optimizer.init(x), []
        for _ in range(5):
            updates, state = optimizer.update(x, state, x)
            rates.append(-float(updates["w"][0]) / rate)
        np.testing.assert_allclose(rates, [0.5, 1.0, 0.75, 0.25, 0.0], atol=1e-4)
        assert float(optax.tree_utils.tree_get(state, "nu")["w"][0]) == pytest.approx(1 - 0.75**5)


@pytest.mark.slow
@pytest.mark.parametrize("mesh", [{}, {"mesh.data": 2, "mesh.fsdp": 2}])
def test_log_probs_of_the_trainer_are_the_samplers_but_for_rounding(cache, tmp_path, monkeypatch, mesh):
    """In float32, from equal parameters: the same run, with nothing compiled in it."""
    if mesh:
        mesh = mesh | {"agent.minibatch_size": 4, "simulator.minibatch_size": 4}
    runs = [run(cache, tmp_path / "sampler", epochs=2, **mesh)]
    monkeypatch.setattr(player, "recomputes", lambda dtype: True)
    runs.append(run(cache, tmp_path / "trainer", epochs=2, **mesh))
    assert_close(*runs, atol=2e-4)
    ours, theirs = (lines(tmp_path / name)[-1] for name in ("trainer", "sampler"))
    assert set(ours) - set(theirs) == {"agent/sampler_trainer_logp_gap_max"}
    gap, largest = (ours[f"agent/sampler_trainer_logp_gap{end}"] for end in ("", "_max"))
    assert 0 < gap < largest < 1e-4 and ours["tokens/total"] > theirs["tokens/total"]
    assert not any(x["programs/compiled"] for x in lines(tmp_path / "trainer", "timing.jsonl")[1:])


@pytest.mark.slow
@pytest.mark.parametrize("method", ["rwr", "grpo"])
def test_narrow_batches_learn_the_same(cache, tmp_path, method):
    """With less padding of completions: the same run up to rounding, compiled ahead for all widths."""
    options = {"simulator.method": method, "simulator.variations": 2, "agent.groups": "informative"}
    wide = run(cache, tmp_path / "wide", epochs=1, **options)
    narrow = run(cache, tmp_path / "narrow", epochs=1, **options, **{"limits.response_buckets": (3, 12)})
    assert_close(wide, narrow, atol=2e-4)
    (epoch,) = lines(tmp_path / "narrow", "timing.jsonl")[1:]
    assert epoch["programs/compiled"] == epoch["programs/loaded"] == 0


@pytest.mark.slow
def test_mixture_has_texts_of_both_writers(cache, tmp_path):
    overrides = {"simulator.mixture": 0.5, "simulator.learning_rate": 0.02, "simulator.kl_cap": 0.0}
    experiment = Coevolution(validate(toy_config(cache, overrides)), tmp_path)
    experiment.run()
    contexts = [[{"role": "user", "content": "red blue"}]] * 3
    key, rows = jax.random.key(5), np.arange(3)
    simulator, n = experiment.simulator, experiment.config.simulator.variations
    with experiment.host.activate():
        mixed = simulator.generate(contexts, key)
        initial = simulator.generate(contexts, key, initial=True)
        start = simulator.start_logprobs(mixed, rows)
        first = simulator.reference_logprobs(mixed, rows)
    assert mixed.tokens.shape == initial.tokens.shape and simulator.config.num_from_initial == n // 2
    # Log-probs under a text's own writer, and under the simulator at the update's start.
    assert np.allclose(mixed.logprobs[:, : n // 2], start[:, : n // 2], atol=1e-4)
    assert np.allclose(mixed.logprobs[:, n // 2 :], first[:, n // 2 :], atol=1e-4)
    assert not np.allclose(start, first, atol=1e-2)


@pytest.mark.slow
def test_all_rollouts_are_counted(cache, tmp_path):
    totals = {}
    group = toy_config(cache).agent.group_size
    for name in ("all", "informative"):
        run(cache, tmp_path / name, epochs=2, **{"agent.groups": name})
        epochs = lines(tmp_path / name)[1:]
        tasks = np.cumsum([line["agent/tasks"] for line in epochs])
        assert [line["rollouts/total"] for line in epochs] == [n * group for n in tasks]
        totals[name] = epochs[0]["rollouts/total"]
        share = np.mean([line["agent/trained_share"] for line in epochs])
        assert share == 1 if name == "all" else 0 < share < 1
    assert len(set(totals.values())) == 1


@pytest.mark.parametrize(
    ("method", "mixture"),
    [("rwr", 0.5)]
    + [
        pytest.param(*c, marks=pytest.mark.slow)
        for c in (("rwr", 0.0), ("grpo", 0.0), ("grpo", 0.5), ("hindsight", 0.0), ("hindsight", 0.5))
    ],
)
def test_all_tokens_are_counted(cache, tmp_path, monkeypatch, method, mixture):
    """Tokens of every program run count: once if sampled or scored, three times in a training step.

    A regression step of the simulator also measures the KL.  Padding and held-out tasks do not count.
    """
    given = []

    def count(batch: CompletionBatch, times=1):
        lengths = np.asarray(batch.completion_lengths)
        used = lengths.sum(axis=1) > 0
        given.append(times * int(np.asarray(batch.prompt_lengths)[used].sum() + lengths.sum()))

    def sampled(self, *args, **kwargs):
        rollouts = sample(self, *args, **kwargs)
        given.append(rollouts.token_count)
        return rollouts

    def scored(params, batch, config):
        count(batch)
        return score(params, batch, config)

    def stepped(make):
        def wrapped(*args):
            step = make(*args)

            def run_step(state, frozen, batch):
                state, metrics = step(state, frozen, batch)
                scale = metrics.get("step_scale")
                count(batch[0], 3 + (0 if scale is None else rwr.measurements(float(scale))))
                return state, metrics

            run_step.lower = step.lower
            return run_step

        return wrapped

    sample, score = Engine.__call__, player.score_completions
    monkeypatch.setattr(Engine, "__call__", sampled)
    monkeypatch.setattr(player, "score_completions", scored)
    for name in ("make_rwr_step", "make_grpo_step"):
        monkeypatch.setattr(learner, name, stepped(getattr(learner, name)))
    overrides = {"simulator.method": method, "simulator.mixture": mixture, "evaluation.every": 0}
    sizes = {"minibatch_size": 4, "update_epochs": 2}
    options = {f"simulator.{name}": size for name, size in sizes.items()}
    run(cache, tmp_path, epochs=1, compile_ahead=False, **overrides | options)
    assert any(g["weight"] for g in lines(tmp_path, "tasks.jsonl"))
    # The first two are greedy and sampled answers to held-out tasks.
    assert lines(tmp_path)[-1]["tokens/total"] == sum(given[2:])


@pytest.mark.slow
def test_the_run_ends_when_its_rollouts_are_spent(cache, tmp_path):
    run(cache, tmp_path / "two", epochs=2)
    spent = [line.get("rollouts/total", 0) for line in lines(tmp_path / "two")]
    for _ in range(2):  # and a run that has ended stays ended
        assert run(cache, tmp_path / "budget", epochs=50, rollouts=int(spent[1]) + 1).session.finished == 2


@pytest.mark.slow
def test_measuring_again_changes_nothing(cache, tmp_path):
    plain = run(cache, tmp_path / "plain", epochs=2)
    again = run(cache, tmp_path / "again", epochs=2, **{"evaluation.reroll": 5})
    assert same(params(plain, "agent"), params(again, "agent"))
    for ours, theirs in zip(lines(tmp_path / "plain"), lines(tmp_path / "again"), strict=True):
        added = {name for name in theirs if name not in ours}
        assert {n: v for n, v in theirs.items() if n not in added} == ours
        assert all("reroll" in name or name == "generated/p_hat_gap" for name in added)
    assert 0 <= lines(tmp_path / "again")[-1]["generated/p_rerolled_mean"] <= 1
