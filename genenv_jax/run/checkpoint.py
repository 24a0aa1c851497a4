"""Checkpoints: everything that a run needs to resume, in one atomic Orbax Composite.

Each checkpoint contains digests of its files, which are checked before it is restored.

A checkpoint is saved at the end of an epoch.  It holds both players' train states and, as JSON, the finished
epochs, the curriculum, the settings, the number of rollouts, and the length and digest of every append-only
file.  PRNG keys are not state: they derive from (seed, epoch, phase), so a repeated epoch repeats its draws.
A mid-epoch checkpoint, in its own directory, also has what the epoch has gathered that is in no such file.

In a multi-process run the directory is shared, every process writes and reads the shards on its devices, and
all processes call all methods.
"""

import base64
import contextlib
import dataclasses
import io
import json
import logging as python_logging
import os
import pathlib
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from absl import logging

from genenv_jax.models.huggingface.tensors import all_finite
from genenv_jax.parallel import processes
from genenv_jax.run import digests
from genenv_jax.settings import Settings, within
from genenv_jax.system.ownership import remove_stale, scratch_name
from genenv_jax.system.signals import held

# Seconds that the other processes wait while the first one re-reads a checkpoint for its digests.
_LONGEST_SEAL = 3600


@dataclasses.dataclass(frozen=True)
class CheckpointConfig(Settings):
    """`config.checkpoint`.

    Attributes:
      every: epochs between two checkpoints.
      keep: newest end-of-epoch checkpoints to keep.
      minutes: minutes since the last checkpoint after which the agent's next batch is followed by a mid-epoch
        checkpoint, which replaces the previous one; 0: never.
    """

    every: int = within(1, 1)
    keep: int = within(2, 1)
    minutes: float = within(0.0, 0)


class Checkpoints:
    """The checkpoints of one workdir.

    Signals do not interrupt a method: they are delivered when it has ended.

    Args:
      directory: absolute path; made if missing.  Leftovers of a killed save are removed.
      keep: newest checkpoints to keep.
      parts: for mid-epoch checkpoints, a number that `done` in `save` stays below.
    """

    def __init__(self, directory: str | os.PathLike, keep: int, parts: int = 1):
        _say_errors_once()
        self._directory = pathlib.Path(directory)
        # The first process calls it when all have written, before the checkpoint gets its final name.
        sealing = ocp.AsyncOptions(
            timeout_secs=_LONGEST_SEAL, post_finalization_callback=lambda: self._seal()
        )
        options = ocp.CheckpointManagerOptions(
            max_to_keep=keep, create=True, cleanup_tmp_directories=True, async_options=sealing
        )
        self._manager = ocp.CheckpointManager(self._directory, options=options)
        self._saving, self._keep, self._parts = -1, keep, parts
        if processes.is_writer():
            remove_stale(self._directory)  # only this host's

    @held()
    def save(self, epoch: int, states: Mapping[str, Any], host: Mapping[str, Any], done: int = 0) -> None:
        """Saves asynchronously after `epoch` finished epochs.

        Args:
          states: pytrees of arrays by name.
          host: plain JSON values.
          done: how much of the next epoch is done.
        Raises:
          FloatingPointError: a state holds NaN or infinity; nothing is saved.
          OSError: this checkpoint or the previous one could not be written.
        """
        wrong = processes.gather("finite states", _not_finite(states))
        if found := next(filter(None, wrong), ""):
            raise FloatingPointError(
                f"{found} holds NaN or infinity after epoch {epoch}, so no checkpoint is written; any in "
                f"{self._directory} are from earlier epochs: lower the learning rate"
            )
        items = {name: ocp.args.StandardSave(state) for name, state in states.items()}
        args = ocp.args.Composite(**items, host=ocp.args.JsonSave(dict(host)))
        with self._named():
            self._manager.wait_until_finished()
            self._probe()
            self._saving = epoch * self._parts + done
            self._manager.save(self._saving, args=args)

    def _probe(self) -> None:
        """Raises OSError if the directory is not writable; Orbax's threads would hang past the run's end."""
        if processes.is_writer():
            probe = scratch_name(self._directory / "probe")
            probe.mkdir(exist_ok=True)
            (probe / "file").write_text("")
            shutil.rmtree(probe)

    def _seal(self) -> None:
        partial = next(self._directory.glob(f"{self._saving}.orbax-checkpoint-tmp*"))
        digests.seal(partial, without=["_CHECKPOINT_METADATA"])  # Orbax adds its end time later

    def newest(self) -> int:
        """The finished epochs of the newest checkpoint, -1 without one; the same in all processes."""
        steps = [step // self._parts for step in self._manager.all_steps()]
        return int(processes.agree("newest checkpoint", str(max(steps, default=-1))))

    @held()
    def wait(self) -> None:
        """Waits until every save is on disk; raises what `save` does."""
        with self._named():
            self._manager.wait_until_finished()

    @held()
    def clear(self) -> None:
        """Removes all checkpoints."""
        self.wait()
        for step in self._manager.all_steps():
            self._manager.delete(step)

    @held()
    def restore(
        self, states: Mapping[str, Any], fits: Callable[[Mapping[str, Any]], None] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The newest checkpoint that is intact and fits, or None if there are no checkpoints.

        Args:
          states: pytrees of the same structure; their shapes, types and shardings are restored.
          fits: raises ValueError or OSError if the workdir's files do not match the host values; only the
            first process calls it.
        Returns:
          (states by name, host values).  A checkpoint that is damaged or does not fit is reported, and the
          previous one is tried.
        Raises:
          ValueError: there are checkpoints, but none can be restored; never for mid-epoch ones.
        """
        abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, dict(states))
        items = {name: ocp.args.StandardRestore(state) for name, state in abstract.items()}
        args = ocp.args.Composite(**items, host=ocp.args.JsonRestore())
        steps = sorted(self._manager.all_steps(), reverse=True)
        steps = json.loads(processes.agree("checkpoints", json.dumps(steps)))
        reason = ""
        for step in steps:
            found, error = self._read(step, args, fits)
            # Damage may affect one process's shards only: if one cannot read a checkpoint, all skip it.
            errors = processes.gather("restore", error)
            if any(errors):
                reason = "; ".join(
                    error if len(errors) == 1 else f"process {i}: {error}"
                    for i, error in enumerate(errors)
                    if error
                )
                if processes.is_writer():
                    logging.error("checkpoint %d cannot be restored, trying the one before: %s", step, reason)
                continue
            # Newer checkpoints would collide with those of the repeated epochs.  A save that was killed
            # before its end leaves one old checkpoint too many.
            older = [s for s in steps if s <= step]
            for other in [s for s in steps if s > step] + older[self._keep :]:
                self._manager.delete(other)
            return {name: found[name] for name in items}, found["host"]
        if steps and self._parts == 1:
            raise ValueError(
                f"none of the checkpoints {steps} in {self._directory} can be restored, the oldest because "
                f"of: {reason}; expected an undamaged one that fits this configuration and workdir (remove "
                "the workdir to start over)"
            )
        return None

    def _read(self, step: int, args: ocp.args.Composite, fits: Callable | None) -> tuple[Any, str]:
        """Reads a checkpoint; returns it, or the reason why it cannot be restored."""
        directory, index = self._directory / str(step), processes.process_index()
        try:
            digests.check(directory, index, processes.process_count())
            found = _read_alone(self._directory, step, args)
            if fits and processes.is_writer():
                fits(found["host"])
        except Exception as error:  # whatever the storage layers raise on damaged files
            return None, _first_line(error)
        return found, ""

    @held()
    def close(self) -> None:
        """Waits until every save is on disk and releases the directory; raises what `save` does."""
        with self._named():
            self._manager.close()

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """Names the directory in the storage layers' errors, which are often long and name no file."""
        try:
            yield
        except Exception as error:
            raise OSError(
                f"a checkpoint could not be written to {self._directory}: {_first_line(error)}"
            ) from error


def _say_errors_once() -> None:
    """Keeps the storage layers from also printing every thread's errors, which they raise anyway.

    Orbax logs its errors, and asyncio those of Orbax's tasks.  TensorStore prints that the event loop to
    which it would have reported a failed write is closed.
    """
    logging.get_absl_logger().addFilter(_not_of_orbax)
    python_logging.getLogger("asyncio").addFilter(_not_of_its_tasks)
    for name in ("unraisablehook", "excepthook"):  # TensorStore's threads call the second
        hook = getattr(sys, name)
        if not isinstance(hook, _Quiet):
            setattr(sys, name, _Quiet(hook))


class _Quiet:
    """Wraps one of `sys`'s hooks and drops errors about a closed event loop."""

    def __init__(self, hook: Callable[..., None]):
        self._hook = hook

    def __call__(self, *arguments: Any) -> None:
        error = arguments[1] if len(arguments) > 1 else arguments[0].exc_value
        if not (isinstance(error, RuntimeError) and str(error) == "Event loop is closed"):
            self._hook(*arguments)


def _not_of_orbax(record: Any) -> bool:
    return "orbax" not in pathlib.PurePath(record.pathname).parts


def _not_of_its_tasks(record: Any) -> bool:
    return "orbax" not in record.getMessage()


def pack_arrays(arrays: Mapping[str, np.ndarray]) -> str:
    """Arrays as text, for a checkpoint's host values."""
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return base64.b64encode(file.getvalue()).decode()


def unpack_arrays(text: str) -> dict[str, np.ndarray]:
    """Inverse of `pack_arrays`."""
    with np.load(io.BytesIO(base64.b64decode(text))) as arrays:
        return dict(arrays)


def newest_host(directory: str | os.PathLike) -> dict[str, Any] | None:
    """The host values of the newest checkpoint whose host values are readable, or None."""
    directory = pathlib.Path(directory).absolute()
    steps = [int(path.name) for path in directory.glob("[0-9]*") if path.name.isdigit()]
    args = ocp.args.Composite(host=ocp.args.JsonRestore())
    for step in sorted(steps, reverse=True):
        with contextlib.suppress(Exception):  # whatever the storage layers raise on damaged files
            return _read_alone(directory, step, args)["host"]
    return None


def _read_alone(directory: pathlib.Path, step: int, args: ocp.args.Composite) -> Any:
    """A checkpoint, read by a manager for this process alone.

    With a shared manager, the other processes would wait forever for one that found damage.
    """
    index = processes.process_index()
    alone = ocp.options.MultiprocessingOptions(
        primary_host=index, active_processes={index}, barrier_sync_key_prefix=f"reader{index}"
    )
    options = ocp.CheckpointManagerOptions(create=False, multiprocessing_options=alone)
    with ocp.CheckpointManager(directory, options=options) as reader:
        return reader.restore(step, args=args)


def _not_finite(states: Mapping[str, Any]) -> str:
    """The path of the first array whose shards on this process hold NaN or infinity; "" if none."""
    for path, leaf in jax.tree_util.tree_flatten_with_path(dict(states))[0]:
        if jax.numpy.issubdtype(leaf.dtype, jax.numpy.floating):
            parts = (x.data for x in leaf.addressable_shards if x.replica_id == 0)
            if not all(all_finite(np.asarray(_view(part))) for part in parts):
                return jax.tree_util.keystr(path)
    return ""


def _view(x: jax.Array) -> jax.Array:
    """A new array on the same buffer, since an array caches its host copy once requested."""
    return jax.make_array_from_single_device_arrays(x.shape, x.sharding, [x])


def _first_line(error: Exception) -> str:
    """The first line of an error; after it, storage layers print the whole request."""
    if "No space left on device" in str(error):  # comes late, after what could not be written
        return "no space left on device"
    text = str(error)[:500].partition("\n")[0]
    return text if type(error) in (ValueError, OSError) else f"{type(error).__name__}: {text}"
