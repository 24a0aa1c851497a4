"""Several real processes on this machine: they agree, share arrays and files, end together, and train to the
result of one process."""

import json
import re
import shutil
import signal
import time

import numpy as np
import pytest

from genenv_jax import supervised
from genenv_jax.config import validate
from genenv_jax.players.build import make_benchmark, open_mesh
from tests.parallel.launch import assert_equal_runs, end, finish, toy_run, workers
from tests.runs import EPISODES, lines, toy_config


def test_two_processes_share_arrays_decisions_and_files(tmp_path):
    codes, texts = end(workers(tmp_path), tmp_path / "output", 120)
    assert codes == [0, 0], texts
    said = [json.loads(text.splitlines()[-1]) for text in texts]
    x = np.arange(24, dtype=np.float32).reshape(8, 3)
    for i, result in enumerate(said):
        # Arrays: each process holds a part, and all of it comes back whole everywhere.
        assert result["local_shards"] == 2 and result["remote"]
        np.testing.assert_array_equal(result["x"], x)
        np.testing.assert_array_equal(result["n"], np.arange(8))
        assert result["total"] == x.sum() and result["untouched"] == 3
        noise = np.asarray(result["shifted"]) - x
        assert len(set(noise[:, 0].round(4))) == 8 and abs(noise).max() < 6
        assert result["shifted"] == said[0]["shifted"]
        # Agreements.
        assert result["gathered"] == ["process 0", "process 1"]
        assert result["again"] == ["process 0 again", "process 1 again"]
        assert result["agreed"] == "said by 0"
        assert result["broadcast"] == 9 * 256
        assert result["writer"] == (i == 0)
        assert "the settings differs" in result["different"]
        assert "process 1 has 'b = 1' where process 0 has 'b = 0'" in result["different"]
        # A workdir that is not shared.
        assert "own-1" in result["not_shared"] and "storage that all" in result["not_shared"]
        assert result["left"] == []
        # If one process cannot read its part of a checkpoint, none uses it.
        assert (result["restored"], result["host"]) == (2.0, {"finished": 2})
        assert (result["fallback"], result["fallback_host"]) == (1.0, {"finished": 1})
        assert result["steps"] == [1]
        # Models: one process may write its own, and one spread over both is written whole.
        source, alone, spread = result["models"]
        assert result["spread"] and alone == spread and len(source) > 1000
        # The teacher: one asks, all have its tasks, and all say why there are no more.
        taught = result["teacher"]
        assert len(taught["tasks"]) == 5 and taught["asked"] == (0 if i else 7)
        assert "7 of 9 tasks are written" in taught["failure"].replace(f"teacher-{i}", "")
        for name in ("tasks", "failure"):
            assert taught[name] == said[0]["teacher"][name]
        assert bool(taught["files"]) == (i == 0)
        # Outcomes of scoring: those of process 0, also where another would have failed.
        assert result["outcomes"] == said[0]["outcomes"]
    read, scores, again, inspected = said[0]["outcomes"]
    assert read == again == ["fine", "late", "never"]
    fine = ["score", [1.0, True, True, "in process 0", {}]]
    assert json.loads(scores) == [fine, fine, ["score", [0.0, False, False, "score_crash", {}]]]
    (first, task), (second, _), rejection = json.loads(inspected)
    assert first == second == "task" and task["answer"] == [1.5, None]
    assert task["messages"][0]["content"] == "fine in process 0"
    assert rejection[0] == "rejection" and rejection[1][0] == "verify_crash"
    assert "checkpoint 2 cannot be restored, trying the one before: process " in texts[0]
    assert "ocdbt.process_1" in texts[0]
    assert "cannot be restored" not in texts[1]  # said once


@pytest.mark.slow
@pytest.mark.parametrize("how", ["raise", "terminate"])
def test_the_end_of_one_process_is_the_end_of_all(tmp_path, how):
    started = workers(tmp_path, "--end", "raise" if how == "raise" else "wait")
    if how == "terminate":
        deadline = time.monotonic() + 60
        while not all((tmp_path / f"ready-{i}").exists() for i in range(2)):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        started[0].send_signal(signal.SIGTERM)
    codes, texts = end(started, tmp_path / "output", 60)
    if how == "raise":
        assert codes == [143, 1]
        assert "ValueError: this one gives up" in texts[1]
        assert "process 0 ends too: process 1 ended the run: ValueError: this one gives up" in texts[0]
    else:
        assert codes == [143, 143]
        assert texts[0].count("ended by SIGTERM; the same command continues from there") == 1
        assert "process 1 ends too: process 0 ended the run: it received SIGTERM" in texts[1]


@pytest.mark.slow
def test_two_processes_equal_one(runs):
    """Only the first one prints."""
    one, two, texts = runs
    assert_equal_runs(one, two)
    assert {p.name for p in two.iterdir()} == {p.name for p in one.iterdir()}
    assert "epoch 2/2  done" in texts[0] and "epoch" not in texts[1]
    assert "train base model" not in "".join(texts)  # the run of one process made it


@pytest.mark.slow
def test_killed_processes_continue_to_the_same_bytes(runs, killed, tmp_path):
    _, two, _ = runs
    workdir = two.parent / "resumed"
    shutil.copytree(killed, workdir)
    finish(workdir, toy_run(workdir, 2, "--config.epochs=2"))
    assert_equal_runs(workdir, two, tolerance=0.0)


@pytest.mark.slow
def test_a_signal_to_one_within_a_batch_ends_all_after_it(runs):
    """All write a checkpoint, from which they continue to the same bytes."""
    two = runs[1]
    workdir = two.parent / "signalled"
    settings = ["--config.epochs=2", "--config.checkpoint.minutes=1e-9"]
    started = toy_run(workdir, 2, *settings)
    deadline = time.monotonic() + 900
    while not (workdir / "within_epoch" / "8").exists():  # while they play the next batch
        assert time.monotonic() < deadline and all(p.poll() is None for p in started)
        time.sleep(0.01)
    started[1].send_signal(signal.SIGTERM)
    codes, texts = end(started, workdir.with_suffix(".log"), 60)
    assert codes == [143, 143], texts
    (saved,) = (workdir / "within_epoch").iterdir()
    assert int(saved.name) > 8
    finish(workdir, toy_run(workdir, 2, *settings))
    assert_equal_runs(workdir, two, tolerance=0.0)


@pytest.mark.slow
def test_one_process_continues_what_two_began(runs, killed):
    _, two, _ = runs
    workdir = two.parent / "resumed-by-one"
    shutil.copytree(killed, workdir)
    finish(workdir, toy_run(workdir, 1, "--config.epochs=2", mesh=(1, 2, 2)))
    assert_equal_runs(workdir, two, tolerance=1e-5)


@pytest.mark.slow
def test_two_processes_evaluate_as_one(runs):
    one, two, _ = runs
    for workdir, count in ((one, 1), (two, 2)):
        out = workdir.with_name(f"{workdir.name}-eval")
        texts = finish(out, toy_run(out, count, f"--model={one / 'agent'}", command="evaluate"))
        assert re.search(r"^test +greedy +accuracy ", texts[0], re.MULTILINE)
        assert "accuracy" not in "".join(texts[1:])
    for name in ("predictions.jsonl", "metrics.json"):
        first, second = (d.with_name(f"{d.name}-eval") / name for d in (one, two))
        assert first.read_bytes() == second.read_bytes()
        assert first.stat().st_size > 0


@pytest.mark.slow
def test_two_processes_play_the_episodes_of_one(tmp_path):
    settings = [f"--config.{name}={value}" for name, value in EPISODES.items()]
    for count in (1, 2):
        workdir = tmp_path / str(count)
        finish(workdir, toy_run(workdir, count, *settings, "--config.epochs=1", command="main:Talking"))
    assert_equal_runs(tmp_path / "1", tmp_path / "2")
    assert max(len(trace["answers"]) for trace in lines(tmp_path / "2", "d_train.jsonl")) > 1


@pytest.mark.slow
def test_a_mistake_ends_all_processes_with_its_line(runs):
    one, _, _ = runs
    workdir = one.parent / "mistaken"
    codes, texts = end(toy_run(workdir, 2, "--config.agent.batch_size=6"), workdir.with_suffix(".log"), 120)
    assert codes == [2, 2], texts  # starting again does not help
    assert any("config.agent.batch_size = 6: expected a multiple of" in text for text in texts)
    assert not any("Traceback" in text for text in texts), texts


@pytest.mark.slow
def test_two_processes_fine_tune_a_given_model(tmp_path):
    """Together they reach the losses of one process in a shared cache; with separate caches they refuse."""
    config = validate(toy_config(tmp_path / "given", {"warm_start.steps": 0}))
    given = supervised.base_model(config, make_benchmark(config), open_mesh(config))
    settings = [
        *(f"--config.model.path={given}", "--config.model.make.vocab_size=0"),
        *("--config.warm_start.steps=20", "--config.warm_start.validate_every=10"),
        *("--config.warm_start.batch_size=8", "--config.epochs=1"),
    ]
    found = []
    for count in (1, 2):
        caches = [tmp_path / f"models-{count}"] * count
        finish(tmp_path / str(count), toy_run(tmp_path / str(count), count, *settings, caches=caches))
        (notes,) = caches[0].rglob("warm_start.json")
        found.append([list(r.values()) for r in json.loads(notes.read_text())["losses"]])
    for one, two in zip(*found, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-3)
    workdir = tmp_path / "apart"
    started = toy_run(workdir, 2, *settings, caches=[tmp_path / "a", tmp_path / "b"])
    codes, texts = end(started, workdir.with_suffix(".log"), 300)
    assert codes == [2, 2], texts  # starting again does not help
    assert any("config.model.make.cache_dir=" in t and "storage that all" in t for t in texts)
