"""The figures that are written."""

import numpy as np
import pytest
from matplotlib import image

from genenv_jax.results import run_figures, style
from genenv_jax.results.runs import load_run
from tests.results.synthetic import EPOCHS, append, generation, hostile, run_of, write_run

PANELS = ("report", "p_hat", "accuracy", "learning", "solved", "validity", "lengths")


def test_panels_are_written_and_hold_ink(reported):
    out, _ = reported
    assert {path.stem for path in out.glob("*.png")} == set(PANELS)
    for name in PANELS:
        pixels = image.imread(out / f"{name}.png")[..., :3]
        assert pixels.shape[:2] == ((1240, 2200) if name == "report" else (680, 1040))
        assert np.mean(pixels.min(axis=-1) < 0.9) > 0.01, name


def test_details_follow_the_run(run, saved, tmp_path):
    assert list(run_figures.draw_details(run, tmp_path)) == [
        *("reward", "pools", "difficulty", "strata")
    ]
    epochs = np.arange(1, EPOCHS + 1)
    for axes, lines in zip(saved["pools"].axes, (epochs, 2 + 0 * epochs), strict=True):
        before, new = ([bar.get_height() for bar in bars] for bars in axes.containers)
        assert new == lines.tolist()
        assert before == (np.cumsum(lines) - lines).tolist()
    mean = saved["difficulty"].axes[0].lines[0]
    assert mean.get_ydata().tolist() == (epochs + 1.0).tolist()
    greedy, _sampled = saved["strata"].axes
    assert greedy.lines[0].get_ydata().tolist() == list(
        run.series("eval/in_distribution/greedy/depth_2").values()
    )


def test_reward_has_the_tasks_of_an_epoch_on_equation_3(saved, tmp_path):
    tasks = [generation(1, k, p_hat=k / 10) for k in range(11)]
    tasks += [generation(1, 11, p_hat=0.5)]
    curriculum = {"alpha": 0.5, "k_min": 0.1, "beta": 2.0}
    run_figures.draw_details(run_of(*tasks, config={"curriculum": curriculum}), tmp_path)
    (axes,) = saved["reward"].axes
    (curve,) = axes.lines
    p = np.asarray(curve.get_xdata())
    assert curve.get_ydata() == pytest.approx(np.exp(-2 * (p - 0.5) ** 2))
    filtered, updated = axes.collections
    assert updated.get_offsets()[:, 0].tolist() == [0.4, 0.5, 0.6]
    assert updated.get_sizes().tolist() == [6, 12, 6]  # two tasks share a point
    assert len(filtered.get_offsets()) == 8


def test_details_that_were_not_recorded_are_not_drawn_and_older_figures_go(tmp_path):
    for name in ("reward", "pools", "difficulty", "strata"):
        (tmp_path / f"{name}.png").touch()
    assert run_figures.draw_details(run_of(workdir=tmp_path), tmp_path) == {}
    assert list(tmp_path.glob("*.png")) == []


def test_a_damaged_pool_is_named(tmp_path):
    (tmp_path / "d_env.jsonl").write_text("no json\n")
    with pytest.raises(ValueError, match=r"d_env\.jsonl:1"):
        run_figures.draw_details(run_of(workdir=tmp_path), tmp_path)


def test_labels_cannot_break_the_figures(tmp_path, monkeypatch):
    monkeypatch.setattr(style, "DPI", 30)
    workdir = write_run(tmp_path / ("_a$b$c x{^}_$" + 40 * "long"), epochs=1)
    rejected = {"generated/count": 4, "generated/rejected/$\\frac$\x07": 2}
    append(workdir, "metrics", {"step": 2, "eval/$x$/\\mode/accuracy": 0.5, **rejected})
    append(workdir, "metrics", {"step": 3, "eval/in_$/\\mode/$\\frac": 0.5})
    append(workdir, "tasks", hostile(generation(2, 0, p_hat=0.5), "task"))
    run = load_run(workdir)
    assert set(run_figures.draw(run, tmp_path / "panels")) == set(PANELS)
    assert len(run_figures.draw_details(run, tmp_path / "details")) == 4
