"""The six panels of a run.

Each draws into one cell of a figure's grid and returns the axes that carry the panel's title.  A panel
without data says "not recorded".
"""

from __future__ import annotations

import collections
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import SubplotSpec
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from genenv_jax.results.runs import P_HAT, Run, evaluations, p_hat_of
from genenv_jax.results.style import BAND, COLOURS, GREY, epoch_axis, reason_style
from genenv_jax.results.untrusted import shown_in_figure

_SHOWN_REASONS = 6  # the others are drawn together
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_LINE_STYLES = {"greedy": "-", "sampled": "--"}  # by mode


def panel_p_hat(figure: Figure, cell: SubplotSpec, run: Run) -> Axes:
    """Mean p̂ of the generated tasks, its quartiles over tasks and the target band, by epoch."""
    axes = figure.add_subplot(cell)
    axes.set_title(f"Success rate {P_HAT} of the generated tasks")
    values = collections.defaultdict(list)
    for task in run.tasks:
        if (p_hat := p_hat_of(task)) is not None:
            values[task["epoch"]].append(p_hat)
    if not _line(axes, run, "generated/p_hat_mean") and not values:
        return _not_recorded(axes)
    handles = [Line2D([], [], color=COLOURS[0], marker="o", label="mean")]
    if steps := sorted(values):
        quartiles = np.array([np.percentile(values[step], (25, 75)) for step in steps])
        axes.vlines(steps, *quartiles.T, color=COLOURS[0], alpha=0.45, linewidth=1.2)
        label = "quartiles over tasks"
        handles.append(Line2D([], [], color=COLOURS[0], alpha=0.45, label=label))
    if run.band is not None:
        low, high = run.band
        axes.axhspan(low, high, color=BAND, zorder=0, linewidth=0)
        centre, half = (low + high) / 2, (high - low) / 2
        label = rf"target $\alpha \pm k_{{\min}}$ = {centre:.3g} ± {half:.3g}"
        handles.append(Patch(color=BAND, label=label))
    axes.set_ylim(0, 1)
    axes.set_ylabel(P_HAT)
    epoch_axis(axes)
    axes.legend(handles=handles, loc="best")
    return axes


def panel_accuracy(figure: Figure, cell: SubplotSpec, run: Run) -> Axes:
    """Held-out accuracy by split and mode."""
    axes = figure.add_subplot(cell)
    axes.set_title("Held-out accuracy")
    found = evaluations(run)
    if not found:
        return _not_recorded(axes)
    splits, modes = (list(dict.fromkeys(names)) for names in zip(*found, strict=True))
    handles = []
    for index, split in enumerate(splits):
        colour, marker = COLOURS[index % len(COLOURS)], _MARKERS[index % len(_MARKERS)]
        for mode in modes:
            name = f"eval/{split}/{mode}/accuracy"
            _line(axes, run, name, colour, _LINE_STYLES.get(mode, ":"), marker)
        label = shown_in_figure(split.replace("_", " "))
        handles.append(Line2D([], [], color=colour, marker=marker, label=label))
    for mode in modes:
        style, label = _LINE_STYLES.get(mode, ":"), shown_in_figure(mode)
        handles.append(Line2D([], [], color=GREY, linestyle=style, label=label))
    axes.set_ylabel("accuracy")
    epoch_axis(axes)
    _legend_above_data(axes, handles)
    low, _ = axes.get_ylim()
    axes.set_yticks([tick for tick in axes.get_yticks() if low <= tick <= 1])
    return axes


def panel_lengths(figure: Figure, cell: SubplotSpec, run: Run) -> Axes:
    """Mean length in tokens of responses and of task prompts."""
    rows = (
        ("agent/response_length_mean", "response", "(tokens)"),
        ("generated/task_length_mean", "task prompt", "(tokens)"),
    )
    return _stacked(figure, cell, run, "Length of responses and tasks", rows)


def panel_solved(figure: Figure, cell: SubplotSpec, run: Run) -> Axes:
    """Tasks per epoch that all attempts solve, and that none solves."""
    axes = figure.add_subplot(cell)
    axes.set_title("Tasks that carry no learning signal")
    handles = []
    for label, name, style, colour, marker in (
        ("never solved", "generated/solved_none", "-", COLOURS[1], "o"),
        ("solved in all attempts", "generated/solved_all", "--", COLOURS[0], "s"),
    ):
        if _line(axes, run, name, colour, style, marker):
            line = Line2D([], [], color=colour, linestyle=style, marker=marker, label=label)
            handles.append(line)
    if not handles:
        return _not_recorded(axes)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("tasks per epoch")
    epoch_axis(axes)
    _legend_above_data(axes, handles)
    return axes


def panel_validity(figure: Figure, cell: SubplotSpec, run: Run) -> Axes:
    """Share of the generations that were rejected, by reason."""
    axes = figure.add_subplot(cell)
    axes.set_title("Rejected generations by reason")
    counts = run.series("generated/count")
    if not counts:
        return _not_recorded(axes)
    prefix, shares = "generated/rejected/", collections.defaultdict(dict)
    for step, count in counts.items():
        for name, value in run.metrics[step].items():
            if name.startswith(prefix):
                shares[name.removeprefix(prefix)][step] = value / max(count, 1)
    ranked = sorted(shares, key=lambda reason: (-sum(shares[reason].values()), reason))
    reasons = [reason for reason in ranked if any(shares[reason].values())]
    few, other = reasons[:_SHOWN_REASONS], reasons[_SHOWN_REASONS:]
    layers = [(reason, [reason], reason_style(reason)) for reason in few]
    layers += [("other", other, {"facecolor": GREY})] if other else []
    bottom = np.zeros(len(counts))
    for _, names, style in layers:
        height = np.array([sum(shares[name].get(step, 0.0) for name in names) for step in counts])
        axes.bar(list(counts), height, 0.8, bottom, linewidth=0, **style)
        bottom += height
    axes.set_ylabel("share of generations")
    epoch_axis(axes)
    if not layers:
        axes.text(0.04, 0.95, "none", transform=axes.transAxes, color=GREY)
        return axes
    handles = [
        Patch(linewidth=0, label=shown_in_figure(name.replace("_", " ")), **style)
        for name, _, style in reversed(layers)
    ]
    _legend_above_data(axes, handles)
    return axes


def panel_learning(figure: Figure, cell: SubplotSpec, run: Run) -> Axes:
    """The agent's mean reward, and the simulator's KL to its start in nats."""
    rows = (
        ("agent/reward_mean", "agent", "mean reward"),
        ("simulator/kl_to_initial", "simulator", "KL to start (nats)"),
    )
    return _stacked(figure, cell, run, "Agent reward, simulator drift", rows)


PANELS: dict[str, Callable[[Figure, SubplotSpec, Run], Axes]] = {
    "p_hat": panel_p_hat,
    "accuracy": panel_accuracy,
    "learning": panel_learning,
    "solved": panel_solved,
    "validity": panel_validity,
    "lengths": panel_lengths,
}


def _stacked(
    figure: Figure, cell: SubplotSpec, run: Run, title: str, rows: Sequence[tuple[str, str, str]]
) -> Axes:
    """Small plots stacked vertically, for quantities whose scales differ."""
    cells = cell.subgridspec(len(rows), 1).subplots(sharex=True)
    for axes, (name, label, unit) in zip(cells, rows, strict=True):
        if _line(axes, run, name):
            axes.set_ylabel(f"{label}\n{unit}")
            axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
            epoch_axis(axes, label=axes is cells[-1])
        else:
            _not_recorded(axes, f"{label}: not recorded")
    cells[0].set_title(title)
    return cells[0]


def _line(
    axes: Axes,
    run: Run,
    name: str,
    colour: str = COLOURS[0],
    style: str = "-",
    marker: str = "o",
) -> bool:
    """Draws a metric by epoch; returns False if it is not recorded."""
    series = run.series(name)
    if series:
        axes.plot(list(series), list(series.values()), style, color=colour, marker=marker)
    return bool(series)


def _legend_above_data(axes: Axes, handles: Sequence[Any]) -> None:
    """A legend above the data: the y axis is stretched so that the two do not touch."""
    columns = 2 if len(handles) > 2 else len(handles)
    rows = math.ceil(len(handles) / columns)
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + (high - low) * 0.11 * (rows + 0.3))
    axes.legend(handles=handles, loc="upper left", ncols=columns, columnspacing=1.2)


def _not_recorded(axes: Axes, text: str = "not recorded") -> Axes:
    axes.set_axis_off()
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=GREY)
    return axes
