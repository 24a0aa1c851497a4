"""From finished runs to tables, figures and the page: what is read, reckoned, left out and said."""

import csv
import dataclasses
import json
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
from matplotlib import image as matplotlib_image

from genenv_jax.experiments import figures, statistics, tables
from genenv_jax.experiments.curves import (
    Metric,
    accuracies,
    curve,
    load_results,
    run_scores,
    strata,
)
from genenv_jax.experiments.page import facts, write_report
from genenv_jax.experiments.suite import (
    compare_or_store,
    default_suite,
    load_config,
    make_plan,
    run_dir,
)
from tests.experiments.fake_main import write_lines, write_run

ROOT = pathlib.Path(__file__).resolve().parents[2]
ARMS = "tests/experiments/arms.py"
GAINS = {"co-evolved": 0.3, "random": 0.2, "static": 0.08}
SEEDS = (0, 1, 2, 3, 4, 5, 6, 7)
KEY = "in_distribution/sampled"


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def plan_of(arms=GAINS, seeds=SEEDS, **changes):
    config = default_suite()
    config.arms = {name: f"{ARMS}:{gain}" for name, gain in arms.items()}
    config.order = tuple(arms)
    config.seeds = seeds
    config.threshold_arm = "random" if "random" in arms else next(iter(arms))
    config.bootstrap = 500
    for key, value in changes.items():
        config[key] = value
    return make_plan(config)


CONTRASTS = (("co-evolved", "random"), ("random", "static"))


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    directory = tmp_path_factory.mktemp("suite")
    for arm, gain in GAINS.items():
        for seed in SEEDS:
            write_run(run_dir(directory, arm, seed), gain, seed)
    return directory


@pytest.fixture()
def results(workdir, at_the_root):
    return load_results(plan_of(contrasts=CONTRASTS), workdir)


def lines_of(workdir, arm, seed):
    path = run_dir(workdir, arm, seed) / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


# -- numbers ---------------------------------------------------------------------------------------------


def test_the_scores_of_a_run_by_hand(results, workdir):
    lines = lines_of(workdir, "random", 2)
    x = [line.get("rollouts/total", 0) for line in lines]
    y = [line[f"eval/{KEY}/accuracy"] for line in lines]
    horizon = min(
        lines_of(workdir, arm, seed)[-1]["rollouts/total"] for arm in GAINS for seed in SEEDS
    )
    assert results.horizon == horizon
    fine = np.linspace(0, horizon, 200_001)
    scores = results.scores[id(results.runs["random"][2])]
    assert scores[f"auc/{KEY}"] == pytest.approx(np.interp(fine, x, y).mean(), abs=1e-5)
    end = np.interp(horizon, x, y)
    assert scores[f"final/{KEY}"] == pytest.approx(end)
    assert scores[f"gain/{KEY}"] == pytest.approx(end - y[0])
    assert scores[f"last/{KEY}"] == y[-1]
    depths = [
        np.interp(horizon, x, [line[f"eval/{KEY}/depth_{d}"] for line in lines])
        for d in range(1, 7)
    ]
    worst = sorted(depths)
    assert scores["cvar"] == pytest.approx((worst[0] + 0.2 * worst[1]) / 1.2)
    assert scores["stratum/depth_3"] == pytest.approx(depths[2])
    late = [line["generated/p_hat_mean"] for line in lines if line["step"] >= 3]
    assert scores["p_hat/epochs_in_band"] == np.mean([0.4 <= p <= 0.6 for p in late])
    assert scores["p_hat/mean"] == pytest.approx(np.mean(late))
    again = [line["generated/p_rerolled_mean"] for line in lines if line["step"] >= 3]
    assert scores["p_hat/rerolled"] == pytest.approx(np.mean(again))
    assert "p_hat/gap" not in scores  # what no run recorded
    assert scores["minutes"] == pytest.approx(0.5)
    assert scores["diversity/distinct_signatures/ratio"] == pytest.approx(
        lines[-1]["generated/distinct_signatures"] / lines[1]["generated/distinct_signatures"]
    )
    assert scores["rollouts/total"] == x[-1]


def test_a_curve_needs_its_rollouts(tmp_path):
    write_run(tmp_path / "random" / "seed-0", 0.2, 0)
    lines = lines_of(tmp_path, "random", 0)
    del lines[2]["rollouts/total"]  # no place on the axis
    del lines[3][f"eval/{KEY}/accuracy"]  # not evaluated
    lines[3]["nonfinite"] = ["x"]
    write_lines(tmp_path / "random" / "seed-0", lines)
    results = load_results(plan_of({"random": 0.2}, seeds=(0,)), tmp_path)
    x, _ = curve(results.runs["random"][0], f"eval/{KEY}/accuracy")
    assert list(x) == [0, lines[1]["rollouts/total"], lines[4]["rollouts/total"]]
    assert not len(curve(results.runs["random"][0], "no/such")[0])


def test_all_arms_are_cut_to_the_shortest_run(tmp_path):
    for arm, scale in (("random", 1), ("static", 2)):
        directory = run_dir(tmp_path, arm, 0)
        lines = write_run(directory, 0.2, 0)
        for line in lines[1:]:
            line["rollouts/total"] = 1000 * scale * line["step"]
        write_lines(directory, lines)
    results = load_results(plan_of({"random": 0.2, "static": 0.2}, seeds=(0,)), tmp_path)
    assert results.horizon == 4000
    scores = {arm: results.score(arm, f"auc/{KEY}")[0] for arm in results.runs}
    values = [line[f"eval/{KEY}/accuracy"] for line in lines]
    assert scores["random"] == pytest.approx(np.trapezoid(values) / 4)
    assert scores["static"] == pytest.approx(np.trapezoid(values[:3]) / 2)  # its first half
    assert results.score("static", f"final/{KEY}")[0] == pytest.approx(values[2])


def test_the_threshold_and_who_reaches_it(results, workdir):
    finals = [np.interp(results.horizon, *curve(run, results.metric))
              for run in results.runs["random"].values()]  # fmt: skip
    assert results.threshold == pytest.approx(np.mean(finals))
    assert all(c is None for c in results.crossings("static").values())
    reached = results.crossings("co-evolved")
    for seed, at in reached.items():
        x, y = curve(results.runs["co-evolved"][seed], results.metric)
        assert np.interp(at, x, y) == pytest.approx(results.threshold)
        assert (np.interp(np.linspace(0, at, 50)[:-1], x, y) < results.threshold).all()
    assert results.mean_crossing("co-evolved") < 0.7 * results.horizon
    assert results.mean_crossing("random") == pytest.approx(results.horizon)
    assert results.mean_crossing("static") is None
    rows = {row[0]: row for row in find(results, "Rollouts to the threshold").rows}
    assert rows["static"][1] == "0 of 8" and rows["static"][2].startswith("≥")
    assert rows["static"][3:] == ("never", "> 1")
    assert rows["co-evolved"][1] == "8 of 8" and "≥" not in rows["co-evolved"][2]


def find(results, title):
    (table,) = [table for table in tables.tables(results) if table.title == title]
    return table


def test_contrasts_are_paired_tested_and_adjusted(results):
    first, second = tables.main_contrasts(results)
    a, b = (results.score(arm, f"auc/{KEY}") for arm in CONTRASTS[0])
    d = [a[seed] - b[seed] for seed in SEEDS]
    assert first.test.mean == pytest.approx(np.mean(d)) and first.test.p == 2 / 256
    assert first.holm == 4 / 256 and second.holm == 4 / 256
    assert first.interval[0] < np.mean(d) < first.interval[1]
    assert first.ratio == pytest.approx(sum(a.values()) / sum(b.values())) and first.wins == 8
    (other,) = tables.exploratory_contrasts(results)
    assert (other.first, other.second, other.holm) == ("co-evolved", "static", None)


def test_arms_without_an_effect_are_not_found_different(tmp_path):
    for arm, gain in (("a", 0.2), ("b", 0.2002), ("c", 0.2003)):  # the noise differs
        for seed in SEEDS:
            write_run(run_dir(tmp_path, arm, seed), gain, seed, noise=0.02)
    plan = plan_of({"a": 0.2, "b": 0.2, "c": 0.2}, contrasts=(("a", "b"), ("a", "c")))
    for c in tables.main_contrasts(load_results(plan, tmp_path)):
        assert c.holm > 0.05 and c.t_interval[0] < 0 < c.t_interval[1]


def test_a_contrast_uses_the_seeds_that_both_arms_have(tmp_path):
    for arm, seeds in (("a", (0, 1, 2)), ("b", (1, 2, 3)), ("c", ())):
        for seed in seeds:
            write_run(run_dir(tmp_path, arm, seed), 0.2 if arm == "a" else 0.1, seed)
    half = run_dir(tmp_path, "c", 0)
    write_lines(half, write_run(half, 0.2, 0)[:3])
    arms = {"a": 0.2, "b": 0.1, "c": 0.1}
    plan = plan_of(arms, seeds=(0, 1, 2, 3), contrasts=(("a", "b"), ("a", "c")))
    results = load_results(plan, tmp_path)
    (only,) = tables.main_contrasts(results)
    assert only.seeds == (1, 2) and only.test.p == 0.5
    assert only.holm == 1.0  # the contrast that cannot be tested yet still counts
    assert ("c", 0, 2) in results.missing and ("c", 1, None) in results.missing
    assert len(results.missing) == 6
    said = dict(facts(results))
    assert "c seed 0 (at epoch 2)" in said["NOT finished, left out"]
    assert "c" not in [row[0] for row in find(results, "Held-out scores").rows]


def test_the_order_of_strata_and_scores(results):
    assert [m.name for m in strata(results)] == [f"depth_{d}" for d in range(1, 7)]
    assert [(m.split, m.mode) for m in accuracies(results)] == [
        ("in_distribution", "sampled"),
        ("in_distribution", "greedy"),
        ("deeper", "sampled"),
        ("deeper", "greedy"),
        ("renamed", "sampled"),
        ("renamed", "greedy"),
    ]
    assert Metric.parse("generated/x") is None
    assert str(Metric.parse("eval/a/b/c/d")) == "eval/a/b/c/d"


def test_what_is_not_recorded_is_left_out(tmp_path):
    for arm in ("random", "static"):
        directory = run_dir(tmp_path, arm, 0)
        lines = write_run(directory, 0.2, 0)
        kept = ("step", f"eval/{KEY}/accuracy", "rollouts/total")
        write_lines(directory, [{k: v for k, v in x.items() if k in kept} for x in lines])
        (directory / "timing.jsonl").unlink()
        (directory / "config.json").unlink()
    results = load_results(plan_of({"random": 0.2, "static": 0.2}, seeds=(0,)), tmp_path)
    titles = [table.title for table in tables.tables(results)]
    assert "By stratum" not in titles and "The generated tasks" not in titles
    assert "Out of distribution" not in titles and "Held-out scores" in titles
    assert not any("CVaR" in name for name in find(results, "Held-out scores").header)
    report = write_report(results, tmp_path / "report")
    assert set(report.figures) == {
        *("validation", "validation_arms", "validation_splits", "final", "contrasts")
    }
    scores = run_scores(results.all_runs()[0], results)
    assert "cvar" not in scores and scores["minutes"] is None


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda x: x.pop(f"eval/{KEY}/accuracy"), "is not recorded: expected one of .*greedy"),
        (lambda x: x.pop("rollouts/total", 0), "from 0 to 0 rollouts"),
        (lambda x: x.update({"rollouts/total": 7}) or x, "recorded from 7 to 7 rollouts"),
    ],
)
def test_a_run_without_a_curve_is_named(tmp_path, damage, message):
    directory = run_dir(tmp_path, "random", 0)
    lines = write_run(directory, 0.2, 0)
    for line in lines:
        damage(line)
    write_lines(directory, lines)
    with pytest.raises(ValueError, match=f"seed-0.*{message}"):
        load_results(plan_of({"random": 0.2}, seeds=(0,)), tmp_path)


def test_a_run_that_shortens_the_comparison_is_pointed_out(tmp_path):
    for seed in (0, 1, 2):
        directory = run_dir(tmp_path, "random", seed)
        lines = write_run(directory, 0.2, seed)
        for line in lines[1:]:
            line["rollouts/total"] = line["step"] * (100 if seed == 1 else 1000)
        write_lines(directory, lines)
    said = dict(facts(load_results(plan_of({"random": 0.2}, seeds=(0, 1, 2)), tmp_path)))
    assert said["NOTE"] == (
        "R is only 10 % of the median run's rollouts, since these ended early: random/seed-1"
    )


def test_nothing_finished_is_said(tmp_path):
    with pytest.raises(ValueError, match="no run is finished yet"):
        load_results(plan_of(), tmp_path)


# -- files -----------------------------------------------------------------------------------------------


def test_the_report_holds_everything(results, tmp_path):
    report = write_report(results, tmp_path)
    page = report.page.read_text()
    for title in ("Held-out scores", "Main contrasts", "Gain over its own start", "By stratum",
                  "Rollouts to the threshold", "Out of distribution", "The generated tasks",
                  "Cost", "AUC by seed", "Main contrasts in secondary scores"):  # fmt: skip
        assert f"<h2>{title}</h2>" in page, title
        assert f"## {title}\n" in report.tables["tables.md"].read_text(), title
    assert page.count("<img ") == len(figures.CAPTIONS) == len(report.figures)
    assert "co-evolved − random" in report.summary and "0.0156" in report.summary
    for name, path in report.figures.items():
        pixels = matplotlib_image.imread(path)
        assert pixels.shape[0] > 200 and pixels[..., :3].std() > 0.02, name


def test_the_markdown_tables_are_well_formed(results):
    for table in tables.tables(results):
        rows = [line for line in table.markdown().splitlines() if line.startswith("|")]
        assert len(rows) == len(table.rows) + 2
        assert {row.count("|") for row in rows} == {len(table.header) + 1}, table.title


def test_the_csv_files_hold_the_numbers(results, tmp_path):
    paths = tables.write_tables(results, tmp_path)
    read = {
        name: list(csv.DictReader(path.open())) for name, path in paths.items() if "csv" in name
    }
    runs = read["runs.csv"]
    assert len(runs) == 24
    values = [float(row[f"auc/{KEY}"]) for row in runs if row["arm"] == "random"]
    assert values == list(results.score("random", f"auc/{KEY}").values())
    (row,) = [
        row for row in read["arms.csv"] if (row["arm"], row["quantity"]) == ("random", f"auc/{KEY}")
    ]
    assert float(row["mean"]) == pytest.approx(np.mean(values))
    assert float(row["standard_error"]) == pytest.approx(np.std(values, ddof=1) / np.sqrt(8))
    assert float(row["iqm"]) == pytest.approx(np.mean(sorted(values)[2:6]))
    main = [row for row in read["contrasts.csv"] if row["main"] == "1"]
    assert [float(row["holm_p"]) for row in main] == [4 / 256, 4 / 256]
    static = [row for row in runs if row["arm"] == "static"]
    assert {row["censored"] for row in static} == {"1"}
    assert {float(row["rollouts_to_threshold"]) for row in static} == {results.horizon}


def test_the_report_is_the_same_each_time(results, workdir, tmp_path):
    again = load_results(plan_of(contrasts=CONTRASTS), workdir)
    for name in ("one", "two"):
        tables.write_tables(results if name == "one" else again, tmp_path / name)
    for name in ("tables.md", "runs.csv", "arms.csv", "contrasts.csv"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_arms_are_told_apart(results):
    arms = [f"arm{i}" for i in range(12)]
    many = dataclasses.replace(results, arms=tuple(arms))
    styles = [figures._style(many, arm) for arm in arms]
    assert len({s["color"] for s in styles[:8]}) == len({s["marker"] for s in styles[:8]}) == 8
    assert len({(s["color"], s["linestyle"]) for s in styles}) == 12


def test_names_that_look_like_markup_are_escaped(results, tmp_path):
    renamed = {f"<b>${arm}|": runs for arm, runs in results.runs.items()}
    odd = dataclasses.replace(
        results,
        arms=tuple(renamed),
        runs=renamed,
        contrasts=[tuple(f"<b>${arm}|" for arm in pair) for pair in CONTRASTS],
        threshold_arm="<b>$random|",
    )
    report = write_report(odd, tmp_path)
    assert "<b>" not in report.page.read_text()
    assert "<b>$random\\|" in report.tables["tables.md"].read_text()


def test_one_run_alone_has_no_intervals_but_a_report(tmp_path):
    write_run(run_dir(tmp_path, "random", 0), 0.2, 0)
    results = load_results(plan_of({"random": 0.2}, seeds=(0, 1)), tmp_path)
    report = write_report(results, tmp_path / "report")
    (row,) = find(results, "Held-out scores").rows
    assert row[1] == "1" and "[" not in row[2]
    assert "random seed 1" in report.summary
    assert statistics.standard_error([1.0]) is None


# -- the command -----------------------------------------------------------------------------------------

SUITE = """
from genenv_jax.experiments.suite import default_suite

def get_config(arg=""):
    config = default_suite()
    config.arms = {"co-evolved": "%(arms)s:0.3", "random": "%(arms)s:0.2"}
    config.seeds = (0, 1)
    config.contrasts = (("co-evolved", "random"),)
    config.threshold_arm = "random"
    config.bootstrap = 200
    return config
"""


def experiment(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "genenv_jax.experiment", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_the_command_reports_what_is_there(tmp_path):
    (tmp_path / "suite.py").write_text(SUITE % {"arms": ARMS})
    for arm, gain in (("co-evolved", 0.3), ("random", 0.2)):
        for seed in (0, 1):
            write_run(run_dir(tmp_path / "w", arm, seed), gain, seed)
    flags = [f"--config={tmp_path / 'suite.py'}", f"--workdir={tmp_path / 'w'}", "--report_only"]
    result = experiment(*flags)
    assert result.returncode == 0, result.stderr
    assert "co-evolved − random" in result.stdout
    page = re.search(r"page: (.*)", result.stdout)[1]
    assert pathlib.Path(page).is_file()
    assert not (tmp_path / "w" / "suite.json").exists()  # nothing was started

    plan = make_plan(load_config(str(tmp_path / "suite.py"), "the suite"))
    compare_or_store(plan, tmp_path / "w")
    alone = experiment(f"--workdir={tmp_path / 'w'}", "--report_only")
    assert (alone.returncode, alone.stdout) == (0, result.stdout), alone.stderr
    nothing_to_run = experiment(f"--workdir={tmp_path / 'w'}")
    assert nothing_to_run.returncode == 2
    assert "--config is missing" in nothing_to_run.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--config.threshold_arm=none", "config.threshold_arm = 'none'"),
        ("--config.bootstrap=5", "config.bootstrap = 5: expected an integer, at least 100"),
        ("--report_only", "no run is finished yet"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(tmp_path, flag, message):
    (tmp_path / "suite.py").write_text(SUITE % {"arms": ARMS})
    result = experiment(f"--config={tmp_path / 'suite.py'}", f"--workdir={tmp_path / 'w'}", flag)
    assert result.returncode == 2, result.stderr
    assert message in result.stderr.splitlines()[-1] and "Traceback" not in result.stderr


def test_failed_runs_make_exit_code_1_and_are_shown(tmp_path):
    (tmp_path / "suite.py").write_text(SUITE % {"arms": ARMS})  # its model does not exist
    flags = [f"--config={tmp_path / 'suite.py'}", f"--workdir={tmp_path / 'w'}"]
    result = experiment(*flags, "--config.seeds=(0,)")
    assert result.returncode == 1, result.stderr
    assert result.stdout.count("FAILED (exit code 2)") == 2
    assert "error: " in result.stdout and "Traceback" not in result.stderr


QUICK = """
from genenv_jax.experiments.suite import default_suite

def get_config():
    config = default_suite()
    config.arms = {"genenv": "configs/quickstart.py", "lora": "configs/quickstart.py:lora"}
    config.seeds = (1, 2)
    config.overrides = {
        "epochs": 2,
        "warm_start": {"steps": 30},
        "curriculum": {"seeds_per_epoch": 4},
        "agent": {"base_share": 0.5},  # so young a simulator writes no tasks
        "benchmark": {"eval_per_depth": 2},
        "model": {"make": {"cache_dir": %(cache)r}},
        "export": False,
        "compile_ahead": False,
    }
    config.contrasts = (("genenv", "lora"),)
    config.threshold_arm = "lora"
    config.bootstrap = 200
    return config
"""


@pytest.mark.slow
def test_a_suite_of_real_runs(tmp_path):
    (tmp_path / "suite.py").write_text(QUICK % {"cache": str(tmp_path / "models")})
    flags = [f"--config={tmp_path / 'suite.py'}", f"--workdir={tmp_path / 'w'}"]
    result = experiment(*flags)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "[4/4] lora seed 2" in result.stdout and "genenv − lora" in result.stdout
    assert len(list((tmp_path / "models").iterdir())) == 2  # one warm start a seed
    assert any((tmp_path / "w" / "xla_cache").iterdir())
    config = json.loads((tmp_path / "w" / "lora" / "seed-2" / "config.json").read_text())
    assert config["lora"]["rank"] == 8 and config["seed"] == 2 and config["epochs"] == 2
    page = (tmp_path / "w" / "report" / "report.html").read_text()
    assert page.count("<img ") >= 8 and "depth 6" in page
    again = experiment(*flags)
    assert again.returncode == 0 and "4 of 4 runs are finished already" in again.stdout
