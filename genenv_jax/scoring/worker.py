"""A worker process: its program, and how the run communicates with it.

    worker = Worker(benchmark, timeout=60)
    worker.ask("score", (task, text))       # a Score; or NoAnswer after 60 s, or when the process dies

The program gets the parent's import path and nothing else of the parent.  Unlike multiprocessing it does not
import the parent's main module, which may import JAX or start the run again.  Requests go to it one at a
time over its own socket, so a worker's failure affects one question only.

A process contains accidents (endless loops, crashes of native code, exhausted memory), and `isolation`
removes its access to what it does not need: network, files, other processes.  Its replies are data and never
unpickled.  As everywhere, a model's text is parsed, never evaluated.
"""

import contextlib
import json
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
from multiprocessing.connection import Connection
from typing import Any

from genenv_jax.benchmarks.base import Benchmark
from genenv_jax.scoring import isolation, requests
from genenv_jax.scoring.open_episodes import OpenEpisodes

_START_TIMEOUT = 300.0  # seconds to import a benchmark's packages
_GRACE = 5.0  # seconds after the timeout at which a worker that was not killed ends itself
_ATTEMPTS = 3  # attempts to start a worker
_LOOK = 0.5  # seconds between size checks of the directory of a worker that may write
_MAX_REPLY = 2**22  # bytes; as JSON its lists may take thirty times as much
_HEADER = struct.Struct("!i")  # before each message, as `multiprocessing.connection` writes it

_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]); "
    "from genenv_jax.scoring.worker import serve; serve(int(sys.argv[1]))"
)


class NoAnswer(Exception):
    """A worker gave no answer.  how: `requests.TIMEOUT` or `requests.CRASH`.  detail: for the log."""

    def __init__(self, how: str, detail: str):
        super().__init__(how, detail)
        self.how, self.detail = how, detail


class Worker:
    """One worker process, replaced if it dies.  Used by one thread at a time; any thread may `close` it.

    timeout: seconds for one answer.
    memory: limit on the process's data, in GiB; 0 for no limit.
    protections: what `isolation.isolate` returned in the process; empty before the first start.
    Raises ValueError if the benchmark cannot be pickled, or its `worker_needs` has an unknown entry.
    """

    def __init__(self, benchmark: Benchmark, timeout: float, memory: float = 0.0):
        try:
            pickled = pickle.dumps(benchmark)
        except Exception as error:  # an object's own __reduce__ may raise anything
            raise ValueError(
                f"benchmark {benchmark.name!r} cannot be scored in worker processes: {error}; expected "
                "an object that can be pickled"
            ) from error
        self.timeout = timeout
        self.protections: dict[str, str] = {}
        self._needs = isolation.check_needs(benchmark.worker_needs)
        self._setup = pickle.dumps((pickled, timeout, round(memory * 2**30), self._needs))
        self._name = benchmark.name
        self._process: subprocess.Popen | None = None
        self._connection: socket.socket | None = None
        self._room: isolation.Room | None = None
        self._lock = threading.Lock()  # of what `close` reads
        self._closed = False

    @property
    def pid(self) -> int | None:
        """Process id; None if no process runs."""
        process = self._process
        return process.pid if process and process.poll() is None else None

    def start(self) -> None:
        """Starts the process if none runs.

        Raises:
          ValueError: the benchmark cannot be unpickled there, or it imports JAX.
          RuntimeError: the process does not start, or the worker is closed.
        """
        if self.pid is not None:
            return
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return self._start()
            except (OSError, EOFError) as error:
                how = self._end()
                if attempt == _ATTEMPTS or self._closed:
                    raise RuntimeError(
                        f"a worker process for benchmark {self._name!r} does not start: {how or error}"
                    ) from error

    def _start(self) -> None:
        self._end()
        self._connection, theirs = socket.socketpair()
        with theirs, self._lock:
            if self._closed:
                raise OSError("closed")
            self._room = isolation.Room()
            path = json.dumps([os.path.abspath(entry) for entry in sys.path])
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(theirs.fileno()), path],
                env=isolation.environment(self._room.path, self._needs),
                cwd=self._room.path,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._room.errors,
                pass_fds=[theirs.fileno()],
                # Its own group: Ctrl-C reaches only the run, and its children are killed with it.
                start_new_session=True,
            )
        try:
            reply = self._exchange(self._setup, _START_TIMEOUT)
        except TimeoutError:
            raise OSError(f"no sign of life for {_START_TIMEOUT:.0f} s") from None
        complaint, self.protections = json.loads(reply)
        if complaint:
            self._end()
            raise ValueError(f"benchmark {self._name!r} cannot be scored in worker processes: {complaint}")

    def ask(self, question: str, arguments: tuple[Any, ...]) -> requests.Outcome:
        """The answer to one of `requests`.

        Raises:
          NoAnswer: it took longer than the timeout (the process is killed), the process died, or the
            benchmark raised.
          ValueError, RuntimeError: no process can be started; see `start`.
        """
        self.start()
        message = pickle.dumps((question, arguments))
        try:
            try:
                reply = self._exchange(message, self.timeout)
            except BrokenPipeError:  # it died while idle; this text is not at fault
                self._end()
                self.start()
                reply = self._exchange(message, self.timeout)
        except TimeoutError:
            self._end()
            raise NoAnswer(requests.TIMEOUT, f"no answer within {self.timeout:g} s") from None
        except (EOFError, OSError):
            raise NoAnswer(requests.CRASH, self._end() or "no process") from None
        try:
            value, problem = json.loads(reply)
            outcome = None if problem else requests.from_json(*value)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            problem = f"what it wrote is not an answer ({type(error).__name__}: {error})"
            self._end()
        if problem:
            raise NoAnswer(requests.CRASH, str(problem))
        return outcome

    def _exchange(self, message: bytes, seconds: float) -> bytes:
        """Sends a message and returns the reply.

        Raises TimeoutError if this takes longer altogether, NoAnswer for too many files or too large a
        reply, and EOFError or OSError if the process died.
        """
        deadline = time.monotonic() + seconds
        self._connection.settimeout(seconds)
        self._connection.sendall(_HEADER.pack(len(message)) + message)
        (size,) = _HEADER.unpack(self._receive(_HEADER.size, deadline))
        if not 0 <= size <= _MAX_REPLY:
            self._end()
            raise NoAnswer(requests.CRASH, f"it announced {size:,} bytes, more than any answer has")
        reply = self._receive(size, deadline)
        self._check_size()
        return reply

    def _receive(self, size: int, deadline: float) -> bytes:
        data, look = bytearray(), time.monotonic() + _LOOK
        while len(data) < size:
            now = time.monotonic()
            if now >= deadline:
                raise TimeoutError
            if now >= look:
                self._check_size()
                look = now + _LOOK
            self._connection.settimeout(max(1e-3, min(look, deadline) - now))
            with contextlib.suppress(TimeoutError):
                piece = self._connection.recv(min(size - len(data), 2**16))
                if not piece:
                    raise EOFError
                data += piece
        return bytes(data)

    def _check_size(self) -> None:
        if isolation.FILES in self._needs and (excess := self._room.excess()):
            self._end()
            raise NoAnswer(requests.CRASH, excess)

    def close(self) -> None:
        """Kills the process, even during an answer; it is not restarted."""
        with self._lock:
            self._closed = True
            process, room = self._process, self._room
        if process:
            _kill(process)
        if room:
            room.close()

    def __del__(self):
        # Not in `close`: another thread may still read from it.
        if connection := getattr(self, "_connection", None):
            connection.close()

    def _end(self) -> str:
        """Kills the process if one runs.  Returns how it died and its last words; "" if there was none."""
        if self._connection:
            self._connection.close()
        process, self._process, self._connection = self._process, None, None
        if process is None:
            return ""
        _kill(process)
        code = process.returncode
        how = f"the process ended with exit code {code}"
        if code is not None and code < 0:
            with contextlib.suppress(ValueError):
                how = f"the process died by {signal.Signals(-code).name}"
        words = self._room.last_words()
        self._room.close()
        return f"{how}: {words}" if words else how


def _kill(process: subprocess.Popen) -> None:
    """Kills a process and its children.  A process that has died by itself keeps its exit code."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    # The wait is limited: a process stuck in a dead file system receives no signal.
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE)


# -- in the worker process --------------------------------------------------------------------------------


def serve(descriptor: int) -> None:
    """Answers questions until the other end of the socket `descriptor` is closed."""
    connection = Connection(descriptor)
    pickled, timeout, memory, needs = pickle.loads(connection.recv_bytes())
    protections = isolation.isolate(memory, needs, os.getcwd())
    benchmark, complaint = None, ""
    try:
        benchmark = pickle.loads(pickled)
    except BaseException as error:
        complaint = f"it cannot be opened there ({type(error).__name__}: {error})"
    if not complaint and "jax" in sys.modules:
        complaint = "it imports JAX, and the chips of a TPU belong to one process"
    connection.send_bytes(json.dumps([complaint, protections]).encode())
    # If the run is killed during an answer, this process must end itself.  The signal's default
    # action needs no Python, so it also ends native code.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    episodes = OpenEpisodes(benchmark)
    while True:
        try:
            question, arguments = connection.recv()
        except (EOFError, OSError):
            return
        signal.setitimer(signal.ITIMER_REAL, timeout + _GRACE)
        isolation.limit_cpu(timeout)
        try:
            outcome = requests.answer(benchmark, episodes, question, arguments)
            reply = json.dumps([requests.to_json(outcome), ""])
        except BaseException as error:
            report = "".join(traceback.format_exception(error))[-4000:].strip()
            reply = json.dumps([None, report])
        signal.setitimer(signal.ITIMER_REAL, 0)
        connection.send_bytes(reply.encode())
