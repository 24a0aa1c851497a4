"""The processes of a run meet before JAX joins them, so that a wrong start has a name.

JAX's own way of joining ends a process by an abort and a stack trace, be it that an address is wrong,
a process never came or two were started with one number.  So each process first says over a plain TCP
connection to the coordinator's port who it is; process 0 listens there, compares, and tells all of
them the outcome.  Then the port is free again for JAX.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import socket
import time
from collections.abc import Iterator

_LINE = 4096  # bytes that a message may have
_SPEAK = 3.0  # seconds in which a connection must say who it is


@dataclasses.dataclass(frozen=True)
class Member:
    """What a process says of itself: its number, of how many, and which program it runs."""

    process_id: int
    num_processes: int
    program: str


def split_address(address: str) -> tuple[str, int]:
    """Host and port of "host:port" or "[IPv6 address]:port".  Raises ValueError."""
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
        raise ValueError(
            f"--coordinator_address={address}: expected host:port, with a free port of process 0's "
            "host"
        )
    return host.strip("[]"), int(port)


def meet(address: str, me: Member, timeout: float) -> None:
    """Returns when all processes are there and fit together.

    Args:
      address: "host:port" of process 0.
      me: this process.
      timeout: seconds to wait for the others.
    Raises:
      ValueError: two processes have one number, a number is out of range, the processes do not agree
        on how many they are or run different programs, the host is unknown, or the port is taken.
      TimeoutError: process 0 does not answer, or processes never came; the message says which.
    """
    host, port = split_address(address)
    deadline = time.monotonic() + timeout
    if me.process_id == 0:
        _receive_all(port, me, deadline, timeout)
    else:
        _report(host, port, me, deadline, timeout)


def _receive_all(port: int, me: Member, deadline: float, timeout: float) -> None:
    connections: dict[int, socket.socket] = {}
    problem: Exception | None = None
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(_listen(port))
        while len(connections) < me.num_processes - 1 and problem is None:
            left = deadline - time.monotonic()
            server.settimeout(max(left, 0.01))
            try:
                connection, _ = server.accept()
            except TimeoutError:
                missing = sorted(set(range(1, me.num_processes)) - connections.keys())
                problem = TimeoutError(
                    f"{me.num_processes} processes are expected (--num_processes), but within "
                    f"{timeout:.0f} s {_numbers(missing)} did not come to process 0 on port {port}"
                )
                break
            stack.callback(connection.close)
            if member := _hear(connection):
                problem = _misfit(member, me, connections.keys())
                if problem:
                    _say(connection, {"error": str(problem)})
                else:
                    connections[member.process_id] = connection
        answer = {"error": str(problem) if problem else "", "timeout": _is_timeout(problem)}
        for connection in connections.values():
            _say(connection, answer)
        # They hang up first: a port whose server hung up stays taken for a while.
        for connection in connections.values():
            with contextlib.suppress(OSError):
                connection.settimeout(_SPEAK)
                connection.recv(1)
    if problem:
        raise problem


def _report(host: str, port: int, me: Member, deadline: float, timeout: float) -> None:
    for connection in _attempts(host, port, deadline):
        with connection:
            _say(connection, dataclasses.asdict(me))
            # Process 0 may have begun to wait later than this one, hence twice the time.
            connection.settimeout(max(deadline - time.monotonic(), 0) + timeout + _SPEAK)
            line = _read_line(connection)
        if not line:  # process 0 was about to stop listening, or died
            continue
        try:
            answer = json.loads(line)
            error, late = str(answer["error"]), bool(answer.get("timeout"))
        except (ValueError, TypeError, KeyError):
            raise ValueError(
                f"--coordinator_address={host}:{port}: something else than process 0 of this run "
                "answers there; expected a free port"
            ) from None
        if error:
            raise (TimeoutError if late else ValueError)(error)
        return
    raise TimeoutError(
        f"process {me.process_id} of {me.num_processes}: process 0 did not answer at {host}:{port} "
        f"within {timeout:.0f} s; expected it to be started with the same --coordinator_address, on "
        "that host, and its port to be reachable from here"
    )


def _attempts(host: str, port: int, deadline: float) -> Iterator[socket.socket]:
    """Connections to an address, again and again until the deadline."""
    while (left := deadline - time.monotonic()) > 0:
        try:
            yield socket.create_connection((host, port), timeout=left)
        except socket.gaierror as error:
            raise ValueError(f"--coordinator_address={host}:{port}: {error}") from error
        except OSError:  # not there yet
            pass
        time.sleep(min(0.1, left))


def _listen(port: int) -> socket.socket:
    try:
        if socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        return socket.create_server(("", port))
    except OSError as error:
        raise ValueError(
            f"--coordinator_address: port {port} cannot be used on process 0's host ({error.strerror}); "
            "expected a free port"
        ) from error


def _hear(connection: socket.socket) -> Member | None:
    """Who has called; None for a stranger who says nothing of use."""
    connection.settimeout(_SPEAK)
    try:
        said = json.loads(_read_line(connection))
        member = Member(**said)
    except (OSError, ValueError, TypeError):
        return None
    fits = type(member.process_id) is type(member.num_processes) is int
    return member if fits and type(member.program) is str else None


def _misfit(member: Member, first: Member, known) -> ValueError | None:
    number = member.process_id
    if member.num_processes != first.num_processes:
        return ValueError(
            f"process {number} was started with --num_processes={member.num_processes}, process 0 "
            f"with {first.num_processes}: expected the same in all"
        )
    if number == 0 or number in known:
        return ValueError(
            f"two processes were started with --process_id={number}: expected a number of its own "
            "for each"
        )
    if not 0 < number < first.num_processes:
        return ValueError(
            f"a process was started with --process_id={number}: expected 0 to "
            f"{first.num_processes - 1}"
        )
    if member.program != first.program:
        return ValueError(
            f"process {number} runs {member.program}, process 0 runs {first.program}: expected the "
            "same in all"
        )
    return None


def _read_line(connection: socket.socket) -> bytes:
    """Bytes up to a newline, or up to the end of what comes; empty where the line broke."""
    line = b""
    try:
        while not line.endswith(b"\n") and len(line) < _LINE:
            if not (piece := connection.recv(_LINE)):
                break
            line += piece
    except OSError:
        return b""
    return line


def _say(connection: socket.socket, message: dict) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(json.dumps(message).encode() + b"\n")


def _is_timeout(problem: Exception | None) -> bool:
    return isinstance(problem, TimeoutError)


def _numbers(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:8])) + (", ..." if len(numbers) > 8 else "")
    return f"process {shown}" if len(numbers) == 1 else f"processes {shown}"
