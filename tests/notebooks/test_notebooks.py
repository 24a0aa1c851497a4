import ast
import importlib
import importlib.util
import re

import nbformat
import pytest

from genenv_jax.benchmarks.registry import check_options
from genenv_jax.cli import load_config
from genenv_jax.config import flatten, validate
from genenv_jax.experiment.plan import make_plan
from tests.notebooks.stored import (
    EXECUTED,
    NAMES,
    ROOT,
    addressed,
    cell,
    digest,
    parameters,
    read,
    repository,
    shown,
    sources,
)

# A path from the root of a file system, or a user at a host.
PLACE = re.compile(r"(?<![\w.~/<:])/(?:[\w.-]+/)+[\w.-]+|[A-Z]:\\|\w+@[\w-]+:")


@pytest.fixture(autouse=True)
def _in_the_repository(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("name", NAMES)
def test_valid(name):
    notebook = read(name)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    for c in notebook.cells:
        assert c.source.strip(), c.id
    assert addressed(read(name), name) == notebook  # `python -m tests.notebooks` writes the address


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_those_of_the_code(name):
    notebook = read(name)
    cells = [c for c in notebook.cells if c.cell_type == "code"]
    if name not in EXECUTED:
        assert all(c.outputs == [] and c.execution_count is None for c in cells)
        return
    assert notebook.metadata["executed"] == digest(notebook), "run: python -m tests.notebooks"
    assert [c.execution_count for c in cells] == list(range(1, len(cells) + 1))
    assert all(output.output_type != "error" for c in cells for output in c.outputs)
    assert sum("image/png" in output.get("data", {}) for c in cells for output in c.outputs) > 5
    for text in shown(notebook):  # nothing of the machine that ran it
        assert not PLACE.search(text), PLACE.search(text)[0]


def test_the_notebooks_are_small():
    assert sum(path.stat().st_size for path in (ROOT / "notebooks").iterdir() if path.is_file()) < 1.5e6


def test_the_address_of_the_repository_comes_from_one_place():
    text = "cff-version: 1.2.0\nrepository-code: https://github.com/a/b\n"
    assert (repository(text), repository("# repository-code: none")) == ("https://github.com/a/b", "")
    with_address = addressed(read("smollm2"), "smollm2", "https://github.com/a/b")
    title, install = (c.source for c in with_address.cells[:2])
    assert "colab.research.google.com/github/a/b/blob/main/notebooks/smollm2.ipynb)\n\n# " in title
    assert 'os.environ.get("GENENV_REPOSITORY", "https://github.com/a/b")' in install
    assert addressed(with_address, "smollm2", "") == addressed(read("smollm2"), "smollm2", "")


@pytest.mark.parametrize("name", NAMES)
def test_code_compiles_and_what_it_names_exists(name):
    for source in sources(name, "code"):
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("genenv_jax"):
                module = importlib.import_module(node.module)
                for alias in node.names:
                    path = f"{node.module}.{alias.name}"
                    assert hasattr(module, alias.name) or importlib.util.find_spec(path), path
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "run":
                assert importlib.util.find_spec(node.args[0].value), node.args[0].value
    text = "\n".join([*sources(name, "code"), *sources(name, "markdown")])
    files = set(re.findall(r"configs/[\w/]+\.py(?::\w+)?", text))
    assert files
    for file in files:
        load_config(file, "a cell")
    for module in re.findall(r"python -m ([\w.]+)", text):
        assert importlib.util.find_spec(module), module
    for link in re.findall(r"\]\((?!https?:)([^)]+)\)", text):
        assert (ROOT / "notebooks" / link).exists(), link


@pytest.mark.parametrize("name", NAMES)
def test_the_cell_that_installs_is_the_same(name):
    assert sources(name, "code")[0] == cell("ablations", "install")


@pytest.mark.parametrize("accelerator", ["", "cuda"])
@pytest.mark.parametrize("quick", [False, True])
def test_the_settings_of_smollm2_are_settings(monkeypatch, quick, accelerator):
    monkeypatch.setenv("GENENV_QUICK", str(int(quick)))
    values = parameters("smollm2", accelerator)
    config = load_config(values["CONFIG"], "CONFIG")
    steps = config.warm_start.steps
    config.update_from_flattened_dict(values["SETTINGS"])
    config.benchmark.update({"shots": values["EXAMPLES"]} if values["EXAMPLES"] else {})
    checked = validate(config)
    check_options(**checked.benchmark)
    assert checked.benchmark["name"] == ("dial" if quick else "api_bank")
    assert (checked.epochs, checked.warm_start.steps) == ((2, 20) if quick else (5, steps))
    assert values["CONFIG"].endswith(",cpu") == (quick or not accelerator)


@pytest.mark.parametrize("size", ["quick", "small", "full"])
def test_the_suites_of_all_sizes_are_valid(monkeypatch, tmp_path, size, capsys):
    monkeypatch.setenv("GENENV_QUICK", str(int(size == "quick")))
    values = parameters("ablations") | {"SIZE": size, "RUNS": tmp_path}
    exec(cell("ablations", "suite"), values)
    plan = values["plan"]
    assert {"genenv", "random", "static-64"} <= set(plan.suite.arms)
    assert f"= {len(plan.runs())} runs" in capsys.readouterr().out
    if size == "full":
        whole = make_plan(load_config("configs/ablations/suite.py", "suite"))
        assert plan.configs == whole.configs and plan.runs() == whole.runs()
    if size == "quick":  # the same base model as the other notebook's
        values = parameters("curriculum")
        one = load_config(values["CONFIG"], "CONFIG")
        one.update_from_flattened_dict(values["SETTINGS"])
        one = flatten(validate(one).to_dict())
        for key, value in plan.configs["genenv"].items():
            if key.startswith(("warm_start.", "benchmark.", "limits.", "model.make.")):
                assert one[key] == value, key
        assert 0 in plan.suite.seeds
