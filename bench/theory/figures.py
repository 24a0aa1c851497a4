"""The two figures of `bench.theory`, drawn from theory.json."""

from __future__ import annotations

import math
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from genenv_jax.report.style import BAND, COLOURS, DPI, GREY, STYLE

_FLOOR = 1e-5  # rates below are drawn there

_PANELS = (
    ("squared_gradient", r"a  $E\|g\|^2$ of one rollout, baseline $p$", r"$E\|g\|^2$"),
    ("normalised", r"b  the same, in units of $E\|\nabla\log\pi\|^2$", "ratio"),
    ("signal", r"c  signal $\|\nabla p\|^2$, without noise", r"$\|\nabla p\|^2$"),
)


def draw_proposition(result: Mapping[str, Any], path: str | os.PathLike[str]) -> pathlib.Path:
    """Points (tasks), binned means with intervals and fitted curves against p.

    result: the part "proposition1" of theory.json.
    """
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(11, 3.5), layout="constrained")
        for axes, (name, title, unit) in zip(figure.subplots(1, 3), _PANELS, strict=True):
            axes.set_title(title)
            axes.set_xlabel("success rate $p$ of the task (from other rollouts)")
            axes.set_ylabel(unit)
            axes.set_xlim(-0.02, 1.02)
            _proposition_panel(axes, result, name)
        figure.savefig(path, dpi=DPI)
    return pathlib.Path(path)


def _proposition_panel(axes: Axes, result: Mapping[str, Any], name: str) -> None:
    tasks, summary = result["tasks"], result["summaries"][name]
    p = np.array([task["p"] for task in tasks])
    values = np.array([task[name] for task in tasks])
    grid = np.linspace(0, 1, 201)
    curve = grid * (1 - grid)
    axes.scatter(p, values, s=7, color=GREY, alpha=0.45, linewidths=0, label="a task")
    fit = summary["fit"]
    if name == "normalised":
        label = r"$p(1-p)$: $\|\nabla\log\pi\|$ the same for all"
        axes.plot(grid, curve, color=COLOURS[0], label=label)
        label = r"$p^2$: only failures surprise"
        axes.plot(grid, grid**2, color=COLOURS[4], linestyle="--", linewidth=1, label=label)
    elif fit:
        low, high = fit["c_interval"]
        label = rf"$c\,p(1-p)$, $c$ = {fit['c']:.3g} [{low:.3g}, {high:.3g}]"
        axes.plot(grid, fit["c"] * curve, color=COLOURS[0], label=label)
        if name == "signal":
            other, label = fit["square_c"] * curve**2, r"$c\,(p(1-p))^2$"
        else:
            other = curve * ((1 - grid) * fit["s1"] + grid * fit["s0"])
            low, high = fit["peak_interval"]
            label = rf"$p(1-p)[(1-p)S_1+pS_0]$, peak {fit['peak']:.2f} [{low:.2f}, {high:.2f}]"
        axes.plot(grid, other, color=COLOURS[4], linestyle="--", linewidth=1, label=label)
    else:
        axes.text(
            0.5,
            0.5,
            "too few tasks that are solved sometimes",
            ha="center",
            color=GREY,
            transform=axes.transAxes,
        )
    bins = summary["bins"]
    for item in bins:
        if item["interval"]:
            axes.vlines(item["p"], *item["interval"], color=COLOURS[1], linewidth=1.4, zorder=3)
    axes.plot(
        [item["p"] for item in bins],
        [item["mean"] for item in bins],
        "o",
        color=COLOURS[1],
        markersize=4,
        zorder=4,
        label="mean of a range of $p$, 95 %",
    )
    shown = [item["interval"][1] if item["interval"] else item["mean"] for item in bins]
    shown += [fit["c"] / 4] if fit else []
    # A few tasks far above the others would press the rest flat: the axis says how many it leaves out.
    top = 1.25 * max([*shown, float(np.percentile(values, 95))], default=1.0)
    bottom = min(0.0, float(np.percentile(values, 1)))
    if top > bottom:
        axes.set_ylim(1.1 * bottom, top * 1.45)  # room for the legend
        outside = int(((values > top * 1.45) | (values < 1.1 * bottom)).sum())
        if outside:
            axes.annotate(
                f"{outside} of {len(values)} tasks outside",
                (0.99, 0.5),
                ha="right",
                xycoords="axes fraction",
                fontsize=6.5,
                color=GREY,
            )
    axes.legend(loc="upper left", handlelength=1.6)


def draw_theorem(result: Mapping[str, Any], path: str | os.PathLike[str]) -> pathlib.Path:
    """One panel a pair of tasks: mis-ranking rates against n, exact, measured, and the bounds.

    result: the part "theorem1" of theory.json.
    """
    pairs = result["pairs"]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(max(3.0 * len(pairs), 5) + 0.4, 3.6), layout="constrained")
        grid = figure.subplots(1, max(len(pairs), 1), sharey=True, squeeze=False)[0]
        if not pairs:
            grid[0].set_axis_off()
            grid[0].text(0.5, 0.5, "no two tasks far enough apart", ha="center", color=GREY)
        for axes, pair in zip(grid, pairs, strict=False):
            _pair_panel(axes, pair)
        if pairs:
            grid[0].set_ylabel(r"$\Pr[R_{env}(\hat p_1) \leq R_{env}(\hat p_2)]$")
            handles, labels = grid[0].get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside lower center", ncols=len(handles))
        figure.savefig(path, dpi=DPI)
    return pathlib.Path(path)


def _pair_panel(axes: Axes, pair: Mapping[str, Any]) -> None:
    rows: Sequence[Mapping[str, Any]] = pair["by_n"]
    n = np.array([row["n"] for row in rows])

    def drawn(values) -> np.ndarray:
        return np.maximum(np.array(values, float), _FLOOR)

    axes.axhspan(1, 8, color=BAND, linewidth=0, zorder=0)
    axes.text(n[-1], 1.9, "vacuous", ha="right", fontsize=6.5, color=GREY)
    axes.plot(
        n,
        [row["bound"] for row in rows],
        color=COLOURS[1],
        label=r"Theorem 1: $4\,e^{-\frac{2}{9}(\Delta_2-\Delta_1)^2 n}$",
    )
    axes.plot(
        n,
        [row["half_gap_bound"] for row in rows],
        color=COLOURS[1],
        linestyle=":",
        label=r"same argument, halves: $4\,e^{-\frac{1}{2}(\Delta_2-\Delta_1)^2 n}$",
    )
    axes.plot(n, [row["exact"] for row in rows], color=COLOURS[0], label="exact binomial")
    band = [row for row in rows if row["exact_interval"]]
    axes.fill_between(
        [row["n"] for row in band],
        drawn([row["exact_interval"][0] for row in band]),
        drawn([row["exact_interval"][1] for row in band]),
        color=COLOURS[0],
        alpha=0.18,
        linewidth=0,
        label="as $p_1, p_2$ are known, 95 %",
    )
    for row in rows:
        measured = row["measured"]
        if not measured:
            continue
        ends, colour = drawn(measured["interval"]), COLOURS[2]
        if measured["mistakes"]:
            axes.vlines(row["n"], *ends, color=colour, linewidth=1.3)
        else:  # a rate of 0 has no place on the axis: the interval's upper end, pointing down
            axes.vlines(row["n"], *ends, color=colour, linewidth=0.5)
            axes.plot(row["n"], ends[1], "v", color=colour, markersize=4, markerfacecolor="white")
    seen = [row for row in rows if row["measured"] and row["measured"]["mistakes"]]
    axes.plot(
        [row["n"] for row in seen],
        drawn([row["measured"]["rate"] for row in seen]),
        "o",
        color=COLOURS[2],
        markersize=4,
        label="measured, 95 % (▽: no mistake seen)",
    )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_ylim(_FLOOR, 8)
    ticks = [2**i for i in range(1, 1 + math.floor(math.log2(n[-1])), 2)]
    axes.set_xticks(ticks, [str(t) for t in ticks])
    axes.set_xlabel("rollouts $n$ of each task")
    axes.set_title(
        rf"$p_1$ = {pair['p1']:.2f}, $p_2$ = {pair['p2']:.2f}, gap {pair['gap']:.2f}"
        f"\ninformative from n = {pair['informative_from']}"
    )
