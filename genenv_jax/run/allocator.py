"""Host memory that is kept instead of being given back and fetched again at every step."""

from __future__ import annotations

import ctypes
import importlib.util
import os

# Parameters of mallopt(3), from glibc's malloc.h.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8


# Packages that bring JAX an accelerator.
_PLUGINS = ("libtpu", "jax_cuda12_plugin", "jax_cuda13_plugin", "jax_rocm7_plugin")


def arrays_in_host_memory() -> bool:
    """Whether JAX will find CPU devices only; it need not be imported."""
    if platforms := os.environ.get("JAX_PLATFORMS"):
        return platforms == "cpu"
    return not any(importlib.util.find_spec(name) for name in _PLUGINS)


def keep_freed_buffers() -> bool:
    """Lets glibc keep freed buffers, for programs whose arrays are in host memory.

    By default it maps every large buffer anew and gives it back afterwards, so that each step faults
    in all pages of its temporaries: a tenth of a small model's training time.  The price is that the
    process does not shrink below its peak.  Call it before any thread has started.

    Returns whether it was done: not with another C library, nor where the environment has settings of
    its own (MALLOC_MMAP_MAX_).
    """
    if "MALLOC_MMAP_MAX_" in os.environ:
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return False
    settings = {
        _ARENA_MAX: 1,  # the arenas of other threads hand large buffers back whatever is set
        _MMAP_MAX: 0,
        _TRIM_THRESHOLD: 2**31 - 1,
        _TOP_PAD: 64 * 2**20,
    }
    return all([mallopt(name, value) == 1 for name, value in settings.items()])
