"""The suite's report: tables, figures and one self-contained HTML page."""

from __future__ import annotations

import dataclasses
import pathlib
import statistics

from genenv_jax.experiment.plan import COSTS
from genenv_jax.results.html import render
from genenv_jax.results.suite_figures import CAPTIONS, draw
from genenv_jax.results.suite_tables import runs_csv, tables
from genenv_jax.results.suites import Results
from genenv_jax.results.untrusted import bounded
from genenv_jax.run.jsonl import write_text

_SHOWN_MISSING = 20
_SHORT = 0.8  # share of the median run: if R is smaller, a note names the runs that ended early
_AFTER = 2  # tables above the figures


@dataclasses.dataclass(frozen=True)
class Report:
    """Paths of the written files, and the first tables as text."""

    page: pathlib.Path
    tables: dict[str, pathlib.Path]
    figures: dict[str, pathlib.Path]
    summary: str


def write_report(results: Results, out: pathlib.Path) -> Report:
    """Writes tables.md, runs.csv, the figures and report.html into `out`, created if missing."""
    figures = draw(results, out)
    made, about = tables(results), facts(results)
    files = {name: out / name for name in ("tables.md", "runs.csv")}
    write_text(files["tables.md"], "\n".join(table.markdown() for table in made))
    write_text(files["runs.csv"], runs_csv(results))
    page = render(
        "experiment.html",
        title=f"GenEnv: {', '.join(results.suite.arms)}",
        facts=[(name, bounded(text, 2000)) for name, text in about],
        first_tables=made[:_AFTER],
        figures=[(path, CAPTIONS[name]) for name, path in figures.items()],
        more_tables=made[_AFTER:],
    )
    write_text(out / "report.html", page)
    lines = [f"{name}: {text}" for name, text in about]
    summary = "\n".join([*lines, "", *(table.markdown() for table in made[:_AFTER])])
    return Report(out / "report.html", files, figures, summary.rstrip())


def facts(results: Results) -> list[tuple[str, str]]:
    """The facts behind the numbers: runs, range, metric, and missing runs."""
    runs, suite = results.all_runs(), results.suite
    unit = COSTS[suite.cost]
    ends = {run.name: results.primary_curve(run)[0][-1] for run in runs}
    shortest, longest = min(ends, key=ends.get), max(ends, key=ends.get)
    found = [
        ("runs", f"{len(runs)} finished, of {len(suite.arms)} arms"),
        ("primary number", f"area under {suite.metric} against {unit}"),
        (
            f"{unit} compared",
            f"0 to R = {results.horizon:,.0f}, the end of {shortest}; the longest run, {longest}, has "
            f"{ends[longest]:,.0f}",
        ),
        ("main contrasts", "; ".join(f"{a} − {b}" for a, b in suite.contrasts) or "none"),
    ]
    median = statistics.median(ends.values())
    if results.horizon < _SHORT * median:
        short = [name for name, end in ends.items() if end < _SHORT * median]
        found.append(
            (
                "NOTE",
                f"R is only {100 * results.horizon / median:.0f} % of the median run's {unit}, since these "
                f"ended early: {', '.join(short[:_SHOWN_MISSING])}",
            )
        )
    if results.missing:
        names = [
            f"{arm} seed {seed}" + ("" if step is None else f" (at epoch {step})")
            for arm, seed, step in results.missing[:_SHOWN_MISSING]
        ]
        more = len(results.missing) - len(names)
        text = ", ".join(names) + (f" and {more} more" if more else "")
        found.append(("NOT finished, left out", text))
    return found
