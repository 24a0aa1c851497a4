"""Processes that run the command, and say which phase of it begins."""

from __future__ import annotations

import os
import pathlib
import runpy
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

_PHASE_OF = {
    "train base model": "warm start", "compile": "compile", "generate": "sampling", "interact": "sampling",
    "evaluate (sampled)": "sampling", "evaluate (greedy)": "sampling", "verify": "scoring",
    "score": "scoring", "update agent": "update", "update simulator": "update",
    "checkpoint": "checkpoint", "export": "export",
}  # fmt: skip


def _serve(pipe: Connection, keep: bool) -> None:
    """The child: runs commands one after another, and says which phase begins."""
    import contextlib

    from genenv_jax.players.player import Player
    from genenv_jax.run.progress import Progress
    from genenv_jax.run.session import Session

    def marked(function: Any, name: str = "") -> Any:
        def call(self: Any, what: Any, *rest: Any, **options: Any) -> Any:
            if phase := _PHASE_OF.get(name or what):
                pipe.send(("phase", phase))
            return function(self, what, *rest, **options)

        return call

    Session.measure, Progress.phase = marked(Session.measure), marked(Progress.phase)
    Player.export = marked(Player.export, "export")
    if keep:  # a signal that comes when the command has ended is too late
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, lambda *_: None)
    else:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    from absl import flags

    known = set(flags.FLAGS)
    while True:
        try:
            argv, log = pipe.recv()
        except EOFError:
            os._exit(0)
        with open(log, "w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        sys.argv, code = ["genenv_jax.main", *argv], 0
        sys.modules.pop("genenv_jax.main", None)
        try:
            runpy.run_module("genenv_jax.main", run_name="__main__", alter_sys=True)
        except SystemExit as end:
            if not keep:
                raise
            code = end.code or 0
        except BaseException:
            if not keep:
                raise
            traceback.print_exc()
            code = 1
        if not keep:
            sys.exit(0)
        for name in set(flags.FLAGS) - known:
            delattr(flags.FLAGS, name)
        flags.FLAGS.unparse_flags()
        with contextlib.suppress(ValueError):
            sys.stdout.flush()
        pipe.send(("end", code))


class Child:
    """A process that runs commands.  keep: it stays when one has ended."""

    def __init__(self, keep: bool):
        self.pipe, theirs = Pipe()
        self.keep, self.pid, self.code = keep, os.fork(), None
        if self.pid == 0:
            self.pipe.close()
            status = 1
            try:
                _serve(theirs, keep)
            except SystemExit as end:
                status = end.code if isinstance(end.code, int) else int(end.code is not None)
            except BaseException:
                traceback.print_exc()
            import atexit

            atexit._run_exitfuncs()
            sys.stderr.flush()
            os._exit(status)
        theirs.close()

    def events(self, seconds: float) -> Iterator[tuple[str, Any]]:
        """("phase", name) as they begin, and ("end", exit code) when the command ends."""
        deadline = time.monotonic() + seconds
        try:
            while self.pipe.poll(max(0.0, deadline - time.monotonic())):
                event = self.pipe.recv()
                yield event
                if event[0] == "end":
                    return
        except (EOFError, ConnectionResetError):
            yield "end", self.wait()
            return
        self.kill()
        yield "end", "does not end"

    def meanwhile(self) -> Iterator[tuple[str, Any]]:
        """Those of the `events` that have come already."""
        try:
            while self.pipe.poll():
                event = self.pipe.recv()
                yield event
                if event[0] == "end":
                    return
        except (EOFError, ConnectionResetError):
            yield "end", self.wait()

    def wait(self) -> int:
        """The exit code of a process that ends."""
        if self.code is None:
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.code

    def kill(self) -> None:
        """Ends the process."""
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()
        self.pipe.close()


def _children() -> list[int]:
    path = pathlib.Path(f"/proc/self/task/{os.getpid()}/children")
    return [int(pid) for pid in path.read_text().split()] if path.exists() else []


def _ended_within(pid: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return True
        time.sleep(0.05)
    return False


def orphans(child: Child) -> list[int]:
    """Processes that this one, as the subreaper, has inherited and that run on; the child itself may."""
    return [pid for pid in _children() if pid != child.pid and not _ended_within(pid, 5.0)]
