"""Metrics of a run: JSON lines by step, and means over an epoch.

`metrics.jsonl` has one object per step (step = completed epochs, 0 = before training) and only values that a
resumed run reproduces; wall-clock figures go to timing.jsonl.  JAX and clu are imported only where they are
used, since reading a run needs neither.
"""

import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from genenv_jax.run.jsonl import JsonLines, iter_jsonl


class MetricWriter(JsonLines):
    """A file of JSON lines by step.

    Raises ValueError if a line of the file is damaged or has no step.
    """

    def __init__(self, path: str | os.PathLike[str], read_only: bool = False):
        super().__init__(path, read_only)
        self._last_step = None if read_only else max(read_steps(path), default=None)

    def write(
        self, step: int, scalars: Mapping[str, Any], more: Mapping[str, Any] | None = None
    ) -> dict[str, int | float]:
        """Appends `{"step": step, **scalars, **more}`; returns the scalars as Python's numbers.

        Args:
          step: number of completed epochs; larger than every step already in the file.
          scalars: name to a number, or to a NumPy or JAX array of shape ().  NaN and infinities are
            written as null, and their names are listed under "nonfinite".
          more: JSON values.
        Raises:
          TypeError: a value is not a real scalar.
          ValueError: the step is not larger than the last one.
          OSError: the line could not be written; the file is unchanged.
        """
        if self._last_step is not None and step <= self._last_step:
            raise ValueError(f"{self.path} already holds step {self._last_step}; cannot write step {step}")
        numbers = {name: _scalar(name, value) for name, value in scalars.items()}
        nonfinite = sorted(name for name, x in numbers.items() if not math.isfinite(x))
        record = numbers | dict.fromkeys(nonfinite) | {"step": step} | dict(more or {})
        self.append([record | ({"nonfinite": nonfinite} if nonfinite else {})])
        self._last_step = step
        return numbers


class EpochMeans:
    """Weighted means over the updates of one epoch, in float32; maxima for names that end in "_max".

    The mean over unequal mini-batches weights elements equally, not mini-batches, so each name has a
    `clu.metrics.Average`, a (total, count) pair.  Values stay on the device until `compute` fetches all
    of them at once: an update neither waits for its step to finish nor adds programs.

    Attributes:
      updates: (values, weight) of each so far.
    """

    def __init__(self) -> None:
        self.updates: list[tuple[dict[str, Any], Any]] = []

    def update(self, values: Mapping[str, Any], weight: Any = 1.0) -> None:
        """Adds one update's means.

        Args:
          values: name to a scalar of shape (): the mean over this update's elements.
          weight: scalar, the number of elements (tokens, samples) averaged.  Values of weight 0 are
            ignored, NaN included, since a mean over no elements is meaningless.
        """
        self.updates.append((dict(values), weight))

    def compute(self) -> dict[str, float]:
        """Waits for the device and returns name to mean; NaN if all weights were 0."""
        import jax  # here, so that reading a run does not import JAX
        from clu import metrics as clu_metrics

        averages: dict[str, Any] = {}
        for values, weight in jax.device_get(self.updates):
            count = np.float32(weight)
            for name, value in values.items():
                total = np.float32(value) * count if count > 0 else np.float32(0)
                average = clu_metrics.Average(total=total, count=count)
                if name not in averages or not averages[name].count:
                    averages[name] = average
                elif not name.endswith("_max"):
                    averages[name] = averages[name].merge(average)
                elif count and value > averages[name].total / averages[name].count:
                    averages[name] = average
        return {
            name: float(pair.total / pair.count) if pair.count else math.nan
            for name, pair in averages.items()
        }


def read_steps(path: str | os.PathLike[str]) -> dict[int, dict[str, Any]]:
    """The records of a metrics file by step, ascending.

    Raises FileNotFoundError, or ValueError (`file:line`) for a line that is damaged or has no step.
    """
    found = {step_of(record, path, number): record for number, record in enumerate(iter_jsonl(path), start=1)}
    return dict(sorted(found.items()))


def step_of(record: Mapping[str, Any], path: str | os.PathLike[str], number: int) -> int:
    """The step of line `number` of `path`; raises ValueError (`file:line`) if it has none."""
    step = record.get("step")
    if isinstance(step, bool) or not isinstance(step, int) or step < 0:
        raise ValueError(f"{path}:{number}: damaged line: no step")
    return step


def number(value: Any) -> float | None:
    """A finite float, or None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        value = float(value)
    except OverflowError:
        return None
    return value if math.isfinite(value) else None


def numbers(record: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers in a record of a log, except its step."""
    pairs = ((name, number(value)) for name, value in record.items() if name != "step")
    return {name: value for name, value in pairs if value is not None}


def cells(metrics: Mapping[str, float]) -> dict[str, str]:
    """A few key numbers of an epoch as text, by column title; "" for a missing one."""
    held_out = [
        f"{value:.3f}"
        for mode in ("sampled", "greedy")
        for name, value in metrics.items()
        if name.startswith("eval/") and name.endswith(f"{mode}/accuracy")
    ]
    columns = (
        ("reward", "agent/reward_mean", ".2f"),
        ("p̂", "generated/p_hat_mean", ".2f"),
        ("valid", "generated/valid_share", ".0%"),
        ("agent KL", "agent/kl", ".3f"),
    )
    shown = {title: format(metrics[name], form) if name in metrics else "" for title, name, form in columns}
    return shown | {"held-out": held_out[0] if held_out else ""}


def _scalar(name: str, value: Any) -> int | float:
    """Converts to a Python number; kind "V" means ml_dtypes' floats, such as bfloat16."""
    array = np.asarray(value)
    if array.shape or array.dtype.kind not in "biufV":
        raise TypeError(
            f"metric {name!r} must be a real scalar, not {type(value).__name__} "
            f"of shape {array.shape} and dtype {array.dtype}"
        )
    return int(array) if array.dtype.kind in "biu" else float(array)
