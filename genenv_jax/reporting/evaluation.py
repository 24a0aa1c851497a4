"""The page of one evaluation: its numbers with intervals, why answers failed, and some of them."""

from __future__ import annotations

import collections
import json
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from genenv_jax.metrics import iter_jsonl
from genenv_jax.reporting.html import document, facts_table, html_table
from genenv_jax.reporting.untrusted import bounded, escape, number

_EXAMPLES = 24  # answers on the page
_EXAMPLE_CHARS = 1500


def write_evaluation_page(workdir: str | os.PathLike[str]) -> pathlib.Path:
    """Writes report.html of the workdir of `genenv_jax.evaluate`, and returns its path.

    Text of a model is escaped and bounded.

    Raises:
      FileNotFoundError: results.json or predictions.jsonl is missing.
      ValueError: one of them is damaged.
    """
    directory = pathlib.Path(workdir)
    path = directory / "results.json"
    try:
        results = json.loads(path.read_bytes())
        about, metrics = dict(results["about"]), dict(results["metrics"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: damaged: {error}") from None
    predictions = list(iter_jsonl(directory / "predictions.jsonl"))
    page = directory / "report.html"
    title = f"{about.get('benchmark', '?')}: {about.get('model', '?')}"
    parts = [
        facts_table([(name, bounded(value, 500)) for name, value in about.items()]),
        "<h2>Metrics</h2>",
        f"<p class=note>In brackets: {escape(bounded(results.get('intervals', ''), 200))}.</p>",
        *_metrics(metrics),
        "<h2>Verdicts</h2>",
        *_reasons(predictions),
        "<h2>Answers</h2>",
        *_examples(predictions),
    ]
    page.write_text(document(bounded(title, 200), parts), encoding="utf-8")
    return page


def _metrics(metrics: Mapping[str, Any]) -> Iterator[str]:
    """A table for each split: metrics as rows, modes as columns, and a bar for shares."""
    table: dict[str, dict[str, dict[str, str]]] = collections.defaultdict(dict)
    shares: dict[tuple[str, str], float] = {}
    modes = []
    for full, found in sorted(metrics.items()):
        parts = full.split("/", 3)
        value = number(found.get("value")) if isinstance(found, dict) else None
        if len(parts) != 4 or value is None:
            continue
        _, split, mode, name = parts
        modes += [mode] if mode not in modes else []
        text = f"{value:.3f}" if abs(value) < 1000 else f"{value:,.0f}"
        low, high = number(found.get("low")), number(found.get("high"))
        if low is not None and high is not None:
            text += f" [{low:.3f}, {high:.3f}]"
        table[split].setdefault(name, {})[mode] = text
        if 0 <= value <= 1:  # the bar is that of the first mode that has the metric
            shares.setdefault((split, name), value)
    modes.sort()
    for split, rows in table.items():
        yield f"<h3>{escape(split)}</h3>" if len(table) > 1 else ""
        head = "".join(f"<th class=n>{escape(mode)}</th>" for mode in modes)
        lines = [f"<table><tr><th></th>{head}<th class=scale></th></tr>"]
        # The headline first.
        for name in sorted(rows, key=lambda name: (name != "accuracy", name)):
            cells = "".join(
                f"<td class=n>{escape(rows[name].get(mode, ''))}</td>" for mode in modes
            )
            share = shares.get((split, name))
            bar = f'<div class=bar style="width:{share:.1%}"></div>' if share else ""
            lines.append(f"<tr><td>{escape(name)}</td>{cells}<td>{bar}</td></tr>")
        yield "".join(lines) + "</table>"


def _reasons(predictions: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for record in predictions:
        word = "success" if record.get("success") is True else record.get("reason") or "failure"
        counts[bounded(record.get("mode"), 40)][bounded(word, 80)] += 1
    for mode, reasons in counts.items():
        total = sum(reasons.values())
        rows = [(reason, f"{n:,}", f"{n / total:.3f}") for reason, n in reasons.most_common(40)]
        yield html_table((mode, "answers", "share"), rows)


def _examples(predictions: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """One answer of each category and verdict, as they come, up to a limit."""
    seen = set()
    for record in predictions:
        verdict = "success" if record.get("success") is True else record.get("reason") or "failure"
        kind = (bounded(record.get("category"), 80), bounded(verdict, 80))
        if kind in seen:
            continue
        seen.add(kind)
        if len(seen) > _EXAMPLES:
            return
        facts = [bounded(record.get(key), 80) for key in ("task_id", "mode", "reward")]
        answers = record.get("answers")
        texts = answers if isinstance(answers, list) else [record.get("answer")]
        text = "\n---\n".join(bounded(t, _EXAMPLE_CHARS) for t in texts[:60])
        yield f"<details><summary>{escape(' · '.join((*kind, *facts)))}</summary>"
        yield f"<pre>{escape(bounded(text, 4 * _EXAMPLE_CHARS))}</pre></details>"
