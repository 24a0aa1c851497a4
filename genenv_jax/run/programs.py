"""Compiled programs: cached for later runs, and compiled in parallel where that is safe."""

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
from genenv_jax.typing import WarmUp

_AT_ONCE = 4  # chains compiled at a time; a compilation keeps about one core busy


def user_cache() -> pathlib.Path:
    """Where trained models and compiled programs are kept: in $XDG_CACHE_HOME, else in ~/.cache."""
    root = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(root) / "genenv_jax"


def enable_compilation_cache(workdir: pathlib.Path | None = None) -> None:
    """Enables JAX's persistent compilation cache, so that a later run with the same shapes can reuse it.

    Caches programs that take some time to compile.  The directory is JAX_COMPILATION_CACHE_DIR if set; else,
    in a multi-process run, the workdir, which all processes see; else the user's cache directory.
    """
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
    # XLA's own caches would put their directory, which contains the user's, into every program's key.
    jax.config.update("jax_persistent_cache_enable_xla_caches", "none")
    if jax.config.jax_compilation_cache_dir:
        return
    directory = user_cache() / "xla" / _processor()
    if workdir and processes.process_count() > 1:
        directory = workdir / "xla_cache"
    jax.config.update("jax_compilation_cache_dir", str(directory.absolute()))


def _processor() -> str:
    """A name for this CPU's instruction set: programs do not run on a CPU that lacks instructions."""
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
    """Runs the steps of each chain in order.

    Args:
      chains: sequences of steps that compile something.
      activate: makes the context in which they compile.
      side_by_side: run several chains at a time, each in a thread.  Do not use it if programs run on several
        devices, which could deadlock, or if one step may move memory that another one needs.
      done: called after each step, by one thread at a time.
    Raises what a step raises, after the running chains have ended.
    """
    one = threading.Lock()

    def run(chain: Sequence[WarmUp]) -> None:
        with activate():  # it is thread-local
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
