"""Checkpoints: everything that a run needs to go on, in one atomic Orbax Composite.

Part of each are the digests of its files, which are compared before it is restored.

Saved at epoch boundaries: both players' train states, and as JSON the finished epochs, the curriculum, the
settings, the number of rollouts, and length and digest of every file that the run appends to.  PRNG keys are
not state: each is derived from (seed, epoch, phase), so a repeated epoch draws the same numbers.

In a run of several processes the directory is shared, every process writes and reads the parts of the
arrays that its devices hold, and all methods are called by all of them.  It may lie in Cloud Storage
(`run.remote`): there Orbax writes under the final name, and what it writes last makes a checkpoint whole.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging as python_logging
import os
import pathlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from absl import logging
from etils import epath

from genenv_jax.models.huggingface.tensors import all_finite
from genenv_jax.ownership import remove_stale, scratch_name
from genenv_jax.parallel import processes
from genenv_jax.run import digests
from genenv_jax.settings import Settings, within
from genenv_jax.signals import held

# Seconds that the other processes wait while the first one reads a checkpoint again for its digests.
_LONGEST_SEAL = 3600


@dataclasses.dataclass(frozen=True)
class CheckpointConfig(Settings):
    """`config.checkpoint`.

    Attributes:
      every: epochs between two.
      keep: how many are kept.
    """

    every: int = within(1, 1)
    keep: int = within(2, 1)


class Checkpoints:
    """The checkpoints of one workdir.

    No method is cut in two by a signal: it is delivered when the method has ended.

    Args:
      directory: where they are, absolute; made if missing.  What a killed save left there is removed.
      keep: how many are kept.
    """

    def __init__(self, directory: str | os.PathLike, keep: int):
        _say_errors_once()
        self._directory = epath.Path(directory)
        if processes.is_writer():  # what a killed save left; the workdir is this run's alone
            for path in self._directory.iterdir() if self._directory.exists() else ():
                if path.is_dir() and not ocp.utils.is_checkpoint_finalized(path):
                    path.rmtree()
        # Called by the first process when all of them have written, and before the name is the final one.
        sealing = ocp.AsyncOptions(
            timeout_secs=_LONGEST_SEAL, post_finalization_callback=lambda: self._seal()
        )
        options = ocp.CheckpointManagerOptions(max_to_keep=keep, create=True, async_options=sealing)
        self._manager = ocp.CheckpointManager(self._directory, options=options)
        self._saving, self._keep = -1, keep
        if processes.is_writer():
            remove_stale(pathlib.Path(directory))  # of this machine

    @held()
    def save(self, epoch: int, states: Mapping[str, Any], host: Mapping[str, Any]) -> None:
        """Saves asynchronously after `epoch` finished epochs.

        Args:
          states: pytrees of arrays by name.
          host: plain JSON values.
        Raises:
          FloatingPointError: a state holds NaN or infinity; nothing is saved.
          OSError: this checkpoint or the one before could not be written.
        """
        wrong = processes.gather("finite states", _not_finite(states))
        if found := next(filter(None, wrong), ""):
            raise FloatingPointError(
                f"{found} holds NaN or infinity after epoch {epoch}, so no checkpoint is written; those in "
                f"{self._directory} are from before: lower the learning rate"
            )
        items = {name: ocp.args.StandardSave(state) for name, state in states.items()}
        args = ocp.args.Composite(**items, host=ocp.args.JsonSave(dict(host)))
        with self._named():
            self._manager.wait_until_finished()
            self._probe()
            self._saving = epoch
            self._manager.save(epoch, args=args)

    def _probe(self) -> None:
        """Raises OSError where nothing can be written: Orbax's threads would wait for it beyond the end."""
        if processes.is_writer():
            probe = scratch_name(self._directory / "probe")
            probe.mkdir(exist_ok=True)
            (probe / "file").write_text("")
            probe.rmtree()

    def _seal(self) -> None:
        partial = next(
            self._directory.glob(f"{self._saving}.orbax-checkpoint-tmp*"),
            self._directory / str(self._saving),
        )
        digests.seal(partial, without=["_CHECKPOINT_METADATA"])  # Orbax adds when it ended

    @held()
    def restore(
        self, states: Mapping[str, Any], fits: Callable[[Mapping[str, Any]], None] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The newest checkpoint that is whole and fits, or None where there is none.

        Args:
          states: pytrees of the same structure; their shapes, types and shardings are what is restored.
          fits: raises ValueError or OSError where the files of the workdir are not those that the host values
            say; of several processes the first one asks.
        Returns:
          (states by name, host values).  A damaged checkpoint, or one that does not fit, is reported and the
          one before is tried.
        Raises:
          ValueError: there are checkpoints, and none can be taken.
        """
        abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, dict(states))
        items = {name: ocp.args.StandardRestore(state) for name, state in abstract.items()}
        args = ocp.args.Composite(**items, host=ocp.args.JsonRestore())
        steps = sorted(self._manager.all_steps(), reverse=True)
        steps = json.loads(processes.agree("checkpoints", json.dumps(steps)))
        reason = ""
        for step in steps:
            found, error = self._read(step, args, fits)
            # Damage may lie in the part of one process: what one cannot read, none takes.
            errors = processes.gather("restore", error)
            if any(errors):
                reason = "; ".join(
                    error if len(errors) == 1 else f"process {i}: {error}"
                    for i, error in enumerate(errors)
                    if error
                )
                if processes.is_writer():
                    logging.error(
                        "checkpoint %d cannot be taken, trying the one before: %s", step, reason
                    )
                continue
            # Newer ones would stand in the way of the epochs' new ones.  Of older ones a save that was killed
            # before its end left one too many.
            older = [s for s in steps if s <= step]
            for other in [s for s in steps if s > step] + older[self._keep :]:
                self._manager.delete(other)
            return {name: found[name] for name in items}, found["host"]
        if steps:
            raise ValueError(
                f"none of the checkpoints {steps} in {self._directory} can be taken, the oldest one since: "
                f"{reason}; expected one that is whole and fits this configuration and its workdir (remove "
                "the workdir to start anew)"
            )
        return None

    def _read(self, step: int, args: ocp.args.Composite, fits: Callable | None) -> tuple[Any, str]:
        """A checkpoint, or why it cannot be taken."""
        directory, index = self._directory / str(step), processes.process_index()
        try:
            digests.check(directory, index, processes.process_count())
            found = _reader(self._directory, lambda reader: reader.restore(step, args=args))
            if fits and processes.is_writer():
                fits(found["host"])
        except Exception as error:  # whatever the storage layers raise on damaged files
            return None, _first_line(error)
        return found, ""

    @held()
    def close(self) -> None:
        """Returns when every save is on disk, and lets go of the directory; raises what `save` does."""
        with self._named():
            self._manager.close()

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """Names the directory in what the storage layers raise, which often is long and names nothing."""
        try:
            yield
        except Exception as error:
            raise OSError(
                f"a checkpoint could not be written to {self._directory}: {_first_line(error)}"
            ) from error


def _say_errors_once() -> None:
    """Keeps the storage layers from printing every error of every thread, beside raising it where it counts.

    Orbax logs them, asyncio those of Orbax's tasks, and TensorStore prints that the event loop has gone which
    it would tell of a failed write.
    """
    logging.get_absl_logger().addFilter(_not_of_orbax)
    python_logging.getLogger("asyncio").addFilter(_not_of_its_tasks)
    for name in ("unraisablehook", "excepthook"):  # TensorStore's threads call the second one
        hook = getattr(sys, name)
        if not isinstance(hook, _Quiet):
            setattr(sys, name, _Quiet(hook))


class _Quiet:
    """One of `sys`'s hooks without the errors of a closed event loop."""

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


def newest_host(directory: str | os.PathLike) -> dict[str, Any] | None:
    """The host values of the newest checkpoint in which they can be read, or None."""
    directory = epath.Path(directory)
    steps = [int(path.name) for path in directory.glob("[0-9]*") if path.name.isdigit()]
    args = ocp.args.Composite(host=ocp.args.JsonRestore())
    for step in sorted(steps, reverse=True):
        with contextlib.suppress(Exception):  # whatever the storage layers raise on damaged files
            return _reader(directory, lambda r, step=step: r.restore(step, args=args))["host"]
    return None


def _reader(directory: epath.Path, read: Callable[[ocp.CheckpointManager], Any]) -> Any:
    """What `read` returns of a manager for this process alone.

    In a common one the others would wait without end for a process that found damage.
    """
    index = processes.process_index()
    alone = ocp.options.MultiprocessingOptions(
        primary_host=index, active_processes={index}, barrier_sync_key_prefix=f"reader{index}"
    )
    options = ocp.CheckpointManagerOptions(create=False, multiprocessing_options=alone)
    with ocp.CheckpointManager(directory, options=options) as reader:
        return read(reader)


def _not_finite(states: Mapping[str, Any]) -> str:
    """The first array, by its path, whose part on this process holds NaN or infinity; "" for none."""
    for path, leaf in jax.tree_util.tree_flatten_with_path(dict(states))[0]:
        if jax.numpy.issubdtype(leaf.dtype, jax.numpy.floating):
            parts = (x.data for x in leaf.addressable_shards if x.replica_id == 0)
            if not all(all_finite(np.asarray(_view(part))) for part in parts):
                return jax.tree_util.keystr(path)
    return ""


def _view(x: jax.Array) -> jax.Array:
    """The same buffer as another array: an array keeps the copy on the host that was once asked for."""
    return jax.make_array_from_single_device_arrays(x.shape, x.sharding, [x])


def _first_line(error: Exception) -> str:
    """What an error says first: after it, storage layers print what they were asked for."""
    if "No space left on device" in str(error):  # far behind, after what could not be written
        return "no space left on device"
    text = str(error)[:500].partition("\n")[0]
    return text if type(error) in (ValueError, OSError) else f"{type(error).__name__}: {text}"
