"""The suite's figures, by arm with intervals over seeds: what the paper's Figures 4 to 8 show, and more.

validation, validation_arms   held-out score against total rollouts
validation_splits             by epoch, each split and mode
reward                        the agent's training reward by epoch
p_hat                         success rate of the generated tasks by epoch, with the band
lengths                       of responses and of tasks
solved                        generated tasks that all attempts solve, or none
final                         bars of the final scores
contrasts                     paired differences, seed by seed
diversity                     of the generated tasks, where recorded
"""

from __future__ import annotations

import math
import pathlib
from collections.abc import Callable, Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from genenv_jax.experiments import statistics, tables
from genenv_jax.experiments.curves import DIVERSITY, Metric, Results, accuracies
from genenv_jax.reporting.groups import COLOURS
from genenv_jax.reporting.style import BAND, DPI, GREY, STYLE
from genenv_jax.reporting.untrusted import shown_in_figure

# The palette's yellow is too light for lines on white; grey takes its place as the eighth.
ARM_COLOURS = (*COLOURS, "#999999")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_DASHES = ("-", "--")  # of arms beyond the colours: the second round is dashed
_LIGHT = "#C8C8C8"
CAPTIONS = {
    "validation": "Held-out score against total rollouts, with those spent on scoring and rejection; "
    "means over seeds. On the right: 95 % intervals of the curves' ends.",
    "validation_arms": "The same, arm by arm: mean with its 95 % interval, its seeds as thin lines, and "
    "the other arms' means in grey.",
    "validation_splits": "Held-out score by epoch: every split and way of answering.",
    "reward": "Mean reward of the agent on its training tasks. It follows the tasks' difficulty, so a "
    "constant value is no sign that nothing is learned.",
    "p_hat": "Mean success rate p̂ of the generated tasks; grey: the band α ± k_min.",
    "lengths": "Mean length in tokens of the agent's responses and of the generated tasks.",
    "solved": "Generated tasks that all attempts solve, or that none solves: those without a gradient.",
    "final": "Final held-out scores with 95 % intervals; dots are seeds, the tick is the mean start.",
    "contrasts": "Paired differences in AUC: seeds as dots, mean with its 95 % bootstrap interval.",
    "diversity": "Diversity of the generated tasks.",
}


def draw(results: Results, out: pathlib.Path) -> dict[str, pathlib.Path]:
    """Writes the figures as PNG into `out`; name to path.  What no run recorded is not drawn."""
    out.mkdir(parents=True, exist_ok=True)
    makers: dict[str, Callable[[Results], Figure | None]] = {
        "validation": _validation,
        "validation_arms": _validation_arms,
        "contrasts": _contrasts,
        "final": _final,
        "validation_splits": _validation_splits,
        "reward": _reward,
        "p_hat": _p_hat,
        "lengths": _lengths,
        "solved": _solved,
        "diversity": _diversity,
    }
    paths = {}
    with matplotlib.rc_context(STYLE):
        for name, make in makers.items():
            path = out / f"{name}.png"
            figure = make(results)
            if figure is None:
                path.unlink(missing_ok=True)  # of an earlier report
                continue
            figure.savefig(path, dpi=DPI)
            paths[name] = path
    return paths


# -- by rollouts -----------------------------------------------------------------------------------------


def _validation(results: Results) -> Figure:
    """All arms' means, with the intervals of their ends beside the curves."""
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.subplots()
    arms = list(results.runs)
    for index, arm in enumerate(arms):
        grid, values = results.on_grid(arm, results.metric)
        mean = values.mean(axis=0)
        axes.plot(grid, mean, **_style(results, arm), markevery=(index, 12), zorder=3)
        band = statistics.bootstrap_band(values[:, -1:])
        if band is not None:
            low, high = band[:, 0]
            x = results.horizon * (1.02 + 0.09 * index / max(1, len(arms) - 1))
            colour = _style(results, arm)["color"]
            axes.vlines(x, low, high, color=colour, linewidth=1.3)
            axes.plot(x, mean[-1], "_", color=colour, markersize=4)
    if results.threshold is not None:
        axes.axhline(results.threshold, color=GREY, linewidth=0.8, linestyle=":", zorder=1)
        label = f" final score of {shown_in_figure(results.threshold_arm)}"
        axes.text(0, results.threshold, label, color=GREY, va="bottom", fontsize=7)
    axes.set_title(_scored(results))
    _rollouts_axis(axes, results.horizon)
    axes.set_xlim(right=results.horizon * 1.13)
    axes.set_ylabel(_score_name(results))
    _legend(figure, results)
    return figure


def _validation_arms(results: Results) -> Figure:
    arms = list(results.runs)
    columns = min(4, len(arms))
    rows = math.ceil(len(arms) / columns)
    figure = Figure(figsize=(max(3.6, 2.6 * columns), 0.5 + 2.1 * rows), layout="constrained")
    cells = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    means = {arm: results.on_grid(arm, results.metric)[1].mean(axis=0) for arm in arms}
    for index, axes in enumerate(cells.flat):
        if index >= len(arms):
            axes.set_axis_off()
            continue
        arm, colour = arms[index], _style(results, arms[index])["color"]
        grid, values = results.on_grid(arm, results.metric)
        for other in arms:
            if other != arm:
                axes.plot(grid, means[other], color=_LIGHT, linewidth=0.8, zorder=1)
        axes.plot(grid, values.T, color=colour, linewidth=0.5, alpha=0.5, zorder=2)
        band = statistics.bootstrap_band(values)
        if band is not None:
            axes.fill_between(grid, *band, color=colour, alpha=0.25, linewidth=0, zorder=2)
        axes.plot(grid, means[arm], color=colour, linewidth=1.8, zorder=3)
        axes.set_title(shown_in_figure(arm))
        _rollouts_axis(axes, results.horizon, label=index + columns >= len(arms))
        axes.tick_params(labelbottom=index + columns >= len(arms))
    for row in cells:
        row[0].set_ylabel(_score_name(results))
    return figure


# -- by epoch --------------------------------------------------------------------------------------------


def _validation_splits(results: Results) -> Figure:
    metrics = accuracies(results)
    columns = min(3, len(metrics))
    rows = math.ceil(len(metrics) / columns)
    figure = Figure(figsize=(max(4.4, 3.3 * columns), 0.6 + 2.3 * rows), layout="constrained")
    cells = figure.subplots(rows, columns, squeeze=False)
    for index, axes in enumerate(cells.flat):
        if index >= len(metrics):
            axes.set_axis_off()
            continue
        metric = metrics[index]
        _lines(axes, results, str(metric))
        axes.set_title(shown_in_figure(f"{metric.split.replace('_', ' ')}, {metric.mode}"))
        _epochs(axes, label=index + columns >= len(metrics))
        if index % columns == 0:
            axes.set_ylabel(shown_in_figure(metric.name))
    _legend(figure, results)
    return figure


def _reward(results: Results) -> Figure | None:
    return _by_epoch(results, [("agent/reward_mean", "Training reward", "mean reward")])


def _p_hat(results: Results) -> Figure | None:
    figure = _by_epoch(
        results,
        [
            ("generated/p_hat_mean", "Success rate p̂ of the generated tasks", "mean p̂"),
            (
                "generated/p_rerolled_mean",
                "Some of them, rolled out once more",
                "mean success rate",
            ),
        ],
    )
    bands = {run.band for run in results.all_runs()}
    if figure and len(bands) == 1 and (band := bands.pop()):
        for axes in figure.axes:
            axes.axhspan(*band, color=BAND, zorder=0, linewidth=0)
            axes.set_ylim(0, 1)
        label = f"target {band[0]:.3g} to {band[1]:.3g}"
        axes.legend(handles=[Patch(color=BAND, label=label)], loc="upper right")
    return figure


def _lengths(results: Results) -> Figure | None:
    return _by_epoch(
        results,
        [
            ("agent/response_length_mean", "Responses", "mean length (tokens)"),
            ("generated/task_length_mean", "Generated tasks", "mean length (tokens)"),
        ],
    )


def _solved(results: Results) -> Figure | None:
    return _by_epoch(
        results,
        [
            ("generated/solved_all", "Solved in all attempts", "tasks per epoch"),
            ("generated/solved_none", "Never solved", "tasks per epoch"),
            ("agent/zero_variance_share", "Training groups without variance", "share of tasks"),
        ],
        from_zero=True,
    )


def _diversity(results: Results) -> Figure | None:
    return _by_epoch(
        results,
        [(f"generated/{name}", title, axis) for name, (title, axis, _) in DIVERSITY.items()],
        from_zero=True,
    )


def _by_epoch(
    results: Results, panels: Sequence[tuple[str, str, str]], from_zero: bool = False
) -> Figure | None:
    """(metric, title, label of the axis) side by side; None where no run has any of them."""
    shown = [panel for panel in panels if panel[0] in results.metrics]
    if not shown:
        return None
    width = 7.2 if len(shown) == 1 else 3.9 * len(shown)
    figure = Figure(figsize=(width, 3.8), layout="constrained")
    for axes, (name, title, label) in zip(
        figure.subplots(1, len(shown), squeeze=False)[0], shown, strict=True
    ):
        _lines(axes, results, name)
        axes.set_title(title)
        axes.set_ylabel(label)
        _epochs(axes)
        if from_zero:
            axes.set_ylim(bottom=0)
    _legend(figure, results)
    return figure


def _lines(axes: Axes, results: Results, name: str) -> None:
    """Means over seeds by epoch; bars are 95 % intervals, set apart a little so that they can be told."""
    drawn = [arm for arm in results.runs if _by_step(results, arm, name)[0].size]
    for index, arm in enumerate(drawn):
        steps, values = _by_step(results, arm, name)
        style = _style(results, arm)
        shift = 0.36 * (2 * index + 1 - len(drawn)) / (2 * len(drawn))
        mean, band = values.mean(axis=0), statistics.bootstrap_band(values)
        axes.plot(steps, mean, **style, zorder=3)
        if band is not None:
            axes.vlines(steps + shift, *band, color=style["color"], alpha=0.35, linewidth=0.9)


def _by_step(results: Results, arm: str, name: str) -> tuple[np.ndarray, np.ndarray]:
    """(steps (s,), values (runs, s)): the steps that all runs that have the metric share."""
    found = [s for run in results.runs[arm].values() if (s := run.series(name))]
    steps = sorted(set.intersection(*map(set, found))) if found else []
    return np.array(steps), np.array([[s[step] for step in steps] for s in found])


# -- bars and differences --------------------------------------------------------------------------------


def _final(results: Results) -> Figure:
    metrics = accuracies(results)
    arms = list(results.runs)
    columns = min(2 if len(metrics) <= 4 else 3, len(metrics))
    rows = math.ceil(len(metrics) / columns)
    height = 0.5 + rows * (0.55 + 0.24 * len(arms))
    figure = Figure(figsize=(1.2 + 3.4 * columns, height), layout="constrained")
    cells = figure.subplots(rows, columns, sharey=True, squeeze=False)
    for index, axes in enumerate(cells.flat):
        if index >= len(metrics):
            axes.set_axis_off()
            continue
        metric = metrics[index]
        key = f"{metric.split}/{metric.mode}"
        for place, arm in enumerate(arms):
            values = list(results.score(arm, f"final/{key}").values())
            if not values:
                continue
            colour = _style(results, arm)["color"]
            axes.barh(place, np.mean(values), 0.72, color=colour, alpha=0.45, linewidth=0)
            interval = statistics.bootstrap_interval(values, resamples=results.bootstrap)
            if interval:
                axes.hlines(place, *interval, color="black", linewidth=1.2, zorder=4)
            axes.plot(values, [place] * len(values), "o", color=colour, markersize=2.5, zorder=3)
            start = np.mean(list(results.score(arm, f"start/{key}").values()))
            axes.vlines(start, place - 0.36, place + 0.36, color=GREY, linewidth=1.2)
        axes.set_title(shown_in_figure(f"{metric.split.replace('_', ' ')}, {metric.mode}"))
        axes.set_yticks(range(len(arms)), [shown_in_figure(arm) for arm in arms])
        axes.set_ylim(len(arms) - 0.5, -0.5)
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        if index + columns >= len(metrics):
            axes.set_xlabel(shown_in_figure(f"final {metric.name}"))
    return figure


def _contrasts(results: Results) -> Figure | None:
    main = tables.main_contrasts(results)
    found = [*main, *tables.exploratory_contrasts(results)]
    if not found:
        return None
    if len(main) < len(found) and len(found) > 14:  # every pair of many arms would be unreadable
        found = main or found[:14]
    figure = Figure(figsize=(7.2, 0.9 + 0.36 * len(found)), layout="constrained")
    axes = figure.subplots()
    labels = []
    for place, c in enumerate(found):
        colour = COLOURS[0] if c.holm is not None else GREY
        axes.plot(c.differences, [place] * len(c.differences), "o", color=colour, alpha=0.4)
        if c.interval:
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


# -- what they share -------------------------------------------------------------------------------------


def _style(results: Results, arm: str) -> dict[str, object]:
    """Colour, marker and line of an arm, by its place in the suite: the same in every figure."""
    index = results.arms.index(arm)
    round_, place = divmod(index, len(ARM_COLOURS))
    return {
        "color": ARM_COLOURS[place],
        "marker": _MARKERS[(index + round_) % len(_MARKERS)],
        "linestyle": _DASHES[min(round_, len(_DASHES) - 1)],
        "markeredgewidth": 0,
    }


def _legend(figure: Figure, results: Results) -> None:
    handles = [Line2D([], [], label=shown_in_figure(a), **_style(results, a)) for a in results.runs]
    longest = max(len(handle.get_label()) for handle in handles)
    columns = max(1, min(len(handles), int(figure.get_figwidth() * 13 / (longest + 7))))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, fontsize=7.5)


def _rollouts_axis(axes: Axes, horizon: float, label: bool = True) -> None:
    if horizon >= 10_000:
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x / 1000:g}k" if x else "0"))
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.set_xlim(left=-0.02 * horizon)
    if label:
        axes.set_xlabel("total rollouts")


def _epochs(axes: Axes, label: bool = True) -> None:
    axes.xaxis.set_major_locator(MaxNLocator(9, integer=True))
    axes.margins(x=0.04)
    if label:
        axes.set_xlabel("epoch")


def _scored(results: Results) -> str:
    metric = Metric.parse(results.metric)
    return shown_in_figure(f"Held-out {metric.split.replace('_', ' ')}, {metric.mode}", 60)


def _score_name(results: Results) -> str:
    return shown_in_figure(Metric.parse(results.metric).name)
