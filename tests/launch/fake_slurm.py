"""A stand-in for Slurm that runs a batch script's steps in real processes on this machine.

`Cluster.submit` is sbatch and the controller: it reads the script's #SBATCH lines, runs it, and starts it
again when asked to.  srun, scancel and scontrol are commands in `commands`, and so is the program,
`python`: a shell script that holds its workdir's run.lock, appends to its metrics.jsonl, and on SIGTERM
releases the lock and exits with code 143.  In the control directory:

    srun            what srun was called with, one line a call
    requeue         made by scontrol
    tasks/N         process id of task N while it runs
    ready/N         exists once task N handles signals
    hang            while this file exists the program runs on
    exit/N          exit code of task N; the others then end by themselves, with 143
"""

import contextlib
import os
import pathlib
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable

SRUN = """#!/bin/bash
# The tasks in the background, each with what JAX reads; the exit code is the highest, as Slurm has it.
printf '%q ' "$@" >>{control}/srun
echo >>{control}/srun
options=()
while [[ $1 == -* ]]; do options+=("$1"); shift; done
export SLURM_NTASKS=2 SLURM_STEP_NODELIST=localhost SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=1
trap '' TERM
for ((task = 0; task < 2; task++)); do
  (trap - TERM; echo $BASHPID >{control}/tasks/$task; SLURM_PROCID=$task SLURM_LOCALID=$task exec "$@") &
  pids[task]=$!
done
highest=0
for pid in "${{pids[@]}}"; do
  code=0
  wait "$pid" || code=$?
  ((code <= highest)) || highest=$code
done
rm -f {control}/tasks/*
exit "$highest"
"""
SCANCEL = """#!/bin/bash
[[ "$*" == "--signal=TERM 42" ]] && kill -TERM $(cat {control}/tasks/*)
"""
SCONTROL = """#!/bin/bash
[[ "$*" == "requeue 42" ]] && touch {control}/requeue
"""
PROGRAM = """#!/bin/bash
for argument in "$@"; do [[ $argument == --workdir=* ]] && workdir=${{argument#*=}}; done
finish() {{
  if ((SLURM_PROCID == 0)); then rm -f "$workdir/run.lock"; fi
  exit "$1"
}}
trap 'finish 143' TERM
if ((SLURM_PROCID == 0)); then
  if [[ -e $workdir/run.lock ]]; then echo "error: in use on another host" >&2; exit 2; fi
  echo "{{}}" >>"$workdir/metrics.jsonl"
  touch "$workdir/run.lock"
fi
touch {control}/ready/$SLURM_PROCID
while [[ -e {control}/hang ]]; do sleep 0.02; done
if [[ -e {control}/exit/$SLURM_PROCID ]]; then finish "$(cat {control}/exit/$SLURM_PROCID)"; fi
if compgen -G "{control}/exit/*" >/dev/null; then finish 143; fi
finish 0
"""


class Cluster:
    """Two tasks, job 42.

    Args:
      directory: for the commands, the control directory and the workdir.
    Attributes:
      starts: how often the script was started.
    """

    def __init__(self, directory: pathlib.Path):
        self.commands, self.control = directory / "commands", directory / "control"
        self.workdir = directory / "run"
        parts = [self.control / name for name in ("tasks", "ready", "exit")]
        for path in (self.commands, self.workdir, *parts):
            path.mkdir(parents=True)
        for name, text in {"srun": SRUN, "scancel": SCANCEL, "scontrol": SCONTROL, "python": PROGRAM}.items():
            (self.commands / name).write_text(text.format(control=self.control))
            (self.commands / name).chmod(0o755)
        self.starts = 0

    def submit(
        self, script: pathlib.Path, *arguments: str, during: Callable | None = None, **environment: str
    ) -> subprocess.CompletedProcess:
        """Runs a job to its end.

        Args:
          during: called with the process of the first start once both tasks run; returns whether Slurm itself
            starts the job again.
        """
        directives = shlex.split(" ".join(re.findall(r"(?m)^#SBATCH (.*)", script.read_text())))
        while True:
            assert self.starts < 4, "the job is started again and again"
            (self.control / "requeue").unlink(missing_ok=True)
            process = subprocess.Popen(
                ["bash", script, *arguments],
                env=os.environ
                | {"PATH": f"{self.commands}:{os.environ['PATH']}", "SLURM_JOB_ID": "42"}
                | ({"SLURM_RESTART_COUNT": str(self.starts)} if self.starts else {})
                | environment,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            )  # fmt: skip
            self.starts += 1
            again = False
            try:
                if during is not None:
                    self._wait_for_tasks()
                    again = during(process)
                    (self.control / "hang").unlink(missing_ok=True)
                    during = None
                stdout, stderr = process.communicate(timeout=60)
            except BaseException:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                raise
            if "--requeue" not in directives or not (again or (self.control / "requeue").exists()):
                return subprocess.CompletedProcess(arguments, process.returncode, stdout, stderr)

    def _wait_for_tasks(self) -> None:
        end = time.monotonic() + 20
        while len(list((self.control / "ready").iterdir())) < 2:
            assert time.monotonic() < end, "the tasks did not start"
            time.sleep(0.01)
