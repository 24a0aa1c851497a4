"""The Dockerfile: what it copies is there and is enough, and what it runs takes a command line."""

import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINES = re.sub(r"(?m)\\\n|^#.*\n", "", (ROOT / "Dockerfile").read_text()).splitlines()
STEPS = [line.split(None, 1) for line in LINES if line]


def copied():
    """Source and target of every COPY, as they are in the repository and in the image."""
    for step, text in STEPS:
        if step == "COPY":
            *sources, target = text.split()
            yield from ((source, target) for source in sources)


def test_what_is_copied_exists_and_is_not_ignored():
    first, *kept = (ROOT / ".dockerignore").read_text().splitlines()
    assert first == "*"
    sources = [source for source, _ in copied()]
    assert sorted(f"!{source}" for source in sources) == sorted(k for k in kept if k[0] == "!")
    assert all((ROOT / source).exists() for source in sources)


def test_it_runs_as_a_user_that_it_makes():
    (made,) = re.findall(r"useradd .*--uid (\d+)", " ".join(LINES))
    users = [text for step, text in STEPS if step == "USER"]
    assert users == [made] and int(made) > 0
    assert STEPS[-1] == ["ENTRYPOINT", '["python", "-m", "genenv_jax.main"]']


def test_extras_are_optional():
    """pip takes no empty brackets."""
    (argument,) = re.findall(r'--editable (".*?")', " ".join(LINES))
    for extras, expected in (("", "."), ("tpu,endpoint", ".[tpu,endpoint]")):
        command = ["bash", "-c", f"echo {argument}"]
        done = subprocess.run(command, env={"EXTRAS": extras}, capture_output=True, check=True)
        assert done.stdout.decode() == expected + "\n"


def copy(source, target):
    if (ROOT / source).is_dir():
        shutil.copytree(ROOT / source, target)
    else:
        shutil.copy(ROOT / source, target)


@pytest.mark.slow
def test_what_is_copied_before_the_installation_is_enough_for_it(tmp_path):
    """The step up to pip, then the metadata that pip would make."""
    installs = next(i for i, (_, text) in enumerate(STEPS) if "pip install" in text)
    for step, text in STEPS[:installs]:
        if step == "COPY":
            *sources, target = text.split()
            for source in sources:
                copy(source, tmp_path / target)
    before, _ = STEPS[installs][1].split("&& pip install")
    command = f"{before} && {sys.executable} setup.py --quiet egg_info"
    done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "genenv_jax.egg-info" / "requires.txt").is_file()


@pytest.mark.slow
def test_the_program_runs_from_what_is_copied(tmp_path):
    for source, target in copied():
        copy(source, tmp_path / target)
    arguments = ["-m", "genenv_jax.main", "--config=configs/quickstart.py", "--print_config"]
    done = subprocess.run(
        [sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and "config.model." in done.stdout, done.stderr


def _docker():
    command = ["docker", "info"]
    return shutil.which("docker") and not subprocess.run(command, capture_output=True).returncode


@pytest.mark.slow
def test_it_can_be_built():
    if not _docker():
        pytest.skip("needs Docker with a daemon that runs")
    tag = "genenv_jax:test"
    subprocess.run(["docker", "build", "--quiet", "--tag", tag, ROOT], check=True)
    done = subprocess.run(
        ["docker", "run", "--rm", tag, "--config=configs/quickstart.py", "--print_config"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "config.model." in done.stdout
