"""What malloc does with freed buffers, counted in page faults; huge pages."""

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

if sys.argv[1] == "set":
    assert allocator.keep_freed_buffers()


def work(bytes):
    for _ in range(20):
        np.ones(bytes // 8)


def resident():
    return int(open("/proc/self/statm").read().split()[1])


first = resident()
work(2**26)
left = resident() - first
work(2**24)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
thread = threading.Thread(target=work, args=(2**24,))
thread.start()
thread.join()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, left)
"""
_AGAIN = """
import os, sys
from genenv_jax.run import allocator

allocator.use_huge_pages()
print(os.environ.get("GLIBC_TUNABLES"), sys.argv[1:])
"""
_on_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the settings are glibc's")


def printed(*arguments, **variables):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_"))}
    environment["NUMPY_MADVISE_HUGEPAGE"] = "0"
    return subprocess.run(
        [sys.executable, *arguments], env=environment | variables, capture_output=True, text=True, check=True
    ).stdout


@_on_glibc
def test_buffers_are_faulted_in_once_and_large_ones_returned():
    """Also those that another thread allocates, as JAX's do."""
    page = os.sysconf("SC_PAGE_SIZE")
    faults, left = map(int, printed("-c", _FAULTS, "set").split())
    # Not even one of twenty anew.
    assert faults < 2**24 / page < int(printed("-c", _FAULTS, "not").split()[0])
    assert left < 2**25 / page


@_on_glibc
def test_a_command_starts_again_with_huge_pages(tmp_path):
    command = tmp_path / "genenv"
    command.write_text(_AGAIN)
    assert printed(command, "a b", "c") == "glibc.malloc.hugetlb=1 ['a b', 'c']\n"
    given = "glibc.malloc.check=0"
    assert printed("-u", command, GLIBC_TUNABLES=given) == f"{given}:glibc.malloc.hugetlb=1 []\n"
    assert printed(command, GLIBC_TUNABLES="glibc.malloc.hugetlb=0") == "glibc.malloc.hugetlb=0 []\n"
    program = command.rename(tmp_path / "harness.py")
    assert printed(program, "genenv") == "None ['genenv']\n"  # it would begin anew inside itself


def test_the_environment_has_the_last_word(monkeypatch):
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "65536")
    assert not allocator.keep_freed_buffers()


def test_only_where_arrays_are_in_host_memory(monkeypatch):
    for platforms, want in (("cpu", True), ("cuda,cpu", False)):
        monkeypatch.setenv("JAX_PLATFORMS", platforms)
        assert allocator.arrays_in_host_memory() is want
    monkeypatch.delenv("JAX_PLATFORMS")
    for installed in (True, False):
        monkeypatch.setattr(allocator.importlib.util, "find_spec", lambda _, found=installed: found)
        assert allocator.arrays_in_host_memory() is not installed
