"""The page of one evaluation: its numbers with intervals, why answers failed, and some of them."""

from __future__ import annotations

import collections
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from genenv_jax.report.answers import answer_text, verdict_of
from genenv_jax.report.examples import count_by
from genenv_jax.report.html import render
from genenv_jax.report.untrusted import bounded, number
from genenv_jax.run.jsonl import iter_jsonl, read_json, write_text

_EXAMPLES = 24  # answers on the page
_TEXT_LIMIT = 1500  # characters of an answer


def write_evaluation_page(workdir: str | os.PathLike[str]) -> pathlib.Path:
    """Writes report.html of the workdir of `genenv_jax.evaluate`, and returns its path.

    Text of a model is escaped and bounded.

    Raises:
      FileNotFoundError: results.json or predictions.jsonl is missing.
      ValueError: one of them is damaged.
    """
    directory = pathlib.Path(workdir)
    path, expected = directory / "results.json", "the results of an evaluation"
    results = read_json(path, expected)
    about, metrics = results.get("about"), results.get("metrics")
    if not isinstance(about, dict) or not isinstance(metrics, dict):
        raise ValueError(f"{path} is damaged: no about or no metrics; expected {expected}")
    predictions = list(iter_jsonl(directory / "predictions.jsonl"))
    by_mode = collections.defaultdict(list)
    for record in predictions:
        by_mode[bounded(record.get("mode"), 40)].append(record)
    kinds = count_by(predictions, _kind)
    text = render(
        "evaluation.html",
        title=bounded(f"{about.get('benchmark', '?')}: {about.get('model', '?')}", 200),
        facts=[(bounded(name, 100), bounded(value, 500)) for name, value in about.items()],
        intervals=bounded(results.get("intervals", "no intervals"), 200),
        modes=sorted({name.split("/")[2] for name in metrics if name.count("/") >= 3}),
        splits=_by_split(metrics),
        verdicts={mode: count_by(of, verdict_of)[:40] for mode, of in by_mode.items()},
        answers=[
            (_heading(kind.first), answer_text(kind.first, _TEXT_LIMIT))
            for kind in kinds[:_EXAMPLES]
        ],
    )
    page = directory / "report.html"
    write_text(page, text)
    return page


def _by_split(metrics: Mapping[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    """Split to metric to {"share": of the first mode, where it is one; "cells": mode to text}."""
    found: dict[str, dict[str, dict[str, Any]]] = collections.defaultdict(dict)
    # The headline first.
    for full in sorted(metrics, key=lambda name: (not name.endswith("/accuracy"), name)):
        parts = full.split("/", 3)
        ends = metrics[full] if isinstance(metrics[full], dict) else {}
        value, low, high = (number(ends.get(key)) for key in ("value", "low", "high"))
        if len(parts) != 4 or value is None:
            continue
        _, split, mode, name = parts
        row = found[split].setdefault(name, {"share": None, "cells": {}})
        text = f"{value:.3f}" if abs(value) < 1000 else f"{value:,.0f}"
        if low is not None and high is not None:
            text += f" [{low:.3f}, {high:.3f}]"
        row["cells"][mode] = text
        if row["share"] is None and 0 <= value <= 1:
            row["share"] = value
    return found


def _kind(record: Mapping[str, Any]) -> str:
    return f"{bounded(record.get('category'), 80)} · {verdict_of(record)}"


def _heading(record: Mapping[str, Any]) -> str:
    facts = (bounded(record.get(key), 80) for key in ("task_id", "mode", "reward"))
    return " · ".join((_kind(record), *facts))
