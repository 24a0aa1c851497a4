"""One run taken apart: figures of its tasks and pools, and texts of the simulator side by side.

reward       R_env against p̂, with the tasks of an early, a middle and a late epoch on the curve
pools        lines of D_train and D_env, by epoch
rejected     generations that were turned away, by reason and epoch
difficulty   difficulty of the accepted tasks and how much they differ, by epoch
strata       held-out score of each stratum of the first split, by epoch

`genenv_jax.reporting.figures` draws the rest: p̂ with its band, accuracy, lengths, what is solved.
"""

from __future__ import annotations

import collections
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from genenv_jax.metrics import iter_jsonl
from genenv_jax.reporting.examples import task_text
from genenv_jax.reporting.groups import COLOURS
from genenv_jax.reporting.runs import P_HAT, Run, p_hat_of
from genenv_jax.reporting.style import BAND, DPI, GREY, STYLE
from genenv_jax.reporting.untrusted import bounded, escape, number, shown_in_figure
from genenv_jax.rl.rewards import curriculum_reward

_REASONS = 6  # with a colour of their own
_STRATA = 12  # lines in a panel
_TEXT_LIMIT = 1200  # characters of a task beside others
# Notebooks align the cells of tables to the right, and insist on it.
_CSS = (
    "<style>.sides{border-collapse:collapse;table-layout:fixed;width:100%}"
    ".sides th,.sides td{border:1px solid #bbb;padding:.35rem .5rem;text-align:left!important;"
    "vertical-align:top;overflow-wrap:anywhere}.sides pre{margin:.3rem 0 0;white-space:pre-wrap;"
    "overflow-wrap:anywhere;unicode-bidi:isolate;max-height:18rem;overflow:auto}"
    ".sides .note{color:#777;font-size:90%}</style>"
)


def draw(run: Run, out_dir: str | os.PathLike[str]) -> dict[str, pathlib.Path]:
    """Writes the figures as PNG; name to path.  What the run did not record is not drawn.

    Args:
      run: from `load_run`.
      out_dir: made where missing.
    Raises:
      ValueError: a pool's file is damaged; the message names it and the line.
    """
    out = pathlib.Path(out_dir)
    out.mkdir(parents=True, exist_ok=True)
    makers: dict[str, Callable[[Run], Figure | None]] = {
        "reward": _reward,
        "pools": _pools,
        "rejected": _rejected,
        "difficulty": _difficulty,
        "strata": _strata,
    }
    paths = {}
    with matplotlib.rc_context(STYLE):
        for name, make in makers.items():
            path = out / f"dissection_{name}.png"
            figure = make(run)
            if figure is None:
                path.unlink(missing_ok=True)  # of an earlier look at the run
                continue
            figure.savefig(path, dpi=DPI)
            paths[name] = path
    return paths


def shown_epochs(run: Run, count: int = 3) -> list[int]:
    """Up to `count` epochs that have attempted tasks, evenly spread, the first and the last among them."""
    epochs = sorted({task["epoch"] for task in _attempted(run)})
    if not epochs:
        return []
    at = np.linspace(0, len(epochs) - 1, min(count, len(epochs)))
    return [epochs[i] for i in dict.fromkeys(at.round().astype(int).tolist())]


def texts_by_success(
    run: Run, targets: Sequence[float] = (0.1, 0.5, 0.9), epochs: Sequence[int] | None = None
) -> str:
    """An HTML table: of each epoch the accepted task whose p̂ is nearest to each target.

    Shown is what the simulator wrote (of tasks that it did not write, the task), escaped and bounded,
    with p̂ and attempts, R_env and weight.  A task stands once in a row; of equals, the first in the file
    is taken.

    Args:
      run: from `load_run`.
      targets: success rates, the columns.
      epochs: rows; by default `shown_epochs`.
    """
    epochs = shown_epochs(run) if epochs is None else epochs
    head = "".join(f"<th>{P_HAT} ≈ {target:g}</th>" for target in targets)
    rows = []
    for epoch in epochs:
        left = [task for task in _attempted(run) if task["epoch"] == epoch]
        chosen: dict[float, Mapping[str, Any]] = {}
        # The closest pair first, so that a task which suits two columns goes to the one it suits best.
        while left and len(chosen) < len(targets):
            open_ = [target for target in targets if target not in chosen]
            pairs = [
                (abs(p_hat_of(task) - target), target, task) for target in open_ for task in left
            ]
            _, target, task = min(pairs, key=lambda pair: pair[0])
            chosen[target] = task
            left = [other for other in left if other is not task]
        cells = (_task_cell(chosen[target]) if target in chosen else "–" for target in targets)
        rows.append(
            f"<tr><th>epoch {epoch}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
        )
    if not rows:
        return "<p>not recorded</p>"
    columns = '<col style="width:5.5rem">' + "<col>" * len(targets)
    return f"{_CSS}<table class=sides>{columns}<tr><th></th>{head}</tr>{''.join(rows)}</table>"


def _task_cell(task: Mapping[str, Any]) -> str:
    facts = [f"{P_HAT} = {p_hat_of(task):.2f}"]
    successes, attempts = number(task.get("successes")), number(task.get("attempts"))
    if successes is not None and attempts is not None:
        facts[0] += f" ({successes:.0f} of {attempts:.0f})"
    for key, name in (("r_env", "R_env"), ("weight", "weight")):
        if (value := number(task.get(key))) is not None:
            facts.append(f"{name} {value:.2f}")
    text = escape(bounded(task.get("text") or task_text(task), _TEXT_LIMIT))
    return f"<span class=note>{escape(' · '.join(facts))}</span><pre>{text}</pre>"


def rejection_table(run: Run, shown: int = 12) -> str:
    """An HTML table: each reason of rejection, how often, and the first generation that it met.

    Text of the model is escaped and bounded.
    """
    counts: collections.Counter[str] = collections.Counter()
    first: dict[str, Mapping[str, Any]] = {}
    for task in run.tasks:
        verdict = bounded(task.get("verdict"), 80)
        counts[verdict] += 1
        first.setdefault(verdict, task)
    rejected = counts.total() - counts.pop("accepted", 0)
    rows = []
    for reason, count in counts.most_common(shown):
        example = first[reason]
        text = escape(bounded(example.get("text"), 400))
        detail = escape(bounded(example.get("detail"), 200))
        rows.append(
            f"<tr><td>{escape(reason)}</td><td>{count:,}</td>"
            f"<td><span class=note>epoch {example['epoch']} · {detail}</span><pre>{text}</pre></td></tr>"
        )
    if not rows:
        return f"<p>None of {len(run.tasks):,} generations was turned away.</p>"
    return (
        f"{_CSS}<p>{rejected:,} of {len(run.tasks):,} generations were turned away.</p>"
        '<table class=sides><col style="width:9rem"><col style="width:5rem"><col>'
        f"<tr><th>reason</th><th>how often</th><th>the first of them</th></tr>{''.join(rows)}</table>"
    )


# -- the figures -----------------------------------------------------------------------------------------


def _attempted(run: Run) -> list[Mapping[str, Any]]:
    return [task for task in run.tasks if p_hat_of(task) is not None]


def _reward(run: Run) -> Figure | None:
    epochs = shown_epochs(run)
    if not epochs:
        return None
    figure = Figure(figsize=(3.4 * len(epochs) + 0.6, 3.3), layout="constrained")
    alpha, beta = (number(run.setting(f"curriculum.{name}")) for name in ("alpha", "beta"))
    score = run.setting("curriculum.score") or "alpha"
    grid = np.linspace(0, 1, 201)
    cells = figure.subplots(1, len(epochs), sharex=True, sharey=True, squeeze=False)[0]
    for epoch, axes in zip(epochs, cells, strict=True):
        if run.band is not None and score == "alpha":
            axes.axvspan(
                *run.band, color=BAND, zorder=0, linewidth=0, label=r"$\alpha \pm k_{\min}$"
            )
        if score == "alpha" and alpha is not None and beta is not None:
            curve = curriculum_reward(grid, alpha, beta)
            axes.plot(grid, curve, color=GREY, linewidth=1, zorder=1, label=r"Eq. 3 at $\hat p$")
        # Many tasks share a point, since p̂ = k / n: its area says how many.
        counts: dict[bool, collections.Counter[tuple[float, float]]] = {
            kept: collections.Counter() for kept in (False, True)
        }
        for task in _attempted(run):
            r_env = number(task.get("r_env"))
            if task["epoch"] == epoch and r_env is not None:
                kept = (number(task.get("weight")) or 0.0) > 0
                counts[kept][(p_hat_of(task), r_env)] += 1
        for kept, label, colour in (
            (False, "filtered out", COLOURS[1]),
            (True, "in the update", COLOURS[0]),
        ):
            points = np.array(list(counts[kept])).reshape(-1, 2)
            sizes = 6 * np.array(list(counts[kept].values()), float)
            axes.scatter(
                *points.T, s=sizes, color=colour, alpha=0.6, linewidths=0, zorder=3, label=label
            )
        inside, total = counts[True].total(), counts[True].total() + counts[False].total()
        axes.set_title(f"Epoch {epoch}: {inside} of {total} tasks in the update")
        axes.set_xlabel(f"{P_HAT} of the task")
        axes.set_xlim(-0.06, 1.06)
    cells[0].set_ylabel(r"$R_{env}$" + ("" if score == "alpha" else f" ({shown_in_figure(score)})"))
    # The same size for all, whatever the largest point is.
    handles, labels = cells[0].get_legend_handles_labels()
    legend = figure.legend(handles, labels, loc="outside lower center", ncols=len(handles))
    for handle in legend.legend_handles:
        if hasattr(handle, "set_sizes"):
            handle.set_sizes([25])
    return figure


def _pools(run: Run) -> Figure | None:
    names = {
        "d_train.jsonl": "D_train: the agent's valid traces",
        "d_env.jsonl": "D_env: weighted tasks",
    }
    counts = {title: _lines_by_epoch(run.workdir / name) for name, title in names.items()}
    counts = {title: found for title, found in counts.items() if found}
    if not counts:
        return None
    epochs = range(1, max(max(found) for found in counts.values()) + 1)
    figure = Figure(figsize=(3.8 * len(counts), 3.0), layout="constrained")
    cells = figure.subplots(1, len(counts), squeeze=False)[0]
    for index, (axes, (title, found)) in enumerate(zip(cells, counts.items(), strict=True)):
        new = np.array([found.get(epoch, 0) for epoch in epochs])
        before = np.cumsum(new) - new
        axes.bar(epochs, before, 0.8, color=COLOURS[index], alpha=0.35, linewidth=0, label="before")
        axes.bar(epochs, new, 0.8, before, color=COLOURS[index], linewidth=0, label="of this epoch")
        axes.set_title(title)
        axes.set_ylabel("lines")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.legend(loc="upper left")
        _epochs(axes)
    return figure


def _lines_by_epoch(path: pathlib.Path) -> collections.Counter[int]:
    counts: collections.Counter[int] = collections.Counter()
    if path.is_file():
        for record in iter_jsonl(path):
            if (epoch := number(record.get("epoch"))) is not None:
                counts[int(epoch)] += 1
    return counts


def _rejected(run: Run) -> Figure | None:
    by_epoch: dict[int, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for task in run.tasks:
        by_epoch[task["epoch"]][bounded(task.get("verdict"), 80)] += 1
    if not by_epoch:
        return None
    total = sum(by_epoch.values(), collections.Counter())
    del total["accepted"]
    reasons = [reason for reason, _ in total.most_common(_REASONS)]
    epochs = sorted(by_epoch)
    figure = Figure(figsize=(7.2, 3.2), layout="constrained")
    axes = figure.subplots()
    bottom = np.zeros(len(epochs))
    rest = [reason for reason in total if reason not in reasons]
    parts = [(reason, [reason]) for reason in reasons] + ([("other", rest)] if rest else [])
    for index, (label, members) in enumerate(parts):
        height = np.array([sum(by_epoch[e][reason] for reason in members) for e in epochs], float)
        label = shown_in_figure(label.replace("_", " "))
        axes.bar(epochs, height, 0.8, bottom, color=COLOURS[index], linewidth=0, label=label)
        bottom += height
    counts = [by_epoch[epoch].total() for epoch in epochs]
    axes.plot(epochs, counts, "_", color="black", markersize=10, label="generations")
    axes.set_ylim(0, 1.08 * max(counts))
    axes.set_title("Generations turned away, by reason")
    axes.set_ylabel("generations per epoch")
    _epochs(axes)
    figure.legend(loc="outside right center")
    return figure


def _difficulty(run: Run) -> Figure | None:
    mean, spread = run.series("generated/difficulty_mean"), run.series("generated/difficulty_sd")
    panels = [
        ("generated/distinct_signatures", "Distinct signatures", "kinds of task per epoch"),
        ("generated/signature_entropy", "Entropy of signatures", "nats"),
    ]
    panels = [panel for panel in panels if run.series(panel[0])]
    if not mean and not panels:
        return None
    columns = bool(mean) + len(panels)
    figure = Figure(figsize=(3.4 * columns + 0.2, 3.0), layout="constrained")
    cells = list(figure.subplots(1, columns, squeeze=False)[0])
    if mean:
        axes = cells.pop(0)
        steps, values = np.array(list(mean)), np.array(list(mean.values()))
        deviations = np.array([spread.get(step, 0.0) for step in steps])
        axes.fill_between(
            steps,
            values - deviations,
            values + deviations,
            color=COLOURS[0],
            alpha=0.18,
            linewidth=0,
            label="± SD over tasks",
        )
        axes.plot(steps, values, "o-", color=COLOURS[0], markeredgewidth=0, label="mean")
        axes.set_title("Difficulty of the accepted tasks")
        axes.set_ylabel("difficulty")
        axes.legend(loc="best")
        _epochs(axes)
    for axes, (name, title, label) in zip(cells, panels, strict=True):
        series = run.series(name)
        axes.plot(list(series), list(series.values()), "o-", color=COLOURS[2], markeredgewidth=0)
        axes.set_title(title)
        axes.set_ylabel(label)
        axes.set_ylim(0, 1.08 * max(series.values()) or 1.0)
        _epochs(axes)
    return figure


def _strata(run: Run) -> Figure | None:
    found: dict[tuple[str, str], set[str]] = collections.defaultdict(set)
    for values in run.metrics.values():
        for name in values:
            parts = name.split("/", 3)
            if len(parts) == 4 and parts[0] == "eval" and parts[3] != "accuracy":
                found[(parts[1], parts[2])].add(parts[3])
    if not found:
        return None
    split = min((split for split, _ in found), key=lambda s: (not s.startswith("in_"), s))
    modes = sorted((mode for other, mode in found if other == split), reverse=True)
    figure = Figure(figsize=(3.8 * len(modes) + 0.8, 3.2), layout="constrained")
    cells = figure.subplots(1, len(modes), sharey=True, squeeze=False)[0]
    palette = matplotlib.colormaps["viridis"]
    for axes, mode in zip(cells, modes, strict=True):
        names = sorted(found[(split, mode)], key=lambda name: (len(name), name))[:_STRATA]
        for index, name in enumerate(names):
            series = run.series(f"eval/{split}/{mode}/{name}")
            colour = palette(0.9 * index / max(1, len(names) - 1))
            label = shown_in_figure(name.replace("_", " "))
            axes.plot(
                list(series),
                list(series.values()),
                "o-",
                color=colour,
                markeredgewidth=0,
                label=label,
            )
        axes.set_title(shown_in_figure(f"Held-out {split.replace('_', ' ')}, {mode}", 60))
        _epochs(axes)
    cells[0].set_ylabel("score")
    cells[0].set_ylim(bottom=0)
    figure.legend(*cells[0].get_legend_handles_labels(), loc="outside right center")
    return figure


def _epochs(axes: Any) -> None:
    axes.xaxis.set_major_locator(MaxNLocator(9, integer=True))
    axes.set_xlabel("epoch")
