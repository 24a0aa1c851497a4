"""The page of one evaluation: metrics with intervals, reasons of failure, and the answers themselves."""

from __future__ import annotations

import collections
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from genenv_jax.results.answers import GROUPS, answer_text, detail_text, verdict
from genenv_jax.results.browse import Browser, browser, choices
from genenv_jax.results.html import render
from genenv_jax.results.untrusted import bounded, readable
from genenv_jax.run.jsonl import iter_jsonl, read_json, write_text
from genenv_jax.run.metrics import number

_BYTES = 8 * 2**20  # most HTML in the list of answers
_ANSWERS = 40  # most distinct answers per task
_ANSWER = ("mode", "group", "verdict", "reward", "detail", "text")
_TURN = 1500  # characters per answer in an episode
_MESSAGES = 40  # per prompt
_MODES = 8
_VERDICTS = 40  # per group


def write_evaluation_page(workdir: str | os.PathLike[str]) -> pathlib.Path:
    """Writes report.html in a workdir of `genenv_jax.evaluate`, and returns its path.

    The list of answers shows each one's request, reference, prompt and verdict.  It is at most 8 MiB: beyond
    that, texts are shortened, then tasks are left out.  Model text is escaped.

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
    tasks = _by_task(iter_jsonl(directory / "predictions.jsonl"))
    text = render(
        "evaluation.html",
        title=bounded(f"{about.get('benchmark', '?')}: {about.get('model', '?')}", 200),
        facts=[(bounded(name, 100), bounded(value, 500)) for name, value in about.items()],
        intervals=bounded(results.get("intervals", "no intervals"), 200),
        splits=_by_split(metrics),
        verdicts=_verdicts(tasks),
        answers=_browser(tasks),
    )
    page = directory / "report.html"
    write_text(page, text)
    return page


def _by_split(metrics: Mapping[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    """Split to metric to {"share": the first mode's value if it is a share, "cells": mode to text}."""
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
        is_count = isinstance(ends["value"], int)  # a count of answers that could not be scored
        if is_count:
            text = f"{value:,.0f}"
        row["cells"][mode] = text
        bounds = [end for end in (value, low, high) if end is not None]
        if row["share"] is None and not is_count and min(bounds) >= 0 and max(bounds) <= 1:
            row["share"] = value
    return found


def _by_task(predictions: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The tasks as the macro "evaluated_task" shows them; equal answers to a task are merged and counted."""
    tasks: dict[tuple[str, str], dict[str, Any]] = {}
    for record in predictions:
        key = bounded(record.get("category"), 80), bounded(record.get("task_id"), 200)
        task = tasks.get(key)
        if task is None:
            task = tasks[key] = _task(*key, record)
        group, reason = verdict(record)
        one = {"mode": bounded(record.get("mode"), 40), "group": group, "verdict": reason}
        task["verdicts"].append((one["mode"], group, reason))
        one |= {"reward": number(record.get("reward")), "detail": detail_text(record)}
        task["counts"][(*one.values(), answer_text(record, _TURN))] += 1
    for task in tasks.values():
        counts = task.pop("counts")
        shown = list(counts.items())[:_ANSWERS]
        task["answers"] = [(dict(zip(_ANSWER, one, strict=True)), n) for one, n in shown]
        task["more_answers"] = counts.total() - sum(n for _, n in shown)
    return list(tasks.values())


def _task(category: str, task_id: str, record: Mapping[str, Any]) -> dict[str, Any]:
    messages = record.get("prompt")
    messages = messages if isinstance(messages, list) else []
    return {
        "category": category,
        "id": task_id,
        "request": bounded(record.get("request") or ""),
        "reference": bounded(readable(record.get("reference") or "")),
        "prompt": [
            (bounded(message.get("role"), 40), bounded(message.get("content"), 20_000))
            for message in messages[:_MESSAGES]
            if isinstance(message, Mapping)
        ],
        "prompt_tokens": number(record.get("prompt_tokens")),
        "counts": collections.Counter(),
        "verdicts": [],  # (mode, group, reason) of every answer
    }


def _verdicts(tasks: Sequence[Mapping[str, Any]]) -> tuple[list[str], Any, list[Any]]:
    """(modes, answers by mode, groups) as the macro "verdicts" takes them."""
    counts: dict[tuple[str, str], collections.Counter[str]] = collections.defaultdict(
        collections.Counter
    )
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


def _browser(tasks: Sequence[Mapping[str, Any]]) -> Browser:
    found = [one for task in tasks for one in task["verdicts"]]
    groups = sorted((group for _, group, _ in found), key=list(GROUPS).index)
    filters = [
        choices("category", "category", sorted(task["category"] for task in tasks), False),
        choices("group", "verdict", groups, False),
        choices("verdict", "reason", (reason for *_, reason in found)),
        choices("mode", "mode", (mode for mode, *_ in found)),
    ]
    kind = lambda task: (task["category"], task["verdicts"][0][1:])  # noqa: E731
    return browser("tasks", "evaluated_task", tasks, kind, filters, _BYTES)
