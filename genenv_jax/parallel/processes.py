"""Runs with several processes: all execute the same program on the same data, each process drives its own
devices of one mesh, and only process 0 writes.

    joining.initialize("10.0.0.1:8476", num_processes=2, process_id=0)   # before any device is used
    with together():                                             # if one process exits, all exit
        x = put(host_array, sharding)                            # whole on every host -> sharded
        y = fetch(f(x))                                          # sharded -> whole on every host

Processes agree through the key-value store of JAX's coordination service in process 0, not through
collectives, so a process may wait an hour for the others.  With one process, JAX alone places and fetches
arrays, and everything else here does nothing.
"""

import contextlib
import itertools
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax._src import distributed  # the coordination service's client is not public
from jax.experimental import multihost_utils
from jax.sharding import Sharding

from genenv_jax.system import signals
from genenv_jax.system.keys import as_line

_HOUR = 3600.0
_STOP = "genenv_jax/stop"  # key under which a process records why it ends the run
_POLL = 0.5  # seconds between reads of that key
_GRACE = 5.0  # seconds the main thread has to exit by itself


def sigterm_handler(handler: Any = None) -> Any:
    """Returns the SIGTERM handler, after setting it to `handler` if given (in the main thread only)."""
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)
    return signal.getsignal(signal.SIGTERM)


def process_count() -> int:
    """Number of processes of the run.  Unlike JAX's own, it starts no devices in a single-process run."""
    return jax.process_count() if jax.distributed.is_initialized() else 1


def process_index() -> int:
    """Index of this process, from 0."""
    return jax.process_index() if jax.distributed.is_initialized() else 0


def is_writer() -> bool:
    """Whether this is process 0, the only one that writes files and shows progress."""
    return process_index() == 0


# -- arrays ---------------------------------------------------------------------------------------------


def put(tree: Any, sharding: Sharding | None = None) -> Any:
    """Places host arrays that every process holds in full; each device copies its own part.

    sharding: of all arrays; None leaves placement to JAX.
    """
    if sharding is None or process_count() == 1:
        return jax.device_put(tree, sharding)

    def place(x: Any) -> jax.Array:
        x = np.asarray(x)
        return jax.make_array_from_callback(x.shape, sharding, lambda index: x[index])

    return jax.tree.map(place, tree)


def fetch(tree: Any) -> Any:
    """Fetches device arrays as NumPy arrays, in full on every host.

    All processes must call this on the same arrays in the same order.  Arrays are gathered one at a time, so
    the devices need room for the largest.
    """
    if process_count() == 1:
        return jax.device_get(tree)
    return jax.tree.map(_fetch_array, tree)


def _fetch_array(x: Any) -> Any:
    if not isinstance(x, jax.Array) or x.is_fully_addressable or x.is_fully_replicated:
        return jax.device_get(x)
    return multihost_utils.process_allgather(x, tiled=True)


def broadcast(data: bytes | None) -> bytes:
    """Returns process 0's `data` on every process; the others' is ignored."""
    if process_count() == 1:
        return data or b""
    own = np.frombuffer(data or b"", np.uint8) if is_writer() else np.zeros(0, np.uint8)
    size = int(multihost_utils.broadcast_one_to_all(np.int32(own.size)))
    content = own if is_writer() else np.zeros(size, np.uint8)
    return np.asarray(multihost_utils.broadcast_one_to_all(content), np.uint8).tobytes()


# -- agreements -----------------------------------------------------------------------------------------


def barrier(name: str, timeout: float = _HOUR) -> None:
    """Waits until every process has reached the barrier `name`.

    Raises TimeoutError after `timeout` seconds, naming the barrier and, from JAX, the missing processes.
    """
    if process_count() == 1:
        return
    key = _round(f"genenv_jax/barrier/{name}")
    try:
        distributed.global_state.client.wait_at_barrier(key, round(timeout * 1000))
    except jax.errors.JaxRuntimeError as error:
        raise TimeoutError(
            f"process {process_index()} waited at {name!r} for the {process_count() - 1} "
            f"others, and not all reached it within {timeout:.0f} s.  JAX says: {error}"
        ) from error


def gather(name: str, text: str) -> list[str]:
    """Returns every process's `text`, in process order, on every process; all processes must call it."""
    if process_count() == 1:
        return [text]
    client = distributed.global_state.client
    key = _round(f"genenv_jax/gather/{name}")
    client.key_value_set(f"{key}/{process_index()}", text)
    barrier(name)
    texts = {int(path.rsplit("/", 1)[1]): t for path, t in client.key_value_dir_get(f"{key}/")}
    return [texts[i] for i in range(process_count())]


def agree(name: str, text: str) -> str:
    """Returns process 0's `text` on every process; all processes must call it."""
    return gather(name, text if is_writer() else "")[0]


def same_everywhere(name: str, text: str) -> None:
    """Raises ValueError on every process unless `text` is the same on all.

    The message names each process that differs from process 0, and the first line that differs.
    """
    if process_count() == 1:
        return
    lines = itertools.zip_longest(agree(name, text).splitlines(), text.splitlines(), fillvalue="(nothing)")
    difference = next(([a, b] for a, b in lines if a != b), None)
    answers = [json.loads(line) for line in gather(f"{name}?", json.dumps(difference))]
    differ = [(i, answer) for i, answer in enumerate(answers) if answer]
    if differ:
        where = "; ".join(f"process {i} has {b!r} where process 0 has {a!r}" for i, (a, b) in differ)
        raise ValueError(f"{name} differs between the processes: {where}; expected the same in all")


def _round(key: str) -> str:
    """Appends to `key` the number of its uses by this process: a barrier's name can be used only once."""
    client = distributed.global_state.client
    return f"{key}/{client.key_value_increment(f'{key}/count/{process_index()}', 1)}"


# -- the end --------------------------------------------------------------------------------------------


@contextlib.contextmanager
def together() -> Iterator[None]:
    """Within the block, if one process exits early, all exit.

    A process that leaves the block with an exception, including SIGTERM (exit code 143), records its reason
    and exits; the others exit within seconds, with code 143 or its 2, and print that process and its reason.
    A process that is killed outright records nothing: the others fail in their next collective, or JAX aborts
    them when its heartbeats have been missing for `heartbeat_timeout`.  Nothing is restarted.
    """
    if process_count() == 1:
        yield
        return
    previous = sigterm_handler(signals.end)
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
        # Not sys.exit, in which JAX would wait minutes for processes that may be gone.
        os._exit(code)
    finally:
        sigterm_handler(previous)


def _stop_reason() -> dict[str, Any] | None:
    try:
        return json.loads(distributed.global_state.client.key_value_try_get(_STOP))
    except jax.errors.JaxRuntimeError:  # no such key, or process 0 is gone
        return None


def _watch(done: threading.Event) -> None:
    """Ends this process when another one has ended the run."""
    while not done.wait(_POLL):
        if not (reason := _stop_reason()):
            continue
        if done.wait(2 * _POLL):  # this process ended by itself, often for the same reason
            return
        # Signal the main thread, which wakes it; inside a collective this has no effect.
        signal.pthread_kill(threading.main_thread().ident, signal.SIGTERM)
        if not done.wait(_GRACE):
            _print(reason)
            _acknowledge()
            os._exit(reason["code"])


def _leave(error: BaseException) -> int:
    """Records why this process ends, or prints which one ended first; returns the exit code."""
    reason, own = _stop_reason(), process_index()
    code = 1
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else 1
    if reason and reason["process"] != own:
        # A process that exits by itself has printed its own error, often the same one.
        if not isinstance(error, SystemExit) or code == 143:
            _print(reason)
            code = reason["code"]
        _acknowledge()
        return code
    if code in (130, 143):
        signals.say(code)
        text = f"it received {signal.Signals(code - 128).name}"
    elif isinstance(error, SystemExit):
        text = str(error.__context__ or f"exit code {code}")
    else:
        text = f"{type(error).__name__}: {error}"
        sys.excepthook(type(error), error, error.__traceback__)
    # For the others: 2, if starting again does not help, or else as if they had been told to end.
    of_others = 2 if code == 2 else 143
    message = json.dumps({"process": own, "reason": as_line(text)[:500], "code": of_others})
    with contextlib.suppress(jax.errors.JaxRuntimeError):
        distributed.global_state.client.key_value_set(_STOP, message)
    _acknowledge()
    return code


def _acknowledge() -> None:
    """Records that this process ends.  Process 0 keeps the store alive until all others have done so."""
    client, own = distributed.global_state.client, distributed.global_state.process_id
    with contextlib.suppress(jax.errors.JaxRuntimeError):
        client.key_value_set(f"genenv_jax/stopped/{own}", "")
        deadline = time.monotonic() + _GRACE + 5.0
        while own == 0 and time.monotonic() < deadline:
            if len(client.key_value_dir_get("genenv_jax/stopped/")) == process_count():
                break
            time.sleep(_POLL)


def _print(reason: dict[str, Any]) -> None:
    text = f"process {reason['process']} ended the run: {reason['reason']}"
    print(f"process {process_index()} ends too: {text}", file=sys.stderr, flush=True)
