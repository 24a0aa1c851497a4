"""Engines in processes of their own: the parent asks and waits, JSON lines travel over pipes.

A worker answers four requests, one at a time:

    {"do": "describe"}                        its name and versions
    {"do": "prepare", "work": {...}}          makes a work's inputs and compiles, running it twice
    {"do": "run", "work": {...}}              runs it again: seconds, peak memory, and what it gave
    {"do": "<method>", ...}                   any other method of the engine that takes and returns JSON

so that a parent can alternate between engines while each stays warm.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from workloads import Work


class WorkerError(RuntimeError):
    """An engine failed; the message carries its traceback."""


class Worker:
    """The parent's end.

    Args:
      name: what the tables call it.
      command: program and arguments of the process.
      env: its whole environment.
    """

    def __init__(self, name: str, command: Sequence[str], env: Mapping[str, str]):
        self.name = name
        self._process = subprocess.Popen(
            list(command), env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, do: str, **fields: Any) -> dict[str, Any]:
        """Sends a request and waits for the answer.

        Raises WorkerError if the engine raised or ended.
        """
        try:
            self._process.stdin.write(json.dumps({"do": do} | fields) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, which reading will show
        line = self._process.stdout.readline()
        if not line:
            raise WorkerError(f"{self.name}: ended with status {self._process.wait()} during {do}")
        answer = json.loads(line)
        if "error" in answer:
            raise WorkerError(f"{self.name}, {do}: {answer['error']}")
        return answer

    def prepare(self, work: Work) -> dict[str, Any]:
        """Compiles and warms up; the answer is that of the first run, compilation included."""
        return self.ask("prepare", work=dataclasses.asdict(work))

    def run(self, work: Work) -> dict[str, Any]:
        """One timed run of a prepared work: {"cpu": s, "wall": s, "peak": bytes, "value": ...}."""
        return self.ask("run", work=dataclasses.asdict(work))

    def close(self) -> None:
        """Ends the process."""
        with contextlib.suppress(BrokenPipeError):  # it has ended, with a request on its way
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def timed(function: Callable[[], Any]) -> dict[str, Any]:
    """CPU seconds of the whole process, all its threads, wall-clock seconds, and peak memory of a call.

    What a call leaves running counts in its CPU seconds: results can be there while a thread still works.
    The peak is that of the process, with its model, in bytes.
    """
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
    cpu, wall = time.process_time(), time.perf_counter()
    value = function()
    wall = time.perf_counter() - wall
    while _others_run():
        time.sleep(0.001)
    cpu = time.process_time() - cpu
    status = pathlib.Path("/proc/self/status").read_text()
    peak = 1024 * int(status.split("VmHWM:")[1].split()[0])
    return {"cpu": cpu, "wall": wall, "peak": peak, "value": value}


def _others_run() -> bool:
    """Whether another thread of this process runs, or would if it had a core."""
    own = str(threading.get_native_id())
    for task in pathlib.Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            # After the command in brackets, which may itself contain anything.
            state = (task / "stat").read_text().rpartition(")")[2].split()[0]
            if state == "R" and task.name != own:
                return True
    return False


def serve(make_engine: Callable[[], Any]) -> None:
    """The worker's end: answers requests until its input ends.

    make_engine: called once, so that a failure in it is reported too.  The engine has a method for each
    kind of `Work`, which takes the work and returns the function to time; that function waits for its
    results, and returns a JSON value.
    """
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not mix with the answers

    def answer(value: Mapping[str, Any]) -> None:
        out.write(json.dumps(value) + "\n")
        out.flush()

    engine, ready = None, {}
    for line in sys.stdin:
        try:
            request = json.loads(line)
            engine = engine or make_engine()
            do = request.pop("do")
            if do == "prepare":
                work = Work(**request["work"])
                # What was prepared for works of other kinds is dropped, to free its buffers.
                ready = {k: v for k, v in ready.items() if k.kind == work.kind}
                ready[work] = getattr(engine, work.kind)(work)
                first = timed(ready[work])
                # Some engines compile once more for the state that a step leaves.
                timed(ready[work])
                answer(first)
            elif do == "run":
                answer(timed(ready[Work(**request["work"])]))
            else:
                answer({"value": getattr(engine, do)(**request)})
        except Exception:  # the parent decides what becomes of it
            answer({"error": traceback.format_exc()})
