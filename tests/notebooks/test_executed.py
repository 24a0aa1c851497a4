import json
import os
import pathlib
import re
from html import unescape

import nbformat
import pytest

from genenv_jax.cli import load_config
from genenv_jax.experiment.plan import compare_or_store, make_plan
from genenv_jax.results.suites import run_dir
from tests.commands import COMPILE_FAST, command
from tests.experiment.fake_main import write_run
from tests.notebooks.stored import ROOT, parameters, read, run_cells

pytestmark = pytest.mark.slow


class Executed:
    """An executed notebook's outputs by the id of a cell, and where its runs are."""

    def __init__(self, notebook, runs):
        self.runs = runs
        self._outputs = {c.id: c.outputs for c in notebook.cells if c.cell_type == "code"}

    def html(self, id_):
        data = [o.data for o in self._outputs[id_] if "data" in o]
        return "\n".join(d["text/html"] for d in data if "text/html" in d)

    def printed(self, id_):
        return "".join(o.text for o in self._outputs[id_] if o.output_type == "stream")

    def check_figures(self, counts):
        for id_, count in counts.items():
            data = [o.data for o in self._outputs[id_] if "data" in o]
            assert sum("image/png" in d for d in data) >= count, id_
            assert not any("not recorded" in d.get("text/markdown", "") for d in data), id_


@pytest.fixture(scope="module")
def caches(tmp_path_factory):
    """Of models and of programs, shared by the notebooks: some of their runs begin alike."""
    return tmp_path_factory.mktemp("caches")


@pytest.fixture
def execute(tmp_path, caches, monkeypatch):
    """Executes a notebook in quick mode, without the user's caches."""

    def run(name, parameters=""):
        for key in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"):
            monkeypatch.setenv(key, str(tmp_path / "home" / key.lower()))
        monkeypatch.setenv("XDG_CACHE_HOME", str(caches / "home"))
        monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(caches / "programs"))
        monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
        monkeypatch.setenv("GENENV_QUICK", "1")
        monkeypatch.setenv("GENENV_RUNS", str(tmp_path / "runs"))
        monkeypatch.setenv("PYTHONPATH", str(ROOT))
        monkeypatch.setenv("XLA_FLAGS", COMPILE_FAST)  # one device is enough
        here = tmp_path / "here"
        here.mkdir()
        notebook = read(name)
        next(c for c in notebook.cells if c.id == "parameters").source += f"\n{parameters}"
        run_cells(notebook, here, os.environ)
        keep = os.environ.get("GENENV_KEEP_NOTEBOOKS")  # a directory for inspecting the figures
        if keep:
            nbformat.write(notebook, pathlib.Path(keep) / f"{name}.ipynb")
        assert list(here.iterdir()) == []
        return Executed(notebook, tmp_path / "runs")

    return run


def check_report(executed):
    """Tables and figures of two seeds of three arms."""
    for id_ in ("table", "gains"):
        for arm in ("genenv", "random", "static-64"):
            assert f"<td>{arm}</td>" in executed.html(id_)
    assert "simulator.train" in executed.html("read")
    assert "genenv − random" in executed.html("contrasts")
    assert "2 seeds: the smallest p that any difference can have is 0.5" in executed.printed("contrasts")
    counts = {f"figure-{n}-cells": count for n, count in {4: 2, 5: 2, 6: 2, 7: 1, 8: 1}.items()}
    executed.check_figures(counts | {"contrasts": 1})


def test_the_ablations_run(execute):
    # One run at a time: two that begin together compile the same programs.
    executed = execute("ablations", "ACCELERATOR = 'shared'")
    assert executed.printed("run").count("finished in") == 6
    check_report(executed)
    assert len(list((executed.runs / "suite-quick").glob("*/seed-*/metrics.jsonl"))) == 6
    assert (executed.runs / "report-suite-quick" / "report.html").is_file()


def test_a_finished_suite_is_loaded_and_left_as_it_is(execute, tmp_path, monkeypatch):
    workdir = tmp_path / "elsewhere"
    monkeypatch.chdir(ROOT)
    plan = make_plan(load_config("configs/ablations/suite.py:quick", "suite"))
    compare_or_store(plan, workdir)
    for place, arm in enumerate(plan.suite.arms):
        for seed in plan.suite.seeds:
            write_run(run_dir(workdir, arm, seed), 0.3 - 0.1 * place, seed, epochs=2)
    before = {path: path.stat().st_mtime_ns for path in workdir.rglob("*")}
    executed = execute("ablations", f"LOAD = {str(workdir)!r}")
    assert executed.printed("run") == ""
    check_report(executed)
    assert {path: path.stat().st_mtime_ns for path in workdir.rglob("*")} == before
    assert (executed.runs / "report-elsewhere" / "report.html").is_file()


def test_the_curriculum_runs(execute):
    executed = execute("curriculum", "SETTINGS['compilation_cache'] = False  # but the shared one")
    records = (executed.runs / "curriculum-quick" / "tasks.jsonl").read_text()
    texts = executed.html("texts")
    assert all(f"p̂ ≈ {target}" in texts for target in (0.1, 0.5, 0.9))
    shown = [unescape(text) for text in re.findall(r"</span>\s*<pre>([^<]*)</pre>", texts)]
    assert len(shown) >= 3 and all(json.dumps(text) in records for text in shown)
    executed.check_figures(
        {"world": 1, "p-hat": 2, "rejected": 1, "difficulty": 1, "held-out": 1, "lengths": 2}
    )
    assert "Rejected generations" in executed.html("rejected")
    compared = executed.html("traces")
    assert all(kind in compared for kind in ("learnt", "lost", "always solved", "never solved"))
    assert "✓" in compared or "✗" in compared
    assert (executed.runs / "report-curriculum-quick" / "report.html").is_file()


def test_smollm2_runs(execute, tmp_path, monkeypatch):
    """With a small model in its place, whose demonstrations were noisy."""
    made = {
        "model.path": "", "model.make.vocab_size": 512, "warm_start.steps": 250, "warm_start.batch_size": 32,
        "warm_start.learning_rate": 5e-3, "benchmark.misunderstood": 0.2,
    }  # fmt: skip
    monkeypatch.setenv("GENENV_QUICK", "1")
    monkeypatch.setenv("GENENV_MODEL", str(tmp_path / "given"))
    values = parameters("smollm2")
    flags = [f"--config={values['CONFIG']}", f"--out={tmp_path / 'given'}"]
    flags += [f"--config.{key}={value}" for key, value in (values["SETTINGS"] | made).items()]
    result = command("supervised", *flags)
    assert result.returncode == 0, result.stderr
    executed = execute("smollm2")
    here = executed.runs / "given-dial-cpu"
    losses = json.loads((here / "warm-start" / "warm_start.json").read_text())["losses"]
    assert [loss["step"] for loss in losses] == [0, 10, 20]
    for loss in losses:
        assert f"{loss['validation/simulator']:.3f}</td>" in executed.html("warm-start")
    for state in ("as it is", "after the warm start", "after the co-evolution"):
        assert f"<td>{state}</td>" in executed.html("scores")
    for name in ("as-it-is", "warm-start", "co-evolution"):
        results = json.loads((here / f"scores-{name}" / "results.json").read_text())["metrics"]
        score = results["eval/in_distribution/greedy/accuracy"]["value"]
        assert f'<td class="n">{score:.3f} [' in executed.html("scores")
    assert "always solved" in executed.html("answers")
    tasks = [json.loads(line) for line in (here / "run" / "tasks.jsonl").open()]
    accepted = {task["task"]["messages"][-1]["content"] for task in tasks if task["task"]}
    shown = unescape(executed.html("texts"))
    assert sum(text in shown for text in accepted) >= min(4, len(accepted)) > 0
    executed.check_figures({"summary": 1, "rejected": 1})
    assert (here / "report" / "report.html").is_file()
