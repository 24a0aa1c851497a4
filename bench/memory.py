"""Memory of this process, as Linux counts it."""

from __future__ import annotations

import ctypes
import gc
import pathlib
from collections.abc import Callable


def held(field: str) -> int:
    """A field of /proc/self/status in bytes: "VmRSS", "VmHWM", "RssAnon".

    Raises OSError where there is none: not on Linux.
    """
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}; memory is measured on Linux only")


def reset_peak() -> int:
    """Sets this process's peak resident memory back to what it holds now, and returns that, in bytes.

    What glibc kept of freed buffers goes back first: a step that reused it would seem to need none.
    """
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    return held("VmRSS")


def peak() -> int:
    """Peak resident memory in bytes since `reset_peak`."""
    return held("VmHWM")


def growth(step: Callable[[], object]) -> int:
    """Bytes by which the process grows at most during a call, the third one.

    The optimiser's moments are there from the first on; some engines compile once more for them.
    """
    step()
    step()
    before = reset_peak()
    step()
    return peak() - before
