"""Joins the processes of a run through jax.distributed.

A port in use, an unknown host, or missing or differing processes give a one-line error.
"""

import concurrent.futures
import hashlib
import os
import pathlib
import socket
import threading
import time
from typing import Any

import jax
from jax._src import distributed  # the coordination service's client is not public

from genenv_jax.parallel.processes import same_everywhere, sigterm_handler

_HOUR = 3600.0


def initialize(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    auto: bool = False,
    timeout: float = 300.0,
    heartbeat_timeout: float = 100.0,
) -> None:
    """Joins the processes of a run.  Without arguments there is one process, and this does nothing.

    The arguments are the flags of `cli.define_process_flags`: `auto` is `--distributed=auto`, `timeout`
    (`--initialization_timeout`) the seconds to wait for process 0, and then again for all others.

    Raises:
      ValueError: arguments are incomplete or out of range, the host is unknown, the port is in use, or
        processes differ in num_processes, program or number of devices.
      RuntimeError: devices are already in use, or this was called before.
      TimeoutError: process 0 does not answer, or not all processes joined.  The process must then exit:
        JAX is still waiting in the background.
    """
    flags = {
        "--coordinator_address": coordinator_address,
        "--num_processes": num_processes,
        "--process_id": process_id,
    }
    given = [flag for flag, value in flags.items() if value is not None]
    absent = [flag for flag, value in flags.items() if value is None]
    if auto and given:
        raise ValueError(f"--distributed=auto finds the processes by itself: expected no {', '.join(given)}")
    if not (auto or given):
        return
    if given and absent:
        raise ValueError(
            f"{', '.join(given)} given without {', '.join(absent)}: expected all three, or "
            "--distributed=auto, or none of them for one process"
        )
    if given:
        host, port = _split_address(coordinator_address)
        if num_processes < 1:
            raise ValueError(f"--num_processes={num_processes}: expected at least 1")
        if not 0 <= process_id < num_processes:
            raise ValueError(
                f"--process_id={process_id}: expected 0 to {num_processes - 1}, since "
                f"--num_processes={num_processes}"
            )
        if num_processes == 1:
            return
        if process_id == 0:
            _check_port(port)
        else:
            _wait_for_process_0(host, port, timeout)
    previous = sigterm_handler()
    try:
        _join(
            timeout,
            coordinator_address=coordinator_address,
            num_processes=num_processes,
            process_id=process_id,
            cluster_detection_method=None if auto else "deactivate",
            heartbeat_timeout_seconds=max(1, round(heartbeat_timeout)),
        )
    except ValueError as error:
        raise ValueError(
            f"--distributed=auto: JAX recognised no cluster ({error}); expected a Cloud TPU "
            "pod, Slurm, Open MPI or Kubernetes, or the flags --coordinator_address, --num_processes "
            "and --process_id"
        ) from error
    finally:
        # JAX's preemption service handles SIGTERM itself and would keep the process alive.
        sigterm_handler(previous)
    # Every process waits here until all devices are up.
    devices = f"{jax.local_device_count()} local devices"
    flag = f"--num_processes={distributed.global_state.num_processes}"
    same_everywhere("the setup", f"{flag}\n{_program()}\n{devices}")


def _split_address(address: str) -> tuple[str, int]:
    """Host and port of "host:port" or "[IPv6 address]:port".  Raises ValueError."""
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
        raise ValueError(
            f"--coordinator_address={address}: expected host:port, with a free port on process 0's host"
        )
    return host.strip("[]"), int(port)


def _check_port(port: int) -> None:
    """Raises ValueError unless the port is free on all interfaces; JAX may crash if it is not."""
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    try:
        socket.create_server(("", port), family=family, dualstack_ipv6=both).close()
    except OSError as error:
        raise ValueError(
            f"--coordinator_address: port {port} cannot be used on process 0's host "
            f"({os.strerror(error.errno)}); expected a free port, and only one process with --process_id=0"
        ) from error


def _wait_for_process_0(host: str, port: int, timeout: float) -> None:
    """Waits until the coordinator's port accepts connections.  Raises ValueError, TimeoutError."""
    deadline = time.monotonic() + timeout
    while (left := deadline - time.monotonic()) > 0:
        try:
            return socket.create_connection((host, port), timeout=left).close()
        except socket.gaierror as error:
            raise ValueError(f"--coordinator_address={host}:{port}: {error.strerror}") from error
        except OSError:  # not up yet
            time.sleep(min(0.1, left))
    raise TimeoutError(
        f"process 0 did not answer at {host}:{port} within {timeout:.0f} s; expected it to be started "
        "with the same --coordinator_address, on that host, and its port to be reachable from here"
    )


def _join(timeout: float, **arguments: Any) -> None:
    """Calls jax.distributed.initialize; raises TimeoutError, where JAX's own timeout aborts the process.

    JAX waits in a thread, for longer than `timeout`.
    """
    arguments["initialization_timeout"] = round(timeout + _HOUR)
    joined: concurrent.futures.Future[None] = concurrent.futures.Future()

    def join() -> None:
        try:
            joined.set_result(jax.distributed.initialize(**arguments))
        except BaseException as error:
            joined.set_exception(error)

    threading.Thread(target=join, daemon=True).start()
    try:
        joined.result(timeout)
    except TimeoutError:
        address = distributed.global_state.coordinator_address
        distributed.global_state = distributed.State()  # otherwise JAX waits for the others at exit
        raise TimeoutError(
            f"not all processes joined process 0 at {address} within {timeout:.0f} s; expected the same "
            "command in each, with the same --num_processes and its own --process_id"
        ) from None


def _program() -> str:
    """The digest of this package's source, and the JAX version."""
    package = pathlib.Path(__file__).parents[1]
    digest = hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        digest.update(f"{file.relative_to(package).as_posix()}\0".encode() + file.read_bytes())
    return f"genenv_jax (source {digest.hexdigest()[:12]}) on jax {jax.__version__}"
