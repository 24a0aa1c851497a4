"""Reads what a run left in its workdir."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from genenv_jax.report.untrusted import number, numbers
from genenv_jax.run.jsonl import iter_jsonl, read_json
from genenv_jax.run.metrics import read_steps

P_HAT = "p̂"


@dataclasses.dataclass(frozen=True)
class Run:
    """What one workdir holds.

    Attributes:
      name: label; the directory's name.
      workdir: the directory.
      config: config.json, or {} where there is none.
      metrics: step to {name: finite number}, by ascending step; nulls are left out.
      timing: the objects of timing.jsonl, numbers only.
      tasks: the objects of tasks.jsonl; "epoch" is the step of that epoch's metrics.
    """

    name: str
    workdir: pathlib.Path
    config: Mapping[str, Any]
    metrics: Mapping[int, Mapping[str, float]]
    timing: Sequence[Mapping[str, float]]
    tasks: Sequence[Mapping[str, Any]]

    def series(self, name: str) -> dict[int, float]:
        """Step to value of one metric, by ascending step; {} where it was not recorded."""
        return {step: values[name] for step, values in self.metrics.items() if name in values}

    def setting(self, name: str) -> Any:
        """A configuration value by its dotted name ("curriculum.alpha"), or None."""
        value: Any = self.config
        for part in name.split("."):
            if not isinstance(value, Mapping):
                return None
            value = value.get(part)
        return value

    @property
    def band(self) -> tuple[float, float] | None:
        """(alpha - k_min, alpha + k_min), or None where the configuration lacks one of them."""
        alpha = number(self.setting("curriculum.alpha"))
        k_min = number(self.setting("curriculum.k_min"))
        return None if alpha is None or k_min is None else (alpha - k_min, alpha + k_min)

    @property
    def minutes(self) -> float | None:
        """Wall-clock minutes of all recorded phases, or None."""
        seconds = [
            value
            for record in self.timing
            for name, value in record.items()
            if name.startswith("seconds/") and name != "seconds/total"
        ]
        return sum(seconds) / 60 if seconds else None


def load_run(workdir: str | os.PathLike[str], tasks: bool = True) -> Run:
    """Reads a workdir, also of a run that is still at work.

    A step or a task that appears twice counts once, as it was written last.

    Args:
      workdir: of `genenv_jax.main`.
      tasks: whether tasks.jsonl is read; without it, `Run.tasks` is empty.

    Raises:
      FileNotFoundError: no such directory, or no metrics.jsonl in it.
      ValueError: nothing recorded yet, or a damaged file; the message names it (and the line).
    """
    directory = pathlib.Path(workdir)
    if not directory.is_dir():
        raise FileNotFoundError(f"{directory}: no such directory")
    path = directory / "metrics.jsonl"
    if not path.is_file():
        raise FileNotFoundError(f"{directory}: not the workdir of a run (no metrics.jsonl)")
    metrics = {step: numbers(record) for step, record in read_steps(path).items()}
    if not metrics:
        raise ValueError(f"{path}: nothing recorded yet")
    config, timing = directory / "config.json", directory / "timing.jsonl"
    return Run(
        name=directory.resolve().name or str(directory),
        workdir=directory,
        config=read_json(config, "settings") if config.is_file() else {},
        metrics=metrics,
        timing=[numbers(r) for r in iter_jsonl(timing)] if timing.is_file() else [],
        tasks=_read_tasks(directory / "tasks.jsonl") if tasks else [],
    )


def _read_tasks(path: pathlib.Path) -> list[dict[str, Any]]:
    found: dict[Any, dict[str, Any]] = {}
    for line, record in enumerate(iter_jsonl(path) if path.is_file() else (), start=1):
        epoch = number(record.get("epoch"))
        if epoch is None:
            raise ValueError(f"{path}:{line}: damaged line: no epoch")
        identity = record.get("id")
        key = (epoch, identity if isinstance(identity, str) else line)
        found[key] = {**record, "epoch": int(epoch)}
    return list(found.values())


def p_hat_of(task: Mapping[str, Any]) -> float | None:
    """The p̂ of an object of tasks.jsonl; None where it has none (a rejected generation)."""
    return number(task.get("p_hat"))
