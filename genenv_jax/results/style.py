"""What all figures share: matplotlib's settings, colours, styles of reasons, axes, legends, files."""

from __future__ import annotations

import os
import pathlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

STYLE = {
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.titlelocation": "left",
    "axes.labelsize": 8,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 1.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "lines.linewidth": 1.5,
    "lines.markersize": 3.5,
    "lines.markeredgewidth": 0,
    "hatch.linewidth": 0.6,
}
DPI = 200  # of saved figures
# Okabe and Ito's palette, which is distinguishable under the common forms of colour blindness.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
GREY = "#666666"
BAND = "#E3E3E3"  # the target band
# A colour for each reason that all benchmarks share, the same in every run: blues and greens for unreadable
# texts, reds and yellows for wrong tasks, purples for copies, alternating between dark and light.
_REASON_COLOURS = {
    "unparsable": "#332288",
    "truncated": "#88CCEE",
    "empty": "#005A5A",
    "not_text": "#44AA99",
    "unfinished_thought": "#6699CC",
    "too_long": "#117733",
    "too_deep": "#AADB7A",
    "not_evaluated": "#557799",
    "bad_tools": "#7A4B00",
    "bad_answer": "#EE8866",
    "wrong_answer": "#CC3311",
    "not_executable": "#EEDD88",
    "not_asked": "#999933",
    "given_away": "#DDAA33",
    "duplicate": "#882255",
    "near_duplicate": "#DD99BB",
    "contaminated": "#AA4499",
    "verify_timeout": "#222222",
    "verify_crash": "#BBBBBB",
}
_OTHER_COLOURS = tuple(
    matplotlib.colors.to_hex(colour)
    for palette in ("tab20b", "tab20c")
    for colour in matplotlib.colormaps[palette].colors[:16]  # tab20c ends in greys
)


def save_figures(
    makers: Mapping[str, Callable[[], Figure | None]], out_dir: str | os.PathLike[str]
) -> dict[str, pathlib.Path]:
    """Writes the figures as PNG, and removes old files of those not made; returns paths by name."""
    out = pathlib.Path(out_dir)
    out.mkdir(parents=True, exist_ok=True)
    paths = {}
    with matplotlib.rc_context(STYLE):
        for name, make in makers.items():
            path, figure = out / f"{name}.png", make()
            if figure is None:
                path.unlink(missing_ok=True)
            else:
                figure.savefig(path, dpi=DPI)
                paths[name] = path
    return paths


def legend_below(figure: Figure, handles: Sequence[Line2D]) -> None:
    """A legend below all axes, in as many columns as fit."""
    longest = max(len(handle.get_label()) for handle in handles)
    columns = max(1, min(len(handles), int(figure.get_figwidth() * 14 / (longest + 6))))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, fontsize=8)


def epoch_axis(axes: Axes, ticks: int = 9, label: bool = True) -> None:
    """An x axis of epochs: whole numbers, at most `ticks` intervals."""
    axes.xaxis.set_major_locator(MaxNLocator(ticks, integer=True, steps=[1, 2, 5, 10]))
    axes.margins(x=0.04)
    if label:
        axes.set_xlabel("epoch")


def reason_style(reason: str) -> dict[str, Any]:
    """Colour and hatching of a rejection reason; they depend only on its name."""
    if reason in _REASON_COLOURS:
        return {"facecolor": _REASON_COLOURS[reason]}
    hatched, index = divmod(zlib.crc32(reason.encode("utf-8", "replace")), len(_OTHER_COLOURS))
    style = {"facecolor": _OTHER_COLOURS[index], "edgecolor": "white"}
    return style | ({"hatch": "////"} if hatched % 2 else {})
