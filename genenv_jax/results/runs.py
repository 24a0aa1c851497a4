"""Reads the files in a run's workdir."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import os
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from genenv_jax.run.jsonl import iter_jsonl, iter_jsonl_at, read_json, read_jsonl_at
from genenv_jax.run.metrics import number, numbers, read_steps
from genenv_jax.settings import flatten

P_HAT = "p̂"
# The fields kept from each line of tasks.jsonl, and the key for the line's offset in the file.
_COUNTED = (
    *("id", "verdict", "context_success_at", "context_success_rate"),
    *("attempts", "successes", "p_hat", "r_env", "weight"),
)
_START = "first byte"


@dataclasses.dataclass(frozen=True)
class Metric:
    """The parts of eval/<split>/<mode>/<name>."""

    split: str
    mode: str
    name: str

    @classmethod
    def parse(cls, full: str) -> Metric | None:
        """Parses a full name; None if it has another form."""
        parts = full.split("/", 3)
        return cls(*parts[1:]) if len(parts) == 4 and parts[0] == "eval" else None

    def __str__(self) -> str:
        return f"eval/{self.split}/{self.mode}/{self.name}"

    @property
    def key(self) -> str:
        """The suffix of names in `suites.run_scores`."""
        return f"{self.split}/{self.mode}"

    @property
    def title(self) -> str:
        """Split and mode in words."""
        return f"{self.split.replace('_', ' ')}, {self.mode}"


@dataclasses.dataclass(frozen=True)
class Run:
    """The contents of one workdir.

    Attributes:
      name: label; the directory's name.
      config: config.json, or {} if there is none.
      metrics: step to {name: finite number}, by ascending step; nulls are left out.
      timing: the records of timing.jsonl, numbers only, without the step.
      about: what it was made with, see `publish.provenance.made_with`, at its last start; and "tasks", the
        number of held-out tasks behind each share.  {} if it was not recorded.
      tasks: from each record of tasks.jsonl, the fields that are counted and drawn (full records may not fit
        in memory; `whole` reads them); "epoch" is the step of that epoch's metrics.
    """

    name: str
    workdir: pathlib.Path
    config: Mapping[str, Any]
    metrics: Mapping[int, Mapping[str, float]]
    timing: Sequence[Mapping[str, float]]
    tasks: Sequence[Mapping[str, Any]]
    about: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def series(self, name: str) -> dict[int, float]:
        """Step to value of one metric, by ascending step; {} if it was not recorded."""
        return {step: values[name] for step, values in self.metrics.items() if name in values}

    def setting(self, name: str) -> Any:
        """A configuration value by its dotted name ("curriculum.alpha"), or None."""
        return flatten(self.config).get(name)

    def whole(self, task: Mapping[str, Any]) -> Mapping[str, Any]:
        """The full record of one of `tasks`, from tasks.jsonl; the task itself if the file has changed."""
        if _START not in task:
            return task
        with contextlib.suppress(OSError, ValueError):
            record = read_jsonl_at(self.workdir / "tasks.jsonl", task[_START])
            if record.get("id") == task.get("id") and record.get("epoch") == task["epoch"]:
                return {**record, "epoch": task["epoch"]}
        return task

    @property
    def band(self) -> tuple[float, float] | None:
        """(alpha - k_min, alpha + k_min), or None if the configuration lacks one of them."""
        alpha = number(self.setting("curriculum.alpha"))
        k_min = number(self.setting("curriculum.k_min"))
        return None if alpha is None or k_min is None else (alpha - k_min, alpha + k_min)

    def in_band(self, p_hat: float) -> bool:
        """Whether a success rate lies in the band, if there is one; 0.6 is 0.5 + 0.1, despite rounding."""
        return self.band is not None and self.band[0] - 1e-9 <= p_hat <= self.band[1] + 1e-9

    @functools.cached_property
    def held_out(self) -> list[Metric]:
        """All recorded held-out scores, "in_..." splits and "greedy" modes first."""
        names = {name for values in self.metrics.values() for name in values}
        return sorted(
            filter(None, map(Metric.parse, names)),
            key=lambda m: (not m.split.startswith("in_"), m.split, m.mode != "greedy", m.mode, m.name),
        )

    @property
    def sizes(self) -> dict[str, float]:
        """The number of held-out tasks behind each share, by the metric's name."""
        found = self.about.get("tasks")
        return numbers(found) if isinstance(found, Mapping) else {}

    @property
    def accuracies(self) -> list[Metric]:
        """Held-out accuracies."""
        return [metric for metric in self.held_out if metric.name == "accuracy"]

    @functools.cached_property
    def phases(self) -> collections.Counter[str]:
        """Recorded wall-clock seconds by phase."""
        seconds: collections.Counter[str] = collections.Counter()
        for record in self.timing:
            for name, value in record.items():
                if name.startswith("seconds/") and name != "seconds/total":
                    seconds[name.removeprefix("seconds/")] += value
        return seconds

    @property
    def minutes(self) -> float | None:
        """Wall-clock minutes of all recorded phases, or None."""
        return self.phases.total() / 60 if self.phases else None


def load_run(workdir: str | os.PathLike[str], tasks: bool = True) -> Run:
    """Reads the workdir of a run, finished or still running.

    If a step or a task appears twice, only its last record counts.

    Args:
      workdir: from `genenv_jax.main`.
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
    times = list(iter_jsonl(timing)) if timing.is_file() else []
    starts = [about for record in times if isinstance(about := record.get("about"), Mapping)]
    return Run(
        name=directory.resolve().name or str(directory),
        workdir=directory,
        config=read_json(config, "settings") if config.is_file() else {},
        metrics=metrics,
        timing=list(map(numbers, times)),
        tasks=_read_tasks(directory / "tasks.jsonl") if tasks else [],
        about=dict(collections.ChainMap(*reversed(starts))),
    )


def _read_tasks(path: pathlib.Path) -> list[dict[str, Any]]:
    found: dict[Any, dict[str, Any]] = {}
    lines = iter_jsonl_at(path) if path.is_file() else ()
    for line, (start, record) in enumerate(lines, start=1):
        epoch = number(record.get("epoch"))
        if epoch is None:
            raise ValueError(f"{path}:{line}: damaged line: no epoch")
        identity = record.get("id")
        key = (epoch, identity if isinstance(identity, str) else line)
        found[key] = _part(record) | {"epoch": int(epoch), _START: start}
    return list(found.values())


def _part(record: Mapping[str, Any]) -> dict[str, Any]:
    part = {name: record[name] for name in _COUNTED if name in record}
    if isinstance(verdict := part.get("verdict"), str):
        part["verdict"] = sys.intern(verdict)  # all lines repeat the same few texts
    if isinstance(task := record.get("task"), Mapping):
        part["task"] = {name: task[name] for name in ("id", "origin") if name in task}
    return part


def p_hat_of(task: Mapping[str, Any]) -> float | None:
    """The p̂ of a record of tasks.jsonl; None if it has none (a rejected generation)."""
    return number(task.get("p_hat"))
