"""Writes the panels as PNG files, alone and together."""

from __future__ import annotations

import functools
import os
import pathlib
from collections.abc import Sequence

import matplotlib
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from genenv_jax.reporting.groups import Group, evaluations, group_runs
from genenv_jax.reporting.panels import PANELS, panel_accuracy
from genenv_jax.reporting.runs import Run
from genenv_jax.reporting.style import DPI, STYLE
from genenv_jax.reporting.untrusted import shown_in_figure


def draw(runs: Sequence[Run], out_dir: str | os.PathLike[str]) -> dict[str, pathlib.Path]:
    """Writes the figures as PNG.

    Args:
      runs: one or more runs.  Those that share a configuration but for the seed become one curve.
      out_dir: created where missing.

    Returns:
      Name to path: "report" (all six panels) and one figure for each panel ("p_hat", "accuracy",
      "learning", "solved", "validity", "lengths").  A panel without data says "not recorded".  Of
      several groups "accuracy" shows the greedy answers and "accuracy_sampled" the others.

    Raises:
      ValueError: no runs.
    """
    if not runs:
        raise ValueError("no runs to draw")
    groups = group_runs(runs)
    out = pathlib.Path(out_dir)
    out.mkdir(parents=True, exist_ok=True)
    panels = dict(PANELS)
    if len(groups) > 1:
        modes = list(dict.fromkeys(mode for _, mode in evaluations(runs)))
        panels |= {f"accuracy_{m}": functools.partial(panel_accuracy, mode=m) for m in modes[1:]}
    paths = {name: out / f"{name}.png" for name in ("report", *panels)}
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(11, 6.2), layout="constrained")
        figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08)
        grid = figure.add_gridspec(2, 3)
        for index, panel in enumerate(PANELS.values()):
            axes = panel(figure, grid[index // 3, index % 3], groups)
            axes.set_title(f"{chr(ord('a') + index)}  {axes.get_title('left')}", loc="left")
        _legend_of_groups(figure, groups)
        figure.savefig(paths["report"], dpi=DPI)
        for name, panel in panels.items():
            wide = name.startswith(("accuracy", "validity")) and len(groups) > 1
            figure = Figure(figsize=(7.2 if wide else 5.2, 3.4), layout="constrained")
            panel(figure, figure.add_gridspec(1, 1)[0], groups)
            _legend_of_groups(figure, groups)
            figure.savefig(paths[name], dpi=DPI)
    return paths


def _legend_of_groups(figure: Figure, groups: Sequence[Group]) -> None:
    """Names the colours, below the figure.  One group needs no colour, and one run no name."""
    if len(groups) == 1:
        if len(groups[0].runs) > 1:
            figure.suptitle(shown_in_figure(groups[0].label), fontsize=8.5)
        return
    handles = [
        Line2D([], [], color=g.colour, label=shown_in_figure(g.label), linewidth=3) for g in groups
    ]
    longest = max(len(handle.get_label()) for handle in handles)
    columns = max(1, min(len(groups), int(figure.get_figwidth() * 14 / (longest + 6))))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, fontsize=8)
