"""Runs of the toy benchmark in several processes, each made once for the tests of a module."""

import time

import pytest

from tests.parallel.launch import end, finish, toy_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The same two epochs in one process and in two."""
    directory = tmp_path_factory.mktemp("runs")
    one, two = directory / "one", directory / "two"
    finish(one, toy_run(one, 1, "--config.epochs=2"))
    return one, two, finish(two, toy_run(two, 2, "--config.epochs=2"))


@pytest.fixture(scope="module")
def killed(runs):
    """A run of two processes that were killed outright after the first epoch's checkpoint."""
    one, _, _ = runs
    workdir = one.parent / "killed"
    started = toy_run(workdir, 2, "--config.epochs=2")
    deadline = time.monotonic() + 900
    while not (workdir / "checkpoints" / "1" / "_CHECKPOINT_METADATA").exists():
        assert time.monotonic() < deadline and all(p.poll() is None for p in started)
        time.sleep(0.05)
    for process in started:
        process.kill()
    end(started, workdir.with_suffix(".log"), 60)
    assert not (workdir / "agent").exists()
    return workdir
