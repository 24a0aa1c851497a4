"""Whole runs of Algorithm 1 on a toy benchmark: both players learn, and nothing is lost."""

import json
import pathlib

import jax
import numpy as np
import pytest

from genenv_jax.benchmarks import registry
from genenv_jax.coevolve import Coevolution
from genenv_jax.models import huggingface, lora, peft
from tests.toy import Toy, toy_config

FILES = ("metrics.jsonl", "tasks.jsonl", "d_train.jsonl", "d_env.jsonl")


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    monkeypatch.setitem(registry._BENCHMARKS, "toy", ("tests.toy", "Toy"))


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Directory of the made model; the runs of this module also share what XLA has compiled."""
    directory = tmp_path_factory.mktemp("models")
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = {name: getattr(jax.config, name) for name in names}
    jax.config.update("jax_compilation_cache_dir", str(directory / "xla"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
    yield directory
    for name, value in before.items():
        jax.config.update(name, value)


def run(cache, workdir, **overrides):
    experiment = Coevolution(toy_config(cache, overrides), pathlib.Path(workdir))
    experiment.run()
    return experiment


def params(experiment, player):
    return jax.device_get(getattr(experiment, player).state.params)


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(*map(jax.tree.leaves, (a, b)), strict=True))


def contents(workdir):
    return {name: (pathlib.Path(workdir) / name).read_bytes() for name in FILES}


@pytest.fixture(scope="module")
def unbroken(cache, tmp_path_factory):
    """Four epochs in one go."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry._BENCHMARKS, "toy", ("tests.toy", "Toy"))
        workdir = tmp_path_factory.mktemp("unbroken")
        return run(cache, workdir, epochs=4), workdir


def test_both_players_learn_every_epoch(unbroken):
    experiment, workdir = unbroken
    start = jax.device_get(experiment.agent.reference.params)
    assert same(start, jax.device_get(experiment.simulator.reference.params))
    assert not same(params(experiment, "agent"), start)
    assert not same(params(experiment, "simulator"), start)
    lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 1, 2, 3, 4]
    for line in lines[1:]:
        assert line["simulator/records"] > 0
        assert line["simulator/steps"] > 0
        assert line["agent/grad_norm"] > 0
        assert line["agent/sampler_trainer_logp_gap"] < 1e-4
        assert line["simulator/update_kl"] <= experiment.config.simulator.kl_cap
    assert lines[4]["rollouts/total"] > lines[3]["rollouts/total"]


def test_the_files_tell_the_whole_story(unbroken):
    experiment, workdir = unbroken
    config = experiment.config
    generations = [json.loads(line) for line in (workdir / "tasks.jsonl").read_text().splitlines()]
    assert len(generations) == 4 * 4 * config.simulator.variations
    assert {g["verdict"] for g in generations} >= {"accepted"}
    metrics = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    for line in metrics[1:]:
        mine = [g for g in generations if g["epoch"] == line["step"]]
        rejected = sum(v for k, v in line.items() if k.startswith("generated/rejected/"))
        assert rejected == sum(g["verdict"] != "accepted" for g in mine)
        assert rejected / len(mine) == pytest.approx(1 - line["generated/valid_share"])
        attempted = [g for g in mine if g["attempts"]]
        assert np.mean([g["p_hat"] for g in attempted]) == pytest.approx(
            line["generated/p_hat_mean"]
        )
        assert sum((g["weight"] or 0) > 0 for g in mine) == line["simulator/records"]
    for g in generations:
        if g["verdict"] == "accepted":
            assert g["attempts"] == config.agent.group_size
            assert g["p_hat"] == g["successes"] / g["attempts"]
            assert g["r_env"] == pytest.approx(np.exp(-2 * (g["p_hat"] - 0.5) ** 2))
            inside = abs(g["p_hat"] - 0.5) <= config.curriculum.k_min + 1e-9
            assert (g["weight"] > 0) == inside
        else:
            assert g["task"] is None and g["attempts"] == 0 and g["weight"] is None
    d_env = [json.loads(line) for line in (workdir / "d_env.jsonl").read_text().splitlines()]
    assert [r["text"] for r in d_env] == [g["text"] for g in generations if g["weight"]]
    traces = [json.loads(line) for line in (workdir / "d_train.jsonl").read_text().splitlines()]
    assert {t["origin"] for t in traces} == {"seed", "generated"}
    texts = {g["id"]: g["text"] for g in generations}
    for t in traces:
        if t["origin"] == "generated":
            assert t["reward"] == float((len(t["answer"]) + len(texts[t["task_id"]])) % 2 == 0)


def test_two_epochs_twice_equal_four(cache, tmp_path, unbroken):
    run(cache, tmp_path, epochs=2)
    resumed = run(cache, tmp_path, epochs=4)
    experiment, workdir = unbroken
    assert same(params(resumed, "agent"), params(experiment, "agent"))
    assert same(params(resumed, "simulator"), params(experiment, "simulator"))
    assert same(*(jax.device_get(e.agent.state.opt_state) for e in (resumed, experiment)))
    assert contents(tmp_path) == contents(workdir)


@pytest.mark.parametrize("method", ["update_simulator", "aggregate", "evaluate", "_save"])
def test_a_run_killed_inside_an_epoch_repeats_it(cache, tmp_path, unbroken, monkeypatch, method):
    original, calls = getattr(Coevolution, method), 0

    class Killed(BaseException):
        pass

    def killing(self, *args, **kwargs):
        """Dies in the third epoch: after writing the pools, or before the other steps."""
        nonlocal calls
        calls += 1
        dies = calls == (4 if method == "evaluate" else 3)
        if dies and method != "aggregate":
            raise Killed
        result = original(self, *args, **kwargs)
        if dies:
            raise Killed
        return result

    with monkeypatch.context() as patch:
        patch.setattr(Coevolution, method, killing)
        with pytest.raises(Killed):
            run(cache, tmp_path, epochs=4)
    resumed = run(cache, tmp_path, epochs=4)
    experiment, workdir = unbroken
    assert contents(tmp_path) == contents(workdir)
    assert same(params(resumed, "agent"), params(experiment, "agent"))


def test_a_damaged_checkpoint_falls_back_to_the_one_before(cache, tmp_path, unbroken, caplog):
    run(cache, tmp_path, epochs=3)
    newest = tmp_path / "checkpoints" / "3"
    for file in newest.rglob("*"):
        if file.is_file() and file.parent.name == "d":
            file.write_bytes(b"damaged")
    resumed = run(cache, tmp_path, epochs=4)
    assert "checkpoint 3 cannot be read" in caplog.text
    experiment, workdir = unbroken
    assert contents(tmp_path) == contents(workdir)
    assert same(params(resumed, "simulator"), params(experiment, "simulator"))


def test_checkpoints_that_are_all_damaged_are_an_error(cache, tmp_path):
    run(cache, tmp_path, epochs=1)
    for file in (tmp_path / "checkpoints" / "1").rglob("*"):
        if file.is_file() and file.parent.name == "d":
            file.write_bytes(b"damaged")
    with pytest.raises(ValueError, match="none of the checkpoints"):
        Coevolution(toy_config(cache), tmp_path)


def test_other_settings_do_not_continue_a_run(cache, tmp_path):
    run(cache, tmp_path, epochs=1)
    with pytest.raises(
        ValueError, match=r"config\.agent\.learning_rate = 0\.001, but .* 0\.5: .*another"
    ):
        Coevolution(toy_config(cache, {"agent.learning_rate": 0.5}), tmp_path)


def test_a_frozen_simulator_stays_bit_identical(cache, tmp_path):
    frozen = run(cache, tmp_path, **{"simulator.train": False})
    assert same(params(frozen, "simulator"), jax.device_get(frozen.simulator.reference.params))
    assert not same(params(frozen, "agent"), jax.device_get(frozen.agent.reference.params))


def test_a_frozen_agent_stays_bit_identical(cache, tmp_path):
    frozen = run(cache, tmp_path, **{"agent.train": False})
    assert same(params(frozen, "agent"), jax.device_get(frozen.agent.reference.params))
    assert not same(params(frozen, "simulator"), jax.device_get(frozen.simulator.reference.params))


def test_no_compilation_after_the_first_epoch(cache, tmp_path):
    experiment = Coevolution(toy_config(cache, {"epochs": 3}), tmp_path)
    compiled = []
    original = Coevolution.epoch

    def count(event, duration, **_):
        if (
            event == "/jax/core/compile/jaxpr_to_mlir_module_duration"
        ):  # a program is new to the process
            compiled.append(duration)

    counts = []

    def epoch(self, number):
        compiled.clear()
        original(self, number)
        counts.append(len(compiled))

    jax.monitoring.register_event_duration_secs_listener(count)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Coevolution, "epoch", epoch)
            experiment.run()
    finally:
        jax.monitoring.unregister_event_duration_listener(count)
    assert counts[0] > 0
    assert counts[1:] == [0, 0]


@pytest.mark.parametrize("sizes", [(2, 2, 1), (1, 2, 2)])
def test_a_mesh_changes_nothing_but_rounding(cache, tmp_path, unbroken, sizes):
    mesh = dict(zip(("mesh.data", "mesh.fsdp", "mesh.tensor"), sizes, strict=True))
    # Steps of four rows: the data axes must divide them.
    sharded = run(cache, tmp_path / "a", **mesh, epochs=1, **{"simulator.minibatch_size": 4})
    single = run(cache, tmp_path / "b", epochs=1, **{"simulator.minibatch_size": 4})
    for player in ("agent", "simulator"):
        for a, b in zip(
            *(jax.tree.leaves(params(e, player)) for e in (sharded, single)), strict=True
        ):
            np.testing.assert_allclose(a, b, atol=1e-4)
    for name in ("tasks.jsonl", "d_train.jsonl"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_exported_players_load_as_models(cache, tmp_path):
    experiment = run(cache, tmp_path, epochs=1, export=True)
    again = toy_config(cache, {"model.path": str(tmp_path / "agent"), "model.make.vocab_size": 0})
    loaded = Coevolution(again, tmp_path / "next")
    assert same(params(loaded, "agent"), params(experiment, "agent"))


def test_a_prompt_over_the_limit_is_named_before_any_training(cache, tmp_path):
    with pytest.raises(ValueError, match=r"task seed-0 has \d+ tokens: expected at most .* = 8"):
        Coevolution(toy_config(cache, {"limits.agent_prompt": 8}), tmp_path)


def test_no_seeds_is_an_error(cache, tmp_path, monkeypatch):
    monkeypatch.setattr(Toy, "tasks", lambda self, split: [])
    with pytest.raises(ValueError, match="no seed tasks"):
        Coevolution(toy_config(cache), tmp_path)


def test_rows_that_the_mesh_does_not_divide_are_named(cache, tmp_path):
    with pytest.raises(ValueError, match=r"config\.agent\.batch_size = 6: expected a multiple"):
        Coevolution(toy_config(cache, {"mesh.fsdp": 4, "agent.batch_size": 6}), tmp_path)


@pytest.mark.parametrize("offload", [pytest.param("player", marks=pytest.mark.slow), "phase"])
def test_weights_that_wait_in_host_memory_change_nothing(cache, tmp_path, unbroken, offload):
    """Interrupted on the way, so that what is saved and restored lies in host memory too."""
    # Begun without: where weights wait may change when a run is continued.
    run(cache, tmp_path, epochs=1)
    run(cache, tmp_path, epochs=2, **{"memory.offload": offload})
    resumed = run(cache, tmp_path, epochs=4, **{"memory.offload": offload})
    state = resumed.simulator.state  # the agent was evaluated last
    moments = [x for x in jax.tree.leaves(state.opt_state) if x.ndim]
    assert {x.sharding.memory_kind for x in moments} == {"pinned_host"}
    experiment, workdir = unbroken
    assert contents(tmp_path) == contents(workdir)
    assert same(params(resumed, "agent"), params(experiment, "agent"))
    assert same(params(resumed, "simulator"), params(experiment, "simulator"))


LORA = {"lora.rank": 4, "agent.learning_rate": 1e-2, "simulator.learning_rate": 1e-2}


MESH = {"mesh.fsdp": 2, "mesh.tensor": 2, "memory.offload": "phase"}


@pytest.mark.parametrize("extra", [{}, pytest.param(MESH, marks=pytest.mark.slow)])
def test_both_players_as_adapters_on_one_base(cache, tmp_path, extra):
    """The base stays, both adapters learn, an interrupted run repeats itself, and the exports fit."""
    overrides = LORA | extra | {"memory.moments": "bfloat16", "export": True}
    whole = run(cache, tmp_path / "whole", epochs=2, **overrides)
    run(cache, tmp_path / "parts", epochs=1, **overrides)
    resumed = run(cache, tmp_path / "parts", epochs=2, **overrides)
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")
    base = whole.model.load_params()
    assert same(jax.device_get(whole.agent.reference.params), jax.device_get(base))
    assert whole.simulator.reference is whole.agent.reference
    config = whole.agent.model.config
    assert not same(params(whole, "agent"), params(whole, "simulator"))
    for player in ("agent", "simulator"):
        assert same(params(whole, player), params(resumed, player))
        trained = params(whole, player)
        assert all(np.abs(x).max() > 0 for x in jax.tree.leaves(trained))  # B too has moved
        folder = tmp_path / "whole" / f"{player}_adapter"
        assert peft.read_lora_config(folder) == config.lora
        assert same(peft.load_adapter(folder, config), trained)
        merged = lora.merge(lora.join(base, trained), config.lora)
        exported = huggingface.load_params(tmp_path / "whole" / player, config.base)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), exported, merged)
    moments = [x for x in jax.tree.leaves(whole.agent.state.opt_state) if x.ndim]
    assert {x.dtype.name for x in moments} == {"bfloat16"}
    lines = [json.loads(s) for s in (tmp_path / "whole/metrics.jsonl").read_text().splitlines()]
    assert all(line["agent/sampler_trainer_logp_gap"] < 1e-4 for line in lines[1:])
