"""Ownership of directories: whose work they hold, locks that name their holder, and unfinished files whose
names name their writer.

A lock is a file that names its holder: host, process id, the process's start time, and when it took the lock.
A process of this host that has ended no longer holds its locks.  Whether another host's process still runs is
unknown, so its lock is held until the file is removed.  If the file system supports flock, flock decides too:
it also works between containers of one host, and between hosts that share locks.

Needs no JAX.
"""

import contextlib
import datetime
import fcntl
import json
import os
import pathlib
import re
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

_POLL = 0.5  # seconds between attempts to take a lock while waiting
RUN, EVALUATION, SIMULATION = "a training run", "an evaluation", "an evaluation as the simulator"
SUITE, REPORT, SUITE_REPORT = "a suite", "a report of a run", "a report of a suite"
# What each kind of work writes, which identifies its directory; names without a suffix are folders.
_KINDS = {
    RUN: (
        *("config.json", "metrics.jsonl", "tasks.jsonl", "d_train.jsonl", "d_env.jsonl"),
        *("timing.jsonl", "checkpoints"),
    ),
    EVALUATION: (
        *("predictions.jsonl", "verdicts.jsonl", "results.json", "metrics.json", "endpoint.jsonl"),
        "report.html",
    ),
    SIMULATION: ("tasks.jsonl", "metrics.json", "endpoint.jsonl"),
    SUITE: ("suite.json",),
    REPORT: ("p_hat.png", "report.html"),
    SUITE_REPORT: ("tables.md", "runs.csv", "report.html"),
    "a model": ("config.json", "tokenizer.json", "adapter_config.json", "*.safetensors"),
}


def refuse_other(directory: pathlib.Path, kind: str, setting: str) -> None:
    """Refuses a directory that `kind` of work may not write to.

    setting: what names the directory, for the message.
    Raises ValueError or NotADirectoryError if it is a file, holds another kind of work, or holds a folder
    where a file belongs, or the reverse.
    """
    if directory.exists() and not directory.is_dir():
        raise NotADirectoryError(f"{setting}={directory} is a file: expected a directory")
    names = {name for of in _KINDS.values() for name in of}
    found = {name: path for name in names for path in directory.glob(name)}
    others = sorted(found.keys() - set(_KINDS[kind]))
    holder = max(_KINDS, key=lambda known: len(found.keys() & set(_KINDS[known])))
    if others and holder != kind:
        raise ValueError(
            f"{setting}={directory} belongs to {holder} ({others[0]}): expected a new directory, or one of "
            f"{kind}"
        )
    for name in sorted(found.keys() & set(_KINDS[kind])):
        if found[name].is_dir() == bool(found[name].suffix):
            form = "file" if found[name].suffix else "folder"
            raise ValueError(f"{found[name]} is not a {form}; expected one, or another {setting}")


@contextlib.contextmanager
def place(directory: pathlib.Path, kind: str, setting: str) -> Iterator[None]:
    """Makes a directory for `kind` of work and holds it within the block.

    Raises ValueError or OSError, naming `setting` or the place, if it cannot be written or is not `kind`'s.
    """
    refuse_other(directory, kind, setting)
    directory.mkdir(parents=True, exist_ok=True)
    with owned(directory / "run.lock", f"{setting}={directory}"):
        yield


@contextlib.contextmanager
def owned(path: pathlib.Path, what: str, wait: Callable[[str], None] | None = None) -> Iterator[None]:
    """Holds the lock in the file `path` within the block.

    Args:
      path: removed when the block ends, even by an exception.
      what: the name of what is held, for the message.
      wait: if another process holds the lock, it is called once with the holder before waiting for the lock.
    Raises:
      ValueError: another process holds the lock and `wait` is None.  The message says which process, since
        when, and which file to remove if that process runs on another host.
    """
    handle = _take(path)
    if handle is None:
        if wait is None:
            raise ValueError(f"{what} is in use by {_holder(path)}; expected it to be free")
        wait(_holder(path))
    while handle is None:
        time.sleep(_POLL)
        handle = _take(path)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(handle), os.stat(path)):
                path.unlink()
        os.close(handle)


def _take(path: pathlib.Path) -> int | None:
    """Takes the lock; returns its open file, or None if another process holds it."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
        except OSError:  # the file system does not support flock
            pass
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), os.stat(path)):
                break
        os.close(handle)  # the holder removed the file meanwhile
    holder = parse(os.pread(handle, 4096, 0))
    if holder and not has_ended(holder):
        os.close(handle)
        return None
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, me(), 0)
        os.fsync(handle)
        os.close(os.dup(handle))  # in a bucket, other hosts see a file once it has been closed
    except OSError as error:
        path.unlink(missing_ok=True)
        os.close(handle)
        raise OSError(error.errno, error.strerror, str(path)) from error  # it names no file
    return handle


def me() -> bytes:
    """The contents of a lock held by this process."""
    holder = {
        "host": socket.gethostname(),
        "process": os.getpid(),
        "began": _began(os.getpid()),
        "since": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
    }
    return (json.dumps(holder) + "\n").encode()


def parse(content: bytes) -> dict[str, Any] | None:
    """The holder that a lock names; None if the holder was killed before it wrote its name."""
    with contextlib.suppress(ValueError, RecursionError, TypeError, KeyError):
        holder = json.loads(content)
        fields = {"host": str, "process": int, "began": str, "since": str}
        if all(isinstance(holder[name], kind) for name, kind in fields.items()):
            return holder
    return None


def _holder(path: pathlib.Path) -> str:
    """Describes the holder of a lock, for a message."""
    holder = None
    with contextlib.suppress(OSError):
        holder = parse(path.read_bytes())
    if holder is None:
        return f"another process ({path})"
    return (
        f"process {holder['process']} on host {holder['host']} since {holder['since']} (if it is gone, or "
        f"this is a copy of what it holds, remove {path})"
    )


def has_ended(holder: dict[str, Any]) -> bool:
    """Whether the holder was a process of this host that has ended; its process id may have been reused."""
    here, began = holder["host"] == socket.gethostname(), _began(holder["process"])
    return here and not (began and began == holder["began"])


def _began(process: int) -> str:
    """When a process of this host began: boot id and clock ticks since boot; "" if it does not run."""
    try:
        status = pathlib.Path(f"/proc/{process}/stat").read_text()
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        if pathlib.Path("/proc/self/stat").exists():
            return ""
        with contextlib.suppress(PermissionError):  # another user's running process
            try:
                os.kill(process, 0)
            except ProcessLookupError:
                return ""
        return "unknown"
    fields = status.rpartition(")")[2].split()  # after the name, which may contain any character
    return "" if fields[0] in "ZX" else f"{boot}/{fields[19]}"


# -- unfinished files -----------------------------------------------------------------------------------


def scratch_name(path: pathlib.Path, ending: str = "tmp") -> pathlib.Path:
    """A hidden name next to `path`, unique to this process, for a file until it is complete and renamed."""
    return path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}.{ending}")


def remove_stale(directory: pathlib.Path) -> None:
    """Removes the unfinished files (`scratch_name`) that dead processes of this host left in a directory."""
    pattern = re.compile(rf"\..+\.{re.escape(socket.gethostname())}\.(\d+)\.(tmp|old)")
    if not directory.is_dir():
        return
    for path in directory.iterdir():
        found = pattern.fullmatch(path.name)
        if not found or _began(int(found[1])):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def flush(path: pathlib.Path) -> None:
    """Makes a file's bytes durable, or a directory's entries."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
