"""Landlock on Linux (5.13 and later): restricts a process to writing below one directory.

It needs no privileges and is irreversible.  It also hides other processes' memory, environments and open
files below /proc.  Numbers: linux/landlock.h; features by version:
Documentation/userspace-api/landlock.rst.
"""

import ctypes
import errno
import os
import struct
import sys

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446  # the same on every architecture
_VERSION, _BENEATH = 1, 1
_WRITE, _REMOVE_DIRECTORY, _REMOVE_FILE, _MAKE_DIRECTORY, _MAKE_FILE, _TRUNCATE = (
    1 << bit for bit in (1, 4, 5, 7, 8, 14)
)
_ALL_CHANGES = _WRITE | sum(1 << bit for bit in range(4, 13))  # version 1
_LATER = {2: 1 << 13, 3: _TRUNCATE, 5: 1 << 15}  # moves, truncation, devices' ioctl
_TCP = 0b11  # bind and connect, version 4
_SOCKETS, _SIGNALS = 0b01, 0b10  # abstract sockets; to processes outside; version 6


def version() -> int:
    """The kernel's Landlock version.  Raises OSError if it has none."""
    if sys.platform != "linux":  # elsewhere the system call number means something else
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
    return _call(_CREATE, None, ctypes.c_size_t(0), _VERSION)


def restrict(directory: str | None, network: bool) -> int:
    """Forbids this process all changes of the file system outside `directory` and /dev/null.

    Its `no_new_privs` must be set.

    Args:
      directory: where files and directories may be made, written and removed; None: nowhere.
      network: whether TCP and abstract sockets stay allowed.
    Returns:
      the version in force.  Unless `network`, TCP is refused from version 4 and abstract sockets from 6.
      Signals to other processes are refused from version 6 in any case.
    Raises:
      OSError: the kernel has no Landlock.
    """
    found = version()
    changes = _ALL_CHANGES
    for since, right in _LATER.items():
        changes |= right if found >= since else 0
    attributes = [changes]
    if found >= 4:
        attributes.append(0 if network else _TCP)
    if found >= 6:
        attributes.append(_SIGNALS | (0 if network else _SOCKETS))
    packed = struct.pack(f"{len(attributes)}Q", *attributes)
    ruleset = _call(_CREATE, packed, ctypes.c_size_t(len(packed)), 0)
    try:
        _allow(ruleset, os.devnull, changes & (_WRITE | _TRUNCATE))
        if directory is not None:
            own = _WRITE | _REMOVE_DIRECTORY | _REMOVE_FILE | _MAKE_DIRECTORY | _MAKE_FILE | _TRUNCATE
            _allow(ruleset, directory, changes & own)
        _call(_RESTRICT, ruleset, 0)
    finally:
        os.close(ruleset)
    return found


def _allow(ruleset: int, path: str, rights: int) -> None:
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        _call(_ADD_RULE, ruleset, _BENEATH, struct.pack("=Qi", rights, place), 0)
    finally:
        os.close(place)


def _call(number: int, *arguments: object) -> int:
    result = ctypes.CDLL(None, use_errno=True).syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
