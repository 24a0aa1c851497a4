import numpy as np
import pytest
from matplotlib import image

from genenv_jax.results import figures
from genenv_jax.results.runs import load_run
from tests.results.synthetic import EPOCHS, REASONS, append, generation, hostile, run_of, write_run

OF_A_RUN = ("p_hat", "accuracy", "reward", "solved", "validity", "lengths", "diversity")


@pytest.fixture
def drawn(monkeypatch, tmp_path):
    """The figures of a run by name; to save time, they are not rendered."""
    made = {}
    monkeypatch.setattr(figures, "_write", lambda figure, path: made.update({path.stem: figure}))

    def draw(run):
        figures.draw_run(run, tmp_path)
        return made

    return draw


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_figures_are_written_and_hold_ink(reported):
    out, _ = reported
    assert {path.stem for path in out.glob("*.png")} == set(OF_A_RUN)
    for name in OF_A_RUN:
        assert np.mean(image.imread(out / f"{name}.png")[..., :3].min(axis=-1) < 0.9) > 0.01, name


def test_p_hat_has_mean_band_and_quartiles(run, drawn):
    figure = drawn(run)["p_hat"]
    (axes,) = figure.axes
    assert legend(figure) == ["target 0.4 to 0.6"]  # below the axes, where no curve is
    (line,) = axes.lines
    assert dict(zip(*line.get_data(), strict=True)) == run.series("generated/p_hat_mean")
    (band,) = axes.patches
    assert (band.get_y(), band.get_y() + band.get_height()) == pytest.approx((0.4, 0.6))
    for step, whisker in zip(range(1, EPOCHS + 1), axes.collections, strict=True):
        p_hats = [t["p_hat"] for t in run.tasks if t["epoch"] == step and t["p_hat"] is not None]
        (segment,) = whisker.get_segments()
        assert segment[:, 0].tolist() == [step, step]
        assert segment[:, 1] == pytest.approx(np.percentile(p_hats, [25, 75]))


def test_accuracy_has_a_line_for_each_split_and_mode(run, drawn):
    figure = drawn(run)["accuracy"]
    (axes,) = figure.axes
    lines = {(line.get_color(), line.get_linestyle()): line for line in axes.lines}
    assert len(lines) == len(axes.lines) == 6
    first = lines[figures.COLOURS[0], "--"].get_ydata().tolist()
    assert first == list(run.series("eval/in_distribution/sampled/accuracy").values())
    assert legend(figure) == ["in distribution", "deeper", "renamed", "greedy", "sampled"]


def test_rejections_stack_to_the_rejected_share(run, drawn):
    (axes,) = drawn(run)["validity"].axes
    tops = np.max([[bar.get_y() + bar.get_height() for bar in c] for c in axes.containers], axis=0)
    assert tops == pytest.approx(1 - np.array(list(run.series("generated/valid_share").values())))
    assert len(axes.containers) == len(REASONS)


def test_many_reasons_share_one_colour(drawn):
    reasons = {f"generated/rejected/reason_{i}": 10.0 - i for i in range(9)}
    figure = drawn(run_of(metrics={1: {"generated/count": 100.0, **reasons}}))["validity"]
    assert len(legend(figure)) == 7 and legend(figure)[-1] == "other"
    assert figure.axes[0].containers[-1][0].get_height() == pytest.approx((4 + 3 + 2) / 100)


def test_training_by_epoch_follows_the_run(run, drawn):
    found = drawn(run)
    axes = found["diversity"].axes
    assert axes[0].lines[0].get_ydata().tolist() == [step + 1.0 for step in range(1, EPOCHS + 1)]
    titles = [a.get_title("left") for a in found["reward"].axes]
    assert titles == ["Training reward", "Drift of the simulator"]


def test_what_was_asked_for_stands_against_what_was_delivered(drawn):
    """Of the last epochs; tasks that no prompt asked for, or that nobody attempted, are left out."""
    asked = lambda epoch, rate, p_hat: generation(  # noqa: E731
        epoch, 0, p_hat=p_hat, context_success_at="asked", context_success_rate=rate
    )
    tasks = [asked(9, 0.2, 0.1), asked(8, 0.2, 0.4), asked(9, 0.7, 0.8)]
    tasks += [asked(1, 0.7, 0.0), asked(9, 0.7, None)]
    run = run_of(*tasks, generation(9, 1, p_hat=0.5), metrics={9: {"generated/asked_correlation": 0.6}})
    left, right = drawn(run)["steering"].axes
    means = {float(x): float(y) for line in left.lines[:-1] for x, y in zip(*line.get_data(), strict=True)}
    assert means == pytest.approx({0.2: 0.25, 0.7: 0.8})
    assert left.get_title("left") == "Epochs 5 to 9 (n = 3)"
    assert right.lines[0].get_ydata().tolist() == [0.6]


def test_counts_have_whole_ticks_and_zeros_an_axis_from_zero(drawn):
    counts = ("generated/solved_all", "generated/solved_none")
    run = run_of(metrics={step: {counts[0]: 0.0, counts[1]: float(step)} for step in (1, 2)})
    zeros, few = drawn(run)["solved"].axes
    assert zeros.get_ylim() == (0, 1)
    for axes in (zeros, few):
        assert all(tick == int(tick) for tick in axes.get_yticks())


def test_one_epoch_has_one_tick(drawn):
    (axes,) = drawn(run_of(metrics={2: {"agent/reward_mean": 0.5}}))["reward"].axes
    low, high = axes.get_xlim()
    assert [tick for tick in axes.get_xticks() if low <= tick <= high] == [2]


@pytest.mark.parametrize(("labels", "columns"), [(3, 3), (4, 2), (7, 3)])
def test_a_legend_has_rows_of_about_equal_length(labels, columns):
    figure = figures.Figure(figsize=(5.2, 3))
    figures._legend_below(figure, [figures.Line2D([], [], label="an arm's name") for _ in range(labels)])
    assert figure.legends[0]._ncols == columns


def test_what_was_not_recorded_is_not_drawn_and_older_figures_go(tmp_path):
    for name in OF_A_RUN:
        (tmp_path / f"{name}.png").touch()
    (tmp_path / "steering.png").touch()
    assert figures.draw_run(run_of(workdir=tmp_path), tmp_path) == {}
    assert list(tmp_path.glob("*.png")) == []


def test_labels_cannot_break_the_figures(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "DPI", 30)
    workdir = write_run(tmp_path / ("_a$b$c x{^}_$" + 40 * "long"), epochs=1)
    rejected = {"generated/count": 4, "generated/rejected/$\\frac$\x07": 2}
    append(workdir, "metrics", {"step": 2, "eval/$x$/\\mode/accuracy": 0.5, **rejected})
    append(workdir, "metrics", {"step": 3, "eval/in_$/\\mode/$\\frac": 0.5})
    append(workdir, "tasks", hostile(generation(2, 0, p_hat=0.5), "task"))
    assert set(figures.draw_run(load_run(workdir), tmp_path / "out")) == set(OF_A_RUN)
