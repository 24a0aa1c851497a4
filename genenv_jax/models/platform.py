"""The platform that a program is being traced for."""

from __future__ import annotations

import jax


def target_platform() -> str:
    """Platform of the current mesh's devices, else of the default backend: "cpu", "gpu" or "tpu".

    They differ when the mesh comes from a topology description.
    """
    device = jax.sharding.get_abstract_mesh().abstract_device
    return jax.default_backend() if device is None else device.platform
