"""The batch script against a stand-in for Slurm."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys

import pytest

from tests.commands import ROOT, call
from tests.launch import fake_slurm

SCRIPT = ROOT / "launch/slurm.sbatch"

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")


@pytest.fixture
def cluster(tmp_path):
    return fake_slurm.Cluster(tmp_path)


def submit(cluster, *more, **options):
    arguments = ["--config=configs/quickstart.py", f"--workdir={cluster.workdir}", *more]
    return cluster.submit(SCRIPT, *arguments, **options)


def epochs(cluster):
    return (cluster.workdir / "metrics.jsonl").read_text().count("{}")


def test_a_run_starts_one_process_a_task(cluster):
    done = submit(cluster, "--config.a=two words", SLURM_CPUS_PER_TASK="8")
    assert done.returncode == 0, done.stderr
    assert cluster.starts == 1
    (call,) = (cluster.control / "srun").read_text().splitlines()
    assert shlex.split(call) == [
        *["--kill-on-bad-exit=0", "--wait=300", "--cpus-per-task=8"],
        *["python", "-m", "genenv_jax.main", "--distributed=auto"],
        *["--config=configs/quickstart.py", f"--workdir={cluster.workdir}", "--config.a=two words"],
        f"--config.model.make.cache_dir={cluster.workdir}/models",
    ]


@pytest.mark.parametrize("own", [(), ("--config.model.make.cache_dir=/elsewhere",)])
def test_the_program_understands_its_arguments(cluster, own):
    assert submit(cluster, *own).returncode == 0
    (line,) = (cluster.control / "srun").read_text().splitlines()
    shown = call("main", *shlex.split(line)[7:], "--print_config")
    cache = "/elsewhere" if own else f"{cluster.workdir}/models"
    assert shown.returncode == 0 and f"cache_dir = '{cache}'" in shown.stdout, shown.stderr


def test_the_time_limit_ends_the_run_and_queues_it_again(cluster):
    (cluster.control / "hang").touch()
    # The script says what Slurm sends, when, and to whom.
    assert re.search(r"(?m)^#SBATCH --signal=B:USR1@\d+$", SCRIPT.read_text())

    def limit(process):
        process.send_signal(signal.SIGUSR1)
        process.wait(30)
        assert not (cluster.workdir / "run.lock").exists()  # the program has ended
        return False

    done = submit(cluster, during=limit)
    assert done.returncode == 0, done.stderr
    assert cluster.starts == 2 and epochs(cluster) == 2


def test_after_a_node_has_failed_the_run_goes_on_though_its_lock_is_left(cluster):
    (cluster.control / "hang").touch()
    warm_start = cluster.workdir / "models/.base.lock"

    def fail(process):
        os.killpg(process.pid, signal.SIGKILL)
        assert (cluster.workdir / "run.lock").exists()
        warm_start.parent.mkdir()
        warm_start.touch()
        return True

    done = submit(cluster, during=fail)
    assert done.returncode == 0, done.stderr
    assert cluster.starts == 2 and epochs(cluster) == 2 and not warm_start.exists()


@pytest.mark.parametrize("again", [True, False])
def test_a_preempted_run_saves_and_slurm_alone_starts_it_again(cluster, again):
    """Where it does not, the run was cancelled."""
    (cluster.control / "hang").touch()

    def preempt(process):
        os.killpg(process.pid, signal.SIGTERM)  # the shell and the tasks
        assert process.wait(30) == 143
        assert not (cluster.workdir / "run.lock").exists()
        assert not (cluster.control / "requeue").exists()
        return again

    done = submit(cluster, during=preempt)
    assert done.returncode == (0 if again else 143), done.stderr
    assert cluster.starts == 1 + again


def test_a_run_goes_on_where_slurm_does_not_take_the_signal(cluster):
    (cluster.control / "hang").touch()
    (cluster.commands / "scancel").write_text("#!/bin/bash\nexit 1\n")

    def limit(process):
        process.send_signal(signal.SIGUSR1)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        return False

    assert submit(cluster, during=limit).returncode == 0 and cluster.starts == 1


def test_a_failing_worker_ends_the_job_for_good(cluster):
    (cluster.control / "exit/1").write_text("5")  # the other ends with 143, which is what srun returns
    assert submit(cluster).returncode == 143 and cluster.starts == 1


def test_a_workdir_that_another_run_holds_is_not_taken_at_the_first_start(cluster):
    (cluster.workdir / "run.lock").touch()
    assert "in use" in submit(cluster).stderr and (cluster.workdir / "run.lock").exists()
    assert cluster.starts == 1


@pytest.mark.parametrize("given", ["--config=configs/quickstart.py", "--workdir=run"])
def test_missing_arguments_are_named(cluster, given):
    done = cluster.submit(SCRIPT, given)
    assert done.returncode == 2 and "expected --config=FILE and --workdir=DIR" in done.stderr
    assert not (cluster.control / "srun").exists()


@pytest.mark.slow
def test_the_program_finds_its_processes(cluster):
    """Two real processes join through Slurm's variables, and end."""
    done = submit(cluster, "--print_config", PYTHON=sys.executable, PYTHONPATH=str(ROOT))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("config.model.") >= 2
