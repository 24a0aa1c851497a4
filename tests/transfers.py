"""A guard against implicit transfers between host and devices."""

import contextlib
from unittest import mock

import jax
import numpy as np
from jax._src.array import ArrayImpl
from jaxlib import _jax


class ImplicitTransfer(AssertionError):
    """A device array was read on the host without `jax.device_get`."""


class ExplicitTransfers:
    """Inside `forbidding()`, only explicit transfers pass: device_put, device_get and what uses them.

    JAX's own guard sees transfers to devices.  On CPUs it misses those from devices, which copy nothing, so
    this class watches reads of an array's value: by float(), int(), bool(), tolist(), item(), printing,
    np.asarray and np.array.  reads: explicit reads so far.
    """

    def __init__(self):
        self.reads = 0
        self._armed = False

    @contextlib.contextmanager
    def forbidding(self):
        value = ArrayImpl._value

        def watched_value(array):
            self._look(array)
            return value.fget(array)

        def watched(convert):
            def converting(x, *arguments, **options):
                if isinstance(x, jax.Array):
                    self._look(x)
                return convert(x, *arguments, **options)

            return converting

        self._armed = True
        try:
            with (
                mock.patch.object(ArrayImpl, "_value", property(watched_value)),
                # NumPy reads a CPU array's buffer directly, bypassing JAX.
                mock.patch.object(np, "asarray", watched(np.asarray)),
                mock.patch.object(np, "array", watched(np.array)),
                jax.transfer_guard_host_to_device("disallow"),
                jax.transfer_guard_device_to_host("disallow"),
            ):
                yield
        finally:
            self._armed = False

    def _look(self, array):
        explicit = _jax.guard_lib.thread_local_state().explicit_device_get
        self.reads += explicit
        if self._armed and not explicit:
            raise ImplicitTransfer(f"{array.aval} is read without device_get")

    @contextlib.contextmanager
    def allowing(self):
        """Inside it, everything passes, even within `forbidding`."""
        armed, self._armed = self._armed, False
        try:
            with jax.transfer_guard("allow"):
                yield
        finally:
            self._armed = armed
