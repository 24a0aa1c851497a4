"""What a run says about itself before it begins, when it ends, and with --dry_run."""

import dataclasses
import json
import re

import pytest

from genenv_jax.coevolve import Coevolution
from genenv_jax.config import validate
from genenv_jax.dry_run import dry_run, outcome, overview
from genenv_jax.models import platform
from genenv_jax.models.huggingface.layouts import parameter_count
from genenv_jax.models.language_model import LanguageModel
from genenv_jax.players import build
from genenv_jax.run.tracking import TrackingConfig
from genenv_jax.supervised import base_model
from tests.runs import lines, toy_config
from tests.tiny import write_model


def checked(cache, **overrides):
    return validate(toy_config(cache, overrides))


def test_what_a_run_will_do_is_no_less_than_what_it_does(cache, tmp_path):
    """The numbers of tasks, rollouts, evaluations, steps and tokens are upper bounds."""
    config = checked(cache, **{"evaluation.every": 2, "epochs": 3})
    said = dry_run(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    run = Coevolution(config, tmp_path / "run")
    assert said.items() >= (overview(config, run) | {"model": said["model"]}).items()
    run.run()
    steps = lines(tmp_path / "run")
    per_epoch, in_all = (int(n) for n in re.findall(r"(\d+) (?:rollouts an epoch|in all)", said["run"]))
    assert 0 < steps[-1]["rollouts/total"] <= in_all == 3 * per_epoch
    evaluated = sum(any(name.startswith("eval/") for name in line) for line in steps)
    assert said["evaluation"].startswith(f"{evaluated} × ")
    most = float(re.search(r"at most ([\d.]+) M", said["tokens"])[1]) * 1e6
    assert 0 < steps[-1]["tokens/total"] <= 3 * most
    agent, simulator = map(int, re.findall(r"(\d+) of the", said["steps"]))
    assert int(run.agent.state.step) <= 3 * agent and int(run.simulator.state.step) <= 3 * simulator
    state, cache, both = map(float, re.findall(r"([\d.]+) MiB", said["memory"]))
    assert 0 < state < both and both == pytest.approx(state + cache, abs=0.11)
    assert "of weights and moments + " in said["memory"] and "on each device" in said["memory"]
    seed = run.benchmark.tasks("seed")[0]
    assert seed.messages[-1]["content"] in said["prompt"]
    assert said["answer"].endswith(run.benchmark.agent_answer(seed))
    again = overview(config, Coevolution(config, tmp_path / "run"))
    assert again["run"] == "finished after epoch 3; with a larger config.epochs it continues"
    for name in outcome(config, tmp_path / "run")["holds"].split(", "):
        assert (tmp_path / "run" / name).exists(), name


def test_the_least_time_of_an_epoch_follows_from_its_tokens(cache, monkeypatch):
    config = checked(cache)
    monkeypatch.setattr(platform, "product_rate", lambda dtype: 1e9)
    said = dry_run(config, None)
    tokens = float(re.search(r"at most ([\d.]+) M", said["tokens"])[1]) * 1e6
    model = LanguageModel.load(base_model(config, build.make_benchmark(config), build.open_mesh(config)))
    seconds = 2 * parameter_count(model.config) * tokens / 1e9
    least = float(re.search(r"at least ([\d.]+) s, at 0.001 TFLOP", said["time"])[1])
    assert least == pytest.approx(seconds, rel=0.2)
    assert "time" not in dry_run(config, None, memory=2**34)  # that is another machine


def test_log_probs_that_are_computed_again_are_among_the_tokens(cache):
    """The trainers count them too."""
    most, groups = {}, {"agent.group_size": 256, "simulator.variations": 64}
    for dtype in ("float32", "bfloat16"):
        said = dry_run(checked(cache, **{"model.dtype": dtype}, **groups), None)["tokens"]
        most[dtype] = float(re.search(r"at most ([\d.]+) M", said)[1])
    assert 1.1 < most["bfloat16"] / most["float32"] < 1.25


def test_a_dry_run_compares_the_settings_of_the_run_in_its_workdir_and_says_how_far_it_is(cache, tmp_path):
    config = checked(cache)
    Coevolution(config, tmp_path / "run").run()
    before = sorted(tmp_path.rglob("*"))
    said = dry_run(config, tmp_path / "run")["run"]
    assert said == "finished after epoch 2; with a larger config.epochs it continues"
    assert dry_run(checked(cache, epochs=3), tmp_path / "run")["run"].endswith("; continues after epoch 2")
    with pytest.raises(ValueError, match=r"config\.curriculum\.alpha"):
        dry_run(checked(cache, **{"curriculum.alpha": 0.4}), tmp_path / "run")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_dry_run_refuses_what_the_run_would(cache, tmp_path, monkeypatch):
    config = checked(cache)
    short = dataclasses.replace(config.limits, agent_prompt=4)
    with pytest.raises(ValueError, match="agent_prompt"):
        dry_run(dataclasses.replace(config, limits=short), None)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="file is no directory that can be written to"):
        dry_run(config, tmp_path / "file" / "run")
    monkeypatch.setattr("genenv_jax.run.tracking._missing", lambda name: [name])
    with pytest.raises(ValueError, match="config.tracking.trackers names 'trackio'"):
        dry_run(dataclasses.replace(config, tracking=TrackingConfig(trackers=("trackio",))), None)
    missing = dataclasses.replace(config.model, path=str(tmp_path / "none"))
    with pytest.raises((ValueError, OSError), match="none"):
        dry_run(dataclasses.replace(config, model=missing), None)


@pytest.fixture
def large(tmp_path):
    """A model directory without weights, and its number of parameters, norms and biases excluded."""
    model = write_model(tmp_path / "model", vocab_size=320)
    (model / "model.safetensors").unlink()
    config = json.loads((model / "config.json").read_text())
    sizes = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 16}
    (model / "config.json").write_text(json.dumps(config | sizes))
    return model, 16 * (3 * 1024 * 4096 + 3 * 1024**2) + 2 * 320 * 1024


@pytest.mark.parametrize(
    ("offload", "train", "trees"),
    [("none", True, 7), ("none", False, 4), ("player", True, 4), ("phase", True, 3)],
)
def test_no_weights_are_needed(cache, large, offload, train, trees):
    """trees: how many trees of the parameters' size an update holds, moments and reference included."""
    model, count = large
    options = {"model.path": str(model), "model.make.vocab_size": 0, "warm_start.steps": 30}
    options |= {"memory.offload": offload, "simulator.train": train}
    said = dry_run(checked(cache, **options), None)
    parameters = float(re.search(r"([\d.]+) M parameters", said["model"])[1])
    assert parameters == pytest.approx(count / 1e6, rel=0.01)
    held = trees * 4 * count / 2**30
    assert float(re.search(r"at most ([\d.]+) GiB", said["memory"])[1]) == pytest.approx(held, rel=0.05)
    assert ("pinned_host" in said["memory"]) is (offload != "none")
    assert said["warm start"].startswith("30 steps of 16 completions")


def test_what_does_not_fit_is_refused_before_it_is_made(cache, tmp_path, tiny_model, monkeypatch):
    """A dry run, which may be for another machine, only says so."""
    config = checked(cache)
    wide = dataclasses.replace(config.model.make, hidden_size=2**14, intermediate_size=2**16)
    wide = dataclasses.replace(config.model, make=wide)
    many = dataclasses.replace(config.agent, group_size=2**12, batch_size=2**15)
    many = dataclasses.replace(config, agent=many)
    monkeypatch.setattr(platform, "device_memory", lambda: 2**30)
    with pytest.raises(ValueError, match=r"config\.model\.make describes: .* GiB .* has 1\.0 GiB"):
        dry_run(dataclasses.replace(config, model=wide), None)
    assert dry_run(many, None)["too large"].startswith("a device has 1.0 GiB; use more devices")
    with pytest.raises(ValueError, match="key-value cache: .* GiB on each device, which has 1"):
        Coevolution(many, tmp_path / "run")
    samples = dataclasses.replace(config.evaluation, sampled=2**12, batch_size=2**15)
    evaluating = dataclasses.replace(config, evaluation=samples)
    with pytest.raises(ValueError, match="key-value cache: .*agent.group_size, evaluation and limits"):
        Coevolution(evaluating, tmp_path / "run")
    assert dry_run(evaluating, None)["too large"].startswith("a device has 1.0 GiB; use more devices")
    monkeypatch.setattr(platform, "device_memory", lambda: 2**10)
    host = build.ModelOnMesh(LanguageModel.load(tiny_model), None)
    with pytest.raises(ValueError, match="weights: .* MiB on each device, which has 0"):
        host.load_params()
    with pytest.raises(ValueError, match="weights and moments: .*; config.lora.rank"):
        build.make_players(config, host)


@pytest.mark.parametrize(
    ("bytes_a_parameter", "named"), [(21, {"memory.moments": "bfloat16"}), (6, {"lora.rank": 32})]
)
def test_settings_that_fit_are_named(cache, large, bytes_a_parameter, named):
    """In float32 all weights and moments take 28 bytes per parameter, 20 with bfloat16 moments, 8 in an
    update with nothing else on the devices, and little more than 4 with adapters."""
    model, count = large
    options = {"model.path": str(model), "model.make.vocab_size": 0}
    memory = bytes_a_parameter * count
    said = dry_run(checked(cache, **options), None, memory)["too large"]
    flags = " ".join(f"--config.{key}={value}" for key, value in named.items())
    assert f"; with {flags} the run needs " in said
    assert "too large" not in dry_run(checked(cache, **options, **named), None, memory)
