"""The suite's tables, as Markdown, as HTML and as files of numbers."""

from __future__ import annotations

import csv
import dataclasses
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np

from genenv_jax.experiments import statistics
from genenv_jax.experiments.curves import CVAR_SHARE, DIVERSITY, Metric, Results, accuracies
from genenv_jax.reporting.html import html_table
from genenv_jax.reporting.untrusted import escape, table_cell


@dataclasses.dataclass(frozen=True)
class Table:
    """A titled table of text; `notes` say what its columns are."""

    title: str
    header: tuple[str, ...]
    rows: list[tuple[str, ...]]
    notes: str

    def markdown(self) -> str:
        """A section with a Markdown table."""
        lines = [f"## {self.title}", "", _row([table_cell(cell) for cell in self.header])]
        lines.append(_row(["---", *["---:"] * (len(self.header) - 1)]))
        lines += [_row([table_cell(cell) for cell in row]) for row in self.rows]
        return "\n".join([*lines, "", self.notes, ""])

    def html(self) -> str:
        """A section with an HTML table."""
        table = html_table(self.header, self.rows)
        return f"<h2>{escape(self.title)}</h2>{table}<p class=note>{escape(self.notes)}</p>"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


@dataclasses.dataclass(frozen=True)
class Contrast:
    """First arm minus second arm over the seeds that both have, of one number of `run_scores`.

    ratio: of the arms' means over these seeds; None where the second is not positive.
    holm: p adjusted over the suite's contrasts; None for those outside of them.
    improvement: probability of improvement, and its interval.
    """

    first: str
    second: str
    name: str
    seeds: tuple[int, ...]
    differences: tuple[float, ...]
    test: statistics.SignFlip
    interval: statistics.Interval | None
    t_interval: statistics.Interval | None
    ratio: float | None
    improvement: float
    improvement_interval: statistics.Interval | None
    holm: float | None = None

    @property
    def wins(self) -> int:
        """Seeds on which the first arm is ahead."""
        return sum(d > 0 for d in self.differences)


def contrast(results: Results, first: str, second: str, name: str) -> Contrast | None:
    """Compares two arms; None where they have no seed in common."""
    a, b = results.score(first, name), results.score(second, name)
    seeds = tuple(seed for seed in a if seed in b)
    if not seeds:
        return None
    x, y = [a[s] for s in seeds], [b[s] for s in seeds]
    differences = [p - q for p, q in zip(x, y, strict=True)]
    return Contrast(
        first=first,
        second=second,
        name=name,
        seeds=seeds,
        differences=tuple(differences),
        test=statistics.sign_flip_test(differences),
        interval=statistics.bootstrap_interval(differences, resamples=results.bootstrap),
        t_interval=statistics.t_interval(differences),
        ratio=float(np.mean(x) / np.mean(y)) if np.mean(y) > 0 else None,
        improvement=statistics.probability_of_improvement(x, y),
        improvement_interval=statistics.improvement_interval(x, y),
    )


def main_contrasts(results: Results) -> list[Contrast]:
    """The suite's contrasts in the primary number, the area under the curve, adjusted by Holm.

    The correction counts every contrast of the suite.  One whose arms share no seed yet enters with
    p = 1, so that an unfinished suite is not corrected less; it is left out of the list.
    """
    found = [contrast(results, *pair, primary(results)) for pair in results.contrasts]
    adjusted = statistics.holm([c.test.p if c else 1.0 for c in found])
    return [dataclasses.replace(c, holm=p) for c, p in zip(found, adjusted, strict=True) if c]


def primary(results: Results, what: str = "auc") -> str:
    """Name in `run_scores` of a number of the primary split and mode."""
    metric = Metric.parse(results.metric)
    return f"{what}/{metric.split}/{metric.mode}"


def _primary_split(results: Results) -> list[Metric]:
    """The primary metric's split in all modes, its own mode first."""
    return [m for m in accuracies(results) if m.split == Metric.parse(results.metric).split]


# -- the tables ------------------------------------------------------------------------------------------


def tables(results: Results) -> list[Table]:
    """All tables; those for which nothing is recorded are left out."""
    made = [
        _headline(results),
        _contrasts(results),
        _secondary(results),
        _exploratory(results),
        _gains(results),
        _threshold(results),
        _strata(results),
        _splits(results),
        _simulator(results),
        _cost(results),
        _by_seed(results),
    ]
    return [table for table in made if table and table.rows]


def _headline(results: Results) -> Table:
    modes = _primary_split(results)
    columns = [(f"auc/{m.split}/{m.mode}", f"AUC, {m.mode}") for m in modes]
    columns += [(f"final/{m.split}/{m.mode}", f"final, {m.mode}") for m in modes]
    columns.append(("cvar", f"CVaR {100 * CVAR_SHARE:.0f} % of strata"))
    rows = []
    for arm in results.runs:
        values = list(results.score(arm, primary(results)).values())
        iqm = f"{statistics.interquartile_mean(values):.3f}" if values else "–"
        cells = [_summary(results, arm, name) for name, _ in columns]
        rows.append((arm, str(len(results.runs[arm])), cells[0], iqm, *cells[1:]))
    split = Metric.parse(results.metric).split
    header = ("arm", "seeds", columns[0][1], "IQM of it", *(title for _, title in columns[1:]))
    notes = (
        f"Held-out {split.replace('_', ' ')}, mean [95 % bootstrap interval over seeds]. AUC, the primary "
        f"number: mean height of the curve over the first R = {results.horizon:,.0f} total rollouts, which "
        "all runs have reached. Final: after R rollouts, interpolated between evaluations. CVaR: mean of "
        "the worst fifth of the strata (runs record no success by task), after R rollouts. Intervals of "
        "few seeds are too narrow: with 8, they cover about 90 %."
    )
    return _without_empty("Held-out scores", header, rows, notes)


def _contrasts(results: Results) -> Table:
    rows = [_contrast_row(c, holm=True) for c in main_contrasts(results)]
    notes = (
        "Paired over seeds, in AUC. p: exact two-sided sign-flip test (drawn for more than "
        f"{statistics.EXACT_LIMIT} seeds); Holm p: adjusted over the {len(results.contrasts)} contrasts "
        "that were fixed beforehand. P(first > second): probability of improvement, unpaired."
    )
    return Table("Main contrasts", (*_CONTRAST, "Holm p"), rows, notes)


def secondary_contrasts(results: Results) -> list[Contrast]:
    """The main contrasts' arms in all other held-out numbers, without a correction."""
    names = [f"auc/{m.split}/{m.mode}" for m in accuracies(results)][1:]
    names += [f"final/{m.split}/{m.mode}" for m in accuracies(results)]
    names += [name for name in ("cvar",) if name in results.names()]
    found = [contrast(results, *pair, name) for pair in results.contrasts for name in names]
    return [c for c in found if c]


def _secondary(results: Results) -> Table:
    rows = []
    for c in secondary_contrasts(results):
        first, *rest = _contrast_row(c, holm=False)
        rows.append((f"{first}: {c.name.replace('/', ', ').replace('_', ' ')}", *rest))
    notes = "Not adjusted. They say whether the main contrasts hold in other scores too."
    return Table("Main contrasts in secondary scores", _CONTRAST, rows, notes)


_CONTRAST = (
    "contrast",
    "seeds",
    "difference [95 % bootstrap]",
    "[95 % t]",
    "ratio of means",
    "seeds ahead",
    "P(first > second)",
    "p",
)


def _contrast_row(c: Contrast, holm: bool) -> tuple[str, ...]:
    row = (
        f"{c.first} − {c.second}",
        str(len(c.seeds)),
        f"{c.test.mean:+.4f} {_interval(c.interval, '+.4f')}".strip(),
        _interval(c.t_interval, "+.4f") or "–",
        "–" if c.ratio is None else f"{c.ratio:.2f}",
        f"{c.wins} of {len(c.seeds)}",
        f"{c.improvement:.2f} {_interval(c.improvement_interval, '.2f')}".strip(),
        _p(c.test.p),
    )
    return (*row, "–" if c.holm is None else _p(c.holm)) if holm else row


def exploratory_contrasts(results: Results) -> list[Contrast]:
    """Every pair of arms that is no main contrast, in AUC, without a correction."""
    main = {frozenset(pair) for pair in results.contrasts}
    arms = list(results.runs)
    pairs = [(a, b) for i, a in enumerate(arms) for b in arms[i + 1 :] if {a, b} not in main]
    found = [contrast(results, a, b, primary(results)) for a, b in pairs]
    return [c for c in found if c]


def _exploratory(results: Results) -> Table:
    rows = [_contrast_row(c, holm=False) for c in exploratory_contrasts(results)]
    notes = (
        f"The other {len(rows)} pairs, for exploration: with so many comparisons, some p below 0.05 are "
        "expected by chance."
    )
    return Table("Other contrasts (not adjusted)", _CONTRAST, rows, notes)


def _gains(results: Results) -> Table:
    rows = []
    for arm in results.runs:
        for metric in _primary_split(results):
            key = f"{metric.split}/{metric.mode}"
            gains = list(results.score(arm, f"gain/{key}").values())
            if gains:
                rows.append(
                    (
                        arm,
                        metric.mode,
                        _summary(results, arm, f"start/{key}"),
                        _summary(results, arm, f"final/{key}"),
                        _summary(results, arm, f"gain/{key}", "+.3f"),
                        _interval(statistics.t_interval(gains), "+.3f") or "–",
                        _p(statistics.sign_flip_test(gains).p),
                    )
                )
    header = ("arm", "mode", "start", "final", "gain [95 % bootstrap]", "[95 % t]", "p")
    notes = (
        "Gain of each run over its own start, after R rollouts; p: sign-flip test of the gain against 0, "
        "not adjusted."
    )
    return Table("Gain over its own start", header, rows, notes)


def _threshold(results: Results) -> Table | None:
    if results.threshold is None:
        return None
    rows = []
    for arm in results.runs:
        crossings = list(results.crossings(arm).values())
        reached = [c for c in crossings if c is not None]
        at_least = "≥ " if len(reached) < len(crossings) else ""
        filled = [results.horizon if c is None else c for c in crossings]
        interval = statistics.bootstrap_interval(filled, resamples=results.bootstrap)
        mean = results.mean_crossing(arm)
        rows.append(
            (
                arm,
                f"{len(reached)} of {len(crossings)}",
                at_least
                + f"{statistics.restricted_mean(crossings, results.horizon):,.0f} "
                + _interval(interval, ",.0f"),
                "never" if mean is None else f"{mean:,.0f}",
                "> 1" if mean is None else f"{mean / results.horizon:.2f}",
            )
        )
    header = (
        "arm",
        "runs that reach it",
        "rollouts, mean of runs",
        "rollouts of the mean curve",
        "as a share of R",
    )
    notes = (
        f"Threshold {results.threshold:.3f}: the mean final score of {results.threshold_arm}. First "
        f"crossing, interpolated linearly. A run that does not reach it within R = {results.horizon:,.0f} "
        "rollouts is censored and counts as R, so the mean is then a lower bound (≥)."
    )
    return Table("Rollouts to the threshold", header, rows, notes)


def _strata(results: Results) -> Table:
    names = results.names("stratum/")
    rows = [(arm, *(_summary(results, arm, name) for name in names)) for arm in results.runs]
    header = ("arm", *(name.removeprefix("stratum/").replace("_", " ") for name in names))
    notes = "Final score of each stratum of the primary split and mode, after R rollouts."
    return Table("By stratum", header, rows if names else [], notes)


def _splits(results: Results) -> Table:
    others = [m for m in accuracies(results) if m.split != Metric.parse(results.metric).split]
    rows = [
        (arm, *(_summary(results, arm, f"{what}/{m.split}/{m.mode}")
                for m in others for what in ("final", "gain")))
        for arm in results.runs
    ]  # fmt: skip
    titles = [f"{m.split.replace('_', ' ')}, {m.mode}" for m in others]
    header = ("arm", *(f"{title}: {what}" for title in titles for what in ("final", "gain")))
    notes = (
        "Splits other than the primary one, after the same R rollouts; their AUC is in arms.csv."
    )
    return Table("Out of distribution", header, rows if others else [], notes)


_PARTS = {"start": "first epoch", "end": "last epoch", "ratio": "last / first"}


def _simulator(results: Results) -> Table:
    titles = {
        "p_hat/epochs_in_band": "epochs with mean p̂ in the band",
        "p_hat/tasks_in_band": "tasks with p̂ in the band",
        "p_hat/mean": "mean p̂",
        "p_hat/rerolled": "mean, re-rolled",
        "p_hat/gap": "mean distance of p̂ to α in the band",
        "p_hat/rerolled_gap": "the same, re-rolled",
    }
    styles = dict.fromkeys(titles, ".2f")
    for measure, (title, _, style) in DIVERSITY.items():
        for part, label in _PARTS.items():
            name = f"diversity/{measure}/{part}"
            titles[name] = f"{title.lower()}: {label}"
            styles[name] = ".2f" if part == "ratio" else style
    names = [name for name in titles if name in results.names()]
    rows = [
        (arm, *(_summary(results, arm, name, styles[name]) for name in names))
        for arm in results.runs
    ]
    notes = (
        "Band: α ± k_min of the run's configuration; these numbers are of the epochs from the third on. p̂ is "
        "that of the training rollouts, which also choose what the simulator learns from; re-rolled: by "
        "independent rollouts of some of the same tasks, where the run made them."
    )
    return Table(
        "The generated tasks", ("arm", *(titles[n] for n in names)), rows if names else [], notes
    )


def _cost(results: Results) -> Table:
    columns = [
        ("rollouts/total", "total rollouts", ",.0f"),
        ("rollouts/wasted", "of these wasted", ",.0f"),
        ("minutes", "minutes", ".1f"),
    ]
    columns = [column for column in columns if column[0] in results.names()]
    rows = [
        (arm, *(_summary(results, arm, name, style) for name, _, style in columns))
        for arm in results.runs
    ]
    minutes = sum(run.minutes or 0.0 for run in results.all_runs())
    notes = (
        f"Of whole runs. All {len(results.all_runs())} runs together: {minutes:,.0f} minutes of recorded "
        "phases, without start-up and warm starts."
    )
    return Table(
        "Cost", ("arm", *(title for _, title, _ in columns)), rows if columns else [], notes
    )


def _by_seed(results: Results) -> Table:
    seeds = sorted({seed for runs in results.runs.values() for seed in runs})
    rows = []
    for arm in results.runs:
        values = results.score(arm, primary(results))
        rows.append((arm, *(f"{values[s]:.3f}" if s in values else "–" for s in seeds)))
    return Table("AUC by seed", ("arm", *(f"seed {s}" for s in seeds)), rows, "What is compared.")


# -- text ------------------------------------------------------------------------------------------------


def _summary(results: Results, arm: str, name: str, style: str = ".3f") -> str:
    """Mean and interval over seeds; "–" where nothing is recorded."""
    values = list(results.score(arm, name).values())
    if not values:
        return "–"
    interval = statistics.bootstrap_interval(values, resamples=results.bootstrap)
    return f"{np.mean(values):{style}} {_interval(interval, style)}".strip()


def _interval(interval: statistics.Interval | None, style: str) -> str:
    return "" if interval is None else f"[{interval[0]:{style}}, {interval[1]:{style}}]"


def _p(p: float) -> str:
    return f"{p:.4f}" if p >= 1e-4 else f"{p:.1e}"


def _without_empty(
    title: str, header: tuple[str, ...], rows: list[tuple[str, ...]], notes: str
) -> Table:
    """The table without columns in which no arm has anything."""
    kept = [i for i in range(len(header)) if i == 0 or any(row[i] != "–" for row in rows)]
    return Table(
        title,
        tuple(header[i] for i in kept),
        [tuple(row[i] for i in kept) for row in rows],
        notes,
    )


# -- files -----------------------------------------------------------------------------------------------


def write_tables(results: Results, out: pathlib.Path) -> dict[str, pathlib.Path]:
    """Writes tables.md, and as plain numbers runs.csv, arms.csv and contrasts.csv; name to path."""
    out.mkdir(parents=True, exist_ok=True)
    paths = {name: out / name for name in ("tables.md", "runs.csv", "arms.csv", "contrasts.csv")}
    text = "\n".join(table.markdown() for table in tables(results))
    paths["tables.md"].write_text(text, encoding="utf-8")
    _write_csv(paths["runs.csv"], _run_records(results))
    _write_csv(paths["arms.csv"], _arm_records(results))
    _write_csv(paths["contrasts.csv"], _contrast_records(results))
    return paths


def _write_csv(path: pathlib.Path, records: Iterator[dict[str, object]]) -> None:
    rows = list(records)
    header = list(dict.fromkeys(key for row in rows for key in row))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, header, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _run_records(results: Results) -> Iterator[dict[str, object]]:
    for arm, runs in results.runs.items():
        crossings = results.crossings(arm)
        for seed, run in runs.items():
            scores = {k: v for k, v in results.scores[id(run)].items() if v is not None}
            if crossings:
                reached = crossings[seed] is not None
                scores["rollouts_to_threshold"] = crossings[seed] if reached else results.horizon
                scores["censored"] = int(not reached)
            yield {"arm": arm, "seed": seed, **scores}


def _arm_records(results: Results) -> Iterator[dict[str, object]]:
    for arm in results.runs:
        for name in results.names():
            values = list(results.score(arm, name).values())
            if not values:
                continue
            low, high = statistics.bootstrap_interval(values, resamples=results.bootstrap) or (
                "",
                "",
            )
            error = statistics.standard_error(values)
            yield {
                "arm": arm,
                "quantity": name,
                "seeds": len(values),
                "mean": float(np.mean(values)),
                "low": low,
                "high": high,
                "standard_error": "" if error is None else error,
                "iqm": statistics.interquartile_mean(values),
            }


def _contrast_records(results: Results) -> Iterator[dict[str, object]]:
    for c in [
        *main_contrasts(results),
        *secondary_contrasts(results),
        *exploratory_contrasts(results),
    ]:
        low, high = c.interval or ("", "")
        t_low, t_high = c.t_interval or ("", "")
        better_low, better_high = c.improvement_interval or ("", "")
        yield {
            "first": c.first,
            "second": c.second,
            "quantity": c.name,
            "main": int(c.holm is not None),
            "seeds": len(c.seeds),
            "difference": c.test.mean,
            "low": low,
            "high": high,
            "t_low": t_low,
            "t_high": t_high,
            "ratio": "" if c.ratio is None else c.ratio,
            "seeds_ahead": c.wins,
            "improvement": c.improvement,
            "improvement_low": better_low,
            "improvement_high": better_high,
            "p": c.test.p,
            "exact": int(c.test.exact),
            "holm_p": "" if c.holm is None else c.holm,
        }
