"""Whole runs of Algorithm 1 on a toy benchmark: both players learn, and nothing is lost."""

import itertools
import json
import random
import re
import shutil
import signal
import socket

import jax
import numpy as np
import pytest
from huggingface_hub import ModelCard

import genenv_jax
from genenv_jax.benchmarks import registry
from genenv_jax.coevolve import Coevolution, nothing_to_learn
from genenv_jax.config import validate
from genenv_jax.evaluate.held_out import HeldOut
from genenv_jax.models import huggingface, lora
from genenv_jax.run import tracking
from genenv_jax.run.session import Session
from genenv_jax.sampling.engine import Engine
from genenv_jax.trainers import divergence
from genenv_jax.trainers.simulator import Regression
from tests import tiny, toy
from tests.commands import ROOT, command
from tests.models import adapters
from tests.run.fake_trackers import Failing, FakeTracker, assert_as_recorded, install
from tests.runs import (
    Compiled,
    Killed,
    assert_close,
    contents,
    forget_steps,
    lines,
    params,
    run,
    same,
    toy_config,
)
from tests.toy import Toy
from tests.transfers import ExplicitTransfers


@pytest.fixture(scope="module")
def unbroken(cache, tmp_path_factory):
    """Three epochs without interruption, in which every transfer to or from the devices is explicit."""
    guard, (epoch, save) = ExplicitTransfers(), (Coevolution.epoch, Session.save)

    def guarded_epoch(self, number):
        with guard.forbidding():
            epoch(self, number)

    def free_save(self):  # Orbax transfers implicitly
        with guard.allowing():
            save(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Coevolution, "epoch", guarded_epoch)
        patch.setattr(Session, "save", free_save)
        workdir = tmp_path_factory.mktemp("unbroken")
        experiment = run(cache, workdir, epochs=3)
    assert guard.reads > 0
    return experiment, workdir


def test_both_players_learn_every_epoch(unbroken):
    experiment, workdir = unbroken
    start = jax.device_get(experiment.agent.reference.params)
    assert same(start, jax.device_get(experiment.simulator.reference.params))
    assert not same(params(experiment, "agent"), start)
    assert not same(params(experiment, "simulator"), start)
    _, *epochs = metrics = lines(workdir)
    assert [line["step"] for line in metrics] == [0, 1, 2, 3]
    for line in epochs:
        assert line["simulator/records"] > 0
        assert line["simulator/steps"] > 0
        assert line["agent/grad_norm"] > 0
        assert line["agent/sampler_trainer_logp_gap"] < 1e-4
        assert line["simulator/update_kl"] <= experiment.config.simulator.kl_cap
    assert epochs[2]["rollouts/total"] > epochs[1]["rollouts/total"]


def test_trackers_are_given_what_the_files_say(cache, tmp_path, unbroken, monkeypatch, caplog):
    """One tracker fails.  The run is killed after the second epoch is written and before it is saved."""
    good, bad = install(monkeypatch, wandb=FakeTracker, trackio=Failing)
    good.on_log = lambda: len(lines(tmp_path))
    monkeypatch.setattr(tracking, "SAMPLES", 3)
    options = {"tracking.trackers": ("trackio", "wandb"), "epochs": 3}
    save = Session.save

    def killing(self):
        if self.finished == 2:
            raise Killed
        save(self)

    with monkeypatch.context() as patch:
        patch.setattr(Session, "save", killing)
        with pytest.raises(Killed):
            run(cache, tmp_path, **options)
    assert good.closed_within is Killed
    run(cache, tmp_path, **options)
    assert good.closed == 2 and good.closed_within is None
    assert contents(tmp_path) == contents(unbroken[1])
    assert caplog.text.count("nothing more is sent to trackio") == 2 and not bad.logged
    assert len(good.ids) == 2 and len(set(good.ids)) == 1
    assert set(good.ids) == set(bad.ids)
    assert good.config == json.loads((tmp_path / "config.json").read_text())

    assert [number for *_, number in good.logged] == [1, 2, 3, 4]  # each once, after its line
    assert_as_recorded(tmp_path, [row[:3] for row in good.logged], samples=3, sizes={3})


def test_the_files_tell_the_whole_story(unbroken):
    experiment, workdir = unbroken
    config = experiment.config
    generations = lines(workdir, "tasks.jsonl")
    assert len(generations) == 3 * 4 * config.simulator.variations
    assert {g["verdict"] for g in generations} >= {"accepted"}
    for line in lines(workdir)[1:]:
        mine = [g for g in generations if g["epoch"] == line["step"]]
        rejected = sum(v for k, v in line.items() if k.startswith("generated/rejected/"))
        assert rejected == sum(g["verdict"] != "accepted" for g in mine)
        assert rejected / len(mine) == pytest.approx(1 - line["generated/valid_share"])
        attempted = [g for g in mine if g["attempts"]]
        assert np.mean([g["p_hat"] for g in attempted]) == pytest.approx(line["generated/p_hat_mean"])
        assert sum((g["weight"] or 0) > 0 for g in mine) == line["simulator/records"]
    for g in generations:
        if g["verdict"] == "accepted":
            assert g["attempts"] == config.agent.group_size
            assert g["p_hat"] == g["successes"] / g["attempts"]
            assert g["r_env"] == pytest.approx(np.exp(-2 * (g["p_hat"] - 0.5) ** 2))
            assert (g["weight"] > 0) == (abs(g["p_hat"] - 0.5) <= config.curriculum.k_min + 1e-9)
        else:
            assert g["task"] is None and g["attempts"] == 0 and g["weight"] is None
        assert g["reference"] in (("ok", "yes") if g["task"] else (None,))
    for name, step in (("before", 0), ("after", 3)):
        answers = lines(workdir, f"held_out/{name}.jsonl")
        solved = [a["success"] for a in answers]
        assert [a["task_id"] for a in answers] == [f"eval-{i}" for i in range(len(answers))]
        assert {(a["step"], a["mode"]) for a in answers} == {(step, "greedy")}
        assert np.mean(solved) == lines(workdir)[step]["eval/test/greedy/accuracy"]
        assert all(a["request"].endswith(" ?") and a["reference"] for a in answers)
    d_env = lines(workdir, "d_env.jsonl")
    assert [r["text"] for r in d_env] == [g["text"] for g in generations if g["weight"]]
    traces = lines(workdir, "d_train.jsonl")
    assert {t["origin"] for t in traces} == {"seed", "generated"}
    texts = {g["id"]: g["text"] for g in generations}
    for t in traces:
        if t["origin"] == "generated":
            assert t["reward"] == float((len(t["answer"]) + len(texts[t["task_id"]])) % 2 == 0)


@pytest.mark.parametrize(
    ("owner", "method", "call"),
    [
        (Coevolution, "aggregate", 2),
        pytest.param(Regression, "step", 2, marks=pytest.mark.slow),
        pytest.param(HeldOut, "evaluate", 3, marks=pytest.mark.slow),
    ],
)
def test_a_run_killed_inside_an_epoch_repeats_it(cache, tmp_path, unbroken, monkeypatch, owner, method, call):
    """Killed in the second epoch: after its pools are written, or before the other steps."""
    original, calls = getattr(owner, method), itertools.count(1)

    def killing(self, *args, **kwargs):
        dies = next(calls) == call
        if dies and method != "aggregate":
            raise Killed
        result = original(self, *args, **kwargs)
        if dies:
            raise Killed
        return result

    with monkeypatch.context() as patch:
        patch.setattr(owner, method, killing)
        with pytest.raises(Killed):
            run(cache, tmp_path, epochs=3)
    resumed = run(cache, tmp_path, epochs=3)
    experiment, workdir = unbroken
    assert contents(tmp_path) == contents(workdir)
    assert same(params(resumed, "agent"), params(experiment, "agent"))


@pytest.fixture(scope="module")
def two_epochs(cache, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("two") / "run"
    run(cache, workdir, epochs=2)
    return workdir


@pytest.fixture
def two(two_epochs, tmp_path):
    """The workdir of a run of two epochs."""
    return shutil.copytree(two_epochs, tmp_path / "run")


def damage(checkpoint):
    for file in checkpoint.rglob("*"):
        if file.is_file() and file.parent.name == "d":
            file.write_bytes(b"damaged")


def flip(file, place):
    """Changes one bit of a file."""
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "damaged"),
    [
        ("", None),
        ("checkpoints/2", damage),
        ("d_env.jsonl", lambda file: flip(file, -20)),
        ("metrics.jsonl", lambda file: file.write_bytes(file.read_bytes()[:-9])),
    ],
)
def test_two_epochs_and_one_more_equal_three(cache, two, unbroken, caplog, name, damaged):
    """If something is damaged and timing.jsonl lost, the previous checkpoint is used."""
    if damaged:
        (two / "timing.jsonl").unlink()
        damaged(two / name)
    resumed = run(cache, two, epochs=3)
    assert (f"checkpoint 2 cannot be restored, trying the one before: {two}" in caplog.text) is bool(damaged)
    assert ("timing.jsonl: lines are missing or damaged" in caplog.text) is bool(damaged)
    experiment, workdir = unbroken
    assert contents(two) == contents(workdir)
    for player in ("agent", "simulator"):
        assert same(params(resumed, player), params(experiment, player))
    assert same(*(jax.device_get(e.agent.state.opt_state) for e in (resumed, experiment)))


def test_what_does_not_continue_a_run(cache, tmp_path, caplog):
    """Other settings, even if config.json is missing; and checkpoints that are all damaged."""
    run(cache, tmp_path, epochs=1)
    settings = tmp_path / "config.json"
    whole = settings.read_bytes()
    for damage_settings in (lambda: None, settings.unlink, lambda: settings.write_bytes(whole[:99])):
        damage_settings()
        with pytest.raises(
            ValueError, match=r"config\.agent\.learning_rate = 0\.001, but .* 0\.5: .*another"
        ):
            start(cache, tmp_path, {"agent.learning_rate": 0.5})
    assert "config.json is missing: using the copy in the newest checkpoint" in caplog.text
    assert "config.json is damaged" in caplog.text
    start(cache, tmp_path, {"epochs": 1})
    assert settings.read_bytes() == whole
    # The same model in another directory is the same run.
    start(shutil.copytree(cache, tmp_path / "moved"), tmp_path, {"epochs": 1})
    settings.write_bytes(whole.replace(b'"learning_rate": 0.001', b'"learning_rate": 0.5'))
    with pytest.raises(ValueError, match=r"learning_rate = 0\.001, but now it is 0\.5"):
        start(cache, tmp_path, {"agent.learning_rate": 0.5, "simulator.learning_rate": 0.5})
    settings.write_bytes(whole)
    damage(tmp_path / "checkpoints" / "1")
    with pytest.raises(ValueError, match="none of the checkpoints"):
        start(cache, tmp_path)
    # Without checkpoints a new run begins; the old records are kept.
    records = contents(tmp_path)
    shutil.rmtree(tmp_path / "checkpoints" / "1")
    start(cache, tmp_path)
    (aside,) = tmp_path.glob("before-*")
    assert contents(aside) == records and not any(contents(tmp_path).values())


def test_an_update_that_diverges_ends_the_run_before_it_is_saved(cache, tmp_path):
    with pytest.raises(FloatingPointError, match=r"epoch \d, the agent's update: .*over 1000;"):
        run(cache, tmp_path, epochs=6, **{"agent.learning_rate": 10.0})
    saved = {int(path.name) for path in (tmp_path / "checkpoints").iterdir()}
    assert max(saved, default=0) == lines(tmp_path)[-1]["step"]
    (kept,) = (tmp_path / "diverged").iterdir()
    rollouts, rewards, metrics = divergence.load(kept)
    assert metrics["kl"] > 1000 and rewards.shape == rollouts.lengths.shape
    assert lines(tmp_path)[-1].get("agent/kl", 0.0) < 1000


def rejected(reason):
    """Metrics of an epoch in which one of 64 generations was valid, and most were rejected for a reason."""
    counts = {"generated/rejected/unparsable": 2} | {f"generated/rejected/{reason}": 61}
    return {"generated/count": 64, "generated/valid_share": 1 / 64} | counts


@pytest.mark.parametrize(
    ("metrics", "why"),
    [
        ({"generated/count": 64, "generated/valid_share": 0.9, "agent/zero_variance_share": 0.9}, "$"),
        ({"agent/zero_variance_share": 1.0, "agent/reward_mean": 0.5}, "$"),  # some right, some wrong
        ({"agent/zero_variance_share": 1.0, "agent/reward_mean": 0.0}, "no attempt earned a reward: "),
        ({"agent/zero_variance_share": 1.0, "agent/reward_mean": 1.0}, "every attempt was right: use harder"),
        (rejected("wrong_answer"), "only 2% of 64 .* rejected as wrong_answer: use .*warm_start.steps"),
        (rejected("truncated"), "only 2% of 64 .* rejected as truncated: use .*simulator_response"),
        (rejected("duplicate"), "only 2% of 64 .* rejected as duplicate: use more seed tasks$"),
    ],
)
def test_an_epoch_that_teaches_nothing_is_explained(metrics, why):
    assert re.match(why, nothing_to_learn(metrics))


class Barren(Toy):
    """The simulator writes no valid task in the first and third epochs."""

    def parse(self, text, seed, task_id, generation):
        if generation != 1:
            return toy.Rejection(toy.base.UNPARSABLE, "nothing")
        return super().parse(text, seed, task_id, generation)


@pytest.mark.parametrize("band", [0.0, pytest.param(0.3, marks=pytest.mark.slow)])
def test_empty_epochs_are_epochs(cache, tmp_path, monkeypatch, caplog, band):
    """Without a valid task in the band there is no update, and the metrics and a warning say so."""
    monkeypatch.setattr(toy, "Drawing", Barren)
    options = {
        "agent.base_share": 0.0, "agent.replay_share": 0.0, "curriculum.k_min": band,
        "curriculum.alpha": 0.1,  # not a success rate of four attempts
    }  # fmt: skip
    run(cache, tmp_path / "parts", epochs=1, **options)
    whole = run(cache, tmp_path / "parts", epochs=3, **options)
    why = "epoch 1: only 0% of 16 generations are valid, and most are rejected as unparsable"
    assert caplog.text.count(why) == 1 and "epoch 2: only" not in caplog.text
    start = jax.device_get(whole.agent.reference.params)
    _, first, second, third = lines(tmp_path / "parts")
    for empty in (first, third):
        assert empty["generated/valid_share"] == 0
        assert empty[f"generated/rejected/{toy.base.UNPARSABLE}"] >= 12
        assert empty["simulator/records"] == 0 and "simulator/steps" not in empty
        assert "agent/tasks" not in empty
    assert second["agent/tasks"] > 0 and second["rollouts/total"] == third["rollouts/total"] > 0
    assert (second["simulator/records"] > 0) is (band > 0)
    assert same(params(whole, "simulator"), start) is (band == 0)
    assert not same(params(whole, "agent"), start)
    if band:
        run(cache, tmp_path / "whole", epochs=3, **options)
        assert contents(tmp_path / "whole") == contents(tmp_path / "parts")


def test_a_cached_model_that_has_changed_is_not_taken(cache, tmp_path):
    start(cache, tmp_path / "before")
    models = shutil.copytree(cache, tmp_path / "models", ignore=lambda *_: ["xla"])
    left = models / f".toy-0.{socket.gethostname()}.{2**22 + 1}.old"  # from a killed process
    left.mkdir()
    for file in models.glob("*/model.safetensors"):
        flip(file, -1000)
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged: .*; remove .*make the model again"):
        start(models, tmp_path / "after")
    assert not left.exists()
    for file in models.glob("*/digests.json"):
        file.write_text("{}")
    with pytest.raises(ValueError, match=r"is not one of the files that were written; remove .*again"):
        start(models, tmp_path / "after")
    for file in models.glob("*/digests.json"):
        file.unlink()
    with pytest.raises(ValueError, match=r"digests\.json'; remove .*make the model again"):
        start(models, tmp_path / "after")


@pytest.mark.parametrize(
    "settings",
    [
        {"simulator.train": False, "memory.offload": "phase"},
        pytest.param({"tasks.source": "seeds", "lora.rank": 2}, marks=pytest.mark.slow),
    ],
)
def test_a_simulator_that_is_not_trained_is_the_reference(cache, tmp_path, settings):
    """It takes no memory and is not in checkpoints."""
    frozen = run(cache, tmp_path, epochs=1, **settings)
    own, start = (jax.tree.leaves(x.params) for x in (frozen.simulator, frozen.agent.reference))
    assert all(x is y for x, y in zip(own, start, strict=True))
    assert not same(params(frozen, "agent"), jax.device_get(frozen.agent.reference.params))
    assert not [*(tmp_path / "checkpoints").glob("*/simulator")]
    assert run(cache, tmp_path, epochs=2, **settings).session.finished == 2


def test_a_run_from_python(cache, tmp_path, monkeypatch):
    """The same call continues the run; README's example is such a call."""
    config = toy_config(cache, {"epochs": 1})
    genenv_jax.train(config, tmp_path / "run")
    config.epochs = 2
    genenv_jax.train(config, str(tmp_path / "run"))
    assert [line["step"] for line in lines(tmp_path / "run")] == [0, 1, 2]
    (shown,) = re.findall("```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    called = []
    monkeypatch.setattr(genenv_jax, "train", lambda *arguments: called.append(arguments))
    exec(compile(shown, "README.md", "exec"), {})
    ((config, workdir),) = called
    assert validate(config).benchmark["seed_depths"][0] == 0.5 and workdir == "runs/python"


def start(cache, workdir, overrides=None):
    """Makes and checks a run, without running it."""
    return Coevolution(validate(toy_config(cache, overrides)), workdir)


def test_no_compilation_in_any_epoch(cache, tmp_path, monkeypatch):
    compiled = Compiled(monkeypatch)
    run(cache, tmp_path, epochs=3)
    assert compiled.programs == [0, 0, 0]
    programs = [
        line["programs/compiled"] + line["programs/loaded"] for line in lines(tmp_path, "timing.jsonl")
    ]
    assert programs[0] > 0 and programs[1:] == [0, 0, 0]
    # Nor once a continued run has begun.
    forget_steps()
    run(cache, tmp_path, epochs=5)
    assert compiled.programs == [0] * 5


class Growing(Toy):
    """Its prompts are wider in the second epoch."""

    def agent_messages(self, task):
        (message,) = task.messages
        return [{**message, "content": message["content"] + " and" * 10 * max(task.generation, 0)}]

    def simulator_messages(self, seed, statistics):
        (message,) = super().simulator_messages(seed, statistics)
        return [{**message, "content": message["content"] + "." * 30 * bool(statistics.attempts)}]


@pytest.mark.slow
@pytest.mark.parametrize("mesh", [{}, {"mesh.data": 2, "mesh.fsdp": 2}])
def test_a_width_that_first_comes_up_later_is_compiled_already(cache, tmp_path, monkeypatch, mesh):
    """Without compiling ahead, it is compiled when first needed; nothing else changes."""
    monkeypatch.setattr(toy, "Drawing", Growing)
    compiled = Compiled(monkeypatch)
    rows = {"agent.minibatch_size": 8, "simulator.minibatch_size": 4} if mesh else {}
    settings = {"limits.prompt_buckets": (64,)} | mesh | rows
    run(cache, tmp_path / "ahead", epochs=2, **settings)
    assert not compiled.widths[1] <= compiled.widths[0]  # otherwise nothing is tested
    # With several devices the first checkpoint, after the first epoch, also compiles Orbax's programs.
    assert compiled.programs[1] == 0
    assert mesh or compiled.programs[0] == 0
    if not mesh:
        forget_steps()
        run(cache, tmp_path / "late", epochs=2, compile_ahead=False, **settings)
        assert compiled.programs[2] > 0 and compiled.programs[3] > 0
        assert contents(tmp_path / "late") == contents(tmp_path / "ahead")


@pytest.mark.slow
def test_a_second_run_finds_the_compiled_programs_of_the_first(cache, tmp_path):
    """By default they are in the user's cache.  The workdirs differ."""
    flags = (f"--config=tests/run_toy.py:{cache}", "--config.epochs=1", "--config.compilation_cache=True")
    # As a user starts it: programs that compile quickly are not cached.
    environment = {"XLA_FLAGS": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment |= {"JAX_COMPILATION_CACHE_DIR": ""}  # otherwise the tests' processes share it
    for name in ("first", "second"):
        done = command("tests.run_toy", "main", *flags, f"--workdir={tmp_path / name}", **environment)
        assert done.returncode == 0, done.stderr
    # Counted before training, including programs compiled ahead.
    first, second = (lines(tmp_path / name, "timing.jsonl")[0] for name in ("first", "second"))
    assert first["programs/compiled"] > 0
    assert second["programs/loaded"] > max(first["programs/loaded"], 0.5 * first["programs/compiled"])
    assert contents(tmp_path / "first") == contents(tmp_path / "second")


def test_where_the_time_goes(unbroken):
    _, workdir = unbroken
    before, *epochs = lines(workdir, "timing.jsonl")
    assert [line["step"] for line in epochs] == [1, 2, 3]
    assert before["seconds/compile"] > 0
    phases = {"generate", "verify", "interact", "score", "update agent", "update simulator"}
    phases |= {"evaluate (sampled)", "evaluate (greedy)", "host", "total"}
    for line in epochs:
        seconds = {k.split("/")[1]: v for k, v in line.items() if k.startswith("seconds/")}
        # The time is that of the previous epoch's checkpoint.
        assert seconds.keys() == phases | ({"checkpoint"} if line["step"] > 1 else set())
        assert min(seconds.values()) >= 0
        total = seconds.pop("total")
        assert sum(seconds.values()) == pytest.approx(total)
        idle = sum(seconds.get(k, 0) for k in ("verify", "score", "checkpoint", "host"))
        assert line["host_share"] == pytest.approx(idle / total)
        sampling = sum(v for k, v in seconds.items() if k in ("generate", "interact"))
        sampling += sum(v for k, v in seconds.items() if k.startswith("evaluate"))
        assert 0 < line["sampling/prefill"] + line["sampling/decode"] <= sampling


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_the_order_in_which_completions_finish_changes_no_byte(
    cache, tmp_path, unbroken, monkeypatch, workers
):
    """Scored in a thread or in worker processes, with completions handed over in random order."""
    sample, rng = Engine.__call__, random.Random(workers)

    def shuffled(engine, params, prompts, key, *arguments, on_completion, **options):
        held = []
        result = sample(engine, params, prompts, key, *arguments, **options, on_completion=held.append)
        for finished in rng.sample(held, len(held)):
            on_completion(finished)
        return result

    monkeypatch.setattr(Engine, "__call__", shuffled)
    run(cache, tmp_path, epochs=3, **{"scoring.workers": workers})
    assert contents(tmp_path) == contents(unbroken[1])


@pytest.mark.slow
def test_texts_that_hang_or_kill_their_reader_are_counted(cache, tmp_path, monkeypatch):
    """They are invalid answers and rejected tasks; the run continues."""
    monkeypatch.setitem(registry._BENCHMARKS, "toy", ("tests.isolated_toys", "Hanging"))
    experiment = run(cache, tmp_path, epochs=1, seed=1, **{"scoring.workers": 2, "scoring.timeout": 0.3})
    assert experiment.session.finished == 1
    before, line = lines(tmp_path)
    rejected = {k: v for k, v in line.items() if k.startswith("generated/rejected/verify_")}
    scores = {k: v for k, v in line.items() if k.startswith("agent/score_")}
    generations = lines(tmp_path, "tasks.jsonl")
    for reason in ("verify_crash", "verify_timeout"):
        count = sum(g["verdict"] == reason for g in generations)
        assert rejected.get(f"generated/rejected/{reason}", 0) == count
    crashed = [g for g in generations if g["verdict"] == "verify_crash"]
    assert crashed and all("SIGSEGV" in g["detail"] for g in crashed)
    assert sum(scores.values()) > 0
    total = line["rollouts/total"]
    assert round(line["agent/valid_share"] * total) <= total - sum(scores.values())
    assert any(k.endswith(("score_crash", "score_timeout")) for k in before | line if "eval/" in k)


@pytest.mark.slow
def test_held_out_tasks_may_be_played_in_episodes(cache, tmp_path, monkeypatch):
    for name in ("Talking", "TalkingHere"):
        monkeypatch.setitem(registry._BENCHMARKS, "toy", ("tests.isolated_toys", name))
        with pytest.MonkeyPatch.context() as patch:
            compiled = Compiled(patch)
            run(cache, tmp_path / name, **{"evaluation.sampled": 2})
        assert compiled.programs == [0, 0]
    assert contents(tmp_path / "Talking") == contents(tmp_path / "TalkingHere")
    last = lines(tmp_path / "Talking")[-1]
    assert 0 <= last["eval/test/sampled/accuracy"] <= last["eval/test/sampled/pass@2"] <= 1
    assert "eval/test/greedy/accuracy" in last and not any("episode_" in name for name in last)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(2, 2, 1), (1, 2, 2)])
def test_a_mesh_changes_nothing_but_rounding(cache, tmp_path, unbroken, sizes):
    mesh = dict(zip(("mesh.data", "mesh.fsdp", "mesh.tensor"), sizes, strict=True))
    # Steps of four rows: the data axes must divide them.
    sharded = run(cache, tmp_path / "a", **mesh, epochs=1, **{"simulator.minibatch_size": 4})
    assert_close(sharded, run(cache, tmp_path / "b", epochs=1, **{"simulator.minibatch_size": 4}), atol=1e-4)
    for name in ("tasks.jsonl", "d_train.jsonl"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_sigterm_within_a_save_ends_the_run_after_it(cache, tmp_path):
    """The checkpoint is whole, and the run continues from it."""
    experiment = start(cache, tmp_path, {"epochs": 2})
    save = experiment.session._checkpoints.save

    def interrupted(*arguments):
        signal.raise_signal(signal.SIGTERM)
        save(*arguments)

    experiment.session._checkpoints.save = interrupted
    with pytest.raises(SystemExit) as ended:
        experiment.run()
    assert ended.value.code == 143
    assert start(cache, tmp_path, {"epochs": 2}).session.finished == 1


def test_no_seeds_is_an_error(cache, tmp_path, monkeypatch):
    monkeypatch.setattr(Toy, "tasks", lambda self, split: [])
    with pytest.raises(ValueError, match="no seed tasks"):
        start(cache, tmp_path)


def test_rows_that_the_mesh_does_not_divide_are_named(cache, tmp_path):
    with pytest.raises(ValueError, match=r"config\.agent\.batch_size = 6: expected a multiple"):
        start(cache, tmp_path, {"mesh.fsdp": 4, "agent.batch_size": 6})


@pytest.mark.slow
@pytest.mark.parametrize("offload", ["player", "phase"])
def test_weights_that_wait_in_host_memory_change_nothing(cache, tmp_path, unbroken, offload):
    """Interrupted, so that trees in host memory are also saved and restored."""
    # Begun without offloading, which may change when a run continues.
    run(cache, tmp_path, epochs=1)
    run(cache, tmp_path, epochs=2, **{"memory.offload": offload})
    resumed = run(cache, tmp_path, epochs=3, **{"memory.offload": offload})
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
    """The base stays, both adapters learn, an interrupted run gives the same bytes, and the exports fit."""
    overrides = LORA | extra | {"memory.moments": "bfloat16", "export": True}
    whole = run(cache, tmp_path / "whole", epochs=2, **overrides)
    run(cache, tmp_path / "parts", epochs=1, **overrides)
    resumed = run(cache, tmp_path / "parts", epochs=2, **overrides)
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")
    for folder in ("agent", "simulator", "agent_adapter", "simulator_adapter"):
        cards = [(tmp_path / part / folder / "README.md").read_bytes() for part in ("parts", "whole")]
        assert cards[0] == cards[1] and ModelCard(cards[0].decode()).data.tags
    base = whole.agent.model.load_params()
    assert same(jax.device_get(whole.agent.reference.params), jax.device_get(base))
    assert whole.simulator.reference is whole.agent.reference
    config = whole.agent.model.config
    assert not same(params(whole, "agent"), params(whole, "simulator"))
    for player in ("agent", "simulator"):
        assert same(params(whole, player), params(resumed, player))
        trained = params(whole, player)
        assert all(np.abs(x).max() > 0 for x in jax.tree.leaves(trained))  # B has moved too
        folder = tmp_path / "whole" / f"{player}_adapter"
        assert adapters.read_config(folder) == config.lora
        assert same(adapters.load(folder, config), trained)
        merged = tiny.merge(lora.join(base, trained), config.lora.scale)
        exported = huggingface.load_params(tmp_path / "whole" / player, config.base)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), exported, merged)
    moments = [x for x in jax.tree.leaves(whole.agent.state.opt_state) if x.ndim]
    assert {x.dtype.name for x in moments} == {"bfloat16"}
    assert all(line["agent/sampler_trainer_logp_gap"] < 1e-4 for line in lines(tmp_path / "whole")[1:])
