import os
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

from genenv_jax import cli
from tests.commands import ROOT

FILES = sorted(file.relative_to(ROOT) for file in (ROOT / "configs").rglob("*.py"))


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed package with one configuration; the working directory is elsewhere."""
    package = tmp_path / "library" / "genenv_jax"
    (package / "configs").mkdir(parents=True)
    (package / "configs" / "small.py").touch()
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(cli, "_PACKAGE", package)
    return package


def test_a_file_of_the_package_is_found_and_said(package, tmp_path, capsys):
    file = package / "configs" / "small.py"
    assert cli.find_config("configs/small.py:lora") == f"{file}:lora"
    assert capsys.readouterr().err == f"config: there is no configs/small.py here; using {file}\n"
    (tmp_path / "work" / "configs").mkdir()  # the working directory comes first
    (tmp_path / "work" / "configs" / "small.py").touch()
    assert cli.find_config("configs/small.py") == "configs/small.py"
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("path", ["configs/none.py", "small.py", "/configs/small.py", "configs", ""])
def test_other_paths_stay_as_they_are(package, path, capsys):
    (package.parent / "configs").mkdir()  # not the package's, which are inside it
    (package.parent / "configs" / "none.py").touch()
    assert cli.find_config(path) == path and capsys.readouterr().err == ""


def test_both_forms_of_the_flag(package):
    file = package / "configs" / "small.py"
    given = ["configs/small.py", "--config", "configs/small.py:a", "--config.epochs=1", "-config"]
    found = cli._find_configs([*given, "configs/small.py", "--config=configs/small.py"])
    assert found == [
        *("configs/small.py", "--config", f"{file}:a", "--config.epochs=1", "-config"),
        *(str(file), f"--config={file}"),
    ]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("small", "did you mean configs/small.py?"),
        ("smal.py:lora", "did you mean configs/small.py?"),
        ("mini", "did you mean mine.py?"),
        ("other", "configs/ has small.py"),
        ("deep/other.py", "deep/ has some.py"),
    ],
)
def test_a_file_that_is_not_there(package, tmp_path, given, said):
    """The file meant may lie nearby, or be one of the package's."""
    (tmp_path / "work" / "deep").mkdir()
    for name in ("mine.py", "deep/some.py"):
        (tmp_path / "work" / name).touch()
    file = given.partition(":")[0]
    message = re.escape(f"--config={file}: no such file; {said}")
    for argv in ([f"--config={given}"], ["--config", given, "--x"]):
        with pytest.raises(ValueError, match=f"^{message}$"):
            cli._find_configs(argv)


LOAD = """
import sys
from genenv_jax.cli import load_config
from ml_collections import ConfigDict
for name in sys.argv[1:]:
    config = load_config(name + (":steering" if name.endswith("studies.py") else ""), name)
    assert isinstance(config, ConfigDict)
print(load_config.__code__.co_filename)
"""


@pytest.mark.slow
def test_a_wheel_is_whole(tmp_path):
    """It carries what the package reads, and its configurations load outside of a checkout."""
    source, library, work = (tmp_path / name for name in ("source", "library", "work"))
    work.mkdir()
    for name in ("genenv_jax", "configs"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=ignored)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    build = ["wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", tmp_path, source]
    subprocess.run([*pip, *build], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    here = [f for f in (ROOT / "genenv_jax").rglob("*") if f.is_file() and f.suffix != ".pyc"]
    wanted = {f"genenv_jax/{file}" for file in FILES}
    wanted |= {file.relative_to(ROOT).as_posix() for file in here}
    assert wanted == {name for name in names if ".dist-info/" not in name}
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {f"genenv_jax/{part}" for part in ("py.typed", "publish/card.jinja")} <= names

    install = ["install", "--no-deps", "--target", library, wheel]
    subprocess.run([*pip, *install], check=True, capture_output=True)
    environment = os.environ | {"PYTHONPATH": str(library)}
    loaded = [file for file in FILES if file.name != "recipes.py"]
    command = [sys.executable, "-c", LOAD, *map(str, loaded)]
    result = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == str(library / "genenv_jax" / "cli.py")
    assert all(f"using {library / 'genenv_jax' / file}\n" in result.stderr for file in loaded)
    flags = ["--config=configs/quickstart.py:lora", "--print_config"]
    command = [sys.executable, "-m", "genenv_jax.main", *flags]
    result = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0 and "config.lora.rank = 8  (default: 0)" in result.stdout
