"""Restrictions on a worker process, and whether this system can enforce them.

    in the run:     room = Room(); environment(room.path, needs)
    in the worker:  protections = isolate(memory, needs, directory)

Code that official benchmark packages execute then has no access to the network, to other processes, to
files outside an empty directory (for writing), or to the run's environment.  Its memory and its writes are
bounded, and the worker limits its time.  On Linux this uses seccomp, Landlock and resource limits, which
need no privileges and work in containers; if a system lacks one, the run goes on without it and logs so.

Files can still be read, since modules and data may lie anywhere; what is read can leave only through the
verdict.
"""

import contextlib
import ctypes
import os
import pathlib
import resource
import shutil
import site
import socket
import stat
import tempfile
import weakref
from collections.abc import Collection, Mapping
from typing import IO

from genenv_jax.benchmarks import data_files
from genenv_jax.scoring import landlock, seccomp

# Permissions that a benchmark can request in its attribute `worker_needs`.
NETWORK = "network"  # call an endpoint, with its key
FILES = "files"  # write to the worker's directory
NEEDS = (NETWORK, FILES)

MAX_FILE = 64 * 2**20  # bytes of one file of a worker that may write
MAX_DIRECTORY = 256 * 2**20  # bytes of all its files
MAX_ENTRIES = 10_000  # files and directories
_MAX_OPEN = 256  # descriptors: a pipe holds 64 KiB that no other limit counts
_LAST_WORDS = 500  # characters of a dead worker's standard error that are quoted
_MAX_MESSAGES = 2**20  # bytes that any other worker may write, to its standard error
# Bytes of address space beyond `memory`, for libraries and what threads only reserve.
_MAPPED = 2 * 2**30

_INHERITED = ("PATH", "LANG", "LANGUAGE", "TZ", "LD_LIBRARY_PATH", "PYTHONHOME")
_OF_NETWORKS = (
    *("OPENAI_API_KEY", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
)
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS, _SIGKILL = 1, 38, 9
_CAPABILITIES = 0x20080522  # version of the structure
_READ_FILES = 0b110  # capabilities by which root reads others' files; all others are dropped

_DONE = "in force"


def check_needs(needs: Collection[str]) -> tuple[str, ...]:
    """The needs as a tuple.  Raises ValueError for an unknown one."""
    if unknown := sorted(set(needs) - set(NEEDS)):
        raise ValueError(f"worker_needs: {unknown[0]!r}, expected some of {', '.join(NEEDS)}")
    return tuple(needs)


# -- in the run -------------------------------------------------------------------------------------------


class Room:
    """An empty directory, `path`, for one worker process, and an unnamed file for its standard error.

    After the run was killed, `ownership.remove_stale` removes the directory.
    """

    def __init__(self):
        ending = f".{socket.gethostname()}.{os.getpid()}.tmp"
        self.path = tempfile.mkdtemp(prefix=".genenv-worker-", suffix=ending)
        self.errors = tempfile.TemporaryFile(dir=self.path)  # noqa: SIM115
        self.close = weakref.finalize(self, _clear, self.path, self.errors)

    def last_words(self) -> str:
        """The last line that the process wrote to its standard error; "" if there is none."""
        length, text = 4 * _LAST_WORDS, ""  # bytes; a character has at most four
        with contextlib.suppress(OSError, ValueError):  # closed by another thread
            begin = max(0, os.fstat(self.errors.fileno()).st_size - length)
            text = os.pread(self.errors.fileno(), length, begin).decode(errors="replace")
        lines = [line.strip() for line in text.split("\n") if line.strip()]
        return lines[-1][-_LAST_WORDS:] if lines else ""

    def excess(self) -> str:
        """How the files in the directory exceed the limits; "" if they do not."""
        waiting, size, entries = [self.path], 0, 0
        while waiting:
            with contextlib.suppress(OSError), os.scandir(waiting.pop()) as found:
                for entry in found:
                    with contextlib.suppress(OSError):
                        status = entry.stat(follow_symlinks=False)
                        size += 512 * status.st_blocks
                        if stat.S_ISDIR(status.st_mode):
                            waiting.append(entry.path)
                    entries += 1
                    if entries > MAX_ENTRIES:
                        return f"it has written more than {MAX_ENTRIES:,} files"
                    if size > MAX_DIRECTORY:
                        return f"its files have more than {MAX_DIRECTORY // 2**20} MiB"
        return ""


def _clear(path: str, errors: IO[bytes]) -> None:
    errors.close()
    shutil.rmtree(path, ignore_errors=True)


def environment(directory: str, needs: Collection[str] = ()) -> dict[str, str]:
    """A worker's environment variables: a short list of the run's, and no others.

    Home and temporary directory are its own directory; paths of benchmark data and packages are kept.
    """
    names = [*_INHERITED, *(_OF_NETWORKS if NETWORK in needs else ())]
    names += [name for name in os.environ if name.startswith("LC_")]
    kept = {name: os.environ[name] for name in names if name in os.environ}
    kept |= dict.fromkeys(("HOME", "TMPDIR"), directory)
    kept["PYTHONUSERBASE"] = site.getuserbase()
    kept["TFDS_DATA_DIR"] = os.path.abspath(data_files.prepared_directory().parent)
    if shared := os.environ.get("GENENV_DATA"):
        kept["GENENV_DATA"] = os.path.abspath(shared)
    # Sets iterate in the same order in every worker, and each worker uses one core.
    return kept | {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}


def summary(protections: Mapping[str, str]) -> tuple[str, bool]:
    """(line, complete): a log line of what is in force and what this system lacks; whether it lacks none."""
    have = [f"{name} ({how})" for name, how in protections.items() if not how.startswith("NO")]
    lack = [f"{name} ({how[3:].strip()})" for name, how in protections.items() if how.startswith("NO")]
    line = "worker processes are isolated: " + ", ".join(have)
    return line + ("; NOT on this system: " + ", ".join(lack) if lack else ""), not lack


# -- in the worker ----------------------------------------------------------------------------------------


def isolate(memory: int, needs: Collection[str], directory: str) -> dict[str, str]:
    """Restricts this process to what it needs; call it before importing a benchmark's packages.

    Args:
      memory: limit on its data, in bytes; 0 for no limit.
      needs: some of `NEEDS`.
      directory: the only place where it may write files, if it needs `FILES`.
    Returns:
      for each protection, the mechanism in force, or "NO: " and why there is none.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    with contextlib.suppress(AttributeError):  # no such call on this system
        # The kernel then kills this process when the thread of the run that started it ends.
        libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
    limits = _limit(memory, MAX_FILE if FILES in needs else _MAX_MESSAGES)
    privileges = _drop_privileges(libc)
    version, files = 0, ""
    try:
        version = landlock.restrict(directory if FILES in needs else None, NETWORK in needs)
        files = f"Landlock {version}"
    except (OSError, AttributeError) as error:
        files = f"NO: Landlock, {error}"
    try:
        seccomp.install(FILES in needs, NETWORK in needs)
        calls = "seccomp"
    except (OSError, AttributeError) as error:
        calls = f"NO: seccomp, {error}"
    if NETWORK in needs:
        network = "allowed, as the benchmark needs it"
    else:
        network = calls if calls == "seccomp" or version < 4 else f"TCP only, Landlock {version}"
    return {
        "no network": network,
        "no process": calls,
        "no signal": calls if calls == "seccomp" or version < 6 else f"Landlock {version}",
        "no writing" + (" elsewhere" if FILES in needs else ""): files,
        "no access to other processes": files,
        **limits,
        "no privileges": privileges,
        "no inherited environment": _DONE,
    }


def _limit(memory: int, file_size: int) -> dict[str, str]:
    """Sets resource limits, and disables core dumps, as crashes are expected here."""
    wanted = {
        "": ("RLIMIT_CORE", 0),
        "file size": ("RLIMIT_FSIZE", file_size),
        "open files": ("RLIMIT_NOFILE", _MAX_OPEN),
    }
    if memory:
        wanted["memory"] = ("RLIMIT_DATA", memory)
        wanted["mapped memory"] = ("RLIMIT_AS", memory + _MAPPED)
    made = {}
    for name, (limit, size) in wanted.items():
        try:
            _, most = resource.getrlimit(getattr(resource, limit))
            size = size if most == resource.RLIM_INFINITY else min(size, most)
            resource.setrlimit(getattr(resource, limit), (size, size))
            made[name] = f"{size / 2**20:.0f} MiB" if size >= 2**20 else f"{size}"
        except (AttributeError, OSError, ValueError) as error:
            made[name] = f"NO: {limit}, {error}"
    # If the machine runs out of memory, the kernel should kill this process first.
    with contextlib.suppress(OSError):
        pathlib.Path("/proc/self/oom_score_adj").write_text("1000")
    return {name: how for name, how in made.items() if name}


def limit_cpu(seconds: float) -> None:
    """Limits this process to `seconds` more CPU time over all threads; then SIGXCPU kills it."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime + seconds) + 1
    with contextlib.suppress(OSError, ValueError):
        _, most = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (limit, most))


def _drop_privileges(libc: ctypes.CDLL) -> str:
    """Reduces root to a plain user's rights, and prevents gaining rights by starting a program."""

    class Header(ctypes.Structure):
        _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]

    class Set(ctypes.Structure):
        _fields_ = [(name, ctypes.c_uint32) for name in ("effective", "permitted", "inheritable")]

    try:
        header, sets = Header(_CAPABILITIES, 0), (Set * 2)()
        if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.capget(ctypes.byref(header), sets):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        kept = sets[0].permitted & _READ_FILES
        sets[0], sets[1] = Set(kept, kept, 0), Set(0, 0, 0)
        if libc.capset(ctypes.byref(header), sets):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    except (OSError, AttributeError) as error:
        return f"NO: {error}"
    return _DONE
