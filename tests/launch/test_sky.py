"""The task for SkyPilot: valid, and its commands do what they say."""

import os
import re
import shutil
import subprocess

import pytest
import yaml

from tests.commands import ROOT
from tests.launch import programs

TASK = yaml.safe_load((ROOT / "launch/sky.yaml").read_text())

PYTHON = """#!/bin/sh
printf '%s\\n' "$@" >"{control}/arguments"
echo "$GENENV_DATA" >"{control}/data"
if [ -e "{bucket}/runs/first/run.lock" ]; then exit 2; fi
"""


def test_it_is_valid():
    assert programs.schema_errors("sky", TASK) == []
    assert programs.schema_errors("sky", TASK | {"secret": {}})


def test_it_asks_for_a_spot_tpu_or_gpu_and_comes_again():
    resources = TASK["resources"]
    assert resources["use_spot"] is True
    tpu, gpu = resources["any_of"]
    assert tpu["accelerators"].startswith("tpu-") and not gpu["accelerators"].startswith("tpu-")
    # As in tpu_vm.sh for the same generation.
    version = tpu["accelerator_args"]["runtime_version"]
    assert f"v5litepod-*) version={version} " in (ROOT / "launch/tpu_vm.sh").read_text()
    assert resources["job_recovery"]["recover_on_exit_codes"] == [143]
    extras = re.findall(r"extra=(\w+)", TASK["setup"])
    text = (ROOT / "setup.py").read_text()
    assert len(extras) == 2 and all(f'"{extra}": [' in text for extra in extras)


@pytest.fixture
def machine(tmp_path):
    """Runs `run` on a machine of its own: the bucket and the home are directories."""
    bucket, control = tmp_path / "bucket", tmp_path / "control"
    program = tmp_path / "home/genenv/bin/python"
    for path in (bucket, control, program.parent):
        path.mkdir(parents=True)
    program.write_text(PYTHON.format(control=control, bucket=bucket))
    program.chmod(0o755)

    variables = {"NAME": "first", "CONFIG": "configs/quickstart.py"}

    def run(task_id):
        return subprocess.run(
            ["bash", "-c", TASK["run"].replace("/bucket", str(bucket))],
            env=os.environ | variables | {"HOME": str(tmp_path / "home"), "SKYPILOT_TASK_ID": task_id},
            capture_output=True, check=False,
        ).returncode  # fmt: skip

    run.bucket, run.control = bucket, control
    return run


def test_a_job_that_comes_again_takes_over_its_lock_and_no_other(machine):
    lock = machine.bucket / "runs/first/run.lock"
    assert machine("job-1") == 0
    lock.touch()  # the machine was taken away
    other = lock.with_name("models") / ".api_bank.lock"  # in a warm start
    other.parent.mkdir()
    other.touch()
    assert machine("job-2") == 2 and lock.exists() and other.exists()
    (machine.bucket / "runs/first/sky-task").write_text("job-1\n")
    assert machine("job-1") == 0 and not lock.exists() and not other.exists()


def test_the_program_takes_its_arguments(machine):
    (machine.bucket / "data").mkdir()
    assert machine("job-1") == 0
    module, name, *arguments = (machine.control / "arguments").read_text().splitlines()
    assert (module, name) == ("-m", "genenv_jax.main")
    workdir = f"{machine.bucket}/runs/first"
    assert arguments[1:] == [f"--workdir={workdir}", f"--config.model.make.cache_dir={workdir}/models"]
    assert (machine.control / "data").read_text().strip() == f"{machine.bucket}/data"
    assert programs.accepted(arguments) is False


@pytest.mark.parametrize("part", ["setup", "run"])
@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="needs shellcheck")
def test_its_shell_is_clean(part):
    subprocess.run(["shellcheck", "--shell=bash", "-"], input=TASK[part], text=True, check=True)
