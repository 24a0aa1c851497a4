"""The pages of a run, of an evaluation and of a suite: each is one self-contained HTML file.

Model text is escaped and truncated.  A page's Content-Security-Policy allows only its own script, by its
hash, and no loads from anywhere.  If a list gets too long, its texts are shortened, then items left out.
"""

import collections
import json
import os
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from genenv_jax.results.answers import GROUPS, changes, read_held_out
from genenv_jax.results.browse import Browser, Filter, browser, choices
from genenv_jax.results.examples import compared, evaluated, generations, shares, verdicts
from genenv_jax.results.html import render
from genenv_jax.results.runs import P_HAT, Run
from genenv_jax.results.suites import COSTS, Results
from genenv_jax.results.tables import headline, metric_cell, runs_csv, strata, suite_tables
from genenv_jax.results.untrusted import bounded
from genenv_jax.run.jsonl import iter_jsonl, read_json, write_text
from genenv_jax.run.metrics import number

# Maximum HTML in a list: of generated tasks, of a run's held-out answers, of an evaluation's answers.
_TASKS_BYTES, _HELD_OUT_BYTES, _ANSWERS_BYTES = 4 * 2**20, 2 * 2**20, 8 * 2**20
_MOST = 4000  # maximum generations considered
_EPISODE = 1000  # characters per answer
_MODES = 8
_VERDICTS = 40  # per group
_SHOWN_MISSING = 20
_SHORT = 0.8  # share of the median run: if R is smaller, a note names the runs that ended early
_AFTER = 2  # tables above the figures


def write_run_page(
    run: Run, figures: Mapping[str, pathlib.Path], path: str | os.PathLike[str]
) -> pathlib.Path:
    """Writes the page of a run, and returns its path.

    It holds the figures, the tables, the time spent per phase, the agent's answers to held-out tasks before
    and after training, and a filterable list of the generated tasks with their rollouts and rejections.  The
    lists have at most 6 MiB.

    figures: name to PNG file, from `figures.draw_run`.
    """
    from genenv_jax.results.figures import CAPTIONS  # needs matplotlib; an evaluation's page does not

    facts = {"benchmark": run.setting("benchmark.name"), "model": run.setting("model.path") or None}
    facts |= {"seed": run.setting("seed"), "epochs": _epochs(run)}
    text = render(
        "run.html",
        title=f"GenEnv: {run.name}",
        **_made(facts, run.about),
        headline=headline(run),
        figures=[(file, CAPTIONS[name]) for name, file in figures.items()],
        strata=strata(run),
        phases=[
            (bounded(name, 80), seconds, seconds / (run.phases.total() or 1.0))
            for name, seconds in run.phases.most_common()
        ],
        compiled=sum(record.get("programs/compiled", 0) for record in run.timing),
        **_held_out(run),
        verdicts=shares(verdicts(run))[:_VERDICTS],
        tasks=_generated(run),
        config=json.dumps(run.config, indent=2, sort_keys=True),
    )
    write_text(path, text)
    return pathlib.Path(path)


def _epochs(run: Run) -> str:
    """How many epochs a run has done, and whether it has ended."""
    last, most = max(run.metrics), run.setting("epochs")
    for name in ("rollouts", "tokens"):
        limit = run.setting(name)
        if limit and run.metrics[last].get(f"{name}/total", 0) >= limit:
            return f"{last}, ended by config.{name} = {limit:,}"
    return f"{last} of {most}{', not finished' if last < most else ''}" if most else str(last)


def _made(facts: Mapping[str, Any], about: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of the macro "made": facts, with what `provenance.made_with` found, and the settings."""
    found = {name: about[name] for name in ("command", "code", "machine") if name in about}
    shown = {name: of for name, of in (facts | found).items() if of is not None}
    shown = [(bounded(name, 100), bounded(of, 2000)) for name, of in shown.items()]
    return {"facts": shown, "settings": bounded(about.get("settings") or "", 16_000)}


def _held_out(run: Run) -> dict[str, Any]:
    """Outcomes of the held-out tasks, and the answers side by side; empty if they were not recorded."""
    try:
        before, after = read_held_out(run.workdir)
    except (OSError, ValueError):
        before, after = {}, {}
    kinds = changes(before, after)
    if not any(kinds.values()):
        return {"changes": [], "answers": None, "compared": (0, 0)}
    first = [next(iter(of.values())).get("step") for of in (before, after)]
    pairs = compared(before, after, _EPISODE)
    return {
        "changes": shares(kinds),
        "compared": tuple(bounded(step, 20) for step in first),
        "answers": browser(
            "held-out tasks",
            "compared_task",
            pairs,
            lambda pair: (pair["change"], pair["category"]),
            [
                choices("change", "outcome", (pair["change"] for pair in pairs), by_count=False),
                choices("category", "category", sorted(pair["category"] for pair in pairs), False),
            ],
            _HELD_OUT_BYTES,
        ),
    }


def _generated(run: Run) -> Browser:
    verdicts = [bounded(task.get("verdict"), 80) for task in run.tasks]
    shown = generations(run, _MOST)
    filters = [
        choices("epoch", "epoch", (str(task["epoch"]) for task in run.tasks), by_count=False),
        choices("verdict", "verdict", verdicts),
        Filter("phat", P_HAT),
        choices("origin", "origin", [task["origin"] for task in shown]),
    ]
    return browser(
        "generations",
        "generated_task",
        shown,
        lambda task: (task["epoch"], task["verdict"]),
        filters,
        _TASKS_BYTES,
        len(run.tasks),
    )


def write_evaluation_page(workdir: str | os.PathLike[str]) -> pathlib.Path:
    """Writes report.html in a workdir of `genenv_jax.evaluate`, and returns its path.

    The list of answers shows each one's request, reference, prompt and verdict.  It is at most 8 MiB.

    Raises FileNotFoundError if results.json or predictions.jsonl is missing, ValueError if one is damaged.
    """
    directory = pathlib.Path(workdir)
    path, expected = directory / "results.json", "the results of an evaluation"
    results = read_json(path, expected)
    about, metrics = results.get("about"), results.get("metrics")
    if not isinstance(about, dict) or not isinstance(metrics, dict):
        raise ValueError(f"{path} is damaged: no about or no metrics; expected {expected}")
    tasks = evaluated(iter_jsonl(directory / "predictions.jsonl"))
    facts = {name: value for name, value in about.items() if name != "settings"}
    text = render(
        "evaluation.html",
        title=bounded(f"{about.get('benchmark', '?')}: {about.get('model', '?')}", 200),
        **_made(facts, about),
        intervals=bounded(results.get("intervals", "no intervals"), 200),
        splits=_by_split(metrics),
        verdicts=_verdicts(tasks),
        answers=_answers(tasks),
    )
    page = directory / "report.html"
    write_text(page, text)
    return page


def _by_split(metrics: Mapping[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    """Split to metric to a row, in the order given, but the headlines first.

    A row is {"share": the first mode's value if it is a share, "tasks": their number, "cells": mode to text}.
    """
    found: dict[str, dict[str, dict[str, Any]]] = collections.defaultdict(dict)
    for full in sorted(metrics, key=lambda name: not name.endswith("/accuracy")):
        parts = full.split("/", 3)
        ends = metrics[full] if isinstance(metrics[full], dict) else {}
        value = number(ends.get("value"))
        if len(parts) != 4 or value is None:
            continue
        _, split, mode, name = parts
        row = found[split].setdefault(name, {"share": None, "tasks": None, "cells": {}})
        row["cells"][mode] = metric_cell(ends)
        row["tasks"] = row["tasks"] or number(ends.get("tasks"))
        bounds = map(number, (value, ends.get("low", value), ends.get("high", value)))
        is_share = isinstance(ends["value"], float) and all(0 <= (end or 0) <= 1 for end in bounds)
        if row["share"] is None and is_share:
            row["share"] = value
    return found


def _verdicts(tasks: Sequence[Mapping[str, Any]]) -> tuple[list[str], Any, list[Any]]:
    """(modes, answers by mode, groups) as the macro "verdicts" takes them."""
    counts: dict[tuple[str, str], collections.Counter[str]] = collections.defaultdict(collections.Counter)
    totals: collections.Counter[str] = collections.Counter()
    for task in tasks:
        for mode, group, reason in task["verdicts"]:
            counts[group, reason][mode] += 1
            totals[mode] += 1
    groups = []
    for group, explanation in GROUPS.items():
        rows = [(reason, of) for (found, reason), of in counts.items() if found == group]
        rows.sort(key=lambda row: -row[1].total())
        whole = sum((of for _, of in rows), collections.Counter())
        if rows:
            inner = [] if [reason for reason, _ in rows] == ["success"] else rows[:_VERDICTS]
            groups.append((group, explanation, whole, inner))
    return [mode for mode, _ in totals.most_common(_MODES)], totals, groups


def _answers(tasks: Sequence[Mapping[str, Any]]) -> Browser:
    found = [one for task in tasks for one in task["verdicts"]]
    groups = sorted((group for _, group, _ in found), key=list(GROUPS).index)
    filters = [
        choices("category", "category", sorted(task["category"] for task in tasks), False),
        choices("group", "verdict", groups, False),
        choices("verdict", "reason", (reason for *_, reason in found)),
        choices("mode", "mode", (mode for mode, *_ in found)),
    ]
    kind = lambda task: (task["category"], task["verdicts"][0][1:])  # noqa: E731
    return browser("tasks", "evaluated_task", tasks, kind, filters, _ANSWERS_BYTES)


def write_suite_page(results: Results, out: pathlib.Path) -> tuple[pathlib.Path, str]:
    """Writes tables.md, runs.csv, the figures and report.html of a suite into `out`, created if missing.

    Returns the page's path, and the facts and first tables as text.
    """
    from genenv_jax.results.figures import CAPTIONS, draw_suite  # needs matplotlib

    figures, made, about = draw_suite(results, out), suite_tables(results), facts(results)
    write_text(out / "tables.md", "\n".join(table.markdown() for table in made))
    write_text(out / "runs.csv", runs_csv(results))
    text = render(
        "experiment.html",
        title=f"GenEnv: {', '.join(results.suite.arms)}",
        **_made(dict(about), {"settings": shared_settings(results)}),
        first_tables=made[:_AFTER],
        figures=[(path, CAPTIONS[name]) for name, path in figures.items()],
        more_tables=made[_AFTER:],
    )
    page = out / "report.html"
    write_text(page, text)
    lines = [f"{name}: {text}" for name, text in about]
    return page, "\n".join([*lines, "", *(table.markdown() for table in made[:_AFTER])]).rstrip()


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
    for name in ("code", "machine"):
        if made := dict.fromkeys(bounded(run.about[name], 1000) for run in runs if name in run.about):
            found.append((name, "; or ".join(made)))
    if results.missing:
        names = [
            f"{arm} seed {seed}" + ("" if step is None else f" (at epoch {step})")
            for arm, seed, step in results.missing[:_SHOWN_MISSING]
        ]
        more = len(results.missing) - len(names)
        text = ", ".join(names) + (f" and {more} more" if more else "")
        found.append(("NOT finished, left out", text))
    return found


def shared_settings(results: Results) -> str:
    """The settings that differ from the defaults in every run, one a line."""
    runs = [bounded(run.about.get("settings") or "", 16_000).split("\n") for run in results.all_runs()]
    return "\n".join(line for line in runs[0] if all(line in of for of in runs))
