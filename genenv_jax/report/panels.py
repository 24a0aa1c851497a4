"""The six panels.

Each draws groups of runs into one cell of a figure's grid and returns the axes that carry the
panel's title.  A panel without data says "not recorded".
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

from genenv_jax.report.groups import Group, evaluations
from genenv_jax.report.runs import P_HAT
from genenv_jax.report.style import BAND, COLOURS, GREY, epoch_axis, reason_style
from genenv_jax.report.untrusted import shown_in_figure

_SHOWN_REASONS = 6  # in one figure; the others are drawn together
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_LINE_STYLES = {"greedy": "-", "sampled": "--"}  # line style of each way of answering
_FEW = 4  # groups whose reasons and quartiles fit side by side; of more, only totals and means


def panel_p_hat(figure: Figure, cell: SubplotSpec, groups: Sequence[Group]) -> Axes:
    """Mean p̂ of the generated tasks, its quartiles over tasks and the target band, by epoch."""
    axes = figure.add_subplot(cell)
    axes.set_title(f"Success rate {P_HAT} of the generated tasks")
    handles = []
    recorded = quartiles_drawn = False
    # The band is drawn where all runs agree on it.
    bands = {run.band for group in groups for run in group.runs}
    band = bands.pop() if len(bands) == 1 else None
    for group in groups:
        steps, quartiles = group.quartiles()
        if steps.size and len(groups) <= _FEW:
            shifted = steps + (0.3 * group.position if len(groups) > 1 else 0)
            axes.vlines(shifted, *quartiles, color=group.colour, alpha=0.45, linewidth=1.2)
            quartiles_drawn = True
        recorded |= _line(axes, group, "generated/p_hat_mean", group.colour)
    if not (recorded or quartiles_drawn):
        return _not_recorded(axes)
    colour = groups[0].colour if len(groups) == 1 else GREY
    handles.append(Line2D([], [], color=colour, marker="o", label="mean"))
    if quartiles_drawn:
        handles.append(Line2D([], [], color=colour, alpha=0.45, label="quartiles over tasks"))
    if band is not None:
        axes.axhspan(*band, color=BAND, zorder=0, linewidth=0)
        centre, half = (band[0] + band[1]) / 2, (band[1] - band[0]) / 2
        label = rf"target $\alpha \pm k_{{\min}}$ = {centre:.3g} ± {half:.3g}"
        handles.append(Patch(color=BAND, label=label))
    axes.set_ylim(0, 1)
    axes.set_ylabel(P_HAT)
    epoch_axis(axes)
    axes.legend(handles=handles, loc="best")
    return axes


def panel_accuracy(
    figure: Figure, cell: SubplotSpec, groups: Sequence[Group], mode: str | None = None
) -> Axes:
    """Held-out accuracy by split; of several groups one `mode` only (None: the first recorded)."""
    found = evaluations([run for group in groups for run in group.runs])
    splits = list(dict.fromkeys(split for split, _ in found))
    modes = list(dict.fromkeys(mode for _, mode in found))
    if not found:
        axes = figure.add_subplot(cell)
        axes.set_title("Held-out accuracy")
        return _not_recorded(axes)
    # One group: the splits share a plot.  Several: each split has its own, since the product of
    # groups, splits and modes would hide one another, and one mode (the first) is shown.
    several = len(groups) > 1
    if several:
        modes = [modes[0] if mode is None else mode]
    columns, titled = _columns(figure, cell, len(splits) if several else 1)
    titled.set_title(
        f"Held-out accuracy ({shown_in_figure(modes[0])})" if several else "Held-out accuracy"
    )
    columns[0].set_ylabel("accuracy")
    handles = []
    for index, split in enumerate(splits):
        axes = columns[index % len(columns)]
        label = shown_in_figure(split.replace("_", " "))
        alone = COLOURS[index % len(COLOURS)]
        marker = "o" if several else _MARKERS[index % len(_MARKERS)]
        for mode in modes:
            for group in groups:
                colour = group.colour if several else alone
                name = f"eval/{split}/{mode}/accuracy"
                _line(axes, group, name, colour, _LINE_STYLES.get(mode, ":"), marker)
        if several:
            axes.text(0.04, 0.98, label, transform=axes.transAxes, va="top", fontsize=7.5)
        else:
            handles.append(Line2D([], [], color=alone, marker=marker, label=label))
        epoch_axis(axes, ticks=_ticks(columns))
    if several:
        low, high = columns[0].get_ylim()
        columns[0].set_ylim(low, high + 0.1 * (high - low))  # room for the names of the splits
    else:
        styles = {shown_in_figure(mode): _LINE_STYLES.get(mode, ":") for mode in modes}
        handles += [Line2D([], [], color=GREY, linestyle=styles[m], label=m) for m in styles]
        _legend_above_data(columns[0], handles)
    low, _ = columns[0].get_ylim()
    columns[0].set_yticks([tick for tick in columns[0].get_yticks() if low <= tick <= 1])
    return titled


def panel_lengths(figure: Figure, cell: SubplotSpec, groups: Sequence[Group]) -> Axes:
    """Mean length in tokens of responses and of task prompts."""
    rows = (
        ("agent/response_length_mean", "response", "(tokens)"),
        ("generated/task_length_mean", "task prompt", "(tokens)"),
    )
    return _stacked(figure, cell, groups, "Length of responses and tasks", rows)


def panel_solved(figure: Figure, cell: SubplotSpec, groups: Sequence[Group]) -> Axes:
    """Tasks per epoch that all attempts solve, and that none solves."""
    axes = figure.add_subplot(cell)
    axes.set_title("Tasks that carry no learning signal")
    names = {
        "never solved": ("generated/solved_none", "-", COLOURS[1], "o"),
        "solved in all attempts": ("generated/solved_all", "--", COLOURS[0], "s"),
    }
    handles = []
    for label, (name, style, alone, marker) in names.items():
        drawn = False
        for group in groups:
            colour = alone if len(groups) == 1 else group.colour
            drawn |= _line(axes, group, name, colour, style, marker)
        if drawn:
            colour = alone if len(groups) == 1 else GREY
            handles.append(
                Line2D([], [], color=colour, linestyle=style, marker=marker, label=label)
            )
    if not handles:
        return _not_recorded(axes)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("tasks per epoch")
    epoch_axis(axes)
    _legend_above_data(axes, handles)
    return axes


def panel_validity(figure: Figure, cell: SubplotSpec, groups: Sequence[Group]) -> Axes:
    """Share of the generations that were rejected, by reason; of many groups the share that was not."""
    recorded = [(group, shares) for group in groups if (shares := rejected_shares(group))]
    if not recorded or len(recorded) > _FEW:
        axes = figure.add_subplot(cell)
        axes.set_title("Accepted generations")
        if not any([_line(axes, g, "generated/valid_share", g.colour) for g, _ in recorded]):
            return _not_recorded(axes)
        axes.set_ylim(0, 1)
        axes.set_ylabel("share of generations")
        epoch_axis(axes)
        return axes
    total: collections.Counter[str] = collections.Counter()
    for _, shares in recorded:
        for reasons in shares.values():
            total.update(reasons)
    reasons = [reason for reason, share in total.most_common() if share > 0]
    few, other = reasons[:_SHOWN_REASONS], reasons[_SHOWN_REASONS:]
    layers = [(reason, [reason], reason_style(reason)) for reason in few]
    layers += [("other", other, {"facecolor": GREY})] if other else []
    columns, titled = _columns(figure, cell, len(recorded))
    titled.set_title("Rejected generations by reason")
    columns[0].set_ylabel("share of generations")
    for axes, (group, shares) in zip(columns, recorded, strict=True):
        steps, bottom = list(shares), np.zeros(len(shares))
        for _, reasons, style in layers:
            height = np.array([sum(shares[s].get(r, 0.0) for r in reasons) for s in steps])
            axes.bar(steps, height, 0.8, bottom, linewidth=0, **style)
            bottom += height
        if len(recorded) > 1:  # the line beneath the stacks has the group's colour
            axes.spines["bottom"].set(color=group.colour, linewidth=3)
        epoch_axis(axes, ticks=_ticks(columns))
    if not layers:
        columns[0].text(0.04, 0.95, "none", transform=columns[0].transAxes, color=GREY)
        return titled
    handles = [
        Patch(linewidth=0, label=shown_in_figure(name.replace("_", " ")), **style)
        for name, _, style in reversed(layers)
    ]
    _legend_above_data(columns[0], handles)
    if len(columns) > 1:  # it reaches across the columns without widening the first
        columns[0].get_legend().set_in_layout(False)
    return titled


def panel_learning(figure: Figure, cell: SubplotSpec, groups: Sequence[Group]) -> Axes:
    """The agent's mean reward, and the simulator's KL to its start in nats."""
    rows = (
        ("agent/reward_mean", "agent", "mean reward"),
        ("simulator/kl_to_initial", "simulator", "KL to start (nats)"),
    )
    return _stacked(figure, cell, groups, "Agent reward, simulator drift", rows)


PANELS: dict[str, Callable[[Figure, SubplotSpec, Sequence[Group]], Axes]] = {
    "p_hat": panel_p_hat,
    "accuracy": panel_accuracy,
    "learning": panel_learning,
    "solved": panel_solved,
    "validity": panel_validity,
    "lengths": panel_lengths,
}


def rejected_shares(group: Group) -> dict[int, dict[str, float]]:
    """Step to {reason: share of that epoch's generations}, averaged over the group's runs."""
    shares = collections.defaultdict(list)
    for run in group.runs:
        for step, count in run.series("generated/count").items():
            shares[step].append(
                {
                    name.removeprefix("generated/rejected/"): value / max(count, 1)
                    for name, value in run.metrics[step].items()
                    if name.startswith("generated/rejected/")
                }
            )
    return {
        step: {
            reason: sum(one.get(reason, 0.0) for one in of_step) / len(of_step)
            for reason in sorted({reason for one in of_step for reason in one})
        }
        for step, of_step in sorted(shares.items())
    }


def _columns(figure: Figure, cell: SubplotSpec, count: int) -> tuple[list[Axes], Axes]:
    """Plots side by side on one y axis, and the axes for their title, which reaches across all.

    The legend of the first reaches across the others.
    """
    grid = cell.subgridspec(1, count, wspace=0.05)
    columns = [figure.add_subplot(grid[0])]
    for index in range(1, count):
        axes = figure.add_subplot(grid[index], sharey=columns[0])
        axes.tick_params(left=False, labelleft=False)
        axes.spines["left"].set_visible(False)
        columns.append(axes)
    columns[0].set_zorder(1)
    columns[0].patch.set_visible(False)
    if count == 1:
        return columns, columns[0]
    # A title above the first would widen that column, so it has axes of its own; an empty one keeps the room.
    columns[0].set_title(" ")
    titled = figure.add_subplot(cell)
    titled.set_axis_off()
    return columns, titled


def _ticks(columns: Sequence[Axes]) -> int:
    """Intervals between epoch ticks that fit below each of several columns."""
    return max(2, 9 // len(columns))


def _stacked(
    figure: Figure,
    cell: SubplotSpec,
    groups: Sequence[Group],
    title: str,
    rows: Sequence[tuple[str, str, str]],
) -> Axes:
    """One small plot above another, for quantities whose scales differ."""
    grid = cell.subgridspec(len(rows), 1)
    first: Axes | None = None
    for index, (name, label, unit) in enumerate(rows):
        axes = figure.add_subplot(grid[index], sharex=first)
        first = first or axes
        drawn = [_line(axes, group, name, group.colour) for group in groups]
        if any(drawn):
            axes.set_ylabel(f"{label}\n{unit}")
            axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
            epoch_axis(axes, label=index == len(rows) - 1)
        else:
            _not_recorded(axes, f"{label}: not recorded")
        if index < len(rows) - 1:
            axes.tick_params(labelbottom=False)
    assert first is not None
    first.set_title(title)
    return first


def _line(
    axes: Axes, group: Group, name: str, colour: str, style: str = "-", marker: str = "o"
) -> bool:
    """Draws a group's mean and, for several runs, its range; False where nothing is recorded."""
    steps, values = group.curve(name)
    if not steps.size:
        return False
    axes.plot(steps, values.mean(axis=0), style, color=colour, marker=marker)
    if len(values) > 1:
        low, high = values.min(axis=0), values.max(axis=0)
        axes.fill_between(steps, low, high, color=colour, alpha=0.18, linewidth=0)
    return True


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
