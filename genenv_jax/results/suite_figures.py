"""The suite's figures, by arm with intervals over seeds: the paper's Figures 4 to 8, and more.

validation, validation_arms   held-out score against the suite's cost
validation_splits             held-out score by epoch, for each split and mode
reward                        the agent's training reward by epoch
p_hat                         success rate of the generated tasks by epoch, with the target band
lengths                       lengths of responses and tasks
solved                        generated tasks that all attempts solve, or none
final                         bars of the final scores
contrasts                     paired differences, seed by seed
diversity                     diversity of the generated tasks, if recorded
"""

from __future__ import annotations

import functools
import math
import pathlib
from collections.abc import Callable, Iterable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from genenv_jax.experiment.plan import COSTS
from genenv_jax.results import statistics
from genenv_jax.results.contrasts import exploratory_contrasts, main_contrasts
from genenv_jax.results.runs import Run
from genenv_jax.results.style import (
    BAND,
    COLOURS,
    GREY,
    epoch_axis,
    legend_below,
    save_figures,
)
from genenv_jax.results.suites import DIVERSITY, Results
from genenv_jax.results.untrusted import shown_in_figure

# The palette's yellow is too light for lines on white; grey replaces it as the eighth colour.
ARM_COLOURS = (*COLOURS, "#999999")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_DASHES = ("-", "--")  # arms beyond the colours are dashed
_LIGHT = "#C8C8C8"
_RESAMPLES = 2000  # per point of a curve
CAPTIONS = {
    "validation": "Held-out score against what training has cost, rejected tasks included; "
    "means over seeds. On the right: 95 % intervals of the curves' ends.",
    "validation_arms": "The same, arm by arm: mean with its 95 % interval, its seeds as thin lines, and "
    "the other arms' means in grey.",
    "contrasts": "Paired differences in AUC: seeds as dots, mean with its 95 % bootstrap interval.",
    "final": "Final held-out scores with 95 % intervals; dots are seeds, the tick is the mean start.",
    "validation_splits": "Held-out score by epoch: every split and way of answering.",
    "reward": "Mean reward of the agent on its training tasks. It follows the tasks' difficulty, so a "
    "constant value is no sign that nothing is learned.",
    "p_hat": "Mean success rate p̂ of the generated tasks; grey: the band α ± k_min.",
    "lengths": "Mean length in tokens of the agent's responses and of the generated tasks.",
    "solved": "Generated tasks that all attempts solve, or that none solves: those without a gradient.",
    "diversity": "Diversity of the generated tasks.",
}

Panel = tuple[str, str, str]  # metric, title, label of the axis
_REWARD: list[Panel] = [("agent/reward_mean", "Training reward", "mean reward")]
_P_HAT: list[Panel] = [
    ("generated/p_hat_mean", "Success rate p̂ of the generated tasks", "mean p̂"),
    ("generated/p_rerolled_mean", "Some of them, rolled out a second time", "mean success rate"),
]
_LENGTHS: list[Panel] = [
    ("agent/response_length_mean", "Responses", "mean length (tokens)"),
    ("generated/task_length_mean", "Generated tasks", "mean length (tokens)"),
]
_SOLVED: list[Panel] = [
    ("generated/solved_all", "Solved in all attempts", "tasks per epoch"),
    ("generated/solved_none", "Never solved", "tasks per epoch"),
    ("agent/zero_variance_share", "Training groups without variance", "share of tasks"),
]
_DIVERSITY: list[Panel] = [
    (f"generated/{name}", title, axis) for name, (title, axis, _) in DIVERSITY.items()
]


def draw(results: Results, out: pathlib.Path) -> dict[str, pathlib.Path]:
    """Writes the figures as PNG into `out`; returns paths by name.  Figures without data are skipped."""
    by_epoch = functools.partial(_by_epoch, results)
    makers: dict[str, Callable[[], Figure | None]] = {
        "validation": functools.partial(_validation, results),
        "validation_arms": functools.partial(_validation_arms, results),
        "contrasts": functools.partial(_contrasts, results),
        "final": functools.partial(_final, results),
        "validation_splits": functools.partial(_validation_splits, results),
        "reward": functools.partial(by_epoch, _REWARD),
        "p_hat": functools.partial(_p_hat, results),
        "lengths": functools.partial(by_epoch, _LENGTHS),
        "solved": functools.partial(by_epoch, _SOLVED, from_zero=True),
        "diversity": functools.partial(by_epoch, _DIVERSITY, from_zero=True),
    }
    return save_figures(makers, out)


# -- by cost --------------------------------------------------------------------------------------------


def _validation(results: Results) -> Figure:
    """The means of all arms, with the intervals of their end points beside the curves."""
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.subplots()
    arms = list(results.runs)
    for index, arm in enumerate(arms):
        grid, values = results.on_grid(arm)
        mean, style = values.mean(axis=0), arm_style(results, arm)
        axes.plot(grid, mean, **style, markevery=(index, 12), zorder=3)
        interval = statistics.bootstrap_interval(values[:, -1], resamples=_RESAMPLES)
        if interval is not None:
            x = results.horizon * (1.02 + 0.09 * index / max(1, len(arms) - 1))
            axes.vlines(x, *interval, color=style["color"], linewidth=1.3)
            axes.plot(x, mean[-1], "_", color=style["color"], markersize=4)
    if results.threshold is not None:
        axes.axhline(results.threshold, color=GREY, linewidth=0.8, linestyle=":", zorder=1)
        label = f" final score of {shown_in_figure(results.suite.threshold_arm)}"
        axes.text(0, results.threshold, label, color=GREY, va="bottom", fontsize=7)
    axes.set_title(shown_in_figure(f"Held-out {results.primary.title}", 60))
    _cost_axis(axes, results)
    axes.set_xlim(right=results.horizon * 1.13)
    axes.set_ylabel(shown_in_figure(results.primary.name))
    _legend(figure, results)
    return figure


def _validation_arms(results: Results) -> Figure:
    arms = list(results.runs)
    figure, cells = _grid(len(arms), 4, 2.6, (0.5, 2.1), sharex=True, sharey=True)
    means = {arm: results.on_grid(arm)[1].mean(axis=0) for arm in arms}
    for arm, (axes, left, bottom) in zip(arms, cells, strict=True):
        colour = arm_style(results, arm)["color"]
        grid, values = results.on_grid(arm)
        for other in arms:
            if other != arm:
                axes.plot(grid, means[other], color=_LIGHT, linewidth=0.8, zorder=1)
        axes.plot(grid, values.T, color=colour, linewidth=0.5, alpha=0.5, zorder=2)
        band = statistics.bootstrap_interval(values, resamples=_RESAMPLES)
        if band is not None:
            axes.fill_between(grid, *band, color=colour, alpha=0.25, linewidth=0, zorder=2)
        axes.plot(grid, means[arm], color=colour, linewidth=1.8, zorder=3)
        axes.set_title(shown_in_figure(arm))
        _cost_axis(axes, results, label=bottom)
        axes.tick_params(labelbottom=bottom)
        if left:
            axes.set_ylabel(shown_in_figure(results.primary.name))
    return figure


# -- by epoch --------------------------------------------------------------------------------------------


def _validation_splits(results: Results) -> Figure:
    figure, cells = _grid(len(results.accuracies), 3, 3.3, (0.6, 2.3))
    for metric, (axes, left, bottom) in zip(results.accuracies, cells, strict=True):
        _lines(axes, results, str(metric))
        axes.set_title(shown_in_figure(metric.title))
        epoch_axis(axes, label=bottom)
        if left:
            axes.set_ylabel(shown_in_figure(metric.name))
    _legend(figure, results)
    return figure


def _p_hat(results: Results) -> Figure | None:
    figure = _by_epoch(results, _P_HAT)
    bands = {run.band for run in results.all_runs()}
    if figure and len(bands) == 1 and (band := bands.pop()):
        for axes in figure.axes:
            axes.axhspan(*band, color=BAND, zorder=0, linewidth=0)
            axes.set_ylim(0, 1)
        label = f"target {band[0]:.3g} to {band[1]:.3g}"
        axes.legend(handles=[Patch(color=BAND, label=label)], loc="upper right")
    return figure


def _by_epoch(results: Results, panels: list[Panel], from_zero: bool = False) -> Figure | None:
    """Panels side by side; None if no run recorded any of them."""
    shown = [panel for panel in panels if panel[0] in results.metrics]
    if not shown:
        return None
    width = 7.2 if len(shown) == 1 else 3.9 * len(shown)
    figure = Figure(figsize=(width, 3.8), layout="constrained")
    row = figure.subplots(1, len(shown), squeeze=False)[0]
    for axes, (name, title, label) in zip(row, shown, strict=True):
        _lines(axes, results, name)
        axes.set_title(title)
        axes.set_ylabel(label)
        epoch_axis(axes)
        if from_zero:
            axes.set_ylim(bottom=0)
    _legend(figure, results)
    return figure


def shared_curve(runs: Iterable[Run], name: str) -> tuple[np.ndarray, np.ndarray]:
    """(steps (s,), values (runs, s)) of a metric, at the steps shared by all runs that recorded it."""
    found = [series for run in runs if (series := run.series(name))]
    steps = sorted(set.intersection(*map(set, found))) if found else []
    return np.array(steps), np.array([[s[step] for step in steps] for s in found])


def _lines(axes: Axes, results: Results, name: str) -> None:
    """Means over seeds by epoch; bars are 95 % intervals, shifted so that they do not overlap."""
    curves = {arm: shared_curve(runs.values(), name) for arm, runs in results.runs.items()}
    curves = {arm: curve for arm, curve in curves.items() if curve[0].size}
    for index, (arm, (steps, values)) in enumerate(curves.items()):
        style = arm_style(results, arm)
        axes.plot(steps, values.mean(axis=0), **style, zorder=3)
        band = statistics.bootstrap_interval(values, resamples=_RESAMPLES)
        if band is not None:
            shift = 0.36 * (2 * index + 1 - len(curves)) / (2 * len(curves))
            axes.vlines(steps + shift, *band, color=style["color"], alpha=0.35, linewidth=0.9)


# -- bars and differences --------------------------------------------------------------------------------


def _final(results: Results) -> Figure:
    metrics, arms = results.accuracies, list(results.runs)
    height = 0.55 + 0.24 * len(arms)
    figure, cells = _grid(
        len(metrics), 2 if len(metrics) <= 4 else 3, 3.8, (0.5, height), sharey=True
    )
    for metric, (axes, _, bottom) in zip(metrics, cells, strict=True):
        for place, arm in enumerate(arms):
            values = list(results.score(arm, f"final/{metric.key}").values())
            if not values:
                continue
            colour = arm_style(results, arm)["color"]
            axes.barh(place, np.mean(values), 0.72, color=colour, alpha=0.45, linewidth=0)
            interval = statistics.bootstrap_interval(values, resamples=results.suite.bootstrap)
            if interval is not None:
                axes.hlines(place, *interval, color="black", linewidth=1.2, zorder=4)
            axes.plot(values, [place] * len(values), "o", color=colour, markersize=2.5, zorder=3)
            start = np.mean(list(results.score(arm, f"start/{metric.key}").values()))
            axes.vlines(start, place - 0.36, place + 0.36, color=GREY, linewidth=1.2)
        axes.set_title(shown_in_figure(metric.title))
        axes.set_yticks(range(len(arms)), [shown_in_figure(arm) for arm in arms])
        axes.set_ylim(len(arms) - 0.5, -0.5)
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        if bottom:
            axes.set_xlabel(shown_in_figure(f"final {metric.name}"))
    return figure


def _contrasts(results: Results) -> Figure | None:
    main = main_contrasts(results)
    found = [*main, *exploratory_contrasts(results)]
    if not found:
        return None
    if len(main) < len(found) and len(found) > 14:  # all pairs of many arms would be unreadable
        found = main or found[:14]
    figure = Figure(figsize=(7.2, 0.9 + 0.36 * len(found)), layout="constrained")
    axes = figure.subplots()
    labels = []
    for place, c in enumerate(found):
        colour = COLOURS[0] if c.holm is not None else GREY
        axes.plot(c.differences, [place] * len(c.differences), "o", color=colour, alpha=0.4)
        if c.interval is not None:
            axes.hlines(place, *c.interval, color=colour, linewidth=2)
        axes.plot(c.test.mean, place, "D", color=colour, markersize=5)
        p = f"Holm p = {c.holm:.3g}" if c.holm is not None else f"p = {c.test.p:.3g}"
        labels.append(f"{shown_in_figure(c.first)} − {shown_in_figure(c.second)}\n{p}")
    axes.axvline(0, color="black", linewidth=0.7)
    axes.set_yticks(range(len(found)), labels)
    axes.set_ylim(len(found) - 0.5, -0.5)
    axes.set_xlabel("difference in AUC, same seed")
    axes.set_title(
        "Paired differences" + (" (main contrasts in blue)" if len(main) < len(found) else "")
    )
    return figure


# -- shared parts ----------------------------------------------------------------------------------------


def _grid(
    count: int, columns: int, width: float, height: tuple[float, float], **subplots: bool
) -> tuple[Figure, list[tuple[Axes, bool, bool]]]:
    """A figure with `count` cells, each (axes, whether leftmost in its row, whether lowest in its column).

    width: of a cell; height: of the margin and of a row; all in inches.
    """
    columns = min(columns, count)
    rows = math.ceil(count / columns)
    size = (max(4.4, width * columns), height[0] + height[1] * rows)
    figure = Figure(figsize=size, layout="constrained")
    cells = figure.subplots(rows, columns, squeeze=False, **subplots)
    for axes in cells.flat[count:]:
        axes.set_axis_off()
    places = enumerate(cells.flat[:count])
    return figure, [(axes, i % columns == 0, i + columns >= count) for i, axes in places]


def arm_style(results: Results, arm: str) -> dict[str, object]:
    """Colour, marker and line of an arm, by its place in the suite: the same in every figure."""
    index = list(results.suite.arms).index(arm)
    round_, place = divmod(index, len(ARM_COLOURS))
    return {
        "color": ARM_COLOURS[place],
        "marker": _MARKERS[(index + round_) % len(_MARKERS)],
        "linestyle": _DASHES[min(round_, len(_DASHES) - 1)],
    }


def _legend(figure: Figure, results: Results) -> None:
    styles = {shown_in_figure(arm): arm_style(results, arm) for arm in results.runs}
    handles = [Line2D([], [], label=label, **style) for label, style in styles.items()]
    legend_below(figure, handles)


def _cost_axis(axes: Axes, results: Results, label: bool = True) -> None:
    horizon = results.horizon
    if horizon >= 10_000:
        scale, unit = (1e6, "M") if horizon >= 2e6 else (1e3, "k")
        shown = FuncFormatter(lambda x, _: f"{x / scale:g}{unit}" if x else "0")
        axes.xaxis.set_major_formatter(shown)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.set_xlim(left=-0.02 * horizon)
    if label:
        axes.set_xlabel(COSTS[results.suite.cost])
