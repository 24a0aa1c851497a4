"""Reads a suite's finished runs: their curves, and the scores that summarise each run."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from genenv_jax.results import statistics
from genenv_jax.results.runs import Metric, Run, load_run
from genenv_jax.run.metrics import number, read_steps

if TYPE_CHECKING:
    from genenv_jax.experiment.plan import Plan, Suite

# Costs that runs may be compared against and that can limit a run, in words.
COSTS = {"tokens": "processed tokens", "rollouts": "rollouts"}
# Measures of the generated tasks' diversity ("generated/NAME"): title, axis label.
DIVERSITY = {
    "difficulty_sd": ("Spread of difficulty", "SD of difficulty"),
    "distinct_signatures": ("Distinct signatures", "signatures per epoch"),
    "signature_entropy": ("Entropy of signatures", "nats"),
    "skill_entropy": ("Entropy of skills", "nats"),
}
_FIRST_IN_BAND = 3  # epochs before this one do not count for "p̂ in the band"


def run_dir(workdir: pathlib.Path, arm: str, seed: int) -> pathlib.Path:
    """The workdir of a run."""
    return workdir / arm / f"seed-{seed}"


def progress(directory: pathlib.Path) -> tuple[int | None, dict[str, float]]:
    """Last step of a run, and the tokens and rollouts up to it.

    None and 0 if its metrics are missing or damaged.
    """
    steps = {}
    with contextlib.suppress(OSError, ValueError):
        steps = read_steps(directory / "metrics.jsonl")
    step = max(steps, default=None)
    record = steps.get(step, {})
    return step, {key: number(record.get(f"{key}/total")) or 0.0 for key in COSTS}


@dataclasses.dataclass(frozen=True)
class Results:
    """The finished runs of a suite, and their scores.

    Attributes:
      runs: arm to {seed: run} for arms with at least one, in the suite's order; runs' tasks are not read.
      missing: (arm, seed, last epoch or None) of the unfinished runs.
      configs: arm to all settings of its runs, see `Plan`.
    """

    suite: Suite
    runs: Mapping[str, Mapping[int, Run]]
    missing: Sequence[tuple[str, int, int | None]]
    configs: Mapping[str, Mapping[str, Any]]

    def all_runs(self) -> list[Run]:
        """Every finished run, arm by arm."""
        return [run for runs in self.runs.values() for run in runs.values()]

    @property
    def primary(self) -> Metric:
        """The primary held-out score."""
        return Metric.parse(self.suite.metric)

    @property
    def horizon(self) -> float:
        """R: the cost that all finished runs have reached; every curve is cut there."""
        return self.horizons[self.suite.cost]

    @functools.cached_property
    def horizons(self) -> dict[str, float]:
        """R for each cost that all runs have recorded."""
        found = {}
        for cost in COSTS:
            ends = [curve(run, self.suite.metric, cost)[0] for run in self.all_runs()]
            if all(len(x) and x[-1] > 0 for x in ends):
                found[cost] = float(min(x[-1] for x in ends))
        return found

    @functools.cached_property
    def metrics(self) -> tuple[str, ...]:
        """Names of all metrics that some run recorded, sorted."""
        values = (values for run in self.all_runs() for values in run.metrics.values())
        return tuple(sorted(set().union(*values)))

    @functools.cached_property
    def accuracies(self) -> list[Metric]:
        """All held-out scores with the primary metric's name, the primary split and mode first."""
        one = self.primary
        found = [m for name in self.metrics if (m := Metric.parse(name)) and m.name == one.name]
        return sorted(found, key=lambda m: (m.split != one.split, m.split, m.mode != one.mode, m.mode))

    @functools.cached_property
    def strata(self) -> list[Metric]:
        """The strata of the primary metric's split and mode, in order (depth_2 before depth_10)."""
        found = [m for name in self.metrics if (m := Metric.parse(name)) and m != self.primary]
        of_it = [m for m in found if m.key == self.primary.key and m.name.startswith(self.suite.strata)]
        return sorted(of_it, key=lambda m: (len(m.name), m.name))

    @functools.cached_property
    def scores(self) -> dict[str, dict[int, dict[str, float]]]:
        """`run_scores` by arm and seed."""
        return {
            arm: {seed: run_scores(run, self) for seed, run in runs.items()}
            for arm, runs in self.runs.items()
        }

    def score(self, arm: str, name: str) -> dict[int, float]:
        """One number of `run_scores` by seed, for the arm's runs that have it."""
        return {seed: found[name] for seed, found in self.scores.get(arm, {}).items() if name in found}

    @functools.cached_property
    def names(self) -> list[str]:
        """Names of `run_scores` that some run has, in order of appearance."""
        scores = (found for runs in self.scores.values() for found in runs.values())
        return list(dict.fromkeys(name for found in scores for name in found))

    def primary_curve(self, run: Run) -> tuple[np.ndarray, np.ndarray]:
        """`curve` of the primary score against the suite's cost."""
        return curve(run, self.suite.metric, self.suite.cost)

    def on_grid(self, arm: str) -> tuple[np.ndarray, np.ndarray]:
        """(costs (s,) from 0 to R, values (runs, s)): primary curves, interpolated linearly."""
        grid = np.linspace(0, self.horizon, 61)
        curves = [self.primary_curve(run) for run in self.runs[arm].values()]
        return grid, np.array([np.interp(grid, x, y) for x, y in curves])


def load_results(plan: Plan, workdir: pathlib.Path) -> Results:
    """Reads the finished runs of a plan.

    Raises ValueError if a file is damaged, a finished run lacks the suite's metric or has spent nothing, or
    no run is finished yet.
    """
    runs: dict[str, dict[int, Run]] = {}
    missing = []
    for arm in plan.suite.arms:
        for seed in plan.suite.seeds:
            directory = run_dir(workdir, arm, seed)
            if plan.share(arm, directory) == 1:
                run = load_run(directory, tasks=False)  # a suite has gigabytes of tasks
                _check_curve(run, plan.suite)
                name = f"{arm}/{directory.name}"
                runs.setdefault(arm, {})[seed] = dataclasses.replace(run, name=name)
            else:
                missing.append((arm, seed, progress(directory)[0]))
    if not runs:
        raise ValueError(f"{workdir}: no run is finished yet, so there is nothing to report")
    return Results(plan.suite, runs, missing, plan.configs)


def _check_curve(run: Run, suite: Suite) -> None:
    metric, unit = suite.metric, COSTS[suite.cost]
    spent, _ = curve(run, metric, suite.cost)
    if not len(spent):
        known = [name for name in run.metrics[max(run.metrics)] if name.startswith("eval/")]
        raise ValueError(
            f"{run.workdir}: config.metric = {metric!r} is not recorded: expected one of {sorted(known)}"
        )
    if spent[0] != 0 or spent[-1] <= 0 or (np.diff(spent) <= 0).any():
        raise ValueError(
            f"{run.workdir}: {metric} is recorded from {spent[0]:g} to {spent[-1]:g} "
            f"{unit}: expected a curve from 0 upwards"
        )


def curve(run: Run, name: str, cost: str) -> tuple[np.ndarray, np.ndarray]:
    """(costs (s,), values (s,)) of a metric; both empty if it is not recorded.

    Step 0 has cost 0.  Steps without a recorded cost are left out.  If several steps have the same cost, as
    after an epoch without tasks, the last one is kept.
    """
    points: dict[float, float] = {}
    spent = {0: 0.0} | run.series(f"{cost}/total")
    for step, values in run.metrics.items():
        if step in spent and name in values:
            points[spent[step]] = values[name]
    return np.array(list(points), float), np.array(list(points.values()), float)


# -- scores of a run -----------------------------------------------------------------------------------


def run_scores(run: Run, results: Results) -> dict[str, float]:
    """A run's scores by name, without those that it has no data for.

    auc/S/M, start/S/M, final/S/M, gain/S/M: for each held-out split S and mode M, the area up to the cost R
      (`statistics.area_under_curve`), the score before training, the score at R, and final minus start.
    auc over C/S/M: area under the primary score against the other cost C.
    stratum/NAME: final score of a stratum of the primary split and mode.
    p_hat/epochs_in_band: share of the epochs from the third on whose mean p̂ over generated tasks is in
      [α − k_min, α + k_min].  p_hat/tasks_in_band: mean share of tasks in the band over these epochs.
    p_hat/mean: mean p̂ over these epochs.  p_hat/rerolled: the same over independent rollouts of some tasks.
      p_hat/gap, p_hat/rerolled_gap: mean |p̂ − α| of the tasks in the band, over their own rollouts and over
      the independent ones (`evaluation.reroll`).
    diversity/NAME: the last epoch's value divided by the first's.
    tokens/total, rollouts/total: at the end of the run; minutes: of all its phases.
    """
    scores = dict(_held_out(run, results)) | dict(_p_hat(run)) | dict(_diversity(run))
    for name in ("tokens/total", "rollouts/total"):
        if values := list(run.series(name).values()):
            scores[name] = values[-1]
    return scores if run.minutes is None else scores | {"minutes": run.minutes}


def _held_out(run: Run, results: Results) -> Iterator[tuple[str, float]]:
    horizon, cost = results.horizon, results.suite.cost
    for metric in results.accuracies:
        x, y = curve(run, str(metric), cost)
        if not len(x) or x[0] != 0 or x[-1] < horizon:
            continue
        start, end = float(y[0]), float(np.interp(horizon, x, y))
        yield f"auc/{metric.key}", statistics.area_under_curve(x, y, horizon)
        yield f"start/{metric.key}", start
        yield f"final/{metric.key}", end
        yield f"gain/{metric.key}", end - start
    for other, until in results.horizons.items():
        if other != cost:
            area = statistics.area_under_curve(*curve(run, results.suite.metric, other), until)
            yield f"auc over {other}/{results.primary.key}", area
    for metric in results.strata:
        x, y = curve(run, str(metric), cost)
        if len(x):
            yield f"stratum/{metric.name}", float(np.interp(horizon, x, y))


def _p_hat(run: Run) -> Iterator[tuple[str, float]]:
    def late(metric: str) -> list[float]:
        series = run.series(f"generated/{metric}")
        return [value for step, value in series.items() if step >= _FIRST_IN_BAND]

    if run.band and (means := late("p_hat_mean")):
        yield "p_hat/epochs_in_band", sum(map(run.in_band, means)) / len(means)
    for name, metric in (
        ("tasks_in_band", "p_hat_in_band"),
        ("mean", "p_hat_mean"),
        ("rerolled", "p_rerolled_mean"),
        ("gap", "p_hat_gap"),
        ("rerolled_gap", "p_rerolled_gap"),
    ):
        if values := late(metric):
            yield f"p_hat/{name}", sum(values) / len(values)


def _diversity(run: Run) -> Iterator[tuple[str, float]]:
    for name in DIVERSITY:
        values = list(run.series(f"generated/{name}").values())
        if values and values[0]:
            yield f"diversity/{name}", values[-1] / values[0]
