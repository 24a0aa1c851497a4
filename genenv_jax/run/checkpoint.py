"""Checkpoints: everything that a run needs to go on, in one atomic Orbax Composite.

Saved at epoch boundaries: both players' train states, and as JSON the finished epochs, the curriculum,
the number of rollouts and the length of every file that the run appends to.  PRNG keys are not state:
each is derived from (seed, epoch, phase), so a repeated epoch draws the same numbers.

In a run of several processes the directory is shared, every process writes and reads the parts of the
arrays that its devices hold, and all methods are called by all of them.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import jax
import orbax.checkpoint as ocp
from absl import logging

from genenv_jax.parallel import processes
from genenv_jax.settings import Settings, within


@dataclasses.dataclass(frozen=True)
class CheckpointConfig(Settings):
    """`config.checkpoint`.  every: epochs between two.  keep: how many are kept."""

    every: int = within(1, 1)
    keep: int = within(2, 1)


class Checkpoints:
    """The checkpoints of one workdir.

    Args:
      directory: where they are; made if missing.
      keep: how many are kept.
    """

    def __init__(self, directory: str | os.PathLike, keep: int):
        options = ocp.CheckpointManagerOptions(max_to_keep=keep, create=True)
        self._manager = ocp.CheckpointManager(pathlib.Path(directory).absolute(), options=options)

    def save(self, epoch: int, states: Mapping[str, Any], host: Mapping[str, Any]) -> None:
        """Saves asynchronously after `epoch` finished epochs.

        Args:
          states: pytrees of arrays by name.
          host: plain JSON values.
        """
        items = {name: ocp.args.StandardSave(state) for name, state in states.items()}
        self._manager.save(
            epoch, args=ocp.args.Composite(**items, host=ocp.args.JsonSave(dict(host)))
        )

    def restore(self, states: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The newest checkpoint that can be read, or None where there is none.

        Args:
          states: pytrees of the same structure; their shapes, types and shardings are what is restored.
        Returns:
          (states by name, host values).  A damaged checkpoint is reported and the one before is tried.
        Raises:
          ValueError: there are checkpoints, and none can be read.
        """
        abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, dict(states))
        items = {name: ocp.args.StandardRestore(state) for name, state in abstract.items()}
        args = ocp.args.Composite(**items, host=ocp.args.JsonRestore())
        steps = sorted(self._manager.all_steps(), reverse=True)
        steps = json.loads(processes.agree("checkpoints", json.dumps(steps)))
        for step in steps:
            found, error = self._read(step, args)
            # Damage may lie in the part of one process: what one cannot read, none takes.
            errors = processes.gather("restore", error)
            if any(errors):
                if processes.is_writer():
                    logging.error(
                        "checkpoint %d cannot be read, trying the one before: %s",
                        step,
                        "; ".join(
                            f"process {i}: {error}" for i, error in enumerate(errors) if error
                        ),
                    )
                continue
            for newer in (s for s in steps if s > step):
                self._manager.delete(
                    newer
                )  # it would stand in the way of the epoch's new checkpoint
            return {name: found[name] for name in items}, found["host"]
        if steps:
            raise ValueError(
                f"none of the checkpoints {steps} in {self._manager.directory} can be read; expected "
                "one that fits this configuration and is whole (remove the directory to start anew)"
            )
        return None

    def _read(self, step: int, args: ocp.args.Composite) -> tuple[Any, str]:
        """A checkpoint, or why it cannot be read."""
        # A reader for this process alone: in a common one the others would wait without end
        # for a process that found damage.
        index = processes.process_index()
        alone = ocp.options.MultiprocessingOptions(
            primary_host=index, active_processes={index}, barrier_sync_key_prefix=f"reader{index}"
        )
        options = ocp.CheckpointManagerOptions(create=False, multiprocessing_options=alone)
        try:
            with ocp.CheckpointManager(self._manager.directory, options=options) as reader:
                return reader.restore(step, args=args), ""
        except Exception as error:  # whatever the storage layers raise on damaged files
            # Their first line says it; after it they print what they were asked for.
            return None, f"{type(error).__name__}: {str(error)[:500].partition(chr(10))[0]}"

    def close(self) -> None:
        """Returns when every save is on disk, and lets go of the directory."""
        self._manager.close()
