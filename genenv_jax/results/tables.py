"""The tables of a run, an evaluation and a suite, as text; and the scores of a suite's runs as CSV."""

import csv
import dataclasses
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from genenv_jax.results import statistics
from genenv_jax.results.contrasts import Contrast, exploratory_contrasts, main_contrasts, secondary_contrasts
from genenv_jax.results.runs import P_HAT, Run, p_hat_of
from genenv_jax.results.suites import COSTS, DIVERSITY, Results
from genenv_jax.results.untrusted import bounded, table_cell
from genenv_jax.run.metrics import number

_CONTRAST = ("contrast", "seeds", "difference [95 % bootstrap]", "[95 % t]", "seeds ahead", "p")


@dataclasses.dataclass(frozen=True)
class Table:
    """A titled table of text; `notes` explain its columns."""

    title: str
    header: tuple[str, ...]
    rows: list[tuple[str, ...]]
    notes: str = ""

    def markdown(self) -> str:
        """The table as a Markdown section."""
        ruler = ["---", *["---:"] * (len(self.header) - 1)]
        cells = ([table_cell(cell) for cell in row] for row in (self.header, *self.rows))
        head, *rows = (f"| {' | '.join(row)} |" for row in cells)
        lines = [head, f"| {' | '.join(ruler)} |", *rows]
        return "\n".join([f"## {self.title}", "", *lines, "", *([self.notes, ""] if self.notes else [])])


# -- of a run --------------------------------------------------------------------------------------------


def headline(run: Run) -> Table:
    """Start, end and change of a run's headline numbers.

    Accuracies, success rates and shares are fractions, lengths are tokens.
    """
    attempted = [task["epoch"] for task in run.tasks if p_hat_of(task) is not None]
    asked = list(run.series("generated/count").values())
    rows = [
        *(start_end(run, str(m), f"accuracy, {m.split}, {m.mode}") for m in run.accuracies),
        start_end(
            run,
            "generated/p_hat_mean",
            f"{P_HAT} of generated tasks",
            n=attempted.count(max(attempted, default=0)),
        ),
        _in_band(run),
        start_end(run, "generated/valid_share", "valid share of generations", n=asked[-1] if asked else 0),
        start_end(run, "agent/response_length_mean", "response length (tokens)", 1),
        start_end(run, "generated/task_length_mean", "task length (tokens)", 1),
        *(
            (label, "", "", start_end(run, name, label, 0)[3], "")
            for name, label in (("rollouts/total", "rollouts"), ("tokens/total", "tokens processed"))
        ),
        ("minutes", "", "", "-" if run.minutes is None else f"{run.minutes:,.1f}", ""),
    ]
    notes = "n: tasks behind a share; of generated tasks those of the last epoch."
    return Table("Start and end", ("quantity", "n", "start", "end", "change"), rows, notes)


def strata(run: Run) -> Table:
    """Start, end and change of every held-out score except accuracies."""
    rows = [
        start_end(run, str(metric), f"{metric.key}/{metric.name}")
        for metric in run.held_out
        if metric.name != "accuracy"
    ]
    header = ("split / mode / stratum", "n", "start", "end", "change")
    return Table("Held-out score by stratum", header, rows)


def start_end(
    run: Run, name: str, label: str, digits: int = 3, n: float = 0
) -> tuple[str, str, str, str, str]:
    """First and last recorded value of a metric and their difference, as text; "-" if there is none.

    n: tasks behind a share; 0: those that the run recorded, if any.
    """
    values, n = list(run.series(name).values()), n or run.sizes.get(name, 0)
    tasks = f"{n:,.0f}" if n else ""
    if not values:
        return label, tasks, "-", "-", "-"
    start, end = values[0], values[-1]
    if list(run.series(name)) == [0]:  # a run that is still going
        return label, tasks, f"{start:,.{digits}f}", "-", "-"
    return label, tasks, f"{start:,.{digits}f}", f"{end:,.{digits}f}", f"{end - start:+,.{digits}f}"


def _in_band(run: Run) -> tuple[str, str, str, str, str]:
    series = run.series("generated/p_hat_mean")
    inside = [step for step, p_hat in series.items() if run.in_band(p_hat)]
    first = f" (first: epoch {inside[0]})" if inside else ""
    text = f"{len(inside)} of {len(series)}{first}" if series and run.band else "-"
    band = "[{:.3g}, {:.3g}]".format(*run.band) if run.band else "band"
    return f"epochs with {P_HAT} in {band}", "", "", text, ""


# -- of an evaluation ------------------------------------------------------------------------------------


def evaluation_summary(results: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Lines with the headline metrics of an evaluation, then those of every benchmark: validity, pass@k.

    The headline is each split's accuracy by mode, with its number of tasks.
    """
    rows = [(*full.split("/", 3)[1:], found) for full, found in results.items()]
    heads = [row for row in rows if row[2] == "accuracy"]
    splits = list(dict.fromkeys(split for split, *_ in heads))  # the main one first
    heads.sort(key=lambda row: splits.index(row[0]))
    kinds = ("valid_", "invalid_", "truncated_", "pass@")
    rest = [row for row in rows if isinstance(row[3]["value"], int) or row[2].startswith(kinds)]
    lines = _aligned(
        [*names, metric_cell(found), f"n = {found['tasks']:,}" if "tasks" in found else ""]
        for *names, found in heads
    )
    lines += _aligned([*names, metric_cell(found)] for *names, found in rest)
    if more := len(rows) - len(heads) - len(rest):
        lines.append(f"{more} more metrics: results.json, and the page")
    return lines


def metric_cell(found: Mapping[str, Any]) -> str:
    """A metric of an evaluation, with its interval: "value", and "low" and "high" if there are any.

    Integers count answers that could not be scored.
    """
    value, low, high = (number(found.get(key)) for key in ("value", "low", "high"))
    if isinstance(found["value"], int):
        return f"{value:,.0f}"
    text = f"{value:.3f}" if abs(value) < 1000 else f"{value:,.0f}"
    return text if low is None or high is None else f"{text} {_interval((low, high), '.3f')}"


def _aligned(rows: Iterable[Sequence[str]]) -> list[str]:
    """Aligned lines."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


# -- of a suite ------------------------------------------------------------------------------------------


def suite_tables(results: Results) -> list[Table]:
    """All tables that have data."""
    makers = (
        *(_headline, _main, _arms, _secondary, _exploratory, _gains),
        *(_strata, _splits, _simulator, _cost, _by_seed),
    )
    return [table for make in makers if (table := make(results)).rows]


def runs_csv(results: Results) -> str:
    """All numbers of `run_scores`, with one line per run."""
    rows = [
        {"arm": arm, "seed": seed, **found}
        for arm, scores in results.scores.items()
        for seed, found in scores.items()
    ]
    text, header = io.StringIO(), dict.fromkeys(key for row in rows for key in row)
    writer = csv.DictWriter(text, header, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


# -- arms ------------------------------------------------------------------------------------------------

Column = tuple[str, str, str]  # name in `run_scores`, title, number format


def _by_arm(results: Results, title: str, columns: Sequence[Column], notes: str) -> Table:
    """Means with intervals over seeds, one row per arm; columns that no run recorded are left out."""
    columns = [column for column in columns if column[0] in results.names]
    rows = [
        (arm, *(_summary(results, arm, name, style) for name, _, style in columns)) for arm in results.runs
    ]
    return Table(title, ("arm", *(title for _, title, _ in columns)), rows if columns else [], notes)


def _headline(results: Results) -> Table:
    modes = [m for m in results.accuracies if m.split == results.primary.split]
    columns = [
        *((f"auc/{m.key}", f"AUC, {m.mode}", ".3f") for m in modes),
        *((f"final/{m.key}", f"final, {m.mode}", ".3f") for m in modes),
    ]
    notes = (
        f"Held-out {results.primary.split.replace('_', ' ')}, mean [95 % bootstrap interval over seeds]. "
        f"AUC, the primary number: mean height of the curve over the first R = {results.horizon:,.0f} "
        f"{COSTS[results.suite.cost]}, which all runs have reached. "
        "Final: at R, interpolated between evaluations. "
        "Intervals of few seeds are too narrow: with 8, they cover about 90 %."
    )
    table = _by_arm(results, "Held-out scores", columns, notes)
    arm, *others = table.header
    rows = [(name, str(len(results.runs[name])), *rest) for name, *rest in table.rows]
    return dataclasses.replace(table, header=(arm, "seeds", *others), rows=rows)


def _arms(results: Results) -> Table:
    configs = results.configs.values()
    rows = [
        (key, *(bounded(json.dumps(config.get(key)), 200) for config in configs))
        for key in sorted(set().union(*configs))
    ]
    rows = [row for row in rows if len(set(row[1:])) > 1]
    return Table("What the arms change", ("setting", *results.configs), rows)


def _gains(results: Results) -> Table:
    rows = []
    for arm in results.runs:
        for metric in results.accuracies:
            gains = list(results.score(arm, f"gain/{metric.key}").values())
            if metric.split == results.primary.split and gains:
                rows.append(
                    (
                        arm,
                        metric.mode,
                        _summary(results, arm, f"start/{metric.key}"),
                        _summary(results, arm, f"final/{metric.key}"),
                        _summary(results, arm, f"gain/{metric.key}", "+.3f"),
                        _interval(statistics.t_interval(gains), "+.3f") or "–",
                        _p(statistics.sign_flip_test(gains)),
                    )
                )
    header = ("arm", "mode", "start", "final", "gain [95 % bootstrap]", "[95 % t]", "p")
    notes = (
        "Gain of each run over its own start, at R; p: sign-flip test of the gain against 0, not adjusted."
    )
    return Table("Gain over its own start", header, rows, notes)


def _strata(results: Results) -> Table:
    columns = [(f"stratum/{m.name}", m.name.replace("_", " "), ".3f") for m in results.strata]
    notes = "Final score of each stratum of the primary split and mode, at R."
    return _by_arm(results, "By stratum", columns, notes)


def _splits(results: Results) -> Table:
    columns = [
        (f"{what}/{m.key}", f"{m.title}: {what}", ".3f")
        for m in results.accuracies
        if m.split != results.primary.split
        for what in ("final", "gain")
    ]
    notes = "Splits other than the primary one, at the same R; their AUC is in runs.csv."
    return _by_arm(results, "Out of distribution", columns, notes)


def _simulator(results: Results) -> Table:
    columns = [
        ("p_hat/epochs_in_band", "epochs with mean p̂ in the band", ".2f"),
        ("p_hat/tasks_in_band", "tasks with p̂ in the band", ".2f"),
        ("p_hat/mean", "mean p̂", ".2f"),
        ("p_hat/rerolled", "mean, re-rolled", ".2f"),
        ("p_hat/gap", "mean distance of p̂ to α in the band", ".2f"),
        ("p_hat/rerolled_gap", "the same, re-rolled", ".2f"),
    ]
    columns += [
        (f"diversity/{measure}", f"{title.lower()}: last epoch / first", ".2f")
        for measure, (title, _) in DIVERSITY.items()
    ]
    notes = (
        "Band: α ± k_min of the run's configuration; p̂'s numbers are of the epochs from the third on. p̂ is "
        "that of the training rollouts, which also choose what the simulator learns from; re-rolled: by "
        "independent rollouts of some of the same tasks, where the run made them."
    )
    return _by_arm(results, "The generated tasks", columns, notes)


def _cost(results: Results) -> Table:
    columns = [
        ("tokens/total", "processed tokens", ",.0f"),
        ("rollouts/total", "rollouts", ",.0f"),
        ("minutes", "minutes", ".1f"),
    ]
    minutes = sum(run.minutes or 0.0 for run in results.all_runs())
    notes = (
        "Of whole runs. Tokens of prompts and completions, of both players and their reference, those of "
        f"an update three times. All {len(results.all_runs())} runs together: {minutes:,.0f} minutes of "
        "recorded phases, without start-up and warm starts."
    )
    return _by_arm(results, "Cost", columns, notes)


def _by_seed(results: Results) -> Table:
    seeds = sorted({seed for runs in results.runs.values() for seed in runs})
    rows = []
    for arm in results.runs:
        values = results.score(arm, f"auc/{results.primary.key}")
        rows.append((arm, *(f"{values[s]:.3f}" if s in values else "–" for s in seeds)))
    header = ("arm", *(f"seed {s}" for s in seeds))
    return Table("AUC by seed", header, rows, "What the main contrasts compare.")


# -- contrasts -------------------------------------------------------------------------------------------


def _main(results: Results) -> Table:
    rows = [(*_contrast_row(c), _p(c.holm)) for c in main_contrasts(results)]
    notes = (
        "Paired over seeds, in AUC. p: exact two-sided sign-flip test (drawn for more than "
        f"{statistics.EXACT_LIMIT} seeds); Holm p: adjusted over the {len(results.suite.contrasts)} "
        "contrasts that were fixed beforehand. [95 % t]: Student's interval."
    )
    return Table("Main contrasts", (*_CONTRAST, "Holm p"), rows, notes)


def _secondary(results: Results) -> Table:
    rows = []
    for c in secondary_contrasts(results):
        first, *rest = _contrast_row(c)
        rows.append((f"{first}: {c.name.replace('/', ', ').replace('_', ' ')}", *rest))
    notes = (
        "Not adjusted. They say whether the main contrasts hold in other scores too, and against the other "
        "cost, up to what all runs have reached of it."
    )
    return Table("Main contrasts in secondary scores", _CONTRAST, rows, notes)


def _exploratory(results: Results) -> Table:
    rows = [_contrast_row(c) for c in exploratory_contrasts(results)]
    notes = (
        "All other pairs of arms, for exploration: with many comparisons, some p below 0.05 are expected by "
        "chance."
    )
    return Table("Other contrasts (not adjusted)", _CONTRAST, rows, notes)


def _contrast_row(c: Contrast) -> tuple[str, ...]:
    return (
        f"{c.first} − {c.second}",
        str(len(c.seeds)),
        f"{c.mean:+.4f} {_interval(c.interval, '+.4f')}".strip(),
        _interval(c.t_interval, "+.4f") or "–",
        f"{c.wins} of {len(c.seeds)}",
        _p(c.p),
    )


# -- text ------------------------------------------------------------------------------------------------


def _summary(results: Results, arm: str, name: str, style: str = ".3f") -> str:
    """Mean and interval over seeds; "–" if nothing is recorded."""
    values = list(results.score(arm, name).values())
    if not values:
        return "–"
    interval = statistics.bootstrap_interval(values, resamples=results.suite.bootstrap)
    return f"{np.mean(values):{style}} {_interval(interval, style)}".strip()


def _interval(interval: Sequence[float] | None, style: str) -> str:
    return "" if interval is None else f"[{interval[0]:{style}}, {interval[1]:{style}}]"


def _p(p: float) -> str:
    return f"{p:.4f}" if p >= 1e-4 else f"{p:.1e}"
