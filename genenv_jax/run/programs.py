"""Compiled programs: kept for later runs, and made side by side where that is safe."""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import os
import pathlib
import platform
import threading
from collections.abc import Callable, Sequence

import jax

from genenv_jax.parallel import processes
from genenv_jax.run.remote import shared
from genenv_jax.typing import WarmUp
from genenv_jax.user_cache import user_cache

_AT_ONCE = 4  # chains that are compiled at a time: a compilation keeps about one core busy


def enable_compilation_cache(workdir: pathlib.Path | None = None) -> None:
    """Lets JAX keep what it compiles, so that a later run of the same shapes finds it.

    Kept are programs that take some time, in the directory that JAX_COMPILATION_CACHE_DIR names; else, in
    a run of several processes, in the workdir, where all of them see it; else in the user's cache directory.
    """
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
    # XLA's own caches would bring their directory, and so the user's, into the key of every program.
    jax.config.update("jax_persistent_cache_enable_xla_caches", "none")
    if jax.config.jax_compilation_cache_dir:
        return
    directory = user_cache() / "xla" / _processor()
    # What a mirror holds goes with it, and the others do not see it.
    if workdir and processes.process_count() > 1 and shared(workdir) == workdir.absolute():
        directory = workdir / "xla_cache"
    jax.config.update("jax_compilation_cache_dir", str(directory.absolute()))


def _processor() -> str:
    """A name of this processor's instructions: programs for a CPU do not run on one that lacks some."""
    described = platform.processor()
    with contextlib.suppress(OSError, StopIteration):
        lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        described = next(line for line in lines if line.startswith(("flags", "Features")))
    digest = hashlib.sha256(described.encode()).hexdigest()[:8]
    return f"{platform.machine() or 'cpu'}-{digest}"


def compile_in_parallel(
    chains: Sequence[Sequence[WarmUp]],
    activate: Callable[[], contextlib.AbstractContextManager],
    side_by_side: bool,
    done: Callable[[], None],
) -> None:
    """Runs the steps of each chain in their order.

    Args:
      chains: of steps that compile something.
      activate: makes the context in which they do.
      side_by_side: several chains at a time, each in a thread.  Not where programs run on several devices,
        which could wait for each other, nor where a step may take another's memory.
      done: called after each step, by one thread at a time.
    Raises what a step raises, after the chains that have begun have ended.
    """
    one = threading.Lock()

    def run(chain: Sequence[WarmUp]) -> None:
        with activate():  # it holds for one thread
            for step in chain:
                step()
                with one:
                    done()

    if not side_by_side:
        for chain in chains:
            run(chain)
        return
    with concurrent.futures.ThreadPoolExecutor(min(_AT_ONCE, os.cpu_count() or 1)) as pool:
        futures = [pool.submit(run, chain) for chain in chains]
        try:
            for future in concurrent.futures.as_completed(futures):
                future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
