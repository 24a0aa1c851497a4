"""What all figures have in common: matplotlib's settings, colours, the axis of epochs."""

from __future__ import annotations

from matplotlib.axes import Axes
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
    "hatch.linewidth": 0.6,
}
DPI = 200  # of saved figures
# Okabe and Ito's palette, which the common forms of colour blindness tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
GREY = "#666666"
BAND = "#E3E3E3"  # of the target band


def epoch_axis(axes: Axes, ticks: int = 9, label: bool = True) -> None:
    """An x axis of epochs: whole numbers, at most `ticks` intervals."""
    axes.xaxis.set_major_locator(MaxNLocator(ticks, integer=True))
    axes.margins(x=0.04)
    if label:
        axes.set_xlabel("epoch")
