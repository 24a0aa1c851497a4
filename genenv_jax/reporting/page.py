"""One HTML page that needs no other file."""

from __future__ import annotations

import collections
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from genenv_jax.reporting.examples import select_examples, task_text
from genenv_jax.reporting.groups import distinct_names
from genenv_jax.reporting.html import document, html_table, image
from genenv_jax.reporting.runs import P_HAT, Run, p_hat_of
from genenv_jax.reporting.tables import start_end, tables
from genenv_jax.reporting.untrusted import TEXT_LIMIT, bounded, escape, number

_CAPTIONS = {
    "p_hat": f"Mean {P_HAT} over the tasks of an epoch; bars span the quartiles over tasks.",
    "accuracy": "Accuracy on held-out tasks (sampled: temperature 1). Epoch 0 is before training.",
    "solved": "Generated tasks that all attempts solve, or that none solves.",
    "lengths": "Mean length in tokens of the agent's responses and of the generated tasks.",
    "validity": "Generations that did not become a task, by reason.",
    "learning": "Mean reward of the agent on generated tasks; the simulator's KL to its start.",
}


def write_page(
    runs: Sequence[Run], figures: Mapping[str, pathlib.Path], path: str | os.PathLike[str]
) -> pathlib.Path:
    """Writes one HTML page that needs no other file, and returns its path.

    It holds the figures, the tables, generated tasks of low, medium and high p̂ from early to late
    epochs, and one example of each reason of rejection.  Text of a model is escaped and bounded,
    and the page's Content-Security-Policy forbids scripts and loads from anywhere.
    """
    path = pathlib.Path(path)
    path.write_text(render(runs, figures), encoding="utf-8")
    return path


def render(runs: Sequence[Run], figures: Mapping[str, pathlib.Path]) -> str:
    """The page as HTML (see `write_page`)."""
    names = distinct_names(runs)
    title = "GenEnv: " + ", ".join(names[id(run)] for run in runs)
    parts = [
        *(f"<p class=note>{escape(_described(run, names[id(run)]))}</p>" for run in runs),
        image(figures["report"], "All panels") if "report" in figures else "",
        "<h2>Start and end</h2>",
    ]
    for label, rows in tables(runs):
        parts.append(f"<h3>{escape(label)}</h3>" if len(runs) > 1 else "")
        parts.append(html_table(("quantity", "start", "end", "change"), rows))
    parts.append("<h2>Figures</h2><div class=figures>")
    for name, path in figures.items():
        if name != "report":
            caption = _CAPTIONS[name if name in _CAPTIONS else name.split("_")[0]]
            parts.append(f"<figure>{image(path, caption)}")
            parts.append(f"<figcaption>{escape(caption)}</figcaption></figure>")
    parts.append("</div>")
    for run in runs:
        heading = f": {names[id(run)]}" if len(runs) > 1 else ""
        parts.append(_strata(run, heading))
        parts.append(f"<h2>Generated tasks{escape(heading)}</h2>")
        parts += _examples(run)
        parts.append(f"<h2>Rejected generations{escape(heading)}</h2>")
        parts += _rejected(run)
        config = bounded(json.dumps(run.config, indent=2, sort_keys=True), 4 * TEXT_LIMIT)
        parts.append(f"<details><summary>Configuration{escape(heading)}</summary>")
        parts.append(f"<pre>{escape(config)}</pre></details>")
    return document(title, parts)


def _described(run: Run, name: str) -> str:
    last = max(run.metrics)
    epochs = run.setting("epochs")
    parts = [name]
    if run.setting("benchmark.name") is not None:
        parts.append(f"benchmark {run.setting('benchmark.name')}")
    if run.setting("seed") is not None:
        parts.append(f"seed {run.setting('seed')}")
    parts.append(f"{last} of {epochs} epochs" if epochs is not None else f"{last} epochs")
    return " · ".join(parts)


def _strata(run: Run, heading: str) -> str:
    names = sorted(
        {
            name
            for values in run.metrics.values()
            for name in values
            if name.startswith("eval/") and name.count("/") >= 3 and not name.endswith("/accuracy")
        }
    )
    if not names:
        return ""
    rows = [start_end([run], name, name.removeprefix("eval/"), 3) for name in names]
    table = html_table(("split / mode / stratum", "start", "end", "change"), rows)
    return f"<h2>Held-out accuracy by stratum{escape(heading)}</h2>{table}"


def _examples(run: Run) -> list[str]:
    parts = []
    for label, record in select_examples(run):
        facts = []
        if (p_hat := p_hat_of(record)) is not None:
            facts.append(f"{P_HAT} = {p_hat:.3g}")
        successes, attempts = number(record.get("successes")), number(record.get("attempts"))
        if successes is not None and attempts is not None:
            facts.append(f"{successes:.0f} of {attempts:.0f} attempts solved")
        for key, name in (
            ("r_env", "R_env"),
            ("weight", "weight"),
            ("context_success_rate", "success rate in the context"),
            ("response_length_mean", "mean response length (tokens)"),
        ):
            value = number(record.get(key))
            facts.append(f"{name} {'none' if value is None else format(value, '.3g')}")
        facts.append(f"id {bounded(record.get('id'), 80)}")
        facts.append(f"seed {bounded(record.get('seed_id'), 80)}")
        parts.append(f"<div class=task><b>{escape(label)}</b>")
        parts.append(f"<p class=note>{escape(' · '.join(facts))}</p>")
        parts.append(f"<pre>{escape(bounded(task_text(record)))}</pre></div>")
    return parts or ["<p class=note>not recorded</p>"]


def _rejected(run: Run) -> list[str]:
    counts: collections.Counter[str] = collections.Counter()
    example: dict[str, Mapping[str, Any]] = {}
    for task in run.tasks:
        verdict = bounded(task.get("verdict"), 80)
        if verdict != "accepted":
            counts[verdict] += 1
            example.setdefault(verdict, task)
    if not run.tasks:
        return ["<p class=note>not recorded</p>"]
    if not counts:
        return ["<p>None.</p>"]
    total = len(run.tasks)
    rows = [(reason, f"{n:,}", f"{n / total:.3f}") for reason, n in counts.most_common()]
    parts = [html_table(("reason", "generations", "share"), rows)]
    for reason, _ in counts.most_common(20):
        text = bounded(example[reason].get("text"), 1000)
        detail = bounded(example[reason].get("detail"), 300)
        parts.append(f"<details><summary>{escape(reason)}: {escape(detail)}</summary>")
        parts.append(f"<pre>{escape(text)}</pre></details>")
    return parts
