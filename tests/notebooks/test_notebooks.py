"""The notebooks: whole, free of outputs, what they name exists, and they run."""

import ast
import importlib
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
from html import unescape

import nbformat
import pytest
from nbclient import NotebookClient
from PIL import Image

from genenv_jax.config import validate
from genenv_jax.experiments.figures import CAPTIONS
from genenv_jax.experiments.suite import compare_or_store, load_config, make_plan, run_dir
from tests.experiments.fake_main import write_run

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAMES = ("ablations", "curriculum")


def read(name):
    return nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=nbformat.NO_CONVERT)


def cell(name, id_):
    return next(c.source for c in read(name).cells if c.id == id_)


def sources(name, kind):
    return [c.source for c in read(name).cells if c.cell_type == kind]


# -- as they are stored --------------------------------------------------------------------------------


def test_these_are_all_notebooks():
    assert sorted(p.stem for p in (ROOT / "notebooks").glob("*.ipynb")) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_valid_and_without_outputs(name):
    notebook = read(name)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    for c in notebook.cells:
        assert c.source.strip(), c.id
        if c.cell_type == "code":
            assert c.outputs == [] and c.execution_count is None, c.id


@pytest.mark.parametrize("name", NAMES)
def test_code_compiles_and_what_it_imports_exists(name):
    for source in sources(name, "code"):
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("genenv_jax"):
                module = importlib.import_module(node.module)
                for alias in node.names:
                    path = f"{node.module}.{alias.name}"
                    assert hasattr(module, alias.name) or importlib.util.find_spec(path), path
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "run":
                module = node.args[0].value
                assert importlib.util.find_spec(f"genenv_jax.{module}"), module


@pytest.mark.parametrize("name", NAMES)
def test_what_is_named_exists(name, monkeypatch):
    monkeypatch.chdir(ROOT)
    text = "\n".join([*sources(name, "code"), *sources(name, "markdown")])
    files = set(re.findall(r"configs/[\w/]+\.py(?::\w+)?", text))
    assert files
    for file in files:
        load_config(file, "a cell")
    for module in re.findall(r"python -m (genenv_jax\.[\w.]+)", text):
        assert importlib.util.find_spec(module), module
    for link in re.findall(r"\]\((?!https?:)([^)]+)\)", text):
        assert (ROOT / "notebooks" / link).exists(), link


def test_every_figure_of_the_report_is_explained_or_shown_with_the_rest():
    text = "\n".join(sources("ablations", "code"))
    named = set(re.findall(r'"(\w+)"', text))
    assert {"validation", "reward", "lengths", "p_hat", "solved"} <= named & set(CAPTIONS)
    assert "show(*list(not_shown))" in cell("ablations", "rest")
    headings = re.findall(r"Figure (\d) of the paper", "\n".join(sources("ablations", "markdown")))
    assert sorted(headings) == ["4", "5", "6", "7", "8"]


def parameters(name, monkeypatch, quick):
    monkeypatch.setenv("GENENV_QUICK", "1" if quick else "0")
    values = {"os": os, "pathlib": pathlib, "ROOT": ROOT, "ACCELERATOR": ""}
    exec(cell(name, "parameters"), values)
    return values


@pytest.mark.parametrize("quick", [False, True])
def test_the_settings_of_the_curriculum_are_settings(monkeypatch, quick):
    values = parameters("curriculum", monkeypatch, quick)
    monkeypatch.chdir(ROOT)
    config = load_config(values["CONFIG"], "CONFIG")
    for key, value in values["SETTINGS"].items():
        config.update_from_flattened_dict({key: value})
    validate(config)
    assert (config.epochs < load_config(values["CONFIG"], "CONFIG").epochs) == quick


@pytest.mark.parametrize("size", ["quick", "small", "full"])
def test_the_suites_of_all_sizes_are_valid(monkeypatch, tmp_path, size, capsys):
    monkeypatch.chdir(ROOT)
    values = parameters("ablations", monkeypatch, size == "quick") | {"SIZE": size}
    values["RUNS"] = tmp_path
    exec(cell("ablations", "suite"), values)
    plan = values["plan"]
    assert {"genenv", "random", "static-64"} <= set(plan.arms)
    assert f"= {len(plan.runs())} runs" in capsys.readouterr().out
    if size == "full":
        whole = make_plan(load_config("configs/ablations/suite.py", "suite"))
        assert plan.runs() == whole.runs() and plan.overrides == whole.overrides


def test_both_quick_worlds_share_their_base_model(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    values = parameters("ablations", monkeypatch, True) | {"RUNS": tmp_path}
    exec(cell("ablations", "suite"), values)
    arm = values["plan"].configs["genenv"]
    one = parameters("curriculum", monkeypatch, True)
    config = load_config(one["CONFIG"], "CONFIG")
    config.update_from_flattened_dict(one["SETTINGS"])
    for group in ("warm_start", "benchmark", "limits"):
        assert arm[group].to_dict() == config[group].to_dict()
    assert arm.model.make.to_dict() == config.model.make.to_dict()
    assert 0 in values["plan"].suite.seeds


# -- the first cell ------------------------------------------------------------------------------------


def install_cell(tmp_path, *, environment, stubs=()):
    """Runs it where no package is installed; `stubs` are modules that a fake installation brings."""
    library = tmp_path / "library"
    for stub in stubs:
        (library / stub).mkdir(parents=True)
        (library / stub / "__init__.py").write_text("__version__ = '1'\n")
    if stubs:
        (library / "pip").mkdir()
        (library / "pip" / "__init__.py").touch()
        (library / "pip" / "__main__.py").write_text("import sys; print('PIP', sys.argv[1:])\n")
    here = tmp_path / "here"
    here.mkdir()
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("GENENV_", "TPU_", "PYTHON"))}
    return subprocess.run(
        [sys.executable, "-S", "-c", cell("ablations", "install")],
        cwd=here,
        env=kept | {"PYTHONPATH": str(library), "GIT_CONFIG_GLOBAL": os.devnull} | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_first_code_cell_installs_and_is_the_same_in_both():
    first = [sources(name, "code")[0] for name in NAMES]
    assert first[0] == first[1] == cell("ablations", "install")


def test_without_a_repository_it_says_what_is_missing(tmp_path):
    result = install_cell(tmp_path, environment={})
    assert result.returncode == 1 and "Set REPOSITORY" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(("machine", "extra"), [("tpu", "[tpu]"), ("gpu", "[cuda]")])
def test_it_clones_and_installs_what_the_machine_needs(tmp_path, machine, extra):
    repository = tmp_path / "repository"
    (repository / "genenv_jax").mkdir(parents=True)
    (repository / "genenv_jax" / "__init__.py").touch()
    (repository / "genenv_jax" / "main.py").touch()
    (repository / "configs").mkdir()
    (repository / "configs" / "quickstart.py").touch()
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(repository)]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "all"]):
        subprocess.run([*git, *arguments], check=True)
    environment = {"GENENV_REPOSITORY": repository.as_uri()}
    if machine == "tpu":
        environment["TPU_NAME"] = "local"
    else:
        programs = tmp_path / "programs"
        programs.mkdir()
        (programs / "nvidia-smi").write_text("#!/bin/sh\necho 'GPU 0: a GPU'\n")
        (programs / "nvidia-smi").chmod(0o755)
        environment["PATH"] = f"{programs}:{os.environ['PATH']}"
    result = install_cell(
        tmp_path, environment=environment, stubs=("jax", "flax", "ml_collections", "matplotlib")
    )
    assert result.returncode == 0, result.stderr
    cloned = tmp_path / "here" / "genenv"
    assert f"'install', '--quiet', '--editable', '{cloned}{extra}'" in result.stdout
    assert f"genenv_jax in {cloned}; accelerator: {extra[1:-1]}" in result.stdout


def test_a_folder_of_its_name_is_not_taken_for_the_package(tmp_path):
    (tmp_path / "library" / "genenv_jax").mkdir(parents=True)  # no __init__.py: no package
    result = install_cell(tmp_path, environment={})
    assert result.returncode == 1 and "Set REPOSITORY" in result.stderr


# -- as they run ---------------------------------------------------------------------------------------


def execute(name, tmp_path, monkeypatch, parameters=""):
    """The executed notebook, in quick mode, far from the user's caches; and where its runs are.

    parameters: appended to the cell of that name.
    """
    for key in ("XDG_CACHE_HOME", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"):
        monkeypatch.setenv(key, str(tmp_path / "home" / key.lower()))
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "programs"))
    monkeypatch.setenv("GENENV_QUICK", "1")
    monkeypatch.setenv("GENENV_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("XLA_FLAGS", raising=False)  # one device is enough
    here = tmp_path / "here"
    here.mkdir()
    notebook = read(name)
    next(c for c in notebook.cells if c.id == "parameters").source += f"\n{parameters}"
    client = NotebookClient(
        notebook, timeout=1200, kernel_name="python3", resources={"metadata": {"path": str(here)}}
    )
    client.execute()
    keep = os.environ.get("GENENV_KEEP_NOTEBOOKS")  # a directory: to look at what was drawn
    if keep:
        nbformat.write(notebook, pathlib.Path(keep) / f"{name}.ipynb")
    assert list(here.iterdir()) == []
    return notebook, tmp_path / "runs"


def html(notebook, id_):
    outputs = next(c for c in notebook.cells if c.id == id_).outputs
    return "\n".join(o.data["text/html"] for o in outputs if "text/html" in o.get("data", {}))


def said(notebook, id_):
    outputs = next(c for c in notebook.cells if c.id == id_).outputs
    return "".join(o.text for o in outputs if o.output_type == "stream")


def drawn(notebook, id_):
    return html(notebook, id_).count('<img src="data:image/png;base64,')


def check_report(notebook):
    """Tables and figures of two seeds of three arms."""
    for id_ in ("table", "gains"):
        for arm in ("genenv", "random", "static-64"):
            assert f"<td>{arm}</td>" in html(notebook, id_)
    assert "simulator.train" in html(notebook, "arms")
    assert "genenv − random" in html(notebook, "contrasts")
    assert "2 seeds: the smallest p that any difference can have is 0.5" in said(
        notebook, "contrasts"
    )
    figures = {
        "contrasts": 1,
        "figure-6-cells": 3,
        "figure-4-cells": 2,
        "figure-5-cells": 2,
        "figure-7-cells": 1,
        "figure-8-cells": 1,
        "proposition": 1,
        "theorem": 1,
    }
    for id_, count in figures.items():
        assert drawn(notebook, id_) >= count, id_
        assert "not recorded" not in html(notebook, id_), id_


@pytest.mark.slow
def test_the_ablations_run(tmp_path, monkeypatch):
    notebook, runs = execute("ablations", tmp_path, monkeypatch)
    assert said(notebook, "run").count("finished in") == 6
    check_report(notebook)
    assert len(list((runs / "suite-quick").glob("*/seed-*/metrics.jsonl"))) == 6
    assert (runs / "theory-quick" / "theory.json").is_file()
    assert (runs / "report-suite-quick" / "report.html").is_file()


@pytest.mark.slow
def test_a_finished_suite_is_loaded_and_left_as_it_is(tmp_path, monkeypatch):
    workdir, theory = tmp_path / "elsewhere", tmp_path / "runs" / "theory-quick"
    monkeypatch.chdir(ROOT)
    plan = make_plan(load_config("configs/ablations/suite.py:quick", "suite"))
    compare_or_store(plan, workdir)
    for place, arm in enumerate(plan.arms):
        for seed in plan.suite.seeds:
            write_run(run_dir(workdir, arm, seed), 0.3 - 0.1 * place, seed, epochs=2)
    before = {path: path.stat().st_mtime_ns for path in workdir.rglob("*")}
    theory.mkdir(parents=True)  # finished too
    (theory / "theory.json").write_text("{}")
    for name in ("proposition1", "theorem1"):
        Image.new("RGB", (8, 8)).save(theory / f"{name}.png")
    load = f"LOAD = {str(workdir)!r}"
    notebook, runs = execute("ablations", tmp_path, monkeypatch, parameters=load)
    assert said(notebook, "run") == said(notebook, "theory") == ""
    check_report(notebook)
    assert {path: path.stat().st_mtime_ns for path in workdir.rglob("*")} == before
    assert (runs / "report-elsewhere" / "report.html").is_file()


@pytest.mark.slow
def test_the_curriculum_runs(tmp_path, monkeypatch):
    notebook, runs = execute("curriculum", tmp_path, monkeypatch)
    records = (runs / "curriculum-quick" / "tasks.jsonl").read_text()
    texts = html(notebook, "texts")
    assert all(f"p̂ ≈ {target}" in texts for target in (0.1, 0.5, 0.9))
    shown = [unescape(text) for text in re.findall(r"<pre>([^<]*)</pre>", texts)]
    assert len(shown) >= 3
    for text in shown:
        assert json.dumps(text) in records
    figures = {"reward": 1, "p-hat": 2, "pools": 1, "rejected": 1, "difficulty": 1}
    for id_, count in (figures | {"held-out": 2, "lengths": 2}).items():
        assert drawn(notebook, id_) == count, id_
        assert "not recorded" not in html(notebook, id_), id_
    assert "generations were turned away" in html(notebook, "rejected")
    traces = html(notebook, "traces")
    assert all(kind in traces for kind in ("learnt", "lost", "always solved", "never solved"))
    assert "✓" in traces or "✗" in traces
    assert (runs / "report-curriculum-quick" / "report.html").is_file()
