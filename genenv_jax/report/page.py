"""One HTML page that needs no other file."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from genenv_jax.report.examples import rejections, tasks_by_success
from genenv_jax.report.groups import distinct_names, held_out
from genenv_jax.report.html import render
from genenv_jax.report.runs import P_HAT, Run
from genenv_jax.report.tables import start_end, tables
from genenv_jax.report.untrusted import number
from genenv_jax.run.jsonl import write_text

_CAPTIONS = {
    "p_hat": f"Mean {P_HAT} over the tasks of an epoch; bars span the quartiles over tasks.",
    "accuracy": "Accuracy on held-out tasks (sampled: temperature 1). Epoch 0 is before training.",
    "solved": "Generated tasks that all attempts solve, or that none solves.",
    "lengths": "Mean length in tokens of the agent's responses and of the generated tasks.",
    "validity": "Generations that were rejected, by reason; of more than four curves the share accepted.",
    "learning": "Mean reward of the agent on generated tasks; the simulator's KL to its start.",
}


def write_page(
    runs: Sequence[Run], figures: Mapping[str, pathlib.Path], path: str | os.PathLike[str]
) -> pathlib.Path:
    """Writes one HTML page that needs no other file, and returns its path.

    It holds the figures, the tables, generated tasks of low, medium and high p̂ from early to late
    epochs with the agent's answers, and one example of each reason of rejection.  Text of a model is
    escaped and bounded, and the page's Content-Security-Policy forbids scripts and loads from anywhere.

    Args:
      runs: from `load_run`.
      figures: name to PNG file, from `run_figures.draw`.
      path: the page.
    """
    names = distinct_names(runs)
    text = render(
        "runs.html",
        title="GenEnv: " + ", ".join(names[id(run)] for run in runs),
        overview=figures.get("report"),
        figures=[
            (file, _CAPTIONS[name if name in _CAPTIONS else name.split("_")[0]])
            for name, file in figures.items()
            if name != "report"
        ],
        tables=tables(runs),
        runs=[_described(run, names[id(run)]) for run in runs],
    )
    write_text(path, text)
    return pathlib.Path(path)


def _described(run: Run, name: str) -> dict[str, Any]:
    """What the page shows of one run, beside its figures and table."""
    epochs, last = run.setting("epochs"), max(run.metrics)
    facts = [name]
    for key, label in (("benchmark.name", "benchmark"), ("seed", "seed")):
        if (value := run.setting(key)) is not None:
            facts.append(f"{label} {value}")
    facts.append(f"{last} epochs" if epochs is None else f"{last} of {epochs} epochs")
    strata = [
        start_end([run], f"eval/{split}/{mode}/{score}", f"{split}/{mode}/{score}", 3)
        for split, mode, score in held_out([run])
        if score != "accuracy"
    ]
    alpha = number(run.setting("curriculum.alpha"))
    targets = (0.0, 0.5 if alpha is None else alpha, 1.0)
    return {
        "name": name,
        "facts": " · ".join(facts),
        "strata": strata,
        "targets": targets,
        "tasks": tasks_by_success(run, targets),
        "generations": len(run.tasks),
        "rejections": rejections(run),
        "config": json.dumps(run.config, indent=2, sort_keys=True),
    }
