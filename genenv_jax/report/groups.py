"""Which runs belong together, and what they recorded in common."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from genenv_jax.report.runs import Run, p_hat_of
from genenv_jax.report.style import COLOURS

_MODES = {"greedy": 0, "sampled": 1}  # ways of answering, in the order shown


@dataclasses.dataclass(frozen=True)
class Group:
    """Runs that are drawn as one curve: equal configurations but for the seed."""

    label: str
    runs: Sequence[Run]
    colour: str
    position: float  # of its whiskers and bars around the epoch, in [-0.5, 0.5]

    def curve(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """(steps (s,), values (r, s)) of a metric: the steps that all runs that have it share."""
        series = [found for run in self.runs if (found := run.series(name))]
        if not series:
            return np.zeros(0), np.zeros((1, 0))
        steps = sorted(set.intersection(*(set(s) for s in series)))
        return np.array(steps), np.array([[s[step] for step in steps] for s in series])

    def quartiles(self) -> tuple[np.ndarray, np.ndarray]:
        """(steps (s,), quartiles (2, s)) of p̂ over the tasks of an epoch, seeds pooled."""
        values = collections.defaultdict(list)
        for run in self.runs:
            for task in run.tasks:
                if (p_hat := p_hat_of(task)) is not None:
                    values[task["epoch"]].append(p_hat)
        steps = sorted(values)
        quartiles = [np.percentile(values[step], (25, 75)) for step in steps]
        return np.array(steps), np.array(quartiles).reshape(-1, 2).T


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Groups runs whose configurations differ in `seed` and `workdir` at most.

    Groups keep the order of their first runs.  A run without a configuration stands alone, since
    nothing says what it shares.
    """
    members: dict[Any, list[Run]] = {}
    for index, run in enumerate(runs):
        config = {k: v for k, v in run.config.items() if k not in ("seed", "workdir")}
        key = json.dumps(config, sort_keys=True) if run.config else index
        members.setdefault(key, []).append(run)
    names = distinct_names(runs)
    groups = []
    for index, group in enumerate(members.values()):
        labels = [names[id(run)] for run in group]
        if len(group) > 1:
            shared = itertools.takewhile(lambda c: len(set(c)) == 1, zip(*labels, strict=False))
            stem = "".join(c[0] for c in shared).rstrip("-_. 0123456789")
            stem = stem.removesuffix("seed").rstrip("-_. ") or labels[0]
            labels = [f"{stem} (mean and range of {len(group)} runs)"]
        position = (2 * index + 1 - len(members)) / (2 * len(members))
        colour = COLOURS[index % len(COLOURS)]
        groups.append(Group(labels[0], group, colour, position))
    return groups


def distinct_names(runs: Sequence[Run]) -> dict[int, str]:
    """Name of each run by id(run), with its parent directory where names are equal."""
    counts = collections.Counter(run.name for run in runs)
    return {
        id(run): run.name
        if counts[run.name] == 1
        else f"{run.workdir.resolve().parent.name}/{run.name}"
        for run in runs
    }


def evaluations(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """(split, mode) of all recorded accuracies, in the order of `held_out`."""
    return [(split, mode) for split, mode, name in held_out(runs) if name == "accuracy"]


def held_out(runs: Sequence[Run]) -> list[tuple[str, str, str]]:
    """(split, mode, score) of all recorded "eval/..." metrics, "in_..." splits and "greedy" modes first."""
    metrics = {name for run in runs for values in run.metrics.values() for name in values}
    parts = (name.split("/", 3) for name in metrics)
    found = {tuple(part[1:]) for part in parts if len(part) == 4 and part[0] == "eval"}
    return sorted(
        found,
        key=lambda e: (not e[0].startswith("in_"), e[0], _MODES.get(e[1], len(_MODES)), e[1:]),
    )
