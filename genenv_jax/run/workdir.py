"""The files of a run: its settings, its append-only records, and how both are taken up again.

In a run of several processes the workdir lies on storage that all of them see.  The first one writes,
all read, and what is read is the same for all, so that they decide alike.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import secrets
import time
from collections.abc import Mapping
from typing import Any

from genenv_jax.benchmarks.base import Benchmark
from genenv_jax.models import huggingface
from genenv_jax.parallel import processes
from genenv_jax.run.jsonl import JsonLines, read_json, write_json
from genenv_jax.run.metrics import MetricWriter

# Settings that may change when a run is continued: they do not change what is computed, `mesh` to
# `micro_batches` but for rounding (a preempted run may find another slice).
_FREE = {
    *("epochs", "tensorboard", "export", "checkpoint", "scoring"),
    *("compilation_cache", "compile_ahead"),
    *("mesh", "memory.offload", "model.remat", "model.attention", "sampling"),
    *("agent.micro_batches", "simulator.micro_batches"),
    *(
        f"tasks.teacher.{name}"
        for name in ("budget", "attempts", "concurrency", "timeout", "retries")
    ),
}


def settings(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A configuration by dotted keys, in order, with values as JSON has them."""
    flat: dict[str, Any] = {}
    for key in sorted(config):
        value = config[key]
        if isinstance(value, Mapping):
            flat |= settings(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = json.loads(json.dumps(value))
    return flat


def compare_settings(config: Mapping[str, Any]) -> None:
    """Raises ValueError where the processes of this run were started with other settings."""
    lines = (f"config.{key} = {json.dumps(value)}" for key, value in settings(config).items())
    processes.same_everywhere("the configuration", "\n".join(lines))


def compare_data(benchmark: Benchmark) -> None:
    """Raises ValueError where the processes of this run read other tasks."""
    if processes.process_count() == 1:
        return
    lines = []
    for split in ("seed", "eval"):
        digest = hashlib.sha256()
        for task in benchmark.tasks(split):
            digest.update(json.dumps(task.to_json(), sort_keys=True).encode() + b"\n")
        lines.append(f"{split}: {len(benchmark.tasks(split))} tasks {digest.hexdigest()[:16]}")
    processes.same_everywhere("the benchmark's data", "\n".join(lines))


def make_shared(workdir: pathlib.Path, patience: float = 10.0, setting: str = "--workdir") -> None:
    """Makes the workdir, or another directory, and checks that every process sees it.

    Args:
      patience: seconds that a new file may take to show on the other hosts of a network file system.
      setting: what names the directory, for the message.
    Raises:
      ValueError: on every process, naming those that do not see what process 0 writes there.
    """
    if processes.is_writer():
        workdir.mkdir(parents=True, exist_ok=True)
    if processes.process_count() == 1:
        return
    mark = workdir / f".shared-{processes.agree('workdir', secrets.token_hex(8))}"
    if processes.is_writer():
        mark.touch()
    processes.barrier("workdir is marked")
    deadline = time.monotonic() + patience
    while not (seen := mark.exists()) and time.monotonic() < deadline:
        time.sleep(0.1)
        with contextlib.suppress(OSError):
            os.listdir(workdir)  # makes a network file system look again
    sights = processes.gather("workdir is seen", str(workdir.absolute()) if not seen else "")
    if processes.is_writer():
        mark.unlink()
    if blind := [f"process {i} ({path})" for i, path in enumerate(sights) if path]:
        raise ValueError(
            f"{setting}={workdir}: {', '.join(blind)} cannot see what process 0 writes there; expected "
            "a directory on storage that all processes share, under the same path"
        )


class RunSettings:
    """config.json of a workdir, which is made if missing.

    Args:
      workdir: of the run.
      config: its settings, nested.
    Raises:
      ValueError: the workdir's run was started with other settings, or so were the processes of this run; the
        file is damaged; or not all processes see the workdir.
    """

    def __init__(self, workdir: pathlib.Path, config: Mapping[str, Any]):
        self._workdir, self._path, self._config = workdir, workdir / "config.json", config
        make_shared(workdir)
        self._stored = read_json(self._path, "settings") if self._path.exists() else {}
        compare_settings(config)
        if not self._stored:
            return
        given, stored = settings(config), settings(self._stored)
        stored.pop("fingerprint", None)  # compared apart
        for key in sorted(stored.keys() | given.keys()):
            before, now = stored.get(key), given.get(key)
            group = key.split(".")[0]
            if key not in _FREE and group not in _FREE and before != now:
                raise ValueError(
                    f"{workdir} holds a run with config.{key} = {before!r}, but now it is {now!r}: "
                    "expected the same settings, or another --workdir"
                )

    def write(self, model: str | os.PathLike) -> None:
        """Writes the settings and the fingerprint of the model directory that the players start from.

        Raises ValueError where the run was started from another model, or where the processes hold
        different ones.
        """
        fingerprint = huggingface.fingerprint(model)
        processes.same_everywhere("the model that the players start from", fingerprint)
        stored = self._stored.get("fingerprint", fingerprint)
        if stored != fingerprint:
            raise ValueError(
                f"{self._workdir} holds a run that started from a model with fingerprint {stored}, but "
                f"{model} has {fingerprint}: expected the same model, or another --workdir"
            )
        if processes.is_writer():
            content = {**self._config, "fingerprint": fingerprint}
            write_json(self._path, content, sort_keys=True)


class RunFiles:
    """The files that a run appends to.

    tasks: every generation.  d_train, d_env: the two pools.  metrics: what is the same in a repeated run.
    timing: what is not.  On all processes but the first they can be read, and nothing is written.

    tensorboard: see `MetricWriter`.
    """

    def __init__(self, workdir: pathlib.Path, tensorboard: str):
        other = not processes.is_writer()
        self.tasks = JsonLines(workdir / "tasks.jsonl", read_only=other)
        self.d_train = JsonLines(workdir / "d_train.jsonl", read_only=other)
        self.d_env = JsonLines(workdir / "d_env.jsonl", read_only=other)
        self.metrics = MetricWriter(workdir / "metrics.jsonl", tensorboard, read_only=other)
        self.timing = MetricWriter(workdir / "timing.jsonl", read_only=other)
        self._files = dict(vars(self))

    def offsets(self) -> dict[str, int]:
        """Lengths in bytes, for a checkpoint; of use on the process that writes."""
        if not processes.is_writer():
            return {}
        return {name: file.offset() for name, file in self._files.items()}

    def truncate(self, offsets: Mapping[str, int] | None) -> None:
        """Cuts every file back to its length in a checkpoint; to nothing without one.

        On every process it returns when that is done.  Raises ValueError where a file is shorter than that.
        """
        for name, file in self._files.items():
            file.truncate(offsets[name] if offsets else 0)
        processes.barrier("files are cut back")

    def close(self) -> None:
        """Closes the files."""
        for file in self._files.values():
            file.close()
