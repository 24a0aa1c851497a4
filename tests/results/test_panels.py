"""What the six panels show."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from genenv_jax.benchmarks import task
from genenv_jax.results import panels
from genenv_jax.results.style import COLOURS, reason_style
from tests.results.synthetic import EPOCHS, REASONS, run_of


def axes_of(panel, run):
    """The axes that one panel draws."""
    figure = Figure()
    panel(figure, figure.add_gridspec(1, 1)[0], run)
    return figure.axes


def legend(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_p_hat_has_mean_band_and_quartiles(run):
    (axes,) = axes_of(panels.panel_p_hat, run)
    (line,) = [line for line in axes.lines if len(line.get_xdata())]
    assert dict(zip(*line.get_data(), strict=True)) == run.series("generated/p_hat_mean")
    (band,) = axes.patches
    assert (band.get_y(), band.get_y() + band.get_height()) == pytest.approx((0.4, 0.6))
    (whiskers,) = axes.collections
    for step, segment in zip(range(1, EPOCHS + 1), whiskers.get_segments(), strict=True):
        p_hats = [t["p_hat"] for t in run.tasks if t["epoch"] == step and t["p_hat"] is not None]
        assert segment[:, 0].tolist() == [step, step]
        assert segment[:, 1] == pytest.approx(np.percentile(p_hats, [25, 75]))


def test_accuracy_has_a_line_for_each_split_and_mode(run):
    (axes,) = axes_of(panels.panel_accuracy, run)
    drawn = {(line.get_color(), line.get_linestyle()): line for line in axes.lines}
    assert len(drawn) == len(axes.lines) == 6
    first = drawn[COLOURS[0], "--"].get_ydata().tolist()
    assert first == list(run.series("eval/in_distribution/sampled/accuracy").values())
    assert legend(axes) == ["in distribution", "deeper", "renamed", "greedy", "sampled"]


def test_rejections_stack_to_the_rejected_share(run):
    (axes,) = axes_of(panels.panel_validity, run)
    tops = np.max([[bar.get_y() + bar.get_height() for bar in c] for c in axes.containers], axis=0)
    valid = np.array(list(run.series("generated/valid_share").values()))
    assert tops == pytest.approx(1 - valid)
    assert len(axes.containers) == len(REASONS)


def test_many_reasons_share_one_colour():
    reasons = {f"generated/rejected/reason_{i}": 10.0 - i for i in range(9)}
    (axes,) = axes_of(
        panels.panel_validity, run_of(metrics={1: {"generated/count": 100.0, **reasons}})
    )
    assert len(legend(axes)) == 7 and legend(axes)[0] == "other"
    assert axes.containers[-1][0].get_height() == pytest.approx((4 + 3 + 2) / 100)


def test_a_reason_looks_the_same_in_every_run():
    def colours(**counts):
        rejected = {f"generated/rejected/{name}": n for name, n in counts.items()}
        (axes,) = axes_of(
            panels.panel_validity, run_of(metrics={1: {"generated/count": 9.0, **rejected}})
        )
        handles = axes.get_legend().legend_handles
        return {h.get_label(): (h.get_facecolor(), h.get_hatch()) for h in handles}

    first = colours(empty=3.0, duplicate=2.0, own_reason=1.0)
    second = colours(own_reason=4.0, too_long=3.0, duplicate=1.0)
    assert len(set(first.values())) == 3 == len(set(second.values()))
    for label in ("duplicate", "own reason"):
        assert first[label] == second[label]


def test_reasons_that_all_benchmarks_share_are_told_apart():
    shared = {
        value for name, value in vars(task).items() if name.isupper() and isinstance(value, str)
    } - {task.GROUNDED, task.UNDECIDED, task.ENVIRONMENT_ERROR, task.TOOLS, *task.LIMITS}
    styles = {reason_style(reason)["facecolor"] for reason in shared}
    assert len(styles) == len(shared) == 17


@pytest.mark.parametrize("name", panels.PANELS)
def test_what_was_not_recorded(name):
    texts = [t.get_text() for axes in axes_of(panels.PANELS[name], run_of()) for t in axes.texts]
    assert texts and all(text.endswith("not recorded") for text in texts)
