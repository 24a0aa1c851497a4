"""The files of a run: its settings, its append-only records, and how both are taken up again."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from genenv_jax.metrics import MetricWriter
from genenv_jax.models import huggingface
from genenv_jax.pools import Pool

# Settings that may change when a run is continued: they do not change what is computed.  (The
# fingerprint is compared apart.)
_FREE = {"epochs", "tensorboard", "export", "checkpoint", "compilation_cache", "fingerprint"}


class RunConfig:
    """config.json of a workdir, which is made if missing.

    Raises ValueError where the file is damaged.
    """

    def __init__(self, workdir: pathlib.Path):
        self._workdir, self._path = workdir, workdir / "config.json"
        workdir.mkdir(parents=True, exist_ok=True)
        self._stored: dict[str, Any] = {}
        if self._path.exists():
            try:
                self._stored = json.loads(self._path.read_text())
            except ValueError as error:
                raise ValueError(f"{self._path} is damaged: {error}; expected settings") from error

    def compare(self, config: ConfigDict) -> None:
        """Raises ValueError where the workdir's run was started with other settings."""
        given = json.loads(json.dumps(config.to_dict()))
        for key in sorted(self._stored.keys() | given.keys()):
            before, now = self._stored.get(key), given.get(key)
            if self._stored and key not in _FREE and before != now:
                raise ValueError(
                    f"{self._workdir} holds a run with config.{key} = {before!r}, but now it is {now!r}: "
                    "expected the same settings, or another --workdir"
                )

    def write(self, config: ConfigDict, model: str | os.PathLike) -> None:
        """Writes the settings and the fingerprint of the model directory that the players start from.

        Raises ValueError where the run was started from another model.
        """
        fingerprint = huggingface.fingerprint(model)
        stored = self._stored.get("fingerprint", fingerprint)
        if stored != fingerprint:
            raise ValueError(
                f"{self._workdir} holds a run that started from a model with fingerprint {stored}, but "
                f"{model} has {fingerprint}: expected the same model, or another --workdir"
            )
        settings = config.to_dict() | {"fingerprint": fingerprint}
        self._path.write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n")


class RunFiles:
    """The files that a run appends to.

    tasks: every generation.  d_train, d_env: the two pools.  metrics: what is the same in a repeated run.
    timing: what is not.
    """

    def __init__(self, workdir: pathlib.Path, tensorboard: str):
        self.tasks = Pool(workdir / "tasks.jsonl")
        self.d_train = Pool(workdir / "d_train.jsonl")
        self.d_env = Pool(workdir / "d_env.jsonl")
        wanted = {"auto": "auto", "always": True, "never": False}[tensorboard]
        self.metrics = MetricWriter(workdir, wanted)
        self.timing = MetricWriter(workdir, False, filename="timing.jsonl")
        names = ("tasks", "d_train", "d_env", "metrics", "timing")
        self._files = {name: getattr(self, name) for name in names}

    def offsets(self) -> dict[str, int]:
        """Lengths in bytes, for a checkpoint."""
        return {name: file.offset() for name, file in self._files.items()}

    def truncate(self, offsets: Mapping[str, int] | None) -> None:
        """Cuts every file back to its length in a checkpoint; to nothing without one.

        Raises ValueError where a file is shorter than that.
        """
        for name, file in self._files.items():
            file.truncate(offsets[name] if offsets else 0)

    def close(self) -> None:
        """Closes the metric writers."""
        self.metrics.close()
        self.timing.close()
