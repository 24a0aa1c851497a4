"""Checkpoints within an epoch: a run that is killed goes on after the agent's last batch that one has, to the
bytes of a run that was never killed and that wrote none."""

import json
import os
import signal
import subprocess
import sys

import pytest

from genenv_jax.benchmarks import registry
from genenv_jax.run.checkpoint import Checkpoints
from genenv_jax.trainers.agent import AgentTrainer
from tests.commands import COMPILE_FAST, ROOT
from tests.run.fake_trackers import FakeTracker, install
from tests.runs import EPISODES, Compiled, contents, forget_steps, run, same

FEW = {"epochs": 2, "agent.batch_size": 4}
OFTEN = {"checkpoint.minutes": 1e-9}  # after every batch


class Killed(BaseException):
    pass


def struck(cache, workdir, number, how, **settings):
    """A run to which `how` happens in its `number`-th batch; (epoch, first task) of all that it begins."""
    play, begun = AgentTrainer._play, []

    def striking(self, epoch, start, *rest):
        begun.append((epoch, start))
        if len(begun) == number:
            how()
        play(self, epoch, start, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AgentTrainer, "_play", striking)
        try:
            run(cache, workdir, **settings)
        except (Killed, SystemExit):
            assert len(begun) == number
    return begun


def kill():
    raise Killed


def assert_same(resumed, workdir, unbroken):
    experiment, reference = unbroken
    assert contents(workdir) == contents(reference)
    for player in ("agent", "simulator"):
        assert same(*(getattr(e, player).state for e in (resumed, experiment)))
    assert not list((workdir / "within_epoch").iterdir())  # of no use any more


@pytest.fixture(scope="module")
def unbroken(cache, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("unbroken")
    return run(cache, workdir, **FEW), workdir


@pytest.mark.parametrize("number", [2, pytest.param(1, marks=pytest.mark.slow), 8])
def test_it_goes_on_after_the_last_batch(cache, tmp_path, unbroken, monkeypatch, number):
    """In the first epoch and in the second; nothing is compiled once it has begun."""
    forget_steps()
    begun = struck(cache, tmp_path, number, kill, **FEW, **OFTEN)
    compiled, steps = Compiled(monkeypatch), []
    play = AgentTrainer._play

    def noting(self, epoch, start, *rest):
        steps.append((epoch, start))
        play(self, epoch, start, *rest)

    monkeypatch.setattr(AgentTrainer, "_play", noting)
    resumed = run(cache, tmp_path, **FEW, **OFTEN)
    assert steps[0] == begun[-1] and len(begun) + len(steps) == 11
    assert compiled.programs == [0, 0][begun[-1][0] :]
    assert_same(resumed, tmp_path, unbroken)


def test_it_goes_on_in_any_round(cache, tmp_path):
    """Each run is killed in its second batch."""
    settings = FEW | {"epochs": 1, "agent.batch_size": 6, "simulator.updates_per_epoch": 3}
    unbroken = run(cache, tmp_path / "whole", **settings), tmp_path / "whole"
    batches = struck(cache, tmp_path / "count", 99, kill, **settings)
    assert {number for number, _ in batches} == {0, 1, 2}
    resumed_at = []
    while len(resumed_at) < len(batches) - 1:
        begun = struck(cache, tmp_path / "parts", 2, kill, **settings, **OFTEN)
        assert begun == batches[len(resumed_at) :][:2]
        resumed_at.append(begun[-1])
    assert_same(run(cache, tmp_path / "parts", **settings), tmp_path / "parts", unbroken)


CASES = {
    "informative groups, of which some wait": {"agent.groups": "informative"},
    "tasks of all kinds": {
        "agent.base_share": 0.2, "curriculum.growth.share": 0.5, "evaluation.reroll": 4,
        "simulator.mixture": 0.25, "verification.near_duplicate": 0.8, "verification.pool_epochs": 2,
    },
    "asked for a success rate": {"simulator.method": "hindsight", "simulator.mixture": 0.5},
    "by policy gradient": {"simulator.method": "grpo", "agent.update_epochs": 2},
    "several rounds": {
        "simulator.updates_per_epoch": 2, "simulator.method": "hindsight", "curriculum.growth.share": 0.5,
        "verification.pool_epochs": 1, "evaluation.reroll": 4,
    },
    "adapters that wait in host memory": {
        "lora.rank": 4, "agent.learning_rate": 1e-2, "memory.offload": "phase",
        "memory.moments": "bfloat16",
    },
    "all weights wait in host memory": {"memory.offload": "phase"},
    "another schedule, in bfloat16": {
        "optimizer.warmup_steps": 3, "optimizer.decay_steps": 9, "model.dtype": "bfloat16",
    },
    "oracle": {"tasks.source": "oracle"},
    "static": {"tasks.source": "static"},
    "teacher": {"tasks.source": "teacher"},
    "a limit that is passed within the epoch": {"rollouts": 80},
    "episodes": EPISODES | {"agent.batch_size": 4},
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_whatever_the_epoch_has_gathered(cache, tmp_path, monkeypatch, case):
    if case == "episodes":
        monkeypatch.setitem(registry._BENCHMARKS, "toy", ("tests.toy", "Talking"))
    settings = FEW | CASES[case]
    unbroken = run(cache, tmp_path / "whole", **settings), tmp_path / "whole"
    batches = struck(cache, tmp_path / "count", 99, kill, **settings)
    second = sum(epoch == 0 for epoch, _ in batches) + 2
    for number in (3, second) if second < len(batches) else (3,):
        struck(cache, tmp_path / "parts", number, kill, **settings, **OFTEN)
    resumed = run(cache, tmp_path / "parts", **settings)  # which writes none itself
    assert_same(resumed, tmp_path / "parts", unbroken)


def test_sigterm_within_a_batch_ends_the_run_after_it(cache, tmp_path, unbroken):
    """With a checkpoint, though none was due."""
    seldom = FEW | {"checkpoint.minutes": 1e9}
    begun = struck(cache, tmp_path, 2, lambda: signal.raise_signal(signal.SIGTERM), **seldom)
    assert begun == [(0, 0), (0, 4)]
    (saved,) = (tmp_path / "within_epoch").iterdir()
    assert saved.name == "8"  # of the first epoch's tasks
    assert_same(run(cache, tmp_path, **seldom), tmp_path, unbroken)


@pytest.mark.parametrize("damaged", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_one_that_is_damaged_or_older_than_the_epochs_is_not_taken(
    cache, tmp_path, unbroken, monkeypatch, caplog, damaged
):
    """The second epoch is repeated as a whole; checkpoints at the ends of epochs are kept beside it."""
    struck(cache, tmp_path, 8, kill, **FEW, **OFTEN)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["1"]
    (saved,) = (tmp_path / "within_epoch").iterdir()
    assert saved.name == "1000008"
    if damaged:
        for file in saved.glob("agent/**/d/*"):
            file.write_bytes(b"damaged")
    else:
        saved.rename(saved.with_name("12"))  # of the first epoch
    begun = struck(cache, tmp_path, 99, kill, **FEW, **OFTEN)
    assert begun[0] == (1, 0)
    assert ("checkpoint 1000008 cannot be taken" in caplog.text) is damaged
    assert contents(tmp_path) == contents(unbroken[1])


def test_what_is_written_in_the_background_stays_as_it_was(cache, tmp_path, monkeypatch):
    save, saved = Checkpoints.save, []

    def noting(self, epoch, states, host, *rest):
        saved.append((host, json.dumps(host)))
        save(self, epoch, states, host, *rest)

    monkeypatch.setattr(Checkpoints, "save", noting)
    run(cache, tmp_path, **FEW | OFTEN | {"epochs": 1})
    assert len(saved) == 6
    assert all(json.dumps(host) == text for host, text in saved)


def test_trackers_are_given_the_epochs_own_rows(cache, tmp_path, unbroken, monkeypatch):
    """Of all its answers, also of those that were given before the kill."""
    given = []
    for name, number in (("whole", 99), ("parts", 4)):
        (tracker,) = install(monkeypatch, wandb=FakeTracker)
        settings = FEW | OFTEN | {"epochs": 1, "tracking.trackers": ("wandb",)}
        struck(cache, tmp_path / name, number, kill, **settings)
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
    if len(sealed) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    seal(directory, *rest, **options)

digests.seal = strike
get_config()
run(sys.argv[1], sys.argv[2], **{settings})
"""


def test_killed_while_one_is_written_it_goes_on_from_the_one_before(cache, tmp_path, unbroken):
    """Its arrays are on the disk, and it has no digests and no name yet."""
    code = STRIKES.replace("{settings}", repr(FEW | OFTEN))
    environment = os.environ | {
        "XLA_FLAGS": COMPILE_FAST,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
    }
    command = [sys.executable, "-c", code, str(cache), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=600)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    names = sorted(path.name for path in (tmp_path / "within_epoch").iterdir())
    assert names[1] == "8" and names[0].startswith("12.orbax-checkpoint-tmp")
    assert_same(run(cache, tmp_path, **FEW, **OFTEN), tmp_path, unbroken)
