import re
import shutil
import subprocess
import sys

import pytest

from tests.commands import QUICK, ROOT, command

LINES = re.sub(r"(?m)\\\n|^#.*\n", "", (ROOT / "Dockerfile").read_text()).splitlines()
STEPS = [line.split(None, 1) for line in LINES if line]


def test_what_is_copied_exists_and_is_not_ignored():
    first, *kept = (ROOT / ".dockerignore").read_text().splitlines()
    assert first == "*"
    sources = [source for step, text in STEPS if step == "COPY" for source in text.split()[:-1]]
    assert sorted(f"!{source}" for source in sources) == sorted(k for k in kept if k[0] == "!")
    assert all((ROOT / source).exists() for source in sources)


def test_it_runs_as_a_user_that_it_makes():
    (made,) = re.findall(r"useradd .*--uid (\d+)", " ".join(LINES))
    assert [text for step, text in STEPS if step == "USER"] == [made] and int(made) > 0
    assert STEPS[-1] == ["ENTRYPOINT", '["python", "-m", "genenv_jax.main"]']


def test_extras_are_optional():
    """pip rejects empty brackets."""
    (argument,) = re.findall(r'--editable (".*?")', " ".join(LINES))
    for extras, expected in (("", "."), ("tpu,endpoint", ".[tpu,endpoint]")):
        command = ["bash", "-c", f"echo {argument}"]
        done = subprocess.run(command, env={"EXTRAS": extras}, capture_output=True, check=True)
        assert done.stdout.decode() == expected + "\n"


@pytest.mark.slow
def test_what_is_copied_is_enough_for_the_installation_and_the_program(tmp_path):
    """Follows the steps in order; in place of pip, builds the metadata that it would make."""
    for step, text in STEPS:
        if step == "COPY":
            *sources, target = text.split()
            for source in sources:
                if (ROOT / source).is_dir():
                    shutil.copytree(ROOT / source, tmp_path / target, dirs_exist_ok=True)
                else:
                    shutil.copy(ROOT / source, tmp_path / target)
        elif "pip install" in text:
            before, _ = text.split("&& pip install")
            build = f"{before} && {sys.executable} setup.py --quiet egg_info"
            subprocess.run(build, shell=True, cwd=tmp_path, check=True)
            assert (tmp_path / "genenv_jax.egg-info" / "requires.txt").is_file()
    done = command("main", QUICK, "--print_config", cwd=tmp_path)
    assert done.returncode == 0 and "config.model." in done.stdout, done.stderr
