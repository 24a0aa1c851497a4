"""What kind of device a program is for, while it is traced."""

from __future__ import annotations

import jax


def target_platform() -> str:
    """Platform of the current mesh's devices, else of the default backend: "cpu", "gpu" or "tpu".

    The devices of a described topology are not the host's.
    """
    device = jax.sharding.get_abstract_mesh().abstract_device
    return jax.default_backend() if device is None else device.platform
