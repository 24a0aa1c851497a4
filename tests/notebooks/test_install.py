"""The first code cell, where no package is installed."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.launch.programs import committed
from tests.notebooks.stored import NAMES, ROOT, cell


@pytest.fixture
def install(tmp_path):
    """Runs the cell; `stubs` are modules that a fake installation brings."""

    def run(environment, stubs=()):
        library, here = tmp_path / "library", tmp_path / "here"
        for stub in stubs:
            (library / stub).mkdir(parents=True)
            (library / stub / "__init__.py").write_text("__version__ = '1'\n")
        if stubs:
            (library / "pip").mkdir()
            (library / "pip" / "__init__.py").touch()
            (library / "pip" / "__main__.py").write_text("import sys; print('PIP', sys.argv[1:])\n")
        here.mkdir(exist_ok=True)
        dropped = ("GENENV_", "TPU_", "PYTHON")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
        return subprocess.run(
            [sys.executable, "-S", "-c", cell("ablations", "install")], cwd=here,
            env=kept | {"PYTHONPATH": str(library), "GIT_CONFIG_GLOBAL": os.devnull} | environment,
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    return run


def test_without_a_repository_the_message_names_what_is_missing(install, tmp_path):
    # A folder of its name without __init__.py is not the package.
    (tmp_path / "library" / "genenv_jax").mkdir(parents=True)
    result = install({})
    assert result.returncode == 1 and "no address to clone it from" in result.stderr
    assert "into REPOSITORY in this cell, or upload a wheel" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_wheel_beside_the_notebook_is_installed(install, tmp_path):
    wheel = tmp_path / "here" / "genenv_jax-0.1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.touch()
    result = install({"TPU_NAME": "local"}, stubs=("jax", "flax", "ml_collections", "genenv_jax"))
    assert result.returncode == 0, result.stderr
    assert f"'install', '--quiet', '{wheel}[tpu]'" in result.stdout


@pytest.mark.parametrize(("machine", "extra"), [("tpu", "[tpu]"), ("gpu", "[cuda]")])
def test_it_clones_and_installs_what_the_machine_needs(install, tmp_path, machine, extra):
    repository = tmp_path / "repository"
    for file in ("genenv_jax/__init__.py", "genenv_jax/main.py", "configs/quickstart.py"):
        (repository / file).parent.mkdir(parents=True, exist_ok=True)
        (repository / file).touch()
    environment = {"GENENV_REPOSITORY": committed(repository).as_uri()}
    if machine == "tpu":
        environment["TPU_NAME"] = "local"
    else:
        programs = tmp_path / "programs"
        programs.mkdir()
        (programs / "nvidia-smi").write_text("#!/bin/sh\necho 'GPU 0: a GPU'\n")
        (programs / "nvidia-smi").chmod(0o755)
        environment["PATH"] = f"{programs}:{os.environ['PATH']}"
    result = install(environment, stubs=("jax", "flax", "ml_collections", "matplotlib"))
    assert result.returncode == 0, result.stderr
    cloned = tmp_path / "here" / "genenv"
    assert f"'install', '--quiet', '--editable', '{cloned}{extra}'" in result.stdout
    said = f"genenv_jax of {cloned}/genenv_jax, runs below {cloned}; accelerator: {extra[1:-1]}"
    assert said in result.stdout


INSTALLED = """
import os, pathlib
{install}
assert pathlib.Path.cwd() == ROOT == pathlib.Path(os.environ["PWD"]).resolve(), (pathlib.Path.cwd(), ROOT)
from genenv_jax.cli import load_config
{parameters}
print(pathlib.Path(load_config.__code__.co_filename))
"""
PARAMETERS = """
{cell}
load_config(globals().get("CONFIG", "configs/ablations/suite.py"), "a cell")
assert RUNS == ROOT / "runs" / "notebooks"
"""


def test_an_installed_package_needs_no_checkout(tmp_path):
    """As a wheel lays it out, from an empty directory: the cells that follow find their configurations."""
    library, here = tmp_path / "library", tmp_path / "here"
    here.mkdir()
    library.mkdir()
    shutil.copytree(ROOT / "genenv_jax", library / "genenv_jax", ignore=shutil.ignore_patterns("__pycache__"))
    parameters = "".join(PARAMETERS.format(cell=cell(name, "parameters")) for name in NAMES)
    code = INSTALLED.format(install=cell("ablations", "install"), parameters=parameters)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("GENENV_", "TPU_"))}
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=here, env=kept | {"PYTHONPATH": str(library), "PWD": str(here)},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    package = library / "genenv_jax"
    said, found = result.stdout.splitlines()
    assert said.startswith(f"genenv_jax of {package}, runs below {here}; accelerator: ")
    assert found == str(package / "cli.py")
    assert list(here.iterdir()) == []
