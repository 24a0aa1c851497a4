"""Mid-epoch checkpoints: a killed run continues after the last batch of the agent that one covers, to the
bytes of a run that was never killed and wrote none."""

import json
import math
import os
import signal
import subprocess
import sys

import pytest

from genenv_jax.run.checkpoint import Checkpoints
from genenv_jax.trainers.agent import AgentTrainer
from tests import toy
from tests.commands import COMPILE_FAST, ROOT
from tests.run.fake_trackers import FakeTracker, install
from tests.runs import OFTEN, Compiled, contents, kill, lines, run, same, struck

TWO = {"epochs": 2}  # of two or three batches each: the accepted tasks depend on the machine's rounding


def assert_same(resumed, workdir, unbroken):
    experiment, reference = unbroken
    assert contents(workdir) == contents(reference)
    for player in ("agent", "simulator"):
        assert same(*(getattr(e, player).state for e in (resumed, experiment)))
    assert not list((workdir / "within_epoch").iterdir())  # no longer needed


def batches(workdir):
    """How many batches of at most eight tasks each epoch had."""
    return [math.ceil(row["agent/tasks"] / 8) for row in lines(workdir) if "agent/tasks" in row]


@pytest.fixture(scope="module")
def unbroken(cache, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("unbroken")
    return run(cache, workdir, **TWO), workdir


@pytest.mark.parametrize("place", [(0, 8), pytest.param((0, 0), marks=pytest.mark.slow), (1, 8)])
def test_it_goes_on_after_the_last_batch(cache, tmp_path, unbroken, monkeypatch, place):
    """Killed in either epoch; nothing is compiled after the resumed run begins."""
    begun = struck(cache, tmp_path, place, kill, **TWO, **OFTEN)
    compiled, steps = Compiled(monkeypatch), []
    play = AgentTrainer._play

    def noting(self, epoch, start, *rest):
        steps.append((epoch, start))
        play(self, epoch, start, *rest)

    monkeypatch.setattr(AgentTrainer, "_play", noting)
    resumed = run(cache, tmp_path, **TWO, **OFTEN)
    assert steps[0] == begun[-1] and len(begun) + len(steps) == 1 + sum(batches(unbroken[1]))
    assert compiled.programs == [0, 0][begun[-1][0] :]
    assert_same(resumed, tmp_path, unbroken)


def test_what_the_simulator_is_asked_for_survives(cache, tmp_path, monkeypatch):
    """The second epoch's difficulties follow from the first epoch's attempts: such weights pick the best."""
    monkeypatch.setattr(toy, "Drawing", toy.Asking)
    steep = TWO | {"simulator.rwr_temperature": 1e6}
    unbroken = run(cache, tmp_path / "whole", **steep), tmp_path / "whole"
    assert struck(cache, tmp_path / "parts", (1, 8), kill, **steep, **OFTEN)[-1] == (1, 8)
    resumed = run(cache, tmp_path / "parts", **steep, **OFTEN)
    assert_same(resumed, tmp_path / "parts", unbroken)
    assert resumed.source.state() == unbroken[0].source.state()
    assert resumed.source.state()["difficulties"]
    assert {row["context_difficulty"] for row in lines(tmp_path / "parts", "tasks.jsonl")} == {1, 2, 3}


def test_sigterm_within_a_batch_ends_the_run_after_it(cache, tmp_path, unbroken):
    """A checkpoint is written, though none was due."""
    seldom = TWO | {"checkpoint.minutes": 1e9}
    begun = struck(cache, tmp_path, (0, 8), lambda: signal.raise_signal(signal.SIGTERM), **seldom)
    assert begun == [(0, 0), (0, 8)]
    (saved,) = (tmp_path / "within_epoch").iterdir()
    assert saved.name == "16"  # tasks of the first epoch
    assert_same(run(cache, tmp_path, **seldom), tmp_path, unbroken)


@pytest.mark.parametrize("damaged", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_one_that_is_damaged_or_older_than_the_epochs_is_not_taken(
    cache, tmp_path, unbroken, monkeypatch, caplog, damaged
):
    """The whole second epoch is repeated; end-of-epoch checkpoints are kept separately."""
    struck(cache, tmp_path, (1, 8), kill, **TWO, **OFTEN)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["1"]
    (saved,) = (tmp_path / "within_epoch").iterdir()
    assert saved.name == "1000008"
    if damaged:
        for file in saved.glob("agent/**/d/*"):
            file.write_bytes(b"damaged")
    else:
        saved.rename(saved.with_name("16"))  # of the first epoch
    assert struck(cache, tmp_path, None, kill, **TWO, **OFTEN)[0] == (1, 0)
    assert ("checkpoint 1000008 cannot be restored" in caplog.text) is damaged
    assert contents(tmp_path) == contents(unbroken[1])


def test_what_is_written_in_the_background_stays_as_it_was(cache, tmp_path, monkeypatch):
    save, saved = Checkpoints.save, []

    def noting(self, epoch, states, host, *rest):
        saved.append((host, json.dumps(host)))
        save(self, epoch, states, host, *rest)

    monkeypatch.setattr(Checkpoints, "save", noting)
    run(cache, tmp_path, **TWO | OFTEN | {"epochs": 1})
    assert len(saved) == 1 + batches(tmp_path)[0] > 2
    assert all(json.dumps(host) == text for host, text in saved)


def test_trackers_are_given_the_epochs_own_rows(cache, tmp_path, unbroken, monkeypatch):
    """The rows cover all its answers, including those before the kill."""
    given = []
    for name, place in (("whole", None), ("parts", (0, 8))):
        (tracker,) = install(monkeypatch, wandb=FakeTracker)
        settings = TWO | OFTEN | {"epochs": 1, "tracking.trackers": ("wandb",)}
        struck(cache, tmp_path / name, place, kill, **settings)
        run(cache, tmp_path / name, **settings)
        given.append([(step, tables) for step, _, tables, _ in tracker.logged])
    assert given[0] == given[1] and [step for step, _ in given[0]] == [0, 1]


STRIKES = """
import os, signal, sys
from genenv_jax.run import digests
from tests.run_toy import get_config
from tests.runs import run

seal, sealed = digests.seal, []

def strike(directory, *rest, **options):
    sealed.append(directory)
    if len(sealed) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    seal(directory, *rest, **options)

digests.seal = strike
get_config()
run(sys.argv[1], sys.argv[2], **{settings})
"""


@pytest.mark.slow
def test_killed_while_one_is_written_it_goes_on_from_the_one_before(cache, tmp_path, unbroken):
    """Its arrays are on disk, but it has no digests and no name yet."""
    code = STRIKES.replace("{settings}", repr(TWO | OFTEN))
    environment = os.environ | {
        "XLA_FLAGS": COMPILE_FAST,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
    }
    command = [sys.executable, "-c", code, str(cache), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=600)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    names = sorted(path.name for path in (tmp_path / "within_epoch").iterdir())
    assert names[1] == "8" and names[0].startswith("16.orbax-checkpoint-tmp")
    assert_same(run(cache, tmp_path, **TWO, **OFTEN), tmp_path, unbroken)
