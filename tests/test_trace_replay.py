"""Runs of the toy in which stale rollouts are trained on beside fresh ones."""

import json

import jax
import numpy as np
import pytest

from genenv_jax.benchmarks import registry
from genenv_jax.coevolve import Coevolution
from genenv_jax.models.scoring import score_completions
from genenv_jax.sampling.engine import Rollouts
from genenv_jax.trace_pool import Traces
from tests.test_coevolve import LORA, Compiled, cache, contents, params, run, same  # noqa: F401
from tests.toy import toy_config

pytestmark = pytest.mark.slow

REPLAY = {
    "agent.replay_traces": 0.5,
    "agent.replay_trace_capacity": 12,
    "agent.replay_max_age": 2,
    "agent.replay_truncation": 1.02,
    "agent.replay_share": 0.0,
    "agent.learning_rate": 3e-3,
}


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    monkeypatch.setitem(registry._BENCHMARKS, "toy", ("tests.toy", "Toy"))


def metrics(workdir):
    return [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def unbroken(cache, tmp_path_factory):  # noqa: F811
    """Four epochs in one go."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry._BENCHMARKS, "toy", ("tests.toy", "Toy"))
        workdir = tmp_path_factory.mktemp("unbroken")
        return run(cache, workdir, epochs=4, **REPLAY), workdir


def test_stale_rollouts_are_trained_on(unbroken):
    experiment, workdir = unbroken
    _, first, *later = metrics(workdir)
    assert first["agent/replayed_groups"] == 0 and "agent/replay_weight_mean" not in first
    c = experiment.config.agent
    for line in later:
        # At most half as many as there are fresh ones; each update rounds.
        assert 0 < line["agent/replayed_groups"] <= line["agent/tasks"] / 2 + 2
        assert 1 <= line["agent/replay_age_mean"] <= c.replay_max_age
        assert 0.5 < line["agent/replay_weight_mean"] < c.replay_truncation
        assert 0 < line["agent/replay_truncated_share"] < 1
        assert line["agent/sampler_trainer_logp_gap"] < 1e-4
        assert line["rollouts/total"] % c.group_size == 0
    assert later[-1]["agent/replay_age_mean"] > 1
    assert 0 < len(experiment.stale) <= c.replay_trace_capacity
    rollouts = [line["agent/tasks"] * c.group_size for line in (first, *later)]
    assert later[-1]["rollouts/total"] == sum(rollouts)  # replay adds none


def test_two_epochs_twice_equal_four(cache, tmp_path, unbroken):  # noqa: F811
    run(cache, tmp_path, epochs=2, **REPLAY)
    resumed = run(cache, tmp_path, epochs=4, **REPLAY)
    experiment, workdir = unbroken
    assert contents(tmp_path) == contents(workdir)
    assert same(params(resumed, "agent"), params(experiment, "agent"))
    assert same(resumed.stale.state(), experiment.stale.state())


@pytest.mark.parametrize("method", ["update_simulator", "_save"])
def test_a_run_killed_inside_an_epoch_repeats_it(cache, tmp_path, unbroken, monkeypatch, method):  # noqa: F811
    """After the third epoch has drawn from the pool and added to it."""
    original, calls = getattr(Coevolution, method), 0

    class Killed(BaseException):
        pass

    def killing(self, *args, **kwargs):
        nonlocal calls
        calls += 1
        if calls == 3:
            raise Killed
        return original(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Coevolution, method, killing)
        with pytest.raises(Killed):
            run(cache, tmp_path, epochs=4, **REPLAY)
    resumed = run(cache, tmp_path, epochs=4, **REPLAY)
    experiment, workdir = unbroken
    assert contents(tmp_path) == contents(workdir)
    assert same(params(resumed, "agent"), params(experiment, "agent"))


def test_no_compilation_in_any_epoch(cache, tmp_path, monkeypatch):  # noqa: F811
    compiled = Compiled(monkeypatch)
    run(cache, tmp_path, epochs=2, **REPLAY)
    run(cache, tmp_path, epochs=3, **REPLAY)
    assert compiled.programs == [0, 0, 0]
    assert metrics(tmp_path)[-1]["agent/replayed_groups"] > 0


def test_parts_of_a_mini_batch_add_up_to_the_same_run(cache, tmp_path, unbroken):  # noqa: F811
    parts = run(cache, tmp_path, epochs=2, **REPLAY, **{"agent.micro_batches": 2})
    close = {"rtol": 1e-3, "atol": 1e-3}
    for line, want in zip(metrics(tmp_path), metrics(unbroken[1]), strict=False):
        assert line.keys() == want.keys()
        for name in line:
            if name.startswith("agent/"):
                np.testing.assert_allclose(line[name], want[name], **close, err_msg=name)
    assert parts.finished_epochs == 2


@pytest.mark.parametrize(
    "extra",
    [
        LORA,
        {"agent.groups": "informative"},
        {"memory.offload": "phase"},
        {"tasks.source": "static"},
    ],
    ids=["lora", "informative", "offload", "static"],
)
def test_with_other_options_it_resumes_alike(cache, tmp_path, extra):  # noqa: F811
    whole = run(cache, tmp_path / "whole", epochs=3, **(REPLAY | extra))
    run(cache, tmp_path / "parts", epochs=2, **(REPLAY | extra))
    parts = run(cache, tmp_path / "parts", epochs=3, **(REPLAY | extra))
    assert contents(tmp_path / "whole") == contents(tmp_path / "parts")
    assert same(params(whole, "agent"), params(parts, "agent"))
    assert metrics(tmp_path / "whole")[-1]["agent/replayed_groups"] > 0


def test_a_mesh_changes_nothing_but_rounding(cache, tmp_path):  # noqa: F811
    mesh = {"mesh.data": 2, "mesh.fsdp": 2, "simulator.minibatch_size": 4}
    sharded = run(cache, tmp_path / "a", epochs=2, **REPLAY, **mesh)
    single = run(cache, tmp_path / "b", epochs=2, **REPLAY, **{"simulator.minibatch_size": 4})
    for a, b in zip(*(jax.tree.leaves(params(e, "agent")) for e in (sharded, single)), strict=True):
        np.testing.assert_allclose(a, b, atol=3e-3)
    lines = [metrics(tmp_path / name)[-1] for name in ("a", "b")]
    for name in (name for name in lines[0] if name.startswith("agent/replay")):
        assert lines[0][name] == pytest.approx(lines[1][name], abs=1e-3), name


# -- the agent's part --------------------------------------------------------------------------------


def rolled_out(experiment, count, key):
    tasks = experiment.benchmark.tasks("seed")[:count]
    rollouts = experiment.agent.rollout(experiment.benchmark, tasks, jax.random.key(key))
    rewards = np.random.default_rng(key).integers(0, 2, (count, 4)).astype(float)
    rewards[:, 0], rewards[:, 1] = 0.0, 1.0  # all are informative
    return rollouts, rewards


def fresh_agent(cache, tmp_path, name, **settings):  # noqa: F811
    return Coevolution(toy_config(cache, REPLAY | settings), tmp_path / name)


def test_weights_are_ratios_of_the_agents_then_and_now(cache, tmp_path):  # noqa: F811
    experiment = fresh_agent(cache, tmp_path, "run")
    agent = experiment.agent
    with experiment._mesh():
        rollouts, rewards = rolled_out(experiment, 5, 1)
        before = rollouts.logprobs.copy()
        fresh = agent.weigh(Traces(rollouts, rewards, np.ones(5)))
        np.testing.assert_allclose(fresh.weights[fresh.mask], 1.0, atol=1e-4)
        for key in range(2, 5):
            agent.update(*rolled_out(experiment, 8, key))
        stale = agent.weigh(Traces(rollouts, rewards, np.ones(5)))
        now = np.asarray(
            score_completions(agent.params, rollouts.batch((240,), 5), agent.model.config)
        )
    mask = stale.mask
    ratio = np.exp(now.astype(float) - rollouts.logprobs)[mask]
    assert (ratio > 1.02).any() and (ratio < 0.98).any()
    np.testing.assert_allclose(stale.rollouts.logprobs, now, atol=1e-5)
    np.testing.assert_allclose(stale.weights[mask], np.minimum(ratio, 1.02), rtol=1e-4)
    assert (stale.weights[~mask] == 0).all()
    assert (stale.rollouts.tokens == rollouts.tokens).all()
    np.testing.assert_array_equal(rollouts.logprobs, before)  # what is stored stays μ's


@pytest.mark.parametrize("batch", [4, 16])
def test_replay_of_what_is_fresh_without_a_cap_is_plain_grpo(cache, tmp_path, batch):  # noqa: F811
    """Six fresh groups and three as if they were old, against nine fresh ones in the same order."""
    settings = {"agent.replay_truncation": 0.0, "agent.minibatch_size": batch}
    replaying = fresh_agent(cache, tmp_path, "a", **settings)
    plain = fresh_agent(cache, tmp_path, "b", **settings, **{"agent.replay_traces": 0.0})
    results = []
    for experiment in (replaying, plain):
        with experiment._mesh():
            (ours, earned), (theirs, paid) = (
                rolled_out(experiment, 6, 1),
                rolled_out(experiment, 3, 2),
            )
            if experiment is replaying:
                traces = experiment.agent.weigh(Traces(theirs, paid, np.ones(3)))
                results.append(experiment.agent.update(ours, earned, traces))
            else:
                order = [0, 6, 1, 2, 7, 3, 4, 8, 5]  # spread evenly
                together = Rollouts.one_after_the_other([ours, theirs]).take(order)
                results.append(
                    experiment.agent.update(together, np.concatenate([earned, paid])[order])
                )
    assert results[0].keys() == results[1].keys()
    for name in results[0]:
        assert results[0][name] == pytest.approx(results[1][name], rel=1e-3, abs=1e-5), name
    for a, b in zip(
        *(jax.tree.leaves(params(e, "agent")) for e in (replaying, plain)), strict=True
    ):
        np.testing.assert_allclose(a, b, atol=2e-4)


def test_without_stored_groups_it_is_plain_grpo(cache, tmp_path):  # noqa: F811
    """The first epoch of a run with replay is that of one without."""
    run(cache, tmp_path / "with", epochs=1, **REPLAY)
    run(cache, tmp_path / "without", epochs=1, **REPLAY | {"agent.replay_traces": 0.0})
    ours, theirs = (metrics(tmp_path / name)[-1] for name in ("with", "without"))
    assert ours.pop("agent/replayed_groups") == 0
    assert ours.keys() == theirs.keys()
    for name in (name for name in ours if name.startswith("agent/")):
        assert ours[name] == pytest.approx(theirs[name], rel=1e-4, abs=1e-6), name


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("replay_traces", 1.5, "replay_traces = 1.5: expected between 0 and 1"),
        ("replay_traces", 0.01, "replay_traces = 0.01: expected at least a group of a batch of 8"),
        ("replay_trace_capacity", 0, "replay_trace_capacity = 0: expected at least 1"),
        ("replay_max_age", 0, "replay_max_age = 0: expected at least 1"),
        ("replay_truncation", 0.5, "replay_truncation = 0.5: expected at least 1, or 0 for none"),
    ],
)
def test_settings_that_make_no_sense_are_refused(key, value, message):
    from genenv_jax.config import validate

    validate(toy_config("", REPLAY))
    with pytest.raises(ValueError, match=rf"config\.agent\.{message}"):
        validate(toy_config("", REPLAY | {f"agent.{key}": value}))
