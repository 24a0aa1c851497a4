import json
import re
import signal
import subprocess
import sys
import time

import pytest

from genenv_jax.experiment import runner as module
from genenv_jax.experiment.plan import make_plan
from genenv_jax.experiment.runner import Runner
from genenv_jax.results.suites import run_dir
from tests.commands import ROOT
from tests.experiment.suites import FAKE, arm, fake_suite


@pytest.fixture(autouse=True)
def polled_often(monkeypatch):
    monkeypatch.setattr(module, "_POLL", 0.01)


def runner(suite, workdir, lines=None):
    lines = [] if lines is None else lines
    return Runner(make_plan(suite), workdir, FAKE, lines.append)


def events(workdir):
    lines = (workdir / "events.txt").read_text().splitlines()
    return [(what, arm, int(seed), int(at)) for _, what, arm, seed, at in map(str.split, lines)]


def test_runs_seed_by_seed_and_keeps_what_is_finished(tmp_path):
    lines, suite = [], fake_suite()
    assert runner(suite, tmp_path, lines).run()
    starts = [event[1:] for event in events(tmp_path) if event[0] == "start"]
    assert starts == [("a", 3, 0), ("b", 3, 0), ("a", 5, 0), ("b", 5, 0)]
    plan = make_plan(suite)
    assert all(plan.is_done(tmp_path, *run) for run in plan.runs())
    finished = [line for line in lines if "finished in" in line]
    assert [line.split()[0] for line in finished] == ["[1/4]", "[2/4]", "[3/4]", "[4/4]"]
    assert all(re.search(r"held-out 0\.\d+ → 0\.\d+", line) for line in finished)
    again = []
    assert runner(suite, tmp_path, again).run()
    assert again == ["4 of 4 runs are finished already"] and len(events(tmp_path)) == 8


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [("fails", r"bad seed 3: FAILED \(exit code 3\)"), ("short", r"ended at epoch 3 of 4")],
)
def test_a_failed_run_is_reported_and_stops_no_other(tmp_path, behaviour, said):
    suite = fake_suite(seeds=(3,), bad=arm(0.3, behaviour), good=arm(0.1))
    lines = []
    one = runner(suite, tmp_path, lines)
    assert not one.run()
    assert one.failed == [("bad", 3)]
    assert any(re.search(said, line) for line in lines)
    if behaviour == "fails":
        assert "    error: it was not to be" in lines
    assert "    that overwrite [31meach other" in lines  # no control characters
    plan = make_plan(suite)
    assert plan.is_done(tmp_path, "good", 3) and not plan.is_done(tmp_path, "bad", 3)
    assert not runner(suite, tmp_path).run()  # a failed run is tried again
    assert sum(e[:3] == ("start", "bad", 3) for e in events(tmp_path)) == 2


def test_the_first_run_of_a_seed_goes_ahead_and_others_fill_in(tmp_path):
    suite = fake_suite(a=arm(0.3, "slow"), b=arm(0.1), c=arm(0.2))
    suite.jobs = 2
    assert runner(suite, tmp_path).run()
    order = [event[1:3] for event in events(tmp_path) if event[0] == "start"]
    # b of seed 3 waits for a's first line, so that the free process takes the other seed.
    assert set(order[:2]) == {("a", 3), ("a", 5)} and len(set(order)) == 6
    at = {}
    for line in (tmp_path / "events.txt").read_text().splitlines():
        when, what, name, seed, _ = line.split()
        at[what, name, seed] = float(when)
    assert at["start", "a", "5"] < at["end", "a", "3"]  # two at a time
    assert at["start", "b", "3"] > at["start", "a", "3"] + 0.3  # a's first line was there


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_passed_on_and_the_suite_continues(tmp_path, signum):
    suite = "fake_suite(seeds=(3,), a=arm(0.3, 'slow'), b=arm(0.1, 'slow'))"
    code = (
        "import pathlib\n"
        "from genenv_jax.experiment.plan import make_plan\n"
        "from genenv_jax.system import signals\n"
        "from genenv_jax.experiment.runner import Runner\n"
        "from tests.experiment.suites import FAKE, arm, fake_suite\n"
        f"suite = {suite}\n"
        "suite.jobs = 2\n"
        "with signals.ending(*signals.BOTH):\n"
        f"    Runner(make_plan(suite), pathlib.Path({str(tmp_path)!r}), FAKE).run()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    metrics = run_dir(tmp_path, "a", 3) / "metrics.jsonl"
    while not (metrics.exists() and metrics.read_text().count("\n") >= 2):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signum)
    said, _ = process.communicate(timeout=30)
    assert process.returncode == 128 + signum
    assert re.search(r"a seed 3: interrupted after epoch [1-3]", said)
    assert not any(event[0] == "end" for event in events(tmp_path))
    config = eval(suite)
    config.jobs, lines = 4, []  # the number of processes may change
    assert runner(config, tmp_path, lines).run()
    assert any("a seed 3: continues after epoch" in line for line in lines)
    assert [json.loads(x)["step"] for x in metrics.read_text().splitlines()] == [0, 1, 2, 3, 4]


def test_a_run_that_outlives_its_suite_keeps_the_lock(tmp_path):
    one = runner(fake_suite(), tmp_path)
    with one._lock() as lock:
        orphan = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(lock,))
    with pytest.raises(ValueError, match="is in use"):
        one.run()
    orphan.communicate(b"\n")
    with one._lock():
        pass
