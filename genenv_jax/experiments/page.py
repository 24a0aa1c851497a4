"""The suite's report: tables, figures and one HTML page that needs no other file."""

from __future__ import annotations

import dataclasses
import pathlib
import statistics

from genenv_jax.experiments.curves import ROLLOUTS, Results
from genenv_jax.experiments.figures import CAPTIONS, draw
from genenv_jax.experiments.tables import tables, write_tables
from genenv_jax.reporting.html import document, facts_table, image
from genenv_jax.reporting.untrusted import bounded, escape

_SHOWN_MISSING = 20
_SHORT = 0.8  # of the median run: where R is less, that is said
_AFTER = 2  # tables above the figures


@dataclasses.dataclass(frozen=True)
class Report:
    """Paths of what was written, and the first tables as text."""

    page: pathlib.Path
    tables: dict[str, pathlib.Path]
    figures: dict[str, pathlib.Path]
    summary: str


def write_report(results: Results, out: pathlib.Path) -> Report:
    """Writes tables.md, the CSV files, the figures and report.html into `out`, made if missing."""
    figures = draw(results, out)
    files = write_tables(results, out)
    page = out / "report.html"
    made = tables(results)
    page.write_text(_render(results, figures), encoding="utf-8")
    lines = [f"{name}: {text}" for name, text in facts(results)]
    summary = "\n".join([*lines, "", *(table.markdown() for table in made[:_AFTER])])
    return Report(page, files, figures, summary.rstrip())


def facts(results: Results) -> list[tuple[str, str]]:
    """What the numbers rest on: runs, range, metric, and what is missing."""
    runs = results.all_runs()
    ends = {f"{run.name}": max(run.series(ROLLOUTS).values()) for run in runs}
    shortest, longest = min(ends, key=ends.get), max(ends, key=ends.get)
    found = [
        ("runs", f"{len(runs)} finished, of {len(results.arms)} arms"),
        ("primary number", f"area under {results.metric} against {ROLLOUTS}"),
        (
            "rollouts compared",
            f"0 to R = {results.horizon:,.0f}, the end of {shortest}; the longest run, {longest}, has "
            f"{ends[longest]:,.0f}",
        ),
        ("main contrasts", "; ".join(f"{a} − {b}" for a, b in results.contrasts) or "none"),
    ]
    median = statistics.median(ends.values())
    if results.horizon < _SHORT * median:
        short = [name for name, end in ends.items() if end < _SHORT * median]
        found.append(
            (
                "NOTE",
                f"R is only {results.horizon / median:.0%} of the median run's rollouts, since these ended "
                f"early: {', '.join(short[:_SHOWN_MISSING])}".replace("%", " %"),
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


def _render(results: Results, figures: dict[str, pathlib.Path]) -> str:
    made = tables(results)
    parts = [facts_table([(name, bounded(text, 2000)) for name, text in facts(results)])]
    parts += [table.html() for table in made[:_AFTER]]
    parts.append("<h2>Figures</h2><div class=figures>")
    for name, path in figures.items():
        parts.append(f"<figure>{image(path, CAPTIONS[name])}")
        parts.append(f"<figcaption>{escape(CAPTIONS[name])}</figcaption></figure>")
    parts.append("</div>")
    parts += [table.html() for table in made[_AFTER:]]
    return document(f"GenEnv: {', '.join(results.arms)}", parts)
