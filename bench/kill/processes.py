"""Processes that run the command and report each phase as it begins."""

import atexit
import os
import pathlib
import runpy
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

_PHASE_OF = {
    "train base model": "warm start", "compile": "compile", "generate": "sampling", "interact": "sampling",
    "evaluate (sampled)": "sampling", "evaluate (greedy)": "sampling", "verify": "scoring",
    "score": "scoring", "update agent": "update", "update simulator": "update",
    "checkpoint": "checkpoint", "export": "export",
}  # fmt: skip


def _say_phases(pipe: Connection) -> None:
    """Sends the name of each phase of a run as it begins."""
    from genenv_jax.players.player import Player
    from genenv_jax.run.progress import Progress
    from genenv_jax.run.session import Session

    def marked(function: Any, name: str = "") -> Any:
        def call(self: Any, what: Any, *rest: Any, **options: Any) -> Any:
            if phase := _PHASE_OF.get(name or what):
                pipe.send(phase)
            return function(self, what, *rest, **options)

        return call

    Session.measure, Progress.phase = marked(Session.measure), marked(Progress.phase)
    Player.export = marked(Player.export, "export")


def _run(arguments: Sequence[str], log: pathlib.Path) -> int:
    """Runs the command; returns its exit code."""
    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.argv = ["genenv_jax.main", *arguments]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        runpy.run_module("genenv_jax.main", run_name="__main__", alter_sys=True)
        return 0
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1


class Child:
    """A process, forked with all modules imported, that runs the command once.

    Args:
      arguments: of the command.
      log: file for what it prints.
    """

    def __init__(self, arguments: Sequence[str], log: pathlib.Path):
        self._pipe, theirs = Pipe(duplex=False)
        self.pid = os.fork()
        if self.pid == 0:
            self._pipe.close()
            status = 1
            try:
                _say_phases(theirs)
                status = _run(arguments, log)
                atexit._run_exitfuncs()
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(status)
        theirs.close()

    def phases(self, seconds: float) -> Iterator[str]:
        """Phases as they begin, until the command ends.

        Raises TimeoutError, and ends the process, if that takes longer.
        """
        deadline = time.monotonic() + seconds
        while self._pipe.poll(max(0.0, deadline - time.monotonic())):
            try:
                yield self._pipe.recv()
            except EOFError:
                return
        os.kill(self.pid, signal.SIGKILL)
        raise TimeoutError(f"the command does not end within {seconds:g} s")

    def begun(self) -> list[str]:
        """Phases that have begun meanwhile."""
        found = []
        while self._pipe.poll():
            try:
                found.append(self._pipe.recv())
            except EOFError:
                break
        return found

    def wait(self) -> int:
        """The exit code of a process that ends, or minus the signal that ended it."""
        self._pipe.close()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def _children() -> list[int]:
    path = pathlib.Path(f"/proc/self/task/{os.getpid()}/children")
    return [int(pid) for pid in path.read_text().split()] if path.exists() else []


def _ends_soon(pid: int) -> bool:
    deadline = time.monotonic() + 5.0
    while time.monotonic() < deadline:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return True
        time.sleep(0.05)
    return False


def orphans() -> list[int]:
    """Processes that this one, as subreaper, has inherited and that still run."""
    return [pid for pid in _children() if not _ends_soon(pid)]
