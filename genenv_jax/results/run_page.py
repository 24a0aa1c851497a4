"""A run's report as one self-contained HTML page."""

from __future__ import annotations

import collections
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from genenv_jax.results.answers import changes, read_held_out
from genenv_jax.results.browse import Browser, Filter, browser, choices
from genenv_jax.results.examples import compared, count_by, generations
from genenv_jax.results.html import render
from genenv_jax.results.run_tables import headline, start_end
from genenv_jax.results.runs import P_HAT, Run, held_out
from genenv_jax.results.untrusted import bounded
from genenv_jax.run.jsonl import write_text

_CAPTIONS = {
    "p_hat": f"Mean {P_HAT} over the tasks of an epoch; bars span the quartiles over tasks.",
    "accuracy": "Accuracy on held-out tasks (sampled: temperature 1). Epoch 0 is before training.",
    "solved": "Generated tasks that all attempts solve, or that none solves.",
    "lengths": "Mean length in tokens of the agent's responses and of the generated tasks.",
    "validity": "Generations that were rejected, by reason.",
    "learning": "Mean reward of the agent on generated tasks; the simulator's KL to its start.",
}
_TASKS_BYTES, _ANSWERS_BYTES = 4 * 2**20, 2 * 2**20  # most HTML in the lists
_MOST = 4000  # most generations considered
_EPISODE = 1000  # characters per answer


def write_page(
    run: Run, figures: Mapping[str, pathlib.Path], path: str | os.PathLike[str]
) -> pathlib.Path:
    """Writes one self-contained HTML page, and returns its path.

    It holds the figures except the overview of all panels, the tables, the time spent per phase, the agent's
    answers to held-out tasks before and after training, and a list to filter of the generated tasks with
    their rollouts and rejections.  Model text is escaped and truncated.  The page's Content-Security-Policy
    allows only its own script, by its hash, and no loads from anywhere.  The lists have at most 6 MiB.

    Args:
      run: from `load_run`.
      figures: name to PNG file, from `run_figures.draw`.
      path: the page.
    """
    epochs, last = run.setting("epochs"), max(run.metrics)
    facts = [run.name]
    for key, label in (("benchmark.name", "benchmark"), ("seed", "seed")):
        if (value := run.setting(key)) is not None:
            facts.append(f"{label} {value}")
    facts.append(f"{last} epochs" if epochs is None else f"{last} of {epochs} epochs")
    text = render(
        "run.html",
        title=f"GenEnv: {run.name}",
        facts=" · ".join(facts),
        headline=headline(run),
        figures=[(file, _CAPTIONS[name]) for name, file in figures.items() if name != "report"],
        strata=[
            start_end(run, f"eval/{split}/{mode}/{score}", f"{split}/{mode}/{score}", 3)
            for split, mode, score in held_out(run)
            if score != "accuracy"
        ],
        phases=_phases(run),
        compiled=sum(record.get("programs/compiled", 0) for record in run.timing),
        **_answers(run),
        verdicts=count_by(run.tasks, lambda task: bounded(task.get("verdict"), 80))[:40],
        tasks=_tasks(run),
        config=json.dumps(run.config, indent=2, sort_keys=True),
    )
    write_text(path, text)
    return pathlib.Path(path)


def _phases(run: Run) -> list[tuple[str, float, float]]:
    """(phase, seconds, share) of all recorded time, the longest first."""
    seconds: collections.Counter[str] = collections.Counter()
    for record in run.timing:
        for name, value in record.items():
            if name.startswith("seconds/") and name != "seconds/total":
                seconds[name.removeprefix("seconds/")] += value
    total = seconds.total() or 1.0
    return [(bounded(name, 80), of, of / total) for name, of in seconds.most_common()]


def _answers(run: Run) -> dict[str, Any]:
    """Outcomes of the held-out tasks, and the answers side by side; empty if they were not recorded."""
    try:
        before, after = read_held_out(run.workdir)
    except (OSError, ValueError):
        before, after = {}, {}
    kinds = {change: len(ids) for change, ids in changes(before, after).items()}
    total = sum(kinds.values())
    if not total:
        return {"changes": [], "answers": None, "compared": (0, 0)}
    first = [next(iter(of.values())).get("step") for of in (before, after)]
    pairs = compared(before, after, _EPISODE)
    return {
        "changes": [(kind, f"{n:,}", f"{100 * n / total:.1f} %") for kind, n in kinds.items()],
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
            _ANSWERS_BYTES,
        ),
    }


def _tasks(run: Run) -> Browser:
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
