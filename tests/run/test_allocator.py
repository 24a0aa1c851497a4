"""Freed buffers are kept: counted in page faults."""

import os
import platform
import subprocess
import sys

import pytest

from genenv_jax.run import allocator

_FAULTS = """
import resource, sys, threading
import numpy as np
from genenv_jax.run import allocator

if sys.argv[1] != "none":
    assert allocator.keep_freed_buffers(large=sys.argv[1] == "all")


def work():
    for _ in range(20):
        np.ones(2**23)  # 64 MiB


def resident():
    return int(open("/proc/self/statm").read().split()[1])


first = resident()
work()
after = resident()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
thread = threading.Thread(target=work)
thread.start()
thread.join()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, after - first)
"""


def pages(choice):
    """Pages faulted in after the first buffers, and pages that these leave behind when they are freed."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")}
    command = [sys.executable, "-c", _FAULTS, choice]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return tuple(map(int, done.stdout.split()))


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_buffers_are_faulted_in_once():
    """Also those that another thread allocates, as JAX's do."""
    buffer = 2**26 // os.sysconf("SC_PAGE_SIZE")
    faults, left = pages("all")
    assert faults < buffer and left > buffer / 2  # not even one of twenty anew
    assert pages("small")[1] < buffer / 2


def test_the_environment_has_the_last_word(monkeypatch):
    monkeypatch.setenv("MALLOC_MMAP_MAX_", "65536")
    assert not allocator.keep_freed_buffers()


def test_only_where_arrays_are_in_host_memory(monkeypatch):
    for platforms, want in (("cpu", True), ("cuda,cpu", False)):
        monkeypatch.setenv("JAX_PLATFORMS", platforms)
        assert allocator.arrays_in_host_memory() is want
    monkeypatch.delenv("JAX_PLATFORMS")
    for installed in (True, False):
        monkeypatch.setattr(allocator.importlib.util, "find_spec", lambda _, found=installed: found)
        assert allocator.arrays_in_host_memory() is not installed
