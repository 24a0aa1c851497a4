"""A seccomp filter on Linux: allows the system calls that a worker process needs, and no others.

It lists what is allowed, so calls that nobody thought of are refused.  Calls that do several things are
allowed for some values of an argument.  A refused call fails with EPERM, or with ENOSYS if it is so new that
libraries fall back to an older one.  The filter applies to the process and all its threads, is irreversible,
and needs no privileges.  Numbers: the kernel's tables
(arch/x86/entry/syscalls/syscall_64.tbl and scripts/syscall.tbl); layout: linux/seccomp.h, linux/filter.h.
"""

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Iterator, Sequence

# Call numbers on x86_64 and on aarch64 by name, -1 if there is none.
_CALLS = {
    "read": (0, 63), "write": (1, 64), "readv": (19, 65), "writev": (20, 66), "pread64": (17, 67),
    "pwrite64": (18, 68), "preadv": (295, 69), "preadv2": (327, 286), "lseek": (8, 62),
    "open": (2, -1), "openat": (257, 56), "close": (3, 57), "close_range": (436, 436),
    "stat": (4, -1), "fstat": (5, 80), "lstat": (6, -1), "newfstatat": (262, 79), "statx": (332, 291),
    "access": (21, -1), "faccessat": (269, 48), "faccessat2": (439, 439), "readlink": (89, -1),
    "readlinkat": (267, 78),
    "getdents": (78, -1), "getdents64": (217, 61), "getcwd": (79, 17), "chdir": (80, 49), "fchdir": (81, 50),
    "statfs": (137, 43), "fstatfs": (138, 44), "fadvise64": (221, 223),
    "getxattr": (191, 8), "lgetxattr": (192, 9), "fgetxattr": (193, 10), "listxattr": (194, 11),
    "llistxattr": (195, 12), "flistxattr": (196, 13),
    "umask": (95, 166), "dup": (32, 23), "dup2": (33, -1), "dup3": (292, 24), "pipe": (22, -1),
    "pipe2": (293, 59),
    "poll": (7, -1), "ppoll": (271, 73), "select": (23, -1), "pselect6": (270, 72),
    "mmap": (9, 222), "mprotect": (10, 226), "munmap": (11, 215), "mremap": (25, 216), "madvise": (28, 233),
    "membarrier": (324, 283), "brk": (12, 214),
    "futex": (202, 98), "set_robust_list": (273, 99), "rseq": (334, 293), "set_tid_address": (218, 96),
    "sched_yield": (24, 124), "sched_getaffinity": (204, 123),
    "exit": (60, 93), "exit_group": (231, 94),
    "getpid": (39, 172), "gettid": (186, 178), "getppid": (110, 173), "getpgid": (121, 155),
    "getsid": (124, 156), "getuid": (102, 174), "geteuid": (107, 175), "getgid": (104, 176),
    "getegid": (108, 177), "getgroups": (115, 158), "getresuid": (118, 148), "getresgid": (120, 150),
    "getrlimit": (97, 163), "setrlimit": (160, 164), "getrusage": (98, 165), "times": (100, 153),
    "sysinfo": (99, 179), "uname": (63, 160), "getcpu": (309, 168), "getrandom": (318, 278),
    "arch_prctl": (158, -1),
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139),
    "rt_sigpending": (127, 136), "rt_sigsuspend": (130, 133), "rt_sigtimedwait": (128, 137),
    "sigaltstack": (131, 132), "restart_syscall": (219, 128),
    "alarm": (37, -1), "pause": (34, -1), "getitimer": (36, 102), "setitimer": (38, 103),
    "nanosleep": (35, 101), "clock_nanosleep": (230, 115), "clock_gettime": (228, 113),
    "clock_getres": (229, 114), "gettimeofday": (96, 169), "time": (201, -1),
}  # fmt: skip
# Changes to files, which Landlock confines to the worker's directory.
_FILE_CALLS = {
    "creat": (85, -1), "mkdir": (83, -1), "mkdirat": (258, 34), "rmdir": (84, -1), "unlink": (87, -1),
    "unlinkat": (263, 35), "rename": (82, -1), "renameat": (264, 38), "renameat2": (316, 276),
    "ftruncate": (77, 46), "fallocate": (285, 47), "fsync": (74, 82), "fdatasync": (75, 83),
    "msync": (26, 227), "sendfile": (40, 71), "copy_file_range": (326, 285),
}  # fmt: skip
# Sockets of all kinds, also local ones: a container's daemon or an agent listens there, and their buffers
# are memory that no limit counts.
_NETWORK_CALLS = {
    "socket": (41, 198), "socketpair": (53, 199), "connect": (42, 203), "bind": (49, 200),
    "listen": (50, 201), "accept": (43, 202), "accept4": (288, 242), "shutdown": (48, 210),
    "sendto": (44, 206), "sendmsg": (46, 211), "sendmmsg": (307, 269), "recvfrom": (45, 207),
    "recvmsg": (47, 212), "recvmmsg": (299, 243), "getsockname": (51, 204), "getpeername": (52, 205),
    "setsockopt": (54, 208), "getsockopt": (55, 209),
    "epoll_create": (213, -1), "epoll_create1": (291, 20), "epoll_ctl": (233, 21), "epoll_wait": (232, -1),
    "epoll_pwait": (281, 22), "eventfd2": (290, 19),
}  # fmt: skip
# Name: numbers, the position of an argument, and its allowed values.
_ONLY_WITH = {
    # To duplicate descriptors and to read and set their flags.  Not locks, leases and signals, which reach
    # the run's files through a descriptor that only reads.
    "fcntl": ((72, 25), 1, (0, 1, 2, 3, 4, 1030)),
    # FIONREAD, FIONBIO, FIONCLEX, FIOCLEX, and whether a file is a terminal: TCGETS, TCGETS2.  Not the flags
    # of files (FS_IOC_SETFLAGS) and what devices understand.
    "ioctl": ((16, 29), 1, (0x541B, 0x5421, 0x5450, 0x5451, 0x5401, 0x802C542A)),
    "prctl": ((157, 167), 0, (15, 16)),  # a thread's name
    "prlimit64": ((302, 261), 0, (0,)),  # of this process
}
_SIGNALS = ((62, 129), (234, 131))  # kill and tgkill, to this process
_CLONE, _CLONE_THREAD = (56, 220), 0x00010000  # to start threads
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_X32 = 0x40000000  # numbers of x86_64's other calling convention begin here
# From here on numbers are the same everywhere, and libraries fall back to older calls, such as from clone3,
# whose flags the filter cannot see.
_NEW = 424

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # BPF opcodes
_ALLOW = (_RETURN, 0, 0, 0x7FFF0000)
_REFUSE, _UNKNOWN = ((_RETURN, 0, 0, 0x00050000 | code) for code in (errno.EPERM, errno.ENOSYS))
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16  # offsets in struct seccomp_data

_PR_SET_SECCOMP, _MODE_FILTER = 22, 2


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


def install(files: bool, network: bool) -> None:
    """Refuses this process all calls but those that it needs.  Its `no_new_privs` must be set.

    It can start threads but no processes, and signal only itself.

    Args:
      files: whether it may change files, where something else does not forbid it.
      network: whether it may have sockets.
    Raises:
      OSError: the kernel rejects the filter, or the machine's call numbers are unknown.
    """
    machine = platform.machine()
    if sys.platform != "linux" or machine not in _ARCHITECTURES or struct.calcsize("P") != 8:
        raise OSError(errno.ENOTSUP, f"no table of system calls for {sys.platform} on {machine}")
    code = b"".join(struct.pack("HBBI", *each) for each in _filter(machine, files, network, os.getpid()))
    program = _Program(len(code) // 8, code)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program), 0, 0):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _filter(machine: str, files: bool, network: bool, pid: int) -> Iterator[Sequence[int]]:
    """BPF instructions: opcode, jump if true, jump if false, operand."""
    column, architecture = _ARCHITECTURES[machine]
    yield _LOAD, 0, 0, _ARCHITECTURE_AT
    yield _EQUAL, 1, 0, architecture
    yield _REFUSE  # 32-bit calls, which are numbered differently
    yield _LOAD, 0, 0, _NUMBER_AT
    if machine == "x86_64":
        yield _AT_LEAST, 0, 1, _X32
        yield _REFUSE
    allowed = {**_CALLS, **(_FILE_CALLS if files else {}), **(_NETWORK_CALLS if network else {})}
    for numbers in allowed.values():
        if numbers[column] >= 0:
            yield _EQUAL, 0, 1, numbers[column]
            yield _ALLOW
    for numbers, argument, values in _ONLY_WITH.values():
        yield from _if(numbers[column], argument, _EQUAL, values)
    for numbers in _SIGNALS:
        yield from _if(numbers[column], 0, _EQUAL, (pid,))
    yield from _if(_CLONE[column], 0, _ANY_BIT, (_CLONE_THREAD,))
    yield _AT_LEAST, 0, 1, _NEW
    yield _UNKNOWN
    yield _REFUSE


def _if(number: int, argument: int, test: int, values: Sequence[int]) -> Iterator[Sequence[int]]:
    """Refuses a call unless the lower half of an argument passes the test with one of the values."""
    yield _EQUAL, 0, 2 * len(values) + 2, number
    yield _LOAD, 0, 0, _ARGUMENTS_AT + 8 * argument
    for value in values:
        yield test, 0, 1, value
        yield _ALLOW
    yield _REFUSE
