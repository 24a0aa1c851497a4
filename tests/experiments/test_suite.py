"""The plan and its child processes: order, resuming, failures, signals, and refusals by name."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

from genenv_jax.experiments import suite
from genenv_jax.experiments.suite import Runner, default_suite, is_done, make_plan, run_dir
from tests.experiments.fake_main import write_run

ROOT = pathlib.Path(__file__).resolve().parents[2]
ARMS = "tests/experiments/arms.py"
FAKE = (sys.executable, "-m", "tests.experiments.fake_main")


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(suite, "_POLL", 0.01)


def small_suite(**arms):
    config = default_suite()
    config.arms = arms or {"a": f"{ARMS}:0.3", "b": f"{ARMS}:0.1"}
    config.seeds = (3, 5)
    config.threshold_arm = next(iter(config.arms))
    config.bootstrap = 200
    return config


def runner(config, workdir, lines=None):
    lines = [] if lines is None else lines
    return Runner(make_plan(config), workdir, FAKE, lines.append)


def events(workdir):
    lines = (workdir / "events.txt").read_text().splitlines()
    return [(what, arm, int(seed), int(at)) for _, what, arm, seed, at in map(str.split, lines)]


def test_a_run_whose_rollouts_are_spent_is_finished(tmp_path):
    config, lines = small_suite(), []
    config.overrides = {"rollouts": 4_000}  # two of four epochs
    assert runner(config, tmp_path, lines).run()
    plan = make_plan(config)
    assert all(is_done(plan, tmp_path, *run) for run in plan.runs())
    assert suite.last_step(run_dir(tmp_path, "a", 3)) == 2
    assert suite.last_rollouts(run_dir(tmp_path, "a", 3)) >= 4_000
    assert runner(config, tmp_path, []).run() and len(events(tmp_path)) == 8


def test_runs_seed_by_seed_and_keeps_what_is_finished(tmp_path):
    lines = []
    config = small_suite()
    assert runner(config, tmp_path, lines).run()
    starts = [event[1:] for event in events(tmp_path) if event[0] == "start"]
    assert starts == [("a", 3, 0), ("b", 3, 0), ("a", 5, 0), ("b", 5, 0)]
    plan = make_plan(config)
    assert all(is_done(plan, tmp_path, *run) for run in plan.runs())
    finished = [line for line in lines if "finished in" in line]
    assert [line.split()[0] for line in finished] == ["[1/4]", "[2/4]", "[3/4]", "[4/4]"]
    assert all(re.search(r"held-out 0\.\d+ → 0\.\d+", line) for line in finished)
    assert all("left" in line for line in finished[:3]) and "left" not in finished[3]
    again = []
    assert runner(config, tmp_path, again).run()
    assert again == ["4 of 4 runs are finished already"] and len(events(tmp_path)) == 8


def test_overrides_and_seed_reach_the_runs(tmp_path):
    config = small_suite(a=f"{ARMS}:0.3")
    config.overrides = {"epochs": 2, "agent": {"group_size": 4}, "curriculum": {"alpha": 0.25}}
    one = runner(config, tmp_path)
    arguments = one.arguments("a", 5)
    for flag in ("epochs=2", "agent.group_size=4", "curriculum.alpha=0.25", "seed=5"):
        assert f"--config.{flag}" in arguments
    assert f"--config={ARMS}:0.3" in arguments
    assert f"--workdir={tmp_path / 'a' / 'seed-5'}" in arguments
    assert one.run()
    assert suite.last_step(run_dir(tmp_path, "a", 3)) == 2


def test_dotted_overrides_are_the_same_as_nested_ones():
    from ml_collections import ConfigDict

    config = small_suite()
    config.overrides = ConfigDict({"agent.group_size": 4}, allow_dotted_keys=True)
    assert make_plan(config).configs["a"].agent.group_size == 4


def test_a_run_without_its_marker_goes_on(tmp_path):
    config = small_suite()
    config.seeds = (3,)
    assert runner(config, tmp_path).run()
    directory = run_dir(tmp_path, "b", 3)
    (directory / suite.DONE).unlink()
    lines = (directory / "metrics.jsonl").read_text().splitlines(keepends=True)
    (directory / "metrics.jsonl").write_text("".join(lines[:3]))
    said = []
    assert runner(config, tmp_path, said).run()
    assert events(tmp_path)[-1] == ("end", "b", 3, 3)
    assert "b seed 3: continues after epoch 2" in said
    assert (directory / "metrics.jsonl").read_text() == "".join(lines)


def test_a_marker_alone_does_not_make_a_run_finished(tmp_path):
    plan, directory = make_plan(small_suite()), run_dir(tmp_path, "b", 3)
    write_run(directory, 0.1, 3)
    assert not is_done(plan, tmp_path, "b", 3)
    (directory / suite.DONE).write_text("{}")
    assert is_done(plan, tmp_path, "b", 3)
    path = directory / "metrics.jsonl"
    path.write_text(path.read_text()[:-20])  # the last line is torn
    assert not is_done(plan, tmp_path, "b", 3)


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [("fails", r"bad seed 3: FAILED \(exit code 3\)"), ("short", r"ended at epoch 3 of 4")],
)
def test_a_failed_run_is_told_and_stops_no_other(tmp_path, behaviour, said):
    config = small_suite(bad=f"{ARMS}:0.3,{behaviour}", good=f"{ARMS}:0.1")
    config.seeds = (3,)
    lines = []
    one = runner(config, tmp_path, lines)
    assert not one.run()
    assert one.failed == [("bad", 3)]
    assert any(re.search(said, line) for line in lines)
    if behaviour == "fails":
        assert "    error: it was not to be" in lines
    assert "    that overwrite [31meach other" in lines  # no control characters
    plan = make_plan(config)
    assert is_done(plan, tmp_path, "good", 3)
    assert not is_done(plan, tmp_path, "bad", 3)
    assert not runner(config, tmp_path).run()  # a failed run is tried again
    assert sum(e[:3] == ("start", "bad", 3) for e in events(tmp_path)) == 2


def test_the_first_run_of_a_seed_goes_ahead_and_others_fill_in(tmp_path):
    config = small_suite(a=f"{ARMS}:0.3,slow", b=f"{ARMS}:0.1", c=f"{ARMS}:0.2", d=f"{ARMS}:0.25")
    config.jobs = 2
    assert runner(config, tmp_path).run()
    order = [event[1:3] for event in events(tmp_path) if event[0] == "start"]
    # b of seed 3 waits for a's first line, so that the free process takes the other seed.
    assert set(order[:2]) == {("a", 3), ("a", 5)} and len(set(order)) == 8
    at = {}
    for line in (tmp_path / "events.txt").read_text().splitlines():
        when, what, arm, seed, _ = line.split()
        at[what, arm, seed] = float(when)
    assert at["start", "a", "5"] < at["end", "a", "3"]  # two at a time
    assert at["start", "b", "3"] > at["start", "a", "3"] + 0.3  # a's first line was there


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_passed_on_and_the_suite_continues(tmp_path, signum):
    code = (
        "import pathlib, sys\n"
        "from genenv_jax.experiments.suite import *\n"
        "from tests.experiments.test_suite import ARMS, FAKE, small_suite\n"
        "config = small_suite(a=f'{ARMS}:0.3,slow', b=f'{ARMS}:0.1,slow')\n"
        "config.jobs = 2\n"
        "try:\n"
        f"    Runner(make_plan(config), pathlib.Path({str(tmp_path)!r}), FAKE).run()\n"
        "except Interrupted as error:\n"
        "    sys.exit(128 + error.signum)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    metrics = run_dir(tmp_path, "a", 3) / "metrics.jsonl"
    while not (metrics.exists() and metrics.read_text().count("\n") >= 2):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signum)
    said, _ = process.communicate(timeout=30)
    assert process.returncode == 128 + signum
    assert re.search(r"a seed 3: interrupted after epoch [1-3]", said)
    assert not any(event[0] == "end" for event in events(tmp_path))
    config = small_suite(a=f"{ARMS}:0.3,slow", b=f"{ARMS}:0.1,slow")
    config.jobs, lines = 4, []  # the number of processes may change
    assert runner(config, tmp_path, lines).run()
    assert any("a seed 3: continues after epoch" in line for line in lines)
    assert [json.loads(x)["step"] for x in metrics.read_text().splitlines()] == [0, 1, 2, 3, 4]


def test_two_suites_in_one_workdir_are_refused(tmp_path):
    one, two = runner(small_suite(), tmp_path), runner(small_suite(), tmp_path)
    with one._lock(), pytest.raises(ValueError, match="is in use"):
        two.run()
    assert not (tmp_path / "events.txt").exists()


def test_a_run_that_outlives_its_suite_keeps_the_lock(tmp_path):
    one = runner(small_suite(), tmp_path)
    with one._lock() as lock:
        orphan = subprocess.Popen(
            [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(lock,)
        )
    with pytest.raises(ValueError, match="is in use"):
        one.run()
    orphan.communicate(b"\n")
    with one._lock():
        pass


def changed(key, value):
    def change(config):
        config[key] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (changed("seeds", (3, 6)), r"config.seeds = \[3, 5\], but now it is \[3, 6\]"),
        (changed("bootstrap", 300), "config.bootstrap = 200, but now it is 300"),
        (changed("contrasts", (("a", "b"),)), "config.contrasts = "),
        (changed("threshold_arm", "b"), "config.threshold_arm = 'a'"),
        (changed("arms", {"a": f"{ARMS}:0.3"}), r"config.arms = \['a', 'b'\]"),
        (changed("arms", {"a": f"{ARMS}:0.31", "b": f"{ARMS}:0.1"}), "config.arms.a = "),
        (changed("overrides", {"epochs": 3}), "config.overrides.epochs = None, but now it is 3"),
    ],
)
def test_other_settings_are_refused_by_name(tmp_path, change, message):
    runner(small_suite(), tmp_path)
    config = small_suite()
    change(config)
    with pytest.raises(ValueError, match=message):
        runner(config, tmp_path)
    config = small_suite()
    config.jobs = 2
    runner(config, tmp_path)


def test_an_edited_arm_is_refused_by_its_setting(tmp_path):
    file = tmp_path / "arm.py"
    text = (ROOT / ARMS).read_text()
    file.write_text(text)
    runner(small_suite(a=str(file)), tmp_path / "suite")
    file.write_text(text.replace("config.epochs = 4", "config.epochs = 5"))
    with pytest.raises(ValueError, match=r"config.arms.a.epochs = 4, but now it is 5"):
        runner(small_suite(a=str(file)), tmp_path / "suite")


def test_a_damaged_file_of_settings_is_named(tmp_path):
    (tmp_path / "suite.json").write_text("{")
    with pytest.raises(ValueError, match="suite.json is damaged"):
        runner(small_suite(), tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (changed("arms", {}), "config.arms is empty"),
        (changed("arms", {"a/b": f"{ARMS}"}), "'a/b' names a directory"),
        (changed("arms", {"a": "tests/no_such.py"}), "config.arms.a.*no such file"),
        (changed("arms", {"a": f"{ARMS}:much"}), "config.arms.a.*could not convert"),
        (changed("seeds", ()), "config.seeds"),
        (changed("seeds", (1, 1)), "config.seeds"),
        (changed("jobs", 0), "config.jobs = 0"),
        (changed("bootstrap", 1), "config.bootstrap = 1"),
        (changed("metric", "accuracy"), "config.metric = 'accuracy'"),
        (changed("contrasts", (("a", "c"),)), "config.contrasts: 'c': expected one of"),
        (changed("contrasts", (("a", "a"),)), "a pair of two arms"),
        (changed("contrasts", (("a", "b"), ("a", "b"))), "each of them once"),
        (changed("threshold_arm", ""), "config.threshold_arm = ''"),
        (changed("overrides", {"epoch": 1}), "config.arms.a.*epoch"),
        (changed("overrides", {"epochs": "many"}), "config.arms.a.*epochs"),
        (changed("overrides", {"epochs": 0}), "evaluation.every and epochs must be positive"),
        (changed("overrides", {"curriculum": {"alpha": 2.0}}), "curriculum.alpha = 2.0"),
        (changed("overrides", {"seed": 4}), "config.overrides.seed"),
    ],
)
def test_an_unfit_suite_is_refused_by_name(change, message):
    config = small_suite()
    with config.unlocked():
        change(config)
    with pytest.raises(ValueError, match=message):
        make_plan(config)


def test_an_unknown_setting_is_refused_with_a_hint():
    config = small_suite()
    with config.unlocked():
        config.bootstraps = 3
    with pytest.raises(ValueError, match="config.bootstraps is not .* did you mean bootstrap?"):
        make_plan(config)


def test_runs_share_compiled_programs_unless_their_arm_has_none(tmp_path, monkeypatch):
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    config = small_suite()
    assert "--config.compilation_cache=False" in runner(config, tmp_path / "x").arguments("a", 3)
    config.overrides = {"compilation_cache": False}
    flags = runner(config, tmp_path / "y").arguments("a", 3)
    assert [f for f in flags if "compilation_cache" in f] == ["--config.compilation_cache=False"]
    assert os.environ.get("JAX_COMPILATION_CACHE_DIR") is None
