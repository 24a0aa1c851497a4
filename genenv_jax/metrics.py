"""Numbers of a run: durable JSON lines, TensorBoard where it is installed, means inside an epoch.

`metrics.jsonl` holds one object per step (step = completed epochs, 0 = before training) and only
values that a resumed run reproduces; wall-clock figures belong in a file of their own
(`MetricWriter(workdir, filename="timing.jsonl")`).  JAX, clu and TensorFlow are imported where they
are used: reading a run needs none of them.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np
from absl import logging

_RESERVED = ("step", "nonfinite")


class MetricWriter:
    """Appends one JSON line per step and, where asked, the same scalars to TensorBoard.

    A line is whole or absent: it is on the disk (fsync) before `write` returns, a failed write is
    cut off again, and so is a torn last line of a killed process when the file is opened.

    To resume, record `offset()` in the checkpoint and call `truncate(offset)` after restoring it:
    the epoch that runs again then appears once, and the file equals that of an unbroken run byte
    for byte.  TensorBoard's event files cannot be cut; the values of a repeated step are equal, so
    its curves are unchanged.  In a multi-process job only process 0 should hold a writer.

    Args:
      workdir: directory of the run; created where missing.
      tensorboard: "auto" writes `workdir/tensorboard` where TensorFlow and TensorBoard are
        installed, True insists on it, False never imports them.
      filename: name of the JSON lines file inside `workdir`.

    Raises:
      ImportError: `tensorboard=True` without TensorFlow or TensorBoard.
      ValueError: another value of `tensorboard`, or the file's last line is damaged.
    """

    def __init__(
        self,
        workdir: str | os.PathLike[str],
        tensorboard: Literal["auto"] | bool = "auto",
        filename: str = "metrics.jsonl",
    ):
        if not (tensorboard == "auto" or isinstance(tensorboard, bool)):
            raise ValueError(f"tensorboard must be 'auto', True or False, not {tensorboard!r}")
        directory = pathlib.Path(workdir)
        self.path = directory / filename
        self._summaries = _open_tensorboard(directory / "tensorboard", tensorboard)
        directory.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            content = self.path.read_bytes()
            end = content.rfind(b"\n") + 1
            if end != len(content):
                logging.warning("%s: dropped a torn last line", self.path)
                os.ftruncate(self._file, end)
            self._last_step = self._step_of_last_line(content[:end])
            os.fsync(self._file)
            _sync_directory(directory)
        except BaseException:
            self.close()
            raise

    def write(self, step: int, scalars: Mapping[str, Any]) -> None:
        """Appends `{"step": step, **scalars}` with sorted keys.

        Args:
          step: number of completed epochs; larger than every step already in the file.
          scalars: name to a number, or to a NumPy or JAX array of shape ().  NaN and infinities are
            written as null, and their names are listed under "nonfinite".

        Raises:
          TypeError: a value that is not a real scalar, or a name that is not a string.
          ValueError: a step that is not larger than the last one, or a reserved name.
          OSError: the line could not be written; the file is left as it was.
        """
        if isinstance(step, bool) or not isinstance(step, (int, np.integer)) or step < 0:
            raise ValueError(f"step must be a non-negative integer, not {step!r}")
        if self._last_step is not None and step <= self._last_step:
            raise ValueError(
                f"{self.path} already holds step {self._last_step}; cannot write step {step}. "
                "Call truncate() with the checkpoint's offset before running epochs again"
            )
        record: dict[str, Any] = {}
        for name, value in scalars.items():
            if not isinstance(name, str):
                raise TypeError(f"metric names are strings, not {name!r}")
            if name in _RESERVED:
                raise ValueError(f"metric name {name!r} is reserved")
            record[name] = _scalar(name, value)
        numbers = dict(record)
        nonfinite = sorted(
            name for name, x in record.items() if isinstance(x, float) and not math.isfinite(x)
        )
        record.update(dict.fromkeys(nonfinite))
        if nonfinite:
            record["nonfinite"] = nonfinite
        record["step"] = int(step)
        line = json.dumps(record, sort_keys=True, allow_nan=False).encode() + b"\n"
        self._append(line)
        self._last_step = int(step)
        if self._summaries is not None:
            self._summaries.write_scalars(int(step), numbers)
            self._summaries.flush()

    def offset(self) -> int:
        """Length of the file in bytes: what a checkpoint records and `truncate` takes."""
        return os.fstat(self._file).st_size

    def truncate(self, offset: int) -> None:
        """Cuts the file back to `offset` bytes, as `offset()` returned them.

        Raises:
          ValueError: the file is shorter than that, or `offset` lies inside a line.
        """
        content = self.path.read_bytes()
        if not 0 <= offset <= len(content):
            raise ValueError(
                f"{self.path} has {len(content)} bytes; cannot cut it back to {offset}. "
                "It does not belong to this checkpoint, or lines of it were lost"
            )
        if offset and content[offset - 1 : offset] != b"\n":
            raise ValueError(f"{self.path}: byte {offset} lies inside a line")
        last_step = self._step_of_last_line(content[:offset])
        os.ftruncate(self._file, offset)
        os.fsync(self._file)
        self._last_step = last_step

    def close(self) -> None:
        """Closes the files; calling it again does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        if self._summaries is not None:
            self._summaries.close()
            self._summaries = None

    def __enter__(self) -> MetricWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _append(self, line: bytes) -> None:
        start = self.offset()
        try:
            view = memoryview(line)
            while view:
                view = view[os.write(self._file, view) :]
            os.fsync(self._file)
        except OSError:
            os.ftruncate(self._file, start)
            raise

    def _step_of_last_line(self, content: bytes) -> int | None:
        lines = content.split(b"\n")
        if len(lines) == 1:
            return None
        record = _parse_line(self.path, len(lines) - 1, lines[-2])
        return step_of(record, self.path, len(lines) - 1)


class EpochMeans:
    """Weighted means over the updates of one epoch, in float32.

    The mean over unequal mini-batches is that of their elements, not of their means, so each name has
    a `clu.metrics.Average`, a (total, count) pair.  Values stay on the device until `compute` fetches
    all of them at once: an update neither waits for the step that computes them nor adds programs.
    """

    def __init__(self) -> None:
        self._updates: list[tuple[dict[str, Any], Any]] = []

    def update(self, values: Mapping[str, Any], weight: Any = 1.0) -> None:
        """Adds one update's means.

        Args:
          values: name to a scalar of shape (): the mean over this update's elements.
          weight: scalar: how many elements it averages (tokens, samples).  A value of weight 0 is
            ignored, NaN included: the mean over no element says nothing.
        """
        self._updates.append((dict(values), weight))

    def compute(self) -> dict[str, float]:
        """Waits for the device and returns name to mean; NaN where all weights were 0."""
        import jax  # here, so that reading a run stays free of JAX
        from clu import metrics as clu_metrics

        averages: dict[str, Any] = {}
        for values, weight in jax.device_get(self._updates):
            count = np.float32(weight)
            for name, value in values.items():
                total = np.float32(value) * count if count > 0 else np.float32(0)
                average = clu_metrics.Average(total=total, count=count)
                averages[name] = averages[name].merge(average) if name in averages else average
        return {
            name: float(pair.total / pair.count) if pair.count else math.nan
            for name, pair in averages.items()
        }


def iter_jsonl(path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """Yields the objects of a JSON lines file, one a line, in order.

    A last line without its newline is torn (a writer was killed, or is still at work) and ignored.

    Raises:
      FileNotFoundError: no such file.
      ValueError: a damaged line; the message begins with `file:line`.
    """
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if line.endswith(b"\n"):
                yield _parse_line(path, number, line)


def read_jsonl(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """All objects of a JSON lines file; see `iter_jsonl` for torn and damaged lines."""
    return list(iter_jsonl(path))


def step_of(record: Mapping[str, Any], path: str | os.PathLike[str], number: int) -> int:
    """The step of line `number` of `path`; raises ValueError (`file:line`) where there is none."""
    step = record.get("step")
    if isinstance(step, bool) or not isinstance(step, int) or step < 0:
        raise ValueError(f"{path}:{number}: damaged line: no step")
    return step


def _parse_line(path: str | os.PathLike[str], number: int, line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ValueError(f"{path}:{number}: damaged line: {reason}") from None
    if not isinstance(record, dict):
        raise ValueError(f"{path}:{number}: damaged line: not a JSON object")
    return record


def _scalar(name: str, value: Any) -> int | float:
    """A Python number; ml_dtypes' floats (bfloat16) have kind "V", hence the attempt at float()."""
    if isinstance(value, int):
        return int(value)
    array = np.asarray(value)
    if array.shape == () and array.dtype.kind in "biu":
        return int(array)
    if array.shape == () and array.dtype.kind in "fV":
        try:
            return float(array)
        except (TypeError, ValueError):
            pass
    raise TypeError(
        f"metric {name!r} must be a real scalar, not {type(value).__name__} "
        f"of shape {array.shape} and dtype {array.dtype}"
    )


def _open_tensorboard(logdir: pathlib.Path, wanted: Literal["auto"] | bool) -> Any:
    """A `clu.metric_writers.SummaryWriter`, or None where TensorBoard is not written."""
    if wanted is False:
        return None
    # clu's writer needs both, and TensorFlow does not always bring TensorBoard along.
    missing = [n for n in ("tensorflow", "tensorboard") if importlib.util.find_spec(n) is None]
    if missing:
        if wanted is True:
            raise ImportError(
                f"TensorBoard logs need {' and '.join(missing)}: "
                "pip install 'genenv_jax[tensorboard]', or set tensorboard to 'auto' or False"
            )
        return None
    try:
        import tensorflow as tf
        from clu import metric_writers

        # TensorFlow would otherwise claim the memory of the GPUs that JAX computes on.
        tf.config.set_visible_devices([], "GPU")
    except (ImportError, RuntimeError) as error:
        if wanted is True:
            raise
        logging.warning("No TensorBoard logs: TensorFlow is installed but unusable: %s", error)
        return None
    return metric_writers.SummaryWriter(os.fspath(logdir))


def _sync_directory(directory: pathlib.Path) -> None:
    """Makes a new file's name durable, not only its bytes."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
