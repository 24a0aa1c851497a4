"""Reads a suite's finished runs: their curves, and the numbers that each run comes down to."""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np

from genenv_jax.experiments import statistics
from genenv_jax.experiments.suite import Plan, last_step, run_dir
from genenv_jax.metrics import iter_jsonl, step_of
from genenv_jax.reporting.runs import Run
from genenv_jax.reporting.untrusted import numbers

ROLLOUTS = "rollouts/total"
CVAR_SHARE = 0.2
# Measures of the generated tasks' diversity ("generated/NAME"): title, axis, how numbers are written.
DIVERSITY = {
    "difficulty_sd": ("Spread of difficulty", "SD of difficulty", ".2f"),
    "depth_sd": ("Spread of depth", "SD of depth", ".2f"),
    "distinct_signatures": ("Distinct signatures", "signatures per epoch", ".1f"),
    "signature_entropy": ("Entropy of signatures", "nats", ".2f"),
}
_FIRST_IN_BAND = 3  # epochs before this one do not count for "p̂ in the band"
_BAND_SLACK = 1e-9  # 0.6 counts as 0.5 + 0.1, whatever the rounding


@dataclasses.dataclass(frozen=True)
class Metric:
    """The parts of eval/<split>/<mode>/<name>."""

    split: str
    mode: str
    name: str

    @classmethod
    def parse(cls, full: str) -> Metric | None:
        """None for a name of another form."""
        parts = full.split("/", 3)
        return cls(*parts[1:]) if len(parts) == 4 and parts[0] == "eval" else None

    def __str__(self) -> str:
        return f"eval/{self.split}/{self.mode}/{self.name}"


@dataclasses.dataclass(frozen=True)
class Results:
    """The finished runs of a suite, and what is to be said of them.

    Attributes:
      arms: names in the suite's order, those without a finished run included.
      runs: arm to {seed: run}, of arms with at least one; a run's tasks are not read.
      missing: (arm, seed, last epoch or None) of the runs that are not finished.
      metric: the primary held-out score.
      strata: how the names of its strata begin.
      contrasts, threshold_arm, bootstrap: as in the suite.
    """

    arms: tuple[str, ...]
    runs: Mapping[str, Mapping[int, Run]]
    missing: Sequence[tuple[str, int, int | None]]
    metric: str
    strata: str
    contrasts: Sequence[tuple[str, str]]
    threshold_arm: str
    bootstrap: int

    def all_runs(self) -> list[Run]:
        """Every finished run, arm by arm."""
        return [run for runs in self.runs.values() for run in runs.values()]

    @functools.cached_property
    def horizon(self) -> float:
        """R: the rollouts that all finished runs have reached, to which every curve is cut."""
        return min(curve(run, self.metric)[0][-1] for run in self.all_runs())

    @functools.cached_property
    def metrics(self) -> tuple[str, ...]:
        """Names of all metrics that some run recorded, sorted."""
        found: set[str] = set()
        for run in self.all_runs():
            for values in run.metrics.values():
                found |= values.keys()
        return tuple(sorted(found))

    @functools.cached_property
    def scores(self) -> dict[int, dict[str, float | None]]:
        """`run_scores` of each run, by id(run)."""
        return {id(run): run_scores(run, self) for run in self.all_runs()}

    def score(self, arm: str, name: str) -> dict[int, float]:
        """Seed to a number of `run_scores`, of the arm's runs that have it."""
        found = {
            seed: self.scores[id(run)].get(name) for seed, run in self.runs.get(arm, {}).items()
        }
        return {seed: value for seed, value in found.items() if value is not None}

    def names(self, prefix: str = "") -> list[str]:
        """Names of `run_scores` that some run has, in order of appearance."""
        found = dict.fromkeys(name for scores in self.scores.values() for name in scores)
        return [
            name
            for name in found
            if name.startswith(prefix)
            and any(scores.get(name) is not None for scores in self.scores.values())
        ]

    @functools.cached_property
    def threshold(self) -> float | None:
        """Mean final score of the threshold arm; None where none of its runs is finished."""
        runs = self.runs.get(self.threshold_arm)
        if not runs:
            return None
        return float(np.mean([final(run, self.metric, self.horizon) for run in runs.values()]))

    def crossings(self, arm: str) -> dict[int, float | None]:
        """Seed to the rollouts at which the run reaches the threshold; None: not within [0, R]."""
        if self.threshold is None:
            return {}
        return {
            seed: statistics.rollouts_to_threshold(
                *curve(run, self.metric), self.threshold, self.horizon
            )
            for seed, run in self.runs.get(arm, {}).items()
        }

    def mean_crossing(self, arm: str) -> float | None:
        """Rollouts at which the mean curve of the arm's runs reaches the threshold, within [0, R]."""
        grid, values = self.on_grid(arm, self.metric, points=401)
        if self.threshold is None or not len(values):
            return None
        # Not from rounding alone: the threshold arm's own mean ends exactly at the threshold.
        reached = self.threshold - 1e-12
        return statistics.rollouts_to_threshold(grid, values.mean(axis=0), reached, self.horizon)

    def on_grid(self, arm: str, name: str, points: int = 61) -> tuple[np.ndarray, np.ndarray]:
        """(rollouts (s,) from 0 to R, values (runs, s)): a metric's curves, interpolated linearly."""
        grid = np.linspace(0, self.horizon, points)
        curves = [curve(run, name) for run in self.runs.get(arm, {}).values()]
        values = [np.interp(grid, x, y) for x, y in curves if len(x)]
        return grid, np.array(values).reshape(-1, points)


def load_results(plan: Plan, workdir: pathlib.Path) -> Results:
    """Reads the runs of a plan that have reached their last epoch.

    Raises:
      ValueError: a file is damaged; a finished run lacks the suite's metric; no rollouts were spent; or
        no run is finished yet.
    """
    runs: dict[str, dict[int, Run]] = {}
    missing = []
    for arm in plan.arms:
        for seed in plan.suite.seeds:
            directory = run_dir(workdir, arm, seed)
            step = last_step(directory)
            if plan.share(arm, directory) == 1:
                runs.setdefault(arm, {})[seed] = _load(directory)
            else:
                missing.append((arm, seed, step))
    suite = plan.suite
    results = Results(
        arms=tuple(plan.arms),
        runs=runs,
        missing=missing,
        metric=suite.metric,
        strata=suite.strata,
        contrasts=[tuple(pair) for pair in suite.contrasts],
        threshold_arm=suite.threshold_arm,
        bootstrap=suite.bootstrap,
    )
    if not runs:
        raise ValueError(f"{workdir}: no run is finished yet, so there is nothing to report")
    for run in results.all_runs():
        rollouts, _ = curve(run, suite.metric)
        if not len(rollouts):
            known = [name for name in run.metrics[max(run.metrics)] if name.startswith("eval/")]
            raise ValueError(
                f"{run.workdir}: config.metric = {suite.metric!r} is not recorded: expected one of "
                f"{sorted(known)}"
            )
        if rollouts[0] != 0 or rollouts[-1] <= 0:
            raise ValueError(
                f"{run.workdir}: {suite.metric} is recorded from {rollouts[0]:g} to {rollouts[-1]:g} "
                "rollouts: expected a curve from 0 upwards"
            )
    return results


def _load(directory: pathlib.Path) -> Run:
    """As `reporting.runs.load_run`, but without tasks.jsonl, of which a suite has gigabytes."""
    path, timing_path = directory / "metrics.jsonl", directory / "timing.jsonl"
    metrics = {
        step_of(record, path, line): numbers(record)
        for line, record in enumerate(iter_jsonl(path), start=1)
    }
    timing = [numbers(r) for r in iter_jsonl(timing_path)] if timing_path.is_file() else []
    config = {}
    if (directory / "config.json").is_file():
        try:
            config = dict(json.loads((directory / "config.json").read_bytes()))
        except (ValueError, TypeError, RecursionError) as error:
            raise ValueError(f"{directory / 'config.json'}: damaged: {error}") from None
    name = f"{directory.parent.name}/{directory.name}"
    return Run(name, directory, config, dict(sorted(metrics.items())), timing, ())


def curve(run: Run, name: str) -> tuple[np.ndarray, np.ndarray]:
    """(rollouts (s,), values (s,)) of a metric; both empty where it is not recorded.

    Step 0 is at 0 rollouts.  A step without a count of rollouts is left out; of several at the same count,
    as after an epoch without tasks, the last one stays.
    """
    points: dict[float, float] = {}
    for step, values in run.metrics.items():
        rollouts = values.get(ROLLOUTS, 0.0 if step == 0 else None)
        if rollouts is not None and name in values:
            points[rollouts] = values[name]
    return np.array(list(points), float), np.array(list(points.values()), float)


def final(run: Run, name: str, horizon: float) -> float | None:
    """The metric after `horizon` rollouts, interpolated between evaluations; None where not recorded."""
    x, y = curve(run, name)
    return float(np.interp(horizon, x, y)) if len(x) else None


def accuracies(results: Results) -> list[Metric]:
    """All held-out scores of the primary metric's name, its own split and mode first."""
    primary = Metric.parse(results.metric)
    found = [m for name in results.metrics if (m := Metric.parse(name)) and m.name == primary.name]
    return sorted(
        found, key=lambda m: (m.split != primary.split, m.split, m.mode != primary.mode, m.mode)
    )


def strata(results: Results) -> list[Metric]:
    """The strata of the primary metric's split and mode, in order (depth_2 before depth_10)."""
    primary = Metric.parse(results.metric)
    found = [
        m
        for name in results.metrics
        if (m := Metric.parse(name))
        and (m.split, m.mode) == (primary.split, primary.mode)
        and m.name.startswith(results.strata)
        and m.name != primary.name
    ]
    return sorted(found, key=lambda m: (len(m.name), m.name))


def run_scores(run: Run, results: Results) -> dict[str, float | None]:
    """What a run comes down to, by name; None where it did not record what that takes.

    auc/S/M, start/S/M, final/S/M, gain/S/M: of each held-out split S and mode M, over R rollouts
      (`statistics.area_under_curve`), before training, after R rollouts, and final less start.
    last/S/M: the last evaluation, whatever its rollouts.
    stratum/NAME: final score of a stratum of the primary split and mode.
    cvar: `statistics.conditional_value_at_risk` over these strata, of equal weight.  Runs record no
      success by task, so it is of the worst fifth of the strata.
    p_hat/epochs_in_band: share of the epochs from the third on whose mean p̂ over generated tasks is in
      [α − k_min, α + k_min].  p_hat/tasks_in_band: mean share of tasks in it, over the same epochs.
    p_hat/mean: mean p̂ over these epochs.  p_hat/rerolled: the same by independent rollouts of some tasks;
      p_hat/gap and p_hat/rerolled_gap: mean |p̂ − α| of the tasks in the band, by their own rollouts and by
      the independent ones (`evaluation.reroll`).
    diversity/NAME/start, end, ratio: first and last epoch's, and the last by the first.
    rollouts/total, rollouts/wasted: at the end of the run; minutes: of all its phases.
    """
    scores: dict[str, float | None] = {}
    for metric in accuracies(results):
        x, y = curve(run, str(metric))
        key = f"{metric.split}/{metric.mode}"
        if not len(x) or x[0] != 0 or x[-1] < results.horizon:
            continue
        end = statistics.value_at(x, y, results.horizon)
        scores |= {
            f"auc/{key}": statistics.area_under_curve(x, y, results.horizon),
            f"start/{key}": float(y[0]),
            f"final/{key}": end,
            f"gain/{key}": end - float(y[0]),
            f"last/{key}": float(y[-1]),
        }
    by_stratum = {m.name: final(run, str(m), results.horizon) for m in strata(results)}
    scores |= {f"stratum/{name}": value for name, value in by_stratum.items()}
    known = [value for value in by_stratum.values() if value is not None]
    if known and len(known) == len(by_stratum):
        scores["cvar"] = statistics.conditional_value_at_risk(known, CVAR_SHARE)
    scores |= _in_band(run)
    for name in DIVERSITY:
        values = list(run.series(f"generated/{name}").values())
        if values:
            scores[f"diversity/{name}/start"], scores[f"diversity/{name}/end"] = (
                values[0],
                values[-1],
            )
            if values[0]:
                scores[f"diversity/{name}/ratio"] = values[-1] / values[0]
    for name in (ROLLOUTS, "rollouts/wasted"):
        values = list(run.series(name).values())
        scores[name] = values[-1] if values else None
    scores["minutes"] = run.minutes
    return scores


_REROLLED = {
    "mean": "p_hat_mean",
    "rerolled": "p_rerolled_mean",
    "gap": "p_hat_gap",
    "rerolled_gap": "p_rerolled_gap",
}


def _in_band(run: Run) -> dict[str, float | None]:
    scores: dict[str, float | None] = {}
    means = run.series("generated/p_hat_mean")
    late = [p for step, p in means.items() if step >= _FIRST_IN_BAND]
    if run.band and late:
        low, high = run.band
        inside = [low - _BAND_SLACK <= p <= high + _BAND_SLACK for p in late]
        scores["p_hat/epochs_in_band"] = sum(inside) / len(inside)
    shares = run.series("generated/p_hat_in_band")
    late = [share for step, share in shares.items() if step >= _FIRST_IN_BAND]
    if late:
        scores["p_hat/tasks_in_band"] = sum(late) / len(late)
    for name, metric in _REROLLED.items():
        late = [
            value
            for step, value in run.series(f"generated/{metric}").items()
            if step >= _FIRST_IN_BAND
        ]
        if late:
            scores[f"p_hat/{name}"] = sum(late) / len(late)
    return scores
