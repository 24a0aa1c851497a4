"""Settings of malloc for programs whose arrays are in host memory: fewer page faults at each step."""

import ctypes
import importlib.util
import os
import platform
import sys

# Parameters of mallopt(3), from glibc's malloc.h.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -2, -3, -8
_LARGE = 32 * 2**20  # bytes; the largest threshold that glibc accepts
_HUGE_PAGES = "glibc.malloc.hugetlb"

# Packages that add an accelerator to JAX.
_PLUGINS = ("libtpu", "jax_cuda12_plugin", "jax_cuda13_plugin", "jax_rocm7_plugin")


def arrays_in_host_memory() -> bool:
    """Whether JAX will find only CPU devices; does not import JAX."""
    if platforms := os.environ.get("JAX_PLATFORMS"):
        return platforms == "cpu"
    return not any(importlib.util.find_spec(name) for name in _PLUGINS)


def use_huge_pages() -> None:
    """Starts this command again with huge pages for malloc, unless GLIBC_TUNABLES says whether to use them.

    glibc reads the variable only when a process starts.  Large buffers, which are mapped anew at every step,
    then cost a page fault every 2 MiB.  Does nothing with another C library or one before glibc 2.35, or in a
    process that Python did not start for a command of this package but that calls one.
    """
    program = next((argument for argument in sys.orig_argv[1:] if not argument.startswith("-")), "")
    if os.path.basename(program).partition(".")[0] not in ("genenv", "genenv_jax"):
        return
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    name, version = platform.libc_ver()
    if _HUGE_PAGES in tunables or name != "glibc" or tuple(map(int, version.split("."))) < (2, 35):
        return
    os.environ["GLIBC_TUNABLES"] = f"{tunables}:{_HUGE_PAGES}=1".lstrip(":")
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def keep_freed_buffers() -> bool:
    """Makes glibc keep freed buffers of up to 32 MiB, and return larger ones.

    By default glibc maps every large buffer anew and unmaps it when freed, so each step faults in all
    pages of its temporaries, which takes a tenth of the training time.  Kept buffers above 32 MiB leave gaps
    that double the memory of a 0.5B.  Call this before any thread has started.

    Returns whether it was done: not with another C library, or if the environment already sets
    MALLOC_MMAP_THRESHOLD_.
    """
    if "MALLOC_MMAP_THRESHOLD_" in os.environ:
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return False
    settings = {
        _ARENA_MAX: 1,  # arenas of other threads return large buffers whatever the settings
        _MMAP_THRESHOLD: _LARGE,
        _TRIM_THRESHOLD: 2**31 - 1,
        _TOP_PAD: 64 * 2**20,
    }
    return all([mallopt(name, value) == 1 for name, value in settings.items()])
