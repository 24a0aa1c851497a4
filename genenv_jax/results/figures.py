"""The figures of a run and of a suite: by epoch, against cost, and as bars; `CAPTIONS` says what they show.

Both have the same figures of training by epoch, where a run is one line and an arm its seeds' mean with an
interval.  A figure without data is not drawn.
"""

import collections
import functools
import io
import math
import os
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter, MaxNLocator
from PIL import Image

from genenv_jax.benchmarks.success_record import ASKED
from genenv_jax.results import statistics
from genenv_jax.results.contrasts import exploratory_contrasts, main_contrasts
from genenv_jax.results.html import DPI
from genenv_jax.results.runs import P_HAT, Run, p_hat_of
from genenv_jax.results.suites import COSTS, DIVERSITY, Results
from genenv_jax.results.untrusted import shown_in_figure
from genenv_jax.run.metrics import number

STYLE = {
    "font.size": 8,  # of all text: see `html.width`
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.markersize": 3.5,
    "lines.markeredgewidth": 0,
}
# Okabe and Ito's palette, which is distinguishable under the common forms of colour blindness; its yellow is
# too light for lines on white, so a grey takes its place.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
GREY = "#666666"
_LIGHT = "#C8C8C8"
_BAND = "#E3E3E3"  # the target band
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_DASHES = ("-", "--")  # arms beyond the colours are dashed
_RESAMPLES = 2000  # per point of a curve
_LAST_EPOCHS = 5  # of tasks that were asked for
_SHOWN_REASONS = 6  # the others are drawn together
CAPTIONS = {
    "validation": "Mean held-out score over seeds against the cost of training, which includes "
    "rejected tasks. The bars on the right are 95 % intervals of the curves' ends.",
    "validation_arms": "One panel an arm: its mean with a 95 % interval, its seeds as thin lines, "
    "the other arms' means in grey.",
    "contrasts": "Differences in AUC between two arms, paired by seed: seeds as dots, their mean "
    "with its 95 % bootstrap interval.",
    "validation_splits": "Held-out score by epoch, for every split and mode of answering. Vertical "
    "lines: 95 % intervals over seeds.",
    "accuracy": "Accuracy on held-out tasks: splits by colour, modes by line (sampled: at "
    "temperature 1). Epoch 0 is before training.",
    "reward": "The agent's mean reward on its training tasks, and the simulator's KL to its start. "
    "The reward follows the difficulty of the tasks: an agent may learn while it stays the same.",
    "p_hat": f"Mean success rate {P_HAT} of the generated tasks. Grey: the target, curriculum.alpha ± "
    "k_min. Vertical lines: quartiles over the tasks of one run, or 95 % intervals over the seeds of an arm.",
    "solved": "Tasks that have no gradient, since all attempts solve them or none does.",
    "steering": "Tasks whose prompts asked for a success rate. Left: the rates of the last epochs' "
    "tasks (mean and quartiles) against the rates asked for. Right: their correlation, by epoch.",
    "validity": "Share of the generations that were rejected, by reason.",
    "lengths": "Mean length in tokens of the agent's responses and of the generated tasks.",
    "diversity": "Difficulty and diversity of the accepted tasks. A signature is the kind of a task "
    "without its numbers.",
}

Panel = tuple[str, str, str]  # metric, title, label of the axis
_BY_EPOCH: dict[str, list[Panel]] = {
    "reward": [
        ("agent/reward_mean", "Training reward", "mean reward"),
        ("simulator/kl_to_initial", "Drift of the simulator", "KL to its start (nats)"),
    ],
    "p_hat": [
        ("generated/p_hat_mean", f"Success rate {P_HAT} of the generated tasks", f"mean {P_HAT}"),
        ("generated/p_rerolled_mean", "Some of them, rolled out a second time", "mean success rate"),
    ],
    "solved": [
        ("generated/solved_all", "Solved in all attempts", "tasks per epoch"),
        ("generated/solved_none", "Never solved", "tasks per epoch"),
        ("agent/zero_variance_share", "Training groups without variance", "share of tasks"),
    ],
    "lengths": [
        ("agent/response_length_mean", "Responses", "mean length (tokens)"),
        ("generated/task_length_mean", "Generated tasks", "mean length (tokens)"),
    ],
    "diversity": [
        ("generated/difficulty_mean", "Difficulty of the accepted tasks", "mean difficulty"),
        *((f"generated/{name}", title, axis) for name, (title, axis) in DIVERSITY.items()),
    ],
}
_FROM_ZERO = ("solved", "diversity")

# Label to style of its lines, and its runs: one run, or the seeds of an arm.
Arms = Mapping[str, tuple[Mapping[str, Any], Sequence[Run]]]


def draw_run(run: Run, out: str | os.PathLike[str]) -> dict[str, pathlib.Path]:
    """Writes a run's figures as PNG into `out`, created if missing; returns paths by name."""
    arms: Arms = {run.name: ({"color": COLOURS[0], "marker": "o"}, [run])}
    own = {
        "accuracy": functools.partial(_accuracy, run),
        "steering": functools.partial(_steering, run),
        "validity": functools.partial(_validity, run),
    }
    order = ("p_hat", "steering", "accuracy", "reward", "solved", "validity", "lengths", "diversity")
    makers = own | _training(arms)
    return _save({name: makers[name] for name in order}, out)


def draw_suite(results: Results, out: str | os.PathLike[str]) -> dict[str, pathlib.Path]:
    """Writes a suite's figures as PNG into `out`, created if missing; returns paths by name."""
    arms: Arms = {arm: (arm_style(results, arm), list(runs.values())) for arm, runs in results.runs.items()}
    makers = {
        "validation": functools.partial(_validation, results, arms),
        "validation_arms": functools.partial(_validation_arms, results, arms),
        "contrasts": functools.partial(_contrasts, results),
        "validation_splits": functools.partial(_validation_splits, results, arms),
    }
    return _save(makers | _training(arms), out)


def _save(
    makers: Mapping[str, Callable[[], Figure | None]], out_dir: str | os.PathLike[str]
) -> dict[str, pathlib.Path]:
    """Writes the figures as PNG, and removes old files of those not made."""
    out = pathlib.Path(out_dir)
    out.mkdir(parents=True, exist_ok=True)
    paths = {}
    with matplotlib.rc_context(STYLE):
        for name, make in makers.items():
            path, figure = out / f"{name}.png", make()
            if figure is None:
                path.unlink(missing_ok=True)
            else:
                _write(figure, path)
                paths[name] = path
    return paths


def _write(figure: Figure, path: pathlib.Path) -> None:
    """Writes a PNG file with a palette, which has a third of the bytes, in pages and in notebooks."""
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=DPI)
    Image.open(drawn).convert("RGB").quantize(64, dither=Image.Dither.NONE).save(path, optimize=True)


# -- training, by epoch ----------------------------------------------------------------------------------


def _training(arms: Arms) -> dict[str, Callable[[], Figure | None]]:
    makers = {name: functools.partial(_by_epoch, arms, name) for name in _BY_EPOCH}
    return makers | {"p_hat": functools.partial(_p_hat, arms)}


def _by_epoch(arms: Arms, name: str, handles: Sequence[Any] = ()) -> Figure | None:
    """The panels of one figure; None if no run recorded any of them.  handles: more of its legend."""
    recorded = {
        metric for _, runs in arms.values() for run in runs for of in run.metrics.values() for metric in of
    }
    shown = [panel for panel in _BY_EPOCH[name] if panel[0] in recorded]
    if not shown:
        return None
    figure, cells = _grid(len(shown), 2, 3.6, (0.4, 2.8))
    for (metric, title, label), (axes, _, bottom) in zip(shown, cells, strict=True):
        _lines(axes, arms, metric)
        axes.set_title(title)
        axes.set_ylabel(label)
        _epoch_axis(axes, label=bottom)
        if name in _FROM_ZERO:
            axes.set_ylim(0, 1.05 * axes.dataLim.ymax or None)
        if label.endswith("per epoch"):
            axes.yaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10]))
    _legend(figure, arms, handles)
    return figure


def _p_hat(arms: Arms) -> Figure | None:
    runs = [run for _, of in arms.values() for run in of]
    bands = {run.band for run in runs}
    band = bands.pop() if len(bands) == 1 else None
    shown = [Patch(color=_BAND, label=f"target {band[0]:.3g} to {band[1]:.3g}")] if band else []
    figure = _by_epoch(arms, "p_hat", shown)
    if figure and band:
        for axes in figure.axes:
            axes.axhspan(*band, color=_BAND, zorder=0, linewidth=0)
            axes.set_ylim(0, 1)
    if figure and len(runs) == 1:
        values = collections.defaultdict(list)
        for task in runs[0].tasks:
            if (p_hat := p_hat_of(task)) is not None:
                values[task["epoch"]].append(p_hat)
        for step, of_epoch in values.items():
            quartiles = np.percentile(of_epoch, (25, 75))
            figure.axes[0].vlines(step, *quartiles, color=COLOURS[0], alpha=0.45, linewidth=1.2)
    return figure


def shared_curve(runs: Iterable[Run], name: str) -> tuple[np.ndarray, np.ndarray]:
    """(steps (s,), values (runs, s)) of a metric, at the steps shared by all runs that recorded it."""
    found = [series for run in runs if (series := run.series(name))]
    steps = sorted(set.intersection(*map(set, found))) if found else []
    return np.array(steps), np.array([[s[step] for step in steps] for s in found])


def _lines(axes: Axes, arms: Arms, name: str) -> None:
    """Means over seeds by epoch; bars are 95 % intervals, shifted so that they do not overlap."""
    curves = {arm: shared_curve(runs, name) for arm, (_, runs) in arms.items()}
    curves = {arm: curve for arm, curve in curves.items() if curve[0].size}
    for index, (arm, (steps, values)) in enumerate(curves.items()):
        style = arms[arm][0]
        axes.plot(steps, values.mean(axis=0), **style, zorder=3)
        band = statistics.bootstrap_interval(values, resamples=_RESAMPLES)
        if band is not None:
            shift = 0.36 * (2 * index + 1 - len(curves)) / (2 * len(curves))
            axes.vlines(steps + shift, *band, color=style["color"], alpha=0.35, linewidth=0.9)
    if axes.dataLim.ymax == 0:  # all zero
        axes.set_ylim(0, 1)


# -- of a run ----------------------------------------------------------------------------------------------


def _accuracy(run: Run) -> Figure | None:
    """Held-out accuracy, with a colour for each split and a line style for each mode."""
    found = run.accuracies
    if not found:
        return None
    figure, ((axes, _, _),) = _grid(1, 1, 5.2, (0.6, 2.8))
    splits, modes = (
        {of: i for i, of in enumerate(dict.fromkeys(names))}
        for names in ((m.split for m in found), (m.mode for m in found))
    )
    look = lambda split: {  # noqa: E731
        "color": COLOURS[splits[split] % len(COLOURS)],
        "marker": _MARKERS[splits[split] % len(_MARKERS)],
    }
    dash = lambda mode: ("-", "--", ":")[min(modes[mode], 2)]  # noqa: E731
    for metric in found:
        series = run.series(str(metric))
        axes.plot(*zip(*series.items(), strict=True), linestyle=dash(metric.mode), **look(metric.split))
    sizes = {metric.split: run.sizes.get(str(metric)) for metric in found}
    labels = {s: s.replace("_", " ") + (f" (n = {sizes[s]:,.0f})" if sizes[s] else "") for s in splits}
    handles = [
        *(Line2D([], [], label=shown_in_figure(labels[s]), **look(s)) for s in splits),
        *(Line2D([], [], label=shown_in_figure(m), color=GREY, linestyle=dash(m)) for m in modes),
    ]
    axes.set_title("Held-out accuracy")
    axes.set_ylabel("accuracy")
    _epoch_axis(axes)
    _legend_below(figure, handles)
    return figure


def _steering(run: Run) -> Figure | None:
    """Success rates that the simulator was asked for, and those of the tasks that it wrote."""
    delivered = collections.defaultdict(list)
    asked = [task for task in run.tasks if task.get("context_success_at") == ASKED]
    last = max((task["epoch"] for task in asked), default=0)
    for task in asked:
        rate, p_hat = number(task.get("context_success_rate")), p_hat_of(task)
        if rate is not None and p_hat is not None and task["epoch"] > last - _LAST_EPOCHS:
            delivered[rate].append(p_hat)
    if not delivered:
        return None
    figure, ((left, _, _), (right, _, _)) = _grid(2, 2, 3.6, (0.4, 2.8))
    for rate, p_hats in sorted(delivered.items()):
        left.vlines(rate, *np.percentile(p_hats, (25, 75)), color=COLOURS[0], alpha=0.45, linewidth=1.2)
        left.plot(rate, np.mean(p_hats), "o", color=COLOURS[0])
    left.plot((0, 1), (0, 1), color=GREY, linestyle=":", linewidth=0.8)
    left.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), xlabel="success rate asked for", ylabel=P_HAT)
    left.set_title(
        f"Epochs {max(1, last - _LAST_EPOCHS + 1)} to {last} (n = {sum(map(len, delivered.values()))})"
    )
    _lines(right, {run.name: ({"color": COLOURS[0], "marker": "o"}, [run])}, "generated/asked_correlation")
    right.axhline(0, color=GREY, linestyle=":", linewidth=0.8)
    right.set(ylim=(-1, 1), ylabel="correlation", title="Asked for and delivered")
    _epoch_axis(right)
    return figure


def _validity(run: Run) -> Figure | None:
    """Share of the generations that were rejected, by reason."""
    counts, prefix = run.series("generated/count"), "generated/rejected/"
    if not counts:
        return None
    shares = collections.defaultdict(lambda: np.zeros(len(counts)))
    for place, (step, count) in enumerate(counts.items()):
        for name, value in run.metrics[step].items():
            if name.startswith(prefix) and value:
                shares[name.removeprefix(prefix)][place] = value / max(count, 1)
    ranked = sorted(shares, key=lambda reason: (-shares[reason].sum(), reason))
    layers = [(reason.replace("_", " "), shares[reason]) for reason in ranked[:_SHOWN_REASONS]]
    if others := ranked[_SHOWN_REASONS:]:
        layers.append(("other", sum(shares[reason] for reason in others)))
    figure, ((axes, _, _),) = _grid(1, 1, 5.2, (0.6, 2.8))
    bottom = np.zeros(len(counts))
    for (reason, height), colour in zip(layers, (*COLOURS[:_SHOWN_REASONS], GREY), strict=False):
        label = shown_in_figure(reason)
        axes.bar(list(counts), height, 0.8, bottom, color=colour, linewidth=0, label=label)
        bottom += height
    axes.set_title("Rejected generations by reason" if layers else "No generation was rejected")
    each = set(counts.values())
    axes.set_ylabel("share of generations" + (f" (n = {each.pop():,.0f})" if len(each) == 1 else ""))
    _epoch_axis(axes)
    if layers:
        _legend_below(figure, axes.get_legend_handles_labels()[0])
    return figure


# -- of a suite: held-out scores ---------------------------------------------------------------------------


def _validation(results: Results, arms: Arms) -> Figure:
    """The means of all arms, with the intervals of their end points beside the curves."""
    figure, ((axes, _, _),) = _grid(1, 1, 7.2, (0.6, 3.6))
    for index, (arm, (style, _)) in enumerate(arms.items()):
        grid, values = results.on_grid(arm)
        mean = values.mean(axis=0)
        axes.plot(grid, mean, **style, markevery=(index, 12), zorder=3)
        interval = statistics.bootstrap_interval(values[:, -1], resamples=_RESAMPLES)
        if interval is not None:
            x = results.horizon * (1.02 + 0.09 * index / max(1, len(arms) - 1))
            axes.vlines(x, *interval, color=style["color"], linewidth=1.3)
            axes.plot(x, mean[-1], "_", color=style["color"], markersize=4)
    axes.set_title(shown_in_figure(f"Held-out {results.primary.title}", 60))
    _cost_axis(axes, results)
    axes.set_xlim(right=results.horizon * 1.13)
    axes.set_ylabel(shown_in_figure(results.primary.name.replace("_", " ")))
    _legend(figure, arms)
    return figure


def _validation_arms(results: Results, arms: Arms) -> Figure:
    figure, cells = _grid(len(arms), 4, 2.6, (0.5, 2.1), sharex=True, sharey=True)
    means = {arm: results.on_grid(arm)[1].mean(axis=0) for arm in arms}
    for (arm, (style, _)), (axes, left, bottom) in zip(arms.items(), cells, strict=True):
        colour = style["color"]
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


def _validation_splits(results: Results, arms: Arms) -> Figure:
    figure, cells = _grid(len(results.accuracies), 3, 3.3, (0.6, 2.3))
    for metric, (axes, left, bottom) in zip(results.accuracies, cells, strict=True):
        _lines(axes, arms, str(metric))
        axes.set_title(shown_in_figure(metric.title))
        _epoch_axis(axes, label=bottom)
        if left:
            axes.set_ylabel(shown_in_figure(metric.name))
    _legend(figure, arms)
    return figure


def _contrasts(results: Results) -> Figure | None:
    main = main_contrasts(results)
    found = [*main, *exploratory_contrasts(results)]
    if not found:
        return None
    if len(main) < len(found) and len(found) > 14:  # all pairs of many arms would be unreadable
        found = main or found[:14]
    figure, ((axes, _, _),) = _grid(1, 1, 7.2, (0.9, 0.36 * len(found)))
    labels = []
    for place, c in enumerate(found):
        colour = COLOURS[0] if c.holm is not None else GREY
        axes.plot(c.differences, [place] * len(c.differences), "o", color=colour, alpha=0.4)
        if c.interval is not None:
            axes.hlines(place, *c.interval, color=colour, linewidth=2)
        axes.plot(c.mean, place, "D", color=colour, markersize=5)
        p = f"Holm p = {c.holm:.3g}" if c.holm is not None else f"p = {c.p:.3g}"
        labels.append(f"{shown_in_figure(c.first)} − {shown_in_figure(c.second)}\n{p}")
    axes.axvline(0, color="black", linewidth=0.7)
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)  # the first one on top
    axes.set_xlabel("difference in AUC, same seed")
    axes.set_title("Paired differences" + (" (main contrasts in blue)" if len(main) < len(found) else ""))
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
    size = (max(5.2, width * columns), height[0] + height[1] * rows)
    figure = Figure(figsize=size, layout="constrained")
    cells = figure.subplots(rows, columns, squeeze=False, **subplots)
    for axes in cells.flat[count:]:
        axes.remove()
    places = enumerate(cells.flat[:count])
    return figure, [(axes, i % columns == 0, i + columns >= count) for i, axes in places]


def arm_style(results: Results, arm: str) -> dict[str, Any]:
    """Colour, marker and line of an arm, by its place in the suite: the same in every figure."""
    index = list(results.suite.arms).index(arm)
    round_, place = divmod(index, len(COLOURS))
    return {
        "color": COLOURS[place],
        "marker": _MARKERS[(index + round_) % len(_MARKERS)],
        "linestyle": _DASHES[min(round_, len(_DASHES) - 1)],
    }


def _legend(figure: Figure, arms: Arms, more: Sequence[Any] = ()) -> None:
    """The arms, if there are several, and more."""
    lines = [Line2D([], [], label=shown_in_figure(a), **arms[a][0]) for a in arms if len(arms) > 1]
    if handles := [*lines, *more]:
        _legend_below(figure, handles)


def _legend_below(figure: Figure, handles: Sequence[Any]) -> None:
    """A legend below all axes, in as many columns as fit."""
    longest = max(len(handle.get_label()) for handle in handles)
    most = max(1, int(figure.get_figwidth() * 14 / (longest + 6)))
    columns = math.ceil(len(handles) / math.ceil(len(handles) / most))  # rows of about equal length
    figure.legend(handles=handles, loc="outside lower center", ncols=columns)


def _epoch_axis(axes: Axes, label: bool = True) -> None:
    axes.xaxis.set_major_locator(MaxNLocator(9, integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))
    if label:
        axes.set_xlabel("epoch")


def _cost_axis(axes: Axes, results: Results, label: bool = True) -> None:
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.set_xlim(left=-0.02 * results.horizon)
    if label:
        axes.set_xlabel(COSTS[results.suite.cost])
