"""The platform that a program is being traced for, and the memory of its devices."""

import contextlib
import functools
import os
import pathlib
import resource
import time

import jax
import jax.numpy as jnp

# The limit of a container, in cgroups of version 2 and 1.
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def target_platform() -> str:
    """Platform of the current mesh's devices, else of the default backend: "cpu", "gpu" or "tpu".

    They differ when the mesh comes from a topology description.
    """
    device = jax.sharding.get_abstract_mesh().abstract_device
    return jax.default_backend() if device is None else device.platform


def device_memory() -> int:
    """Bytes for the arrays of one local device; CPU devices share the memory available to this process."""
    devices = jax.local_devices()
    stats = devices[0].memory_stats() or {}
    if devices[0].platform != "cpu" and "bytes_limit" in stats:
        return stats["bytes_limit"]
    sizes = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for file in _LIMITS:
        with contextlib.suppress(OSError, ValueError):  # there is none, or it is "max"
            sizes.append(int(pathlib.Path(file).read_text()))
    address_space, _ = resource.getrlimit(resource.RLIMIT_AS)
    if address_space != resource.RLIM_INFINITY:
        sizes.append(address_space)
    return min(sizes) // len(devices)


def check_memory(what: str, needed: float, advice: str = "") -> None:
    """Raises ValueError if a device has fewer than `needed` bytes.  advice: how to need less."""
    if needed > (there := device_memory()):
        raise ValueError(f"{what}: {size_text(needed)} on each device, which has {size_text(there)}{advice}")


def product_rate(dtype: str) -> float:
    """Operations per second of one device in a square matrix product of `dtype`, the best of three."""
    n = 1024 if jax.default_backend() == "cpu" else 8192
    a = jnp.zeros((n, n), dtype)
    multiply = jax.jit(functools.partial(jnp.matmul, preferred_element_type=jnp.float32))
    multiply(a, a).block_until_ready()
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        multiply(a, a).block_until_ready()
        seconds.append(time.perf_counter() - start)
    return 2 * n**3 / min(seconds)


def size_text(count: float) -> str:
    """A human-readable number of bytes."""
    return f"{count / 2**30:,.1f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"
