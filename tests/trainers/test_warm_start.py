"""The warm start of a given model: what it learns from, what it keeps, and where it is kept."""

import json
import math
import shutil
import threading
import time

import jax
import numpy as np
import pytest
import safetensors.numpy

from genenv_jax import play, supervised
from genenv_jax.benchmarks.demonstrations import seed_demonstrations, split_seeds
from genenv_jax.config import validate
from genenv_jax.experiment.arms import ARMS
from genenv_jax.models.language_model import LanguageModel
from genenv_jax.models.scoring import CompletionBatch, score_completions
from genenv_jax.players import build, learner
from genenv_jax.run import digests
from genenv_jax.run.checkpoint import Checkpoints
from genenv_jax.sampling.sampler import pad_rows
from genenv_jax.trainers.warm_start import Example, _check_special_tokens
from tests.commands import call
from tests.runs import lines, run, toy_config

SETTINGS = {
    "model.make.vocab_size": 0, "warm_start.steps": 40, "warm_start.batch_size": 8,
    "warm_start.micro_batches": 2, "warm_start.validate_every": 10, "warm_start.learning_rate": 1e-2,
    "warm_start.validation_share": 0.2, "limits.prompt_buckets": (48,),
}  # fmt: skip


@pytest.fixture(scope="module")
def given(cache):
    """A model that has learnt nothing: what `model.path` names in these tests."""
    config = validate(toy_config(cache, {"warm_start.steps": 0}))
    return supervised.base_model(config, build.make_benchmark(config), build.open_mesh(config))


def opened(cache, given, **overrides):
    """The configuration of a warm start, the toy benchmark and the mesh."""
    config = validate(toy_config(cache, SETTINGS | {"model.path": str(given)} | overrides))
    return config, build.make_benchmark(config), build.open_mesh(config)


def warm_start(cache, given, **overrides):
    """The trained directory, and the toy benchmark."""
    config, benchmark, mesh = opened(cache, given, **overrides)
    return supervised.base_model(config, benchmark, mesh), benchmark


def losses(directory):
    return json.loads((directory / "warm_start.json").read_text())


def measured(directory, demonstrations):
    """Nats per token of a model directory on demonstrations, one at a time."""
    model = LanguageModel.load(directory)
    params = model.load_params()
    total = tokens = 0.0
    for d in demonstrations:
        answer = [*model.encode(*d.completions), model.eos_ids[0]]
        prompt, length = pad_rows([model.encode_messages(d.messages)], 128, 1)
        completion, count = pad_rows([answer], 32, 1)
        batch = CompletionBatch(prompt, length, completion[:, None], count[:, None])
        total -= float(score_completions(params, batch, model.config).sum())
        tokens += len(answer)
    return total / tokens


@pytest.mark.parametrize("rank", [0, pytest.param(4, marks=pytest.mark.slow)])
def test_a_given_model_learns_from_the_seeds(cache, given, rank, monkeypatch):
    """All parameters, or adapters: the loss falls, and the model of the best step is written."""
    options = {"lora.rank": rank}
    directory, benchmark = warm_start(cache, given, **options)
    found = losses(directory)
    first, best = found["losses"][0], found["losses"][found["best"] // 10]
    assert found["best"] > 0 and best["step"] == found["best"]
    of_both = seed_demonstrations(benchmark, split_seeds(benchmark, 0.2)[1], 1, np.random.default_rng(0))
    for role in ("agent", "simulator"):
        assert best[f"validation/{role}"] < first[f"validation/{role}"] - (0.1 if rank else 1.0)
    # The agent's demonstrations are not random.
    agents = [d for d in of_both if d.role == "agent"]
    assert measured(given, agents) == pytest.approx(first["validation/agent"], abs=1e-4)
    assert measured(directory, agents) == pytest.approx(best["validation/agent"], abs=1e-4)
    # A second run takes it from the cache, also as an arm with another number of variations.
    monkeypatch.setattr(supervised, "fine_tune", None)
    for changed in ({}, {"simulator.variations": 5}):
        assert warm_start(cache, given, **options, **changed)[0] == directory


def test_the_roles_take_turns(cache, given, monkeypatch):
    """Steps of either role have equally many completions; a step's parts, equally many prompts."""
    make, steps = learner.make_supervised_step, []

    def recording(config, optimizer, parts):
        step = make(config, optimizer, parts)

        def recorded(state, frozen, batch):
            rows = np.asarray(batch.completion_lengths)
            steps.append((parts, *rows.shape, int((rows > 0).sum())))
            return step(state, frozen, batch)

        return recorded

    monkeypatch.setattr(learner, "make_supervised_step", recording)
    warm_start(cache, given, **{"warm_start.micro_batches": 4, "warm_start.steps": 10})
    assert len(steps) == 10
    assert {step[:3] for step in steps[::2]} == {(4, 8, 1)}
    assert {step[:3] for step in steps[1::2]} == {(1, 2, 4)}
    assert all(filled == 8 for *_, filled in steps[::2])


@pytest.mark.parametrize("rank", [2, pytest.param(0, marks=pytest.mark.slow)])
def test_the_simulator_alone(cache, given, rank, tmp_path):
    """The agent starts from the given model; the simulator has a base of its own."""
    settings = SETTINGS | {"model.path": str(given), "warm_start.roles": "simulator", "lora.rank": rank}
    settings |= {"warm_start.steps": 10, "simulator.mixture": 0.5, "simulator.kl_coef": 0.01}
    own = opened(cache, given, **settings)
    assert supervised.base_model(*own) == given
    tuned = supervised.base_model(*own, "simulator")
    _, *policies = play.policies(*own[:2], "", "")
    assert [policy.model.path for policy in policies] == [given, tuned]
    first, *_, last = losses(tuned)["losses"]
    assert set(first) == {"step", "validation/simulator"}
    assert last["validation/simulator"] < first["validation/simulator"]
    started = run(cache, tmp_path / "run", epochs=1, **settings)
    for player, start in ((started.agent, given), (started.simulator, tuned)):
        base = LanguageModel.load(start).load_params()
        assert all(jax.tree.leaves(jax.tree.map(np.array_equal, base, player.reference.params)))
    assert started.simulator.trained and started.simulator.model.path == tuned
    assert lines(tmp_path / "run")[-1]["step"] == 1
    run(cache, tmp_path / "run", epochs=2, **settings)  # resumes
    assert lines(tmp_path / "run")[-1]["step"] == 2


def test_a_simulator_that_writes_nothing_is_not_trained(cache, given, tmp_path, monkeypatch):
    monkeypatch.setattr(supervised, "fine_tune", None)
    settings = SETTINGS | ARMS["seeds"] | {"model.path": str(given), "warm_start.roles": "simulator"}
    started = run(cache, tmp_path, epochs=1, **settings)
    assert started.simulator.reference is started.agent.reference and started.agent.model.path == given


def test_a_made_model_learns_both_roles(cache):
    with pytest.raises(ValueError, match=r"config\.warm_start\.roles = 'simulator': expected 'both'"):
        validate(toy_config(cache, {"warm_start.roles": "simulator"}))


@pytest.mark.slow
def test_the_step_with_the_lowest_validation_loss_is_kept(cache, given):
    """Few seeds and many passes: the validation loss rises again."""
    options = {"benchmark.num_seeds": 8, "warm_start.validation_share": 0.5}
    options |= {"warm_start.steps": 200, "warm_start.validate_every": 20}
    directory, _ = warm_start(cache, given, **options)
    found = losses(directory)
    means = [np.mean([r["validation/agent"], r["validation/simulator"]]) for r in found["losses"]]
    assert found["best"] == 20 * int(np.argmin(means)) < 200


@pytest.mark.slow
def test_it_depends_on_what_it_is_made_of(cache, given):
    """Another setting leads to another directory."""
    few = {"warm_start.steps": 4, "warm_start.validate_every": 2}
    first, _ = warm_start(cache, given, **few)
    for other in ({"warm_start.steps": 2}, {"benchmark.num_seeds": 32}, {"seed": 1}):
        assert warm_start(cache, given, **few | other)[0] != first


def test_a_killed_one_goes_on(cache, given, monkeypatch):
    """Killed after its second measurement, it resumes and reaches the same numbers."""
    first, _ = warm_start(cache, given)
    config, benchmark, mesh = opened(cache, given)
    again = first.with_name("killed")
    with monkeypatch.context() as patch:
        save, saves = Checkpoints.save, []

        def save_and_die(self, *args):
            save(self, *args)
            saves.append(args[0])
            if len(saves) == 2:
                self.close()
                raise KeyboardInterrupt

        patch.setattr(Checkpoints, "save", save_and_die)
        with pytest.raises(KeyboardInterrupt):
            supervised.fine_tune_model(config, benchmark, given, again, mesh)
    unfinished = first.with_name(f".{first.name}")
    assert saves == [10, 20] and unfinished.is_dir() and not again.exists()
    steps = []
    monkeypatch.setattr(Checkpoints, "save", lambda self, step, *_: steps.append(step))
    supervised.fine_tune_model(config, benchmark, given, again, mesh)
    assert steps == [30] and not unfinished.exists()
    unfinished.mkdir()  # as a kill after the last rename leaves it
    assert warm_start(cache, given)[0] == first and not unfinished.exists()
    weights = [(path / "model.safetensors").read_bytes() for path in (first, again)]
    assert weights[0] == weights[1] and losses(first) == losses(again)


def test_two_runs_do_not_make_it_at_once(cache, given, monkeypatch, capsys):
    """The second waits, says so, and takes what the first has made."""
    first, _ = warm_start(cache, given)
    config, benchmark, mesh = opened(cache, given)
    again, held = first.with_name("at-once"), threading.Event()

    def other():
        with supervised._alone(first.with_name(f".{first.name}")):
            held.set()
            time.sleep(1)
            shutil.copytree(first, again)

    monkeypatch.setattr(supervised, "fine_tune", None)
    thread = threading.Thread(target=other)
    thread.start()
    held.wait()
    supervised.fine_tune_model(config, benchmark, given, again, mesh)
    thread.join()
    assert "another run is making this model" in capsys.readouterr().err
    assert not first.with_name(f".{first.name}.lock").exists()


@pytest.mark.slow
def test_without_a_validation_the_last_step_is_kept(cache, given):
    directory, _ = warm_start(cache, given, **{"warm_start.validation_share": 0.0})
    found = losses(directory)
    assert found["best"] == 40 and all(set(r) <= {"step", "loss"} for r in found["losses"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"warm_start.learning_rate": 3.0},
         "the warm start('s validation loss rose from .* in its first 10 steps| diverged).*"
         "config.warm_start.learning_rate"),
        ({"limits.agent_response": 1, "limits.simulator_response": 1}, "none of .* fits"),
        ({"limits.agent_prompt": 3}, "agent_prompt"),
        ({"warm_start.micro_batches": 3}, "micro_batches = 3: expected a divisor of batch_size"),
        ({"warm_start.validation_share": 0.9}, "validation_share"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_said(cache, given, settings, message):
    with pytest.raises(ValueError, match=message):
        warm_start(cache, given, **settings)


@pytest.mark.parametrize("tied", [True, False])
def test_adapters_cannot_write_tokens_without_training(cache, given, tmp_path, tied):
    """A special token that the given model shares its row of the output matrix with others is named."""
    spoiled = shutil.copytree(given, tmp_path / "spoiled")
    for name in (digests.NAME, "warm_start.json"):
        (spoiled / name).unlink(missing_ok=True)
    tensors = safetensors.numpy.load_file(spoiled / "model.safetensors")
    row = LanguageModel.load(spoiled).eos_ids[0]
    matrix = tensors["model.embed_tokens.weight"].copy()
    others = [i for i in range(len(matrix)) if i != row]
    matrix[others[:16]] = matrix[row] * 1.01
    tensors["model.embed_tokens.weight" if tied else "lm_head.weight"] = matrix
    safetensors.numpy.save_file(tensors, spoiled / "model.safetensors", {"format": "pt"})
    config = json.loads((spoiled / "config.json").read_text())
    (spoiled / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": tied}))
    with pytest.raises(
        ValueError, match=r"have <\|im_end\|>, which the model was never trained on.*tools_in"
    ):
        warm_start(cache, spoiled, **{"lora.rank": 2})
    # One that only an environment writes is not to be learnt.
    model = LanguageModel.load(spoiled)
    frozen = model.load_params()
    masked = {"agent": [Example([1], [[row, others[-1]]], [[False, True]])]}
    _check_special_tokens(model, frozen, masked)
    masked["agent"][0].loss_mask[0][0] = True
    with pytest.raises(ValueError, match="never trained"):
        _check_special_tokens(model, frozen, masked)
    matrix[others[0]] = 1  # fifteen are left
    safetensors.numpy.save_file(tensors, spoiled / "model.safetensors", {"format": "pt"})
    assert losses(warm_start(cache, spoiled, **{"lora.rank": 2, "warm_start.steps": 2})[0])["losses"]


def test_the_command(cache, given, tmp_path):
    """It trains and writes; with no steps it says that there is nothing to do."""
    flags = [f"--config=tests/run_toy.py:{cache}", f"--config.model.path={given}"]
    flags += ["--config.model.make.vocab_size=0", f"--out={tmp_path / 'out'}"]
    result = call("supervised", *flags, "--config.warm_start.steps=0")
    assert result.returncode == 2 and "config.warm_start.steps = 0" in result.stderr
    short = ("--config.warm_start.steps=10", "--config.warm_start.validate_every=5")
    result = call("supervised", *flags, *short)
    assert result.returncode == 0, result.stderr
    best = losses(tmp_path / "out")["best"]
    assert best in (5, 10)
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert f"- best step: {best}\n" in card and str(given) not in card
    assert LanguageModel.load(tmp_path / "out").load_params()


@pytest.mark.slow
def test_on_a_mesh_it_learns_the_same(cache, given):
    one, _ = warm_start(cache, given)
    sizes = {"mesh.data": 2, "mesh.fsdp": 2, "simulator.minibatch_size": 4}
    config, benchmark, mesh = opened(cache, given, **sizes)
    out = one.with_name("on-a-mesh")
    supervised.fine_tune_model(config, benchmark, given, out, mesh)
    for ours, theirs in zip(losses(one)["losses"], losses(out)["losses"], strict=True):
        for name, value in ours.items():
            assert math.isclose(value, theirs[name], rel_tol=1e-3, abs_tol=1e-3), name


@pytest.mark.slow
def test_a_run_starts_from_it(cache, given, tmp_path):
    """Both players begin as the warm start left the model."""
    settings = SETTINGS | {"model.path": str(given)}
    directory, _ = warm_start(cache, given)
    experiment = run(cache, tmp_path / "run", epochs=1, **settings)
    base = LanguageModel.load(directory).load_params()
    equal = jax.tree.map(np.array_equal, base, experiment.agent.reference.params)
    assert all(jax.tree.leaves(equal)) and lines(tmp_path / "run")[-1]["step"] == 1
