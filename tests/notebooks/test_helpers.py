"""What the notebooks call: figures and texts of one run, compared answers, a suite as it is stored."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image

from genenv_jax.experiments.curves import load_results
from genenv_jax.experiments.stored import arm_differences, stored_plan
from genenv_jax.experiments.suite import compare_or_store, load_config, make_plan, run_dir
from genenv_jax.reporting import dissection, notebook, traces
from genenv_jax.reporting.runs import load_run

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOSTILE = "<script>alert('x')</script><img src=http://a.b/c> $\\frac\u202e"


def write_lines(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def make_run(path, epochs=5, text="Start at {}.", **curriculum):
    """A workdir with eleven attempted tasks an epoch, p̂ = 0, 0.1 .. 1, and one rejection."""
    path.mkdir(parents=True)
    curriculum = {"alpha": 0.5, "k_min": 0.1, "beta": 2.0} | curriculum
    (path / "config.json").write_text(json.dumps({"curriculum": curriculum, "epochs": epochs}))
    tasks, metrics = [], []
    for epoch in range(1, epochs + 1):
        for k in range(11):
            p = k / 10
            tasks.append(
                {
                    "epoch": epoch,
                    "id": f"{epoch}-{k}",
                    "verdict": "accepted",
                    "text": text.format(f"{epoch}-{k}"),
                    "task": {"messages": [], "answer": "a"},
                    "attempts": 10,
                    "successes": k,
                    "p_hat": p,
                    "r_env": float(np.exp(-2 * (p - 0.5) ** 2)),
                    "weight": 1.0 if 4 <= k <= 6 else 0.0,
                }
            )
        rejected = {"epoch": epoch, "id": f"{epoch}-x", "verdict": "duplicate", "text": text}
        tasks.append(rejected | {"detail": text, "p_hat": None})
        metrics.append(
            {
                "step": epoch,
                "generated/difficulty_mean": 1.0 + epoch,
                "generated/difficulty_sd": 0.5,
                "generated/distinct_signatures": 3,
                "eval/in_distribution/greedy/accuracy": 0.1 * epoch,
                "eval/in_distribution/greedy/depth_1": 0.1 * epoch,
                "eval/in_distribution/greedy/depth_2": 0.05 * epoch,
            }
        )
    write_lines(path / "tasks.jsonl", tasks)
    write_lines(path / "metrics.jsonl", metrics)
    write_lines(path / "d_train.jsonl", [{"epoch": e} for e in range(1, epochs + 1)] * 4)
    write_lines(path / "d_env.jsonl", [{"epoch": e} for e in range(2, epochs + 1)])
    return load_run(path)


def ink(path):
    """How many pixels are not white."""
    return int((np.asarray(Image.open(path).convert("L")) < 250).sum())


# -- dissection ----------------------------------------------------------------------------------------


def test_all_figures_are_drawn_and_follow_the_run(tmp_path):
    run = make_run(tmp_path / "run")
    paths = dissection.draw(run, tmp_path / "figures")
    assert list(paths) == ["reward", "pools", "rejected", "difficulty", "strata"]
    assert all(ink(path) > 2000 for path in paths.values())
    same = dissection.draw(run, tmp_path / "again")
    assert all(paths[name].read_bytes() == same[name].read_bytes() for name in paths)
    other = dissection.draw(make_run(tmp_path / "other", epochs=3), tmp_path / "others")
    assert all(paths[name].read_bytes() != other[name].read_bytes() for name in paths)


def test_what_was_not_recorded_is_not_drawn_and_an_old_figure_goes(tmp_path):
    run = make_run(tmp_path / "run")
    dissection.draw(run, tmp_path / "figures")
    for name in ("d_train.jsonl", "d_env.jsonl", "tasks.jsonl"):
        (tmp_path / "run" / name).unlink()
    left = dissection.draw(load_run(tmp_path / "run"), tmp_path / "figures")
    assert list(left) == ["difficulty", "strata"]
    assert sorted((tmp_path / "figures").iterdir()) == sorted(left.values())
    assert "not recorded" in dissection.texts_by_success(load_run(tmp_path / "run"))


def test_a_reward_that_is_not_of_alpha_has_no_such_curve(tmp_path):
    images = []
    for score in ("alpha", "learnability"):
        run = make_run(tmp_path / score, score=score)
        images.append(dissection.draw(run, tmp_path / f"{score}-figures")["reward"])
    assert ink(images[1]) < ink(images[0])


def test_a_damaged_pool_is_named(tmp_path):
    run = make_run(tmp_path / "run")
    (tmp_path / "run" / "d_env.jsonl").write_text("no json\n")
    with pytest.raises(ValueError, match=r"d_env\.jsonl:1"):
        dissection.draw(run, tmp_path / "figures")


def test_the_texts_nearest_to_each_success_rate(tmp_path):
    html = dissection.texts_by_success(make_run(tmp_path / "run"), targets=(0.1, 0.5, 0.9))
    assert re.findall(r"Start at (\d+-\d+)\.", html) == [
        f"{epoch}-{k}" for epoch in (1, 3, 5) for k in (1, 5, 9)
    ]
    assert "p̂ = 0.10 (1 of 10)" in html and "weight 1.00" in html
    # No task stands twice in a row, and the nearer column takes it.
    close = dissection.texts_by_success(load_run(tmp_path / "run"), (0.5, 0.52), epochs=[2])
    assert re.findall(r"Start at (\d+-\d+)\.", close) == ["2-5", "2-6"]


def test_hostile_text_is_escaped_everywhere(tmp_path):
    run = make_run(tmp_path / "run", text=HOSTILE)
    record = {"mode": "greedy", "task_id": HOSTILE, "category": HOSTILE, "answer": HOSTILE}
    answers = {HOSTILE: record | {"success": False, "reason": HOSTILE}}
    pages = [
        dissection.texts_by_success(run),
        dissection.rejection_table(run),
        traces.compare_answers(answers, answers, {HOSTILE: HOSTILE}),
        notebook.figure({}, HOSTILE),
    ]
    for page in pages:
        assert "<script" not in page and "<img" not in page and "\u202e" not in page
        assert "&lt;script" in page
    dissection.draw(run, tmp_path / "figures")


def test_rejections_are_counted(tmp_path):
    html = dissection.rejection_table(make_run(tmp_path / "run"))
    assert "5 of 60 generations were turned away" in html and "<td>duplicate</td><td>5</td>" in html


@pytest.mark.parametrize(
    ("epochs", "shown"), [(1, [1]), (2, [1, 2]), (4, [1, 3, 4]), (5, [1, 3, 5])]
)
def test_first_middle_and_last_epoch(tmp_path, epochs, shown):
    assert dissection.shown_epochs(make_run(tmp_path / "run", epochs=epochs)) == shown


# -- answers -------------------------------------------------------------------------------------------


def answer(task_id, success, text="a", mode="greedy"):
    return {
        "mode": mode,
        "task_id": task_id,
        "category": "depth_1",
        "answer": text,
        "success": success,
        "reason": "" if success else "wrong",
    }


def test_what_was_learnt_and_lost(tmp_path):
    for name, solved in (("before", "ab"), ("after", "bcd")):
        (tmp_path / name).mkdir()
        records = [answer("a", False, mode="sampled")]
        records += [answer(task, task in solved, f"{name}-{task}") for task in "abcde"]
        write_lines(tmp_path / name / "predictions.jsonl", records)
    before, after = (traces.read_answers(tmp_path / name) for name in ("before", "after"))
    html = traces.compare_answers(before, after, {"c": "the task c"}, shown=1)
    counts = dict(re.findall(r"<td>([a-z ]+)</td><td class=n>(\d)</td>", html))
    assert counts == {"learnt": "2", "lost": "1", "never solved": "1", "always solved": "1"}
    assert "before-a\n✓" in html and "after-a\n✗ wrong" in html
    assert html.count(" · depth_1</th>") == 4
    both = traces.compare_answers(before, after, {"c": "the task c"})
    assert "the task c" in both and "before-c" in both and "before-d" in both


def test_answers_that_are_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        traces.read_answers(tmp_path)
    write_lines(tmp_path / "predictions.jsonl", [answer("a", True)])
    with pytest.raises(ValueError, match="no answer of mode 'sampled'"):
        traces.read_answers(tmp_path, "sampled")


# -- a stored suite ------------------------------------------------------------------------------------


@pytest.fixture
def suite(tmp_path, monkeypatch):
    """The quick suite with both seeds of two arms finished, and its plan."""
    monkeypatch.chdir(ROOT)
    plan = make_plan(load_config("configs/ablations/suite.py:quick", "suite"))
    workdir = tmp_path / "suite"
    compare_or_store(plan, workdir)
    for arm in ("genenv", "random"):
        for seed in plan.suite.seeds:
            directory = run_dir(workdir, arm, seed)
            directory.mkdir(parents=True)
            start = {"step": 0, plan.suite.metric: 0.1 + 0.01 * seed}
            end = {"step": 2, plan.suite.metric: 0.3, "rollouts/total": 100}
            write_lines(directory / "metrics.jsonl", [start, end])
    return plan, workdir


def test_a_stored_suite_is_read_as_if_it_had_been_run_here(suite):
    plan, workdir = suite
    stored = stored_plan(workdir)
    assert list(stored.arms.items()) == list(plan.arms.items())
    assert stored.runs() == plan.runs() and stored.overrides == {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in plan.overrides.items()
    }
    one, other = load_results(plan, workdir), load_results(stored, workdir)
    for name in ("arms", "missing", "metric", "strata", "contrasts", "threshold_arm", "bootstrap"):
        assert getattr(one, name) == getattr(other, name)
    assert list(one.runs) == list(other.runs) == ["genenv", "random"]
    assert one.horizon == other.horizon == 100
    assert [arm for arm, _, _ in other.missing] == ["static-64", "static-64"]


def test_what_the_arms_change(suite):
    _, workdir = suite
    found = arm_differences(workdir)
    assert list(found) == ["genenv", "random", "static-64"]
    assert found["random"] == {"simulator.train": "false"}
    assert found["static-64"]["tasks.source"] == '"static"'
    assert found["static-64"]["tasks.count"] == "64"
    assert found["genenv"]["simulator.train"] == "true" and found["genenv"].keys() >= {
        key for changed in found.values() for key in changed
    }


def test_a_directory_that_is_no_suite(suite, tmp_path):
    _, workdir = suite
    with pytest.raises(FileNotFoundError, match=r"suite\.json: no such file"):
        stored_plan(tmp_path / "elsewhere")
    path = workdir / "suite.json"
    whole = json.loads(path.read_text())
    for damage in ({"seeds": 3}, {"contrasts": [["a"]]}, {"arms": []}, {"bootstrap": None}):
        path.write_text(json.dumps(whole | damage))
        with pytest.raises(ValueError, match=r"suite\.json is damaged"):
            stored_plan(workdir)
    for text in ("[1]", "no json", "[" * 100_000):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"suite\.json is damaged"):
            stored_plan(workdir)


# -- commands ------------------------------------------------------------------------------------------


def test_a_command_is_echoed_and_streamed(tmp_path, capfd):
    make_run(tmp_path / "run")
    notebook.run("report", str(tmp_path / "run"), "--out", str(tmp_path / "out"))
    out = capfd.readouterr().out
    assert out.startswith("$ python -m genenv_jax.report") and "figure:" in out
    assert (tmp_path / "out" / "report.html").is_file()


def test_a_command_that_fails_is_an_error_and_its_message_is_shown(tmp_path, capfd):
    with pytest.raises(RuntimeError, match=r"genenv_jax\.report ended with exit code 2"):
        notebook.run("report", str(tmp_path / "nothing"))
    assert "no such directory" in capfd.readouterr().out


def test_an_interrupt_ends_the_command_in_good_order(tmp_path):
    package = tmp_path / "genenv_jax"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "wait.py").write_text(
        "import signal, sys, time\n"
        "def end(*_):\n    open('ended', 'w').close(); sys.exit(143)\n"
        "signal.signal(signal.SIGTERM, end)\nprint('waiting', flush=True)\ntime.sleep(900)\n"
    )
    code = (
        # A shell starts what runs in the background with interrupts ignored, which is inherited.
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"import importlib.util as u; s = u.spec_from_file_location('n', {notebook.__file__!r})\n"
        "m = u.module_from_spec(s); s.loader.exec_module(m)\n"
        f"import os; os.environ['PYTHONPATH'] = {str(tmp_path)!r}; os.chdir({str(tmp_path)!r})\n"
        "m.run('wait')\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while "waiting" not in (line := process.stdout.readline()):
        assert line, process.stderr.read()
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=300)
    assert "KeyboardInterrupt" in error and time.monotonic() - began < 300
    assert process.returncode != 0 and (tmp_path / "ended").exists()
