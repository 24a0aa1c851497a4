"""Makes malloc keep freed host memory instead of returning it and faulting it in again at every step."""

from __future__ import annotations

import ctypes
import importlib.util
import os

# Parameters of mallopt(3), from glibc's malloc.h.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -2, -3, -4, -8
_LARGE = 32 * 2**20  # bytes; the largest threshold that glibc accepts

# Packages that add an accelerator to JAX.
_PLUGINS = ("libtpu", "jax_cuda12_plugin", "jax_cuda13_plugin", "jax_rocm7_plugin")


def arrays_in_host_memory() -> bool:
    """Whether JAX will find only CPU devices; does not import JAX."""
    if platforms := os.environ.get("JAX_PLATFORMS"):
        return platforms == "cpu"
    return not any(importlib.util.find_spec(name) for name in _PLUGINS)


def keep_freed_buffers(large: bool = True) -> bool:
    """Makes glibc keep freed buffers, for programs whose arrays are in host memory.

    By default glibc maps every large buffer anew and unmaps it when freed, so each step faults in all
    pages of its temporaries, which takes a tenth of the training time.  The price is that
    the process does not shrink below its peak.  Call this before any thread has started.

    large: also those above 32 MiB.  They leave gaps that double the memory of a 0.5B, and without updates it
      is no faster.
    Returns whether it was done: not with another C library, or if the environment already sets
    MALLOC_MMAP_MAX_.
    """
    if "MALLOC_MMAP_MAX_" in os.environ:
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return False
    settings = {
        _ARENA_MAX: 1,  # arenas of other threads return large buffers whatever the settings
        **({_MMAP_MAX: 0} if large else {_MMAP_THRESHOLD: _LARGE}),
        _TRIM_THRESHOLD: 2**31 - 1,
        _TOP_PAD: 64 * 2**20,
    }
    return all([mallopt(name, value) == 1 for name, value in settings.items()])
