"""Several processes, one run: every process executes the same program on the same data, each with its
own devices of one mesh, and only the first one writes.

    initialize("10.0.0.1:8476", num_processes=2, process_id=0)   # before any device is touched
    with together():                                             # the end of one is the end of all
        x = put(host_array, sharding)                            # whole on every host -> sharded
        y = fetch(f(x))                                          # sharded -> whole on every host

What is agreed between processes here goes through JAX's coordination service, a small key-value store
in process 0, and not through collectives: it works before the devices are up, and a wait of an hour is
no hanging program.  On one process everything here is the plain thing or nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

# The only doors to the coordination service's keys and barriers, and to whether devices are in use.
from jax._src import distributed, xla_bridge
from jax.experimental import multihost_utils
from jax.sharding import Sharding

from genenv_jax.parallel.rendezvous import Member, meet, split_address

_HOUR = 3600.0
_STOP = "genenv_jax/stop"  # the key under which a process says that, and why, it ends the run
_POLL = 0.5  # seconds between two looks at it
_GRACE = 5.0  # seconds to finish what can still be finished before a process ends at once


def initialize(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    auto: bool = False,
    timeout: float = 300.0,
    heartbeat_timeout: float = 100.0,
) -> None:
    """Joins the processes of a run; nothing given means one process, and nothing is done.

    Args:
      coordinator_address: "host:port" of process 0, a free port there.
      num_processes: how many there are.
      process_id: which one this is, from 0.
      auto: JAX finds the three by itself (Cloud TPU, Slurm, Open MPI, Kubernetes).
      timeout: seconds to wait for the others.
      heartbeat_timeout: seconds of silence after which a process counts as dead.
    Raises:
      ValueError: given in part, out of range, or not the same in every process.
      RuntimeError: devices are in use already, or it was called before.
      TimeoutError: process 0 does not answer, or not all processes came.
    """
    given = {
        "coordinator_address": coordinator_address,
        "num_processes": num_processes,
        "process_id": process_id,
    }
    present = [f"--{name}" for name, value in given.items() if value is not None]
    absent = [f"--{name}" for name, value in given.items() if value is None]
    if auto and present:
        raise ValueError(
            f"--distributed=auto finds the processes by itself: expected no {', '.join(present)}"
        )
    if not (auto or present):
        return
    if present and absent:
        raise ValueError(
            f"{', '.join(present)} given without {', '.join(absent)}: expected all three, or "
            "--distributed=auto, or none of them for one process"
        )
    if present:
        split_address(coordinator_address)
        if num_processes < 1:
            raise ValueError(f"--num_processes={num_processes}: expected at least 1")
        if not 0 <= process_id < num_processes:
            raise ValueError(
                f"--process_id={process_id}: expected 0 to {num_processes - 1}, since "
                f"--num_processes={num_processes}"
            )
        if num_processes == 1:
            return
    if jax.distributed.is_initialized() or xla_bridge.backends_are_initialized():
        raise RuntimeError(
            "the processes of a run must be joined once, and before any device is used: expected "
            "initialize before anything else of JAX"
        )
    if present:
        meet(coordinator_address, Member(process_id, num_processes, _program()), timeout)
    previous = _sigterm()
    try:
        jax.distributed.initialize(
            coordinator_address,
            num_processes,
            process_id,
            cluster_detection_method=None if auto else "deactivate",
            initialization_timeout=max(1, round(timeout)),
            heartbeat_timeout_seconds=max(1, round(heartbeat_timeout)),
        )
    except ValueError as error:
        raise ValueError(
            f"--distributed=auto: JAX found no cluster that it knows ({error}); expected a Cloud TPU "
            "pod, Slurm, Open MPI or Kubernetes, or the flags --coordinator_address, --num_processes "
            "and --process_id"
        ) from error
    finally:
        # JAX's preemption service takes SIGTERM for itself and would let the process live on.
        _sigterm(previous)
    # The devices come up in all processes together: each waits here for the others'.
    counts = [int(text) for text in gather("local devices", str(jax.local_device_count()))]
    if len(set(counts)) > 1:
        raise ValueError(
            "the processes have different numbers of devices: "
            + ", ".join(f"process {i} has {count}" for i, count in enumerate(counts))
            + "; expected the same number in each"
        )
    if auto:
        same_everywhere("the program", _program())


def _program() -> str:
    """This package's source by its digest, and the version of JAX: another program decides otherwise."""
    package = pathlib.Path(__file__).parents[1]
    digest = hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        digest.update(f"{file.relative_to(package).as_posix()}\0".encode() + file.read_bytes())
    return f"genenv_jax (source {digest.hexdigest()[:12]}) on jax {jax.__version__}"


def _sigterm(handler: Any = None) -> Any:
    """The handler of SIGTERM; sets it where one is given.  Only the main thread may do so."""
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)
    return signal.getsignal(signal.SIGTERM)


def process_count() -> int:
    """How many processes the run has.  Unlike JAX's own it leaves the devices of one process alone."""
    return jax.process_count() if jax.distributed.is_initialized() else 1


def process_index() -> int:
    """Which of them this is."""
    return jax.process_index() if jax.distributed.is_initialized() else 0


def is_writer() -> bool:
    """Whether this is the process that writes files and shows progress."""
    return process_index() == 0


# -- arrays ---------------------------------------------------------------------------------------------


def put(tree: Any, sharding: Any = None) -> Any:
    """Places host arrays that every process holds whole; each device copies its own part.

    Args:
      tree: pytree of arrays, equal in all processes.
      sharding: one sharding for all, or a pytree of them; None leaves them where JAX puts them.
    Returns:
      the tree with jax.Arrays.
    """
    if sharding is None or process_count() == 1:
        return jax.device_put(tree, sharding)
    if isinstance(sharding, Sharding):
        return jax.tree.map(lambda x: _put_array(x, sharding), tree)
    return jax.tree.map(_put_array, tree, sharding)


def _put_array(x: Any, sharding: Sharding) -> jax.Array:
    if isinstance(x, jax.Array) and not x.is_fully_addressable:  # global already: moved as it is
        return jax.device_put(x, sharding)
    x = np.asarray(x)
    return jax.make_array_from_callback(x.shape, sharding, lambda index: x[index])


def fetch(tree: Any) -> Any:
    """Device arrays as NumPy arrays, whole on every host.

    All processes must call it on the same arrays in the same order.  One array at a time is gathered,
    so the devices need room for the largest of them.
    """
    if process_count() == 1:
        return jax.device_get(tree)
    return jax.tree.map(_fetch_array, tree)


def _fetch_array(x: Any) -> Any:
    if not isinstance(x, jax.Array) or x.is_fully_addressable or x.is_fully_replicated:
        return jax.device_get(x)
    return multihost_utils.process_allgather(x, tiled=True)


def broadcast(data: bytes | None) -> bytes:
    """The bytes of process 0 on every process; the others' `data` is not looked at."""
    if process_count() == 1:
        return data or b""
    own = np.frombuffer(data or b"", np.uint8) if is_writer() else np.zeros(0, np.uint8)
    size = int(multihost_utils.broadcast_one_to_all(np.int32(own.size)))
    content = own if is_writer() else np.zeros(size, np.uint8)
    return np.asarray(multihost_utils.broadcast_one_to_all(content), np.uint8).tobytes()


# -- agreements -----------------------------------------------------------------------------------------


def barrier(name: str, timeout: float = _HOUR) -> None:
    """Returns when every process has come to the barrier `name`.

    Raises TimeoutError after `timeout` seconds; it names the barrier and, from JAX, who is missing.
    """
    if process_count() == 1:
        return
    key = _round(f"genenv_jax/barrier/{name}")
    try:
        distributed.global_state.client.wait_at_barrier(key, round(timeout * 1000))
    except jax.errors.JaxRuntimeError as error:
        raise TimeoutError(
            f"process {process_index()} waited at {name!r} for the {process_count() - 1} "
            f"others, and not all came within {timeout:.0f} s.  JAX says: {error}"
        ) from error


def gather(name: str, text: str, timeout: float = _HOUR) -> list[str]:
    """What each process says, by process; all of them must call it."""
    if process_count() == 1:
        return [text]
    client = distributed.global_state.client
    key = _round(f"genenv_jax/gather/{name}")
    client.key_value_set(f"{key}/{process_index()}", text)
    barrier(name, timeout)
    said = {int(where.rsplit("/", 1)[1]): t for where, t in client.key_value_dir_get(f"{key}/")}
    return [said[i] for i in range(process_count())]


def agree(name: str, text: str = "", timeout: float = _HOUR) -> str:
    """What process 0 says, on every process."""
    return gather(name, text if is_writer() else "", timeout)[0]


def same_everywhere(name: str, text: str) -> None:
    """Raises ValueError, on every process, unless all of them say the same.

    The message names the processes that differ from process 0 and the first line in which they do.
    """
    if process_count() == 1:
        return
    first = agree(name, text).splitlines()
    difference = None
    if first != (mine := text.splitlines()):
        length = max(len(first), len(mine))
        pad = lambda lines: lines + ["(nothing)"] * (length - len(lines))  # noqa: E731
        difference = next([a, b] for a, b in zip(pad(first), pad(mine), strict=True) if a != b)
    answers = [json.loads(line) for line in gather(f"{name}?", json.dumps(difference))]
    differ = [(i, answer) for i, answer in enumerate(answers) if answer]
    if differ:
        lines = "; ".join(
            f"process {i} has {b!r} where process 0 has {a!r}" for i, (a, b) in differ
        )
        raise ValueError(f"{name} differs between the processes: {lines}; expected the same in all")


def _round(key: str) -> str:
    """`key` with how often this process has come by: a barrier's name serves once."""
    client = distributed.global_state.client
    return f"{key}/{client.key_value_increment(f'{key}/count/{process_index()}', 1)}"


# -- the end --------------------------------------------------------------------------------------------


@contextlib.contextmanager
def together() -> Iterator[None]:
    """Within the block, the end of one process is the end of all: none is left waiting.

    A process that leaves the block by an exception, SIGTERM included (exit code 143), says so to the
    others and ends; they end within seconds with exit code 143 and name the process and its reason.
    One that is killed outright says nothing: the others end by an error in their next collective, or
    when its heartbeats have been missing for `heartbeat_timeout`.  Starting anew is up to the outside.
    """
    if process_count() == 1:
        yield
        return
    previous = _sigterm(_terminate)
    done = threading.Event()
    threading.Thread(target=_watch, args=(done,), daemon=True).start()
    try:
        yield
        done.set()
    except BaseException as error:
        done.set()
        if isinstance(error, SystemExit) and error.code in (None, 0):
            raise
        code = _leave(error)
        sys.stdout.flush()
        sys.stderr.flush()
        # Not sys.exit: at a normal exit JAX waits minutes for processes that may never come.
        os._exit(code)
    finally:
        _sigterm(previous)


def _terminate(*_: Any) -> None:
    raise SystemExit(143)


def _stop_reason() -> dict[str, Any] | None:
    try:
        return json.loads(distributed.global_state.client.key_value_try_get(_STOP))
    except jax.errors.JaxRuntimeError:  # not there, or nobody left to ask
        return None


def _watch(done: threading.Event) -> None:
    """Ends this process once another has ended the run."""
    while not done.wait(_POLL):
        if not (reason := _stop_reason()):
            continue
        if done.wait(2 * _POLL):  # it was about to end by itself, often for the same reason
            return
        # To the main thread itself, so that it wakes; inside a collective it will not hear.
        signal.pthread_kill(threading.main_thread().ident, signal.SIGTERM)
        if not done.wait(_GRACE):
            _say(reason)
            _acknowledge()
            os._exit(143)


def _leave(error: BaseException) -> int:
    """Tells the others why this process ends, or the user which other one was first; the exit code."""
    reason, own = _stop_reason(), process_index()
    code = 1
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else 1
    if reason and reason["process"] != own:
        # An exit by itself has said what the mistake is, often the same one.
        if not isinstance(error, SystemExit) or code == 143:
            _say(reason)
            code = 143
        _acknowledge()
        return code
    if code == 143:
        text = "it received SIGTERM"
    elif isinstance(error, SystemExit):
        text = str(error.__context__ or f"exit code {code}")
    else:
        text = f"{type(error).__name__}: {error}"
        sys.excepthook(type(error), error, error.__traceback__)
    message = json.dumps({"process": own, "reason": " ".join(text.split())[:500]})
    with contextlib.suppress(jax.errors.JaxRuntimeError):
        distributed.global_state.client.key_value_set(_STOP, message)
    _acknowledge()
    return code


def _acknowledge() -> None:
    """Notes that this process ends.  Process 0 keeps the store open until all others have done so."""
    client, own = distributed.global_state.client, distributed.global_state.process_id
    with contextlib.suppress(jax.errors.JaxRuntimeError):
        client.key_value_set(f"genenv_jax/stopped/{own}", "")
        deadline = time.monotonic() + _GRACE + 5.0
        while own == 0 and time.monotonic() < deadline:
            if len(client.key_value_dir_get("genenv_jax/stopped/")) == process_count():
                break
            time.sleep(_POLL)


def _say(reason: dict[str, Any]) -> None:
    text = f"process {reason['process']} ended the run: {reason['reason']}"
    print(f"process {process_index()} ends too: {text}", file=sys.stderr, flush=True)
