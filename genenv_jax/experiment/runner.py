"""Executes a plan's runs as child processes, `jobs` at a time."""

import contextlib
import dataclasses
import fcntl
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence

from genenv_jax.experiment.plan import DONE, Plan, compare_or_store
from genenv_jax.results.suites import progress, run_dir
from genenv_jax.run.jsonl import write_json
from genenv_jax.run.metrics import read_steps
from genenv_jax.run.progress import format_seconds
from genenv_jax.system import signals

_PATIENCE = 120.0  # seconds that a run has to write its checkpoints after it is told to end
_POLL = 0.1  # seconds
_TAIL = 12  # lines shown of a failed run's log


@dataclasses.dataclass
class _Child:
    arm: str
    seed: int
    directory: pathlib.Path
    process: subprocess.Popen
    started: float


class Runner:
    """Runs what is left of a plan, `jobs` processes at a time.

    For each seed, a single run goes ahead until it has written its first metrics: it makes the warm start
    that the seed's other runs then find in the cache.

    command: that of a run, before its flags.  say: prints one line of progress.
    Raises what `compare_or_store` does, and ValueError if the suite is running already.
    """

    def __init__(
        self,
        plan: Plan,
        workdir: pathlib.Path,
        command: Sequence[str] = (sys.executable, "-m", "genenv_jax.main"),
        say: Callable[[str], None] = lambda line: print(line, flush=True),
    ):
        compare_or_store(plan, workdir)
        self.plan, self.workdir, self._command, self._say = plan, workdir, tuple(command), say
        self.failed: list[tuple[str, int]] = []
        self._children: list[_Child] = []

    def run(self) -> bool:
        """Runs what is left; returns whether all runs of the plan are finished now.

        SIGTERM and SIGINT are delivered once the active runs have been told to end; they can be continued.
        """
        runs = self.plan.runs()
        left = [run for run in runs if not self.plan.is_done(self.workdir, *run)]
        if len(left) < len(runs):
            self._say(f"{len(runs) - len(left)} of {len(runs)} runs are finished already")
        with self._lock() as lock, signals.held() as came:
            try:
                while not came and (left or self._children):
                    while run := self._next(left):
                        left.remove(run)
                        self._start(*run, lock)
                    time.sleep(_POLL)
                    ended = [c for c in self._children if c.process.poll() is not None]
                    for child in [] if came else ended:  # one that a signal ended is interrupted
                        self._children.remove(child)
                        self._collect(child, left)
            finally:
                self._end_children()
        return not self.failed

    def _next(self, left: Sequence[tuple[str, int]]) -> tuple[str, int] | None:
        """The next run that may start now, if any."""
        if len(self._children) >= self.plan.suite.jobs:
            return None
        # Without an evaluation of its starting model yet, a run may still be making it.
        making = {child.seed for child in self._children if progress(child.directory)[0] is None}
        return next((run for run in left if run[1] not in making), None)

    def arguments(self, arm: str, seed: int) -> list[str]:
        """The whole command line of a run."""
        suite = self.plan.suite
        settings = {**suite.overrides, **suite.arms[arm], "seed": seed}
        flags = [f"--config.{key}={value}" for key, value in settings.items()]
        directory = run_dir(self.workdir, arm, seed)
        return [*self._command, f"--config={suite.base}", *flags, f"--workdir={directory}"]

    def _start(self, arm: str, seed: int, lock: int) -> None:
        directory = run_dir(self.workdir, arm, seed)
        directory.parent.mkdir(parents=True, exist_ok=True)
        arguments, (before, _) = self.arguments(arm, seed), progress(directory)
        with self._log_path(arm, seed).open("ab") as log:
            log.write(f"$ {' '.join(arguments)}\n".encode())
            log.flush()
            # In its own session, so that Ctrl-C reaches it only through the suite, which ends it cleanly;
            # and with the suite's lock, so that a run that outlives the suite still holds it.
            process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=(lock,),
            )
        self._children.append(_Child(arm, seed, directory, process, time.monotonic()))
        self._say(f"{arm} seed {seed}: " + (f"continues after epoch {before}" if before else "starts"))

    def _collect(self, child: _Child, left: Sequence[tuple[str, int]]) -> None:
        """Records the outcome of a run that has ended."""
        arm, seed, code = child.arm, child.seed, child.process.returncode
        seconds, (step, _) = time.monotonic() - child.started, progress(child.directory)
        if code == 0 and self.plan.share(arm, child.directory) == 1:
            write_json(child.directory / DONE, {"epochs": step, "minutes_of_last_start": seconds / 60})
            total = len(self.plan.runs())
            finished = total - len(left) - len(self._children) - len(self.failed)
            self._say(
                f"[{finished}/{total}] {arm} seed {seed}: finished in {format_seconds(seconds)}"
                f"{self._scores(child)}"
            )
            return
        self.failed.append((arm, seed))
        epochs = self.plan.configs[arm]["epochs"]
        why = f"exit code {code}" if code else f"ended at epoch {step or 0} of {epochs}"
        if code < 0:
            with contextlib.suppress(ValueError):
                why = f"killed by {signal.Signals(-code).name}"
        path = self._log_path(arm, seed)
        self._say(f"{arm} seed {seed}: FAILED ({why}); the end of {path}:")
        for line in tail(path):
            self._say(f"    {line}")

    def _scores(self, child: _Child) -> str:
        scores = [
            record[self.plan.suite.metric]
            for record in read_steps(child.directory / "metrics.jsonl").values()
            if isinstance(record.get(self.plan.suite.metric), (int, float))
        ]
        return f", held-out {scores[0]:.3f} → {scores[-1]:.3f}" if scores else ""

    def _log_path(self, arm: str, seed: int) -> pathlib.Path:
        return self.workdir / arm / f"seed-{seed}.log"

    @contextlib.contextmanager
    def _lock(self) -> Iterator[int]:
        """Keeps another suite, or another start of this one, away from active runs."""
        handle = os.open(self.workdir / "suite.lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise ValueError(
                    f"{self.workdir} is in use by this experiment, or by a run that it left behind"
                ) from None
            yield handle
        finally:
            os.close(handle)

    def _end_children(self) -> None:
        """Tells the runs to end, so that they can be continued; kills those that do not."""
        for child in self._children:
            with contextlib.suppress(ProcessLookupError):
                child.process.terminate()
        deadline = time.monotonic() + _PATIENCE
        for child in self._children:
            try:
                child.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()
            step, _ = progress(child.directory)
            self._say(f"{child.arm} seed {child.seed}: interrupted after epoch {step or 0}")
        self._children.clear()


def tail(path: pathlib.Path, lines: int = _TAIL) -> list[str]:
    """The last lines of a log, without what a terminal would overwrite or interpret."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 16_384))
        text = file.read().decode("utf-8", "replace")
        parts = [line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")]
        shown = ["".join(c for c in part if c.isprintable())[:300] for part in parts if part.strip()]
        return shown[-lines:]
    return []
