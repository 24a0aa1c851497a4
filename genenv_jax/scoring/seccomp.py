"""A seccomp filter on Linux: refuses system calls that a worker process does not need, with EPERM.

The filter applies to the process and all its threads, is irreversible, and needs no privileges.  It is a
deny list, not an allow list, so that Python and native engines keep working whatever else they call.
Numbers: the kernel's tables (arch/x86/entry/syscalls/syscall_64.tbl and scripts/syscall.tbl); layout:
linux/seccomp.h, linux/filter.h.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Collection, Iterator, Sequence

NETWORK, PROCESSES, OTHERS, METADATA, KERNEL = GROUPS = (
    "network",
    "processes",
    "others",
    "metadata",
    "kernel",
)

# By group and name: the number on x86_64 and on aarch64, -1 if there is none.
_REFUSED = {
    # No connections at all, including local sockets (a container daemon's, an agent's).
    NETWORK: {"socket": (41, 198)},
    PROCESSES: {
        "fork": (57, -1),
        "vfork": (58, -1),
        "execve": (59, 221),
        "execveat": (322, 281),
        "unshare": (272, 97),
        "setns": (308, 268),
    },
    # Calls that signal, read, change or slow down another process.
    OTHERS: {
        "tkill": (200, 130),
        "rt_sigqueueinfo": (129, 138),
        "rt_tgsigqueueinfo": (297, 240),
        "pidfd_send_signal": (424, 424),
        "pidfd_open": (434, 434),
        "pidfd_getfd": (438, 438),
        "ptrace": (101, 117),
        "process_vm_readv": (310, 270),
        "process_vm_writev": (311, 271),
        "process_madvise": (440, 440),
        "kcmp": (312, 272),
        "setpriority": (141, 140),
        "ioprio_set": (251, 30),
        "sched_setaffinity": (203, 122),
        "sched_setscheduler": (144, 119),
        "sched_setparam": (142, 118),
        "sched_setattr": (314, 274),
    },
    # File changes that Landlock does not cover, or not in its first versions.
    METADATA: {
        "truncate": (76, 45),
        "chmod": (90, -1),
        "fchmod": (91, 52),
        "fchmodat": (268, 53),
        "fchmodat2": (452, 452),
        "chown": (92, -1),
        "lchown": (94, -1),
        "fchown": (93, 55),
        "fchownat": (260, 54),
        "utime": (132, -1),
        "utimes": (235, -1),
        "futimesat": (261, -1),
        "utimensat": (280, 88),
        "setxattr": (188, 5),
        "lsetxattr": (189, 6),
        "fsetxattr": (190, 7),
        "setxattrat": (463, 463),
        "removexattr": (197, 14),
        "lremovexattr": (198, 15),
        "fremovexattr": (199, 16),
        "removexattrat": (466, 466),
    },
    # Ways around the filter or the memory limit, and access to the user's session keys.
    KERNEL: {
        "io_uring_setup": (425, 425),
        "memfd_create": (319, 279),
        "memfd_secret": (447, 447),
        "shmget": (29, 194),
        "semget": (64, 190),
        "msgget": (68, 186),
        "mq_open": (240, 180),
        "add_key": (248, 217),
        "request_key": (249, 218),
        "keyctl": (250, 219),
        "bpf": (321, 280),
        "perf_event_open": (298, 241),
        "userfaultfd": (323, 282),
    },
}
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_CLONE, _CLONE3 = (56, 220), 435
_KILL, _TGKILL, _PRLIMIT = (62, 129), (234, 131), (302, 261)
_CLONE_THREAD = 0x00010000
_X32 = 0x40000000  # numbers of x86_64's other calling convention begin here

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # BPF opcodes
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENT_AT = 0, 4, 16  # offsets in struct seccomp_data

_PR_SET_SECCOMP, _MODE_FILTER = 22, 2


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


def install(refused: Collection[str]) -> None:
    """Refuses some groups of system calls to this process.  Its `no_new_privs` must be set.

    With PROCESSES it can start threads but no processes; with OTHERS it can signal only itself.

    Raises OSError if the kernel rejects the filter or the machine's call numbers are unknown.
    """
    machine = platform.machine()
    if sys.platform != "linux" or machine not in _ARCHITECTURES or struct.calcsize("P") != 8:
        raise OSError(errno.ENOTSUP, f"no table of system calls for {sys.platform} on {machine}")
    code = b"".join(
        struct.pack("HBBI", *instruction) for instruction in _filter(machine, refused, os.getpid())
    )
    program = _Program(len(code) // 8, code)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program), 0, 0):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _filter(machine: str, refused: Collection[str], pid: int) -> Iterator[Sequence[int]]:
    """BPF instructions: opcode, jump if true, jump if false, operand."""
    column, architecture = _ARCHITECTURES[machine]
    refuse = (_RETURN, 0, 0, _ERRNO | errno.EPERM)
    yield _LOAD, 0, 0, _ARCHITECTURE_AT
    yield _EQUAL, 1, 0, architecture
    yield refuse  # 32-bit calls, which are numbered differently
    yield _LOAD, 0, 0, _NUMBER_AT
    if machine == "x86_64":
        yield _AT_LEAST, 0, 1, _X32
        yield refuse
    for group in refused:
        for numbers in _REFUSED[group].values():
            if numbers[column] >= 0:
                yield _EQUAL, 0, 1, numbers[column]
                yield refuse
    if PROCESSES in refused:
        # The filter cannot see clone3's flags, which lie in memory; without clone3 libc uses `clone`.
        yield _EQUAL, 0, 1, _CLONE3
        yield _RETURN, 0, 0, _ERRNO | errno.ENOSYS
        yield from _unless(_CLONE[column], (_ANY_BIT, _CLONE_THREAD), refuse)
    if OTHERS in refused:
        for number in (_KILL[column], _TGKILL[column]):
            yield from _unless(number, (_EQUAL, pid), refuse)
        yield from _unless(_PRLIMIT[column], (_EQUAL, 0), refuse)
    yield _RETURN, 0, 0, _ALLOW


def _unless(number: int, test: tuple[int, int], refuse: Sequence[int]) -> Iterator[Sequence[int]]:
    """Refuses a call unless the lower half of its first argument passes the test."""
    yield _EQUAL, 0, 4, number
    yield _LOAD, 0, 0, _ARGUMENT_AT
    yield test[0], 0, 1, test[1]
    yield _RETURN, 0, 0, _ALLOW
    yield refuse
