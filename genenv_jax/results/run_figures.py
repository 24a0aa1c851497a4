"""Draws a run's figures as PNG files: the panels, and further details.

reward       R_env against p̂, with the tasks of an early, a middle and a late epoch on the curve
pools        lines of D_train and D_env, by epoch
difficulty   difficulty of the accepted tasks and how much they differ, by epoch
strata       held-out score of each stratum of the first split, by epoch
"""

from __future__ import annotations

import collections
import functools
import os
import pathlib
from collections.abc import Callable

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import SubplotSpec

from genenv_jax.results.examples import attempted, shown_epochs
from genenv_jax.results.panels import PANELS
from genenv_jax.results.runs import P_HAT, Run, held_out, p_hat_of
from genenv_jax.results.style import (
    BAND,
    COLOURS,
    GREY,
    epoch_axis,
    save_figures,
)
from genenv_jax.results.untrusted import shown_in_figure
from genenv_jax.rl.rewards import curriculum_reward
from genenv_jax.run.jsonl import iter_jsonl
from genenv_jax.run.metrics import number

_STRATA = 12  # lines in a figure


def draw(run: Run, out_dir: str | os.PathLike[str]) -> dict[str, pathlib.Path]:
    """Writes the panels as PNG, together and one by one.

    Args:
      run: from `load_run`.
      out_dir: created if missing.

    Returns:
      Name to path: "report" (all six panels) and one figure for each panel ("p_hat", "accuracy",
      "learning", "solved", "validity", "lengths").  A panel without data shows "not recorded".
    """
    makers = {name: functools.partial(_one_panel, panel, run) for name, panel in PANELS.items()}
    return save_figures({"report": functools.partial(_all_panels, run)} | makers, out_dir)


def draw_details(run: Run, out_dir: str | os.PathLike[str]) -> dict[str, pathlib.Path]:
    """Writes the figures listed in this module's docstring as PNG; returns paths by name.

    Figures without data are skipped.

    Args:
      run: from `load_run`.
      out_dir: created if missing.
    Raises:
      ValueError: a pool's file is damaged; the message names it and the line.
    """
    makers = {"reward": _reward, "pools": _pools, "difficulty": _difficulty, "strata": _strata}
    return save_figures(
        {name: functools.partial(make, run) for name, make in makers.items()}, out_dir
    )


def _all_panels(run: Run) -> Figure:
    figure = Figure(figsize=(11, 6.2), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08)
    grid = figure.add_gridspec(2, 3)
    for index, panel in enumerate(PANELS.values()):
        axes = panel(figure, grid[index // 3, index % 3], run)
        axes.set_title(f"{chr(ord('a') + index)}  {axes.get_title('left')}", loc="left")
    return figure


def _one_panel(panel: Callable[[Figure, SubplotSpec, Run], Axes], run: Run) -> Figure:
    figure = Figure(figsize=(5.2, 3.4), layout="constrained")
    panel(figure, figure.add_gridspec(1, 1)[0], run)
    return figure


# -- details ---------------------------------------------------------------------------------------------


def _reward(run: Run) -> Figure | None:
    epochs = shown_epochs(run)
    if not epochs:
        return None
    figure = Figure(figsize=(3.4 * len(epochs) + 0.6, 3.3), layout="constrained")
    alpha, beta = (number(run.setting(f"curriculum.{name}")) for name in ("alpha", "beta"))
    grid = np.linspace(0, 1, 201)
    cells = figure.subplots(1, len(epochs), sharex=True, sharey=True, squeeze=False)[0]
    for epoch, axes in zip(epochs, cells, strict=True):
        if run.band is not None:
            axes.axvspan(
                *run.band, color=BAND, zorder=0, linewidth=0, label=r"$\alpha \pm k_{\min}$"
            )
        if alpha is not None and beta is not None:
            curve = curriculum_reward(grid, alpha, beta)
            axes.plot(grid, curve, color=GREY, linewidth=1, zorder=1, label=r"Eq. 3 at $\hat p$")
        # Many tasks share a point, since p̂ = k / n; its area shows how many.
        counts: dict[bool, collections.Counter[tuple[float, float]]] = {
            kept: collections.Counter() for kept in (False, True)
        }
        for task in attempted(run):
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
    cells[0].set_ylabel(r"$R_{env}$")
    # The same size for all legend markers, whatever the largest point is.
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
        epoch_axis(axes)
    return figure


def _lines_by_epoch(path: pathlib.Path) -> collections.Counter[int]:
    counts: collections.Counter[int] = collections.Counter()
    if path.is_file():
        for record in iter_jsonl(path):
            if (epoch := number(record.get("epoch"))) is not None:
                counts[int(epoch)] += 1
    return counts


def _difficulty(run: Run) -> Figure | None:
    panels = [
        ("generated/difficulty_mean", "Difficulty of the accepted tasks", "mean difficulty"),
        ("generated/difficulty_sd", "Spread of the difficulty", "SD over tasks"),
        ("generated/distinct_signatures", "Distinct signatures", "kinds of task per epoch"),
        ("generated/signature_entropy", "Entropy of signatures", "nats"),
    ]
    panels = [panel for panel in panels if run.series(panel[0])]
    if not panels:
        return None
    figure = Figure(figsize=(3.4 * len(panels) + 0.2, 3.0), layout="constrained")
    for axes, (name, title, label) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True
    ):
        series = run.series(name)
        axes.plot(list(series), list(series.values()), "o-", color=COLOURS[0])
        axes.set_title(title)
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
        epoch_axis(axes)
    return figure


def _strata(run: Run) -> Figure | None:
    found: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
    for split, mode, score in held_out(run):
        if score != "accuracy":
            found[split, mode].append(score)
    if not found:
        return None
    first = next(iter(found))[0]
    panels = {mode: names for (split, mode), names in found.items() if split == first}
    figure = Figure(figsize=(3.8 * len(panels) + 0.8, 3.2), layout="constrained")
    cells = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    palette = matplotlib.colormaps["viridis"]
    for axes, (mode, names) in zip(cells, panels.items(), strict=True):
        names = sorted(names, key=lambda name: (len(name), name))[:_STRATA]
        for index, name in enumerate(names):
            series = run.series(f"eval/{first}/{mode}/{name}")
            colour = palette(0.9 * index / max(1, len(names) - 1))
            label = shown_in_figure(name.replace("_", " "))
            axes.plot(list(series), list(series.values()), "o-", color=colour, label=label)
        axes.set_title(shown_in_figure(f"Held-out {first.replace('_', ' ')}, {mode}", 60))
        epoch_axis(axes)
    cells[0].set_ylabel("score")
    cells[0].set_ylim(bottom=0)
    figure.legend(*cells[0].get_legend_handles_labels(), loc="outside right center")
    return figure
