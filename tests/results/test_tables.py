import csv
import dataclasses
import re

import numpy as np
import pytest

from genenv_jax.results import contrasts
from genenv_jax.results.suites import load_results, run_dir
from genenv_jax.results.tables import evaluation_summary, headline, runs_csv, suite_tables
from tests.experiment.fake_main import accuracy_alone, write_lines, write_run
from tests.experiment.suites import fake_plan
from tests.results.synthetic import generation, run_of

KEY = "in_distribution/sampled"


def find(results, title):
    (table,) = [table for table in suite_tables(results) if table.title == title]
    return table


def test_contrasts_are_paired_tested_and_adjusted(results):
    first, second = contrasts.main_contrasts(results)
    a, b = (results.score(arm, f"auc/{KEY}") for arm in ("co-evolved", "random"))
    d = [a[seed] - b[seed] for seed in range(8)]
    assert first.mean == pytest.approx(np.mean(d)) and first.p == 2 / 256
    assert first.holm == 4 / 256 and second.holm == 4 / 256
    assert first.interval[0] < np.mean(d) < first.interval[1]
    assert first.wins == 8
    (other,) = contrasts.exploratory_contrasts(results)
    assert (other.first, other.second, other.holm) == ("co-evolved", "static", None)


def test_a_contrast_uses_the_seeds_that_both_arms_have(tmp_path):
    for arm, seeds in (("a", (0, 1, 2)), ("b", (1, 2, 3))):
        for seed in seeds:
            write_run(run_dir(tmp_path, arm, seed), 0.2 if arm == "a" else 0.1, seed)
    half = run_dir(tmp_path, "c", 0)
    write_lines(half, write_run(half, 0.2, 0)[:3])
    results = load_results(fake_plan((0, 1, 2, 3), (("a", "b"), ("a", "c")), a=0.2, b=0.1, c=0.1), tmp_path)
    (only,) = contrasts.main_contrasts(results)
    assert only.seeds == (1, 2) and only.p == 0.5
    assert only.holm == 1.0  # the contrast that cannot be tested yet still counts
    assert ("c", 0, 2) in results.missing and ("c", 1, None) in results.missing
    assert len(results.missing) == 6
    assert "c" not in [row[0] for row in find(results, "Held-out scores").rows]


def test_the_cells_are_the_numbers_of_the_runs(results):
    table = find(results, "Held-out scores")
    row = dict(zip(table.header, table.rows[1], strict=True))
    auc = list(results.score("random", f"auc/{KEY}").values())
    assert row["arm"] == "random" and row["seeds"] == "8"
    mean, low, high = map(float, re.findall(r"[\d.]+", row["AUC, sampled"]))
    assert mean == pytest.approx(np.mean(auc), abs=5e-4) and min(auc) < low < mean < high < max(auc)
    assert [float(cell) for cell in find(results, "AUC by seed").rows[1][1:]] == pytest.approx(auc, abs=5e-4)


def test_what_is_not_recorded_has_no_table(tmp_path):
    for arm in ("random", "static"):
        directory = run_dir(tmp_path, arm, 0)
        write_run(directory, 0.2, 0, change=accuracy_alone)
        (directory / "timing.jsonl").unlink()
        (directory / "config.json").unlink()
    results = load_results(fake_plan((0,), random=0.2, static=0.2), tmp_path)
    titles = [table.title for table in suite_tables(results)]
    assert "By stratum" not in titles and "The generated tasks" not in titles
    assert "Out of distribution" not in titles
    assert find(results, "Held-out scores").header == ("arm", "seeds", "AUC, sampled", "final, sampled")
    assert find(results, "Cost").header == ("arm", "processed tokens")
    assert "minutes" not in results.names


def test_the_markdown_tables_are_well_formed(results):
    for table in suite_tables(results):
        rows = [line for line in table.markdown().splitlines() if line.startswith("|")]
        assert len(rows) == len(table.rows) + 2
        assert {row.count("|") for row in rows} == {len(table.header) + 1}, table.title


def test_the_csv_file_holds_the_numbers(results, suite_report):
    runs = list(csv.DictReader((suite_report / "runs.csv").open()))
    assert len(runs) == 24
    values = [float(row[f"auc/{KEY}"]) for row in runs if row["arm"] == "random"]
    assert values == list(results.score("random", f"auc/{KEY}").values())


def test_the_numbers_are_the_same_each_time(finished, suite_report):
    again = load_results(*finished)
    assert runs_csv(again) == (suite_report / "runs.csv").read_text()
    text = "\n".join(table.markdown() for table in suite_tables(again))
    assert text == (suite_report / "tables.md").read_text()


def test_known_numbers():
    sampled, greedy = "eval/test/sampled/accuracy", "eval/test/greedy/accuracy"
    p_hat, valid = "generated/p_hat_mean", "generated/valid_share"
    run = run_of(
        config={"curriculum": {"alpha": 0.5, "k_min": 0.1}},
        metrics={
            0: {sampled: 0.25, greedy: 0.5},
            1: {p_hat: 0.138, valid: 0.5, "generated/count": 64},
            2: {p_hat: 0.6, "rollouts/total": 1024},
            3: {sampled: 0.375, greedy: 0.45, p_hat: 0.4, valid: 0.875}
            | {"rollouts/total": 4096, "tokens/total": 70_000},
        },
        timing=[{"seconds/a": 30, "seconds/b": 60, "seconds/total": 91}],
    )
    tasks = [generation(2, 0, p_hat=0.5), *(generation(3, k, p_hat=0.4) for k in range(2))]
    run = dataclasses.replace(
        run, tasks=[*tasks, generation(3, 2, "duplicate")], about={"tasks": {greedy: 1200}}
    )
    assert headline(run).markdown().splitlines() == [
        "## Start and end",
        "",
        "| quantity | n | start | end | change |",
        "| --- | ---: | ---: | ---: | ---: |",
        "| accuracy, test, greedy | 1,200 | 0.500 | 0.450 | -0.050 |",
        "| accuracy, test, sampled |  | 0.250 | 0.375 | +0.125 |",
        "| p̂ of generated tasks | 2 | 0.138 | 0.400 | +0.262 |",
        "| epochs with p̂ in [0.4, 0.6] |  |  | 2 of 3 (first: epoch 2) |  |",
        "| valid share of generations | 64 | 0.500 | 0.875 | +0.375 |",
        "| response length (tokens) |  | - | - | - |",
        "| task length (tokens) |  | - | - | - |",
        "| rollouts |  |  | 4,096 |  |",
        "| tokens processed |  |  | 70,000 |  |",
        "| minutes |  |  | 1.5 |  |",
        "",
        "n: tasks behind a share; of generated tasks those of the last epoch.",
    ]


def test_without_a_configuration_there_is_no_band():
    assert "| epochs with p̂ in band |  |  | - |  |" in headline(run_of()).markdown()


def share(value, low, high, tasks):
    return {"value": value, "low": low, "high": high, "tasks": tasks}


def test_the_accuracies_come_first():
    results = {
        "eval/main/sampled/depth_1": share(0.5, 0.4, 0.6, 24),
        "eval/main/sampled/accuracy": share(0.427, 0.377, 0.482, 144),
        "eval/deeper/sampled/accuracy": share(0.1, 0.0, 0.2, 48),
        "eval/all/sampled/valid_share": share(0.9, 0.8, 1.0, 192),
        "eval/all/sampled/invalid_empty": {"value": 0.1},
        "eval/all/sampled/worker_lost": {"value": 1200},
        "eval/main/greedy/accuracy": share(0.493, 0.431, 0.563, 144),
        "eval/all/greedy/pass@2": share(0.6, 0.5, 0.7, 192),
    }
    lines = evaluation_summary(results)
    assert lines[:4] == [
        "main    sampled  accuracy  0.427 [0.377, 0.482]  n = 144",
        "main    greedy   accuracy  0.493 [0.431, 0.563]  n = 144",
        "deeper  sampled  accuracy  0.100 [0.000, 0.200]  n = 48",
        "all  sampled  valid_share    0.900 [0.800, 1.000]",
    ]
    assert "all  sampled  invalid_empty  0.100" in lines
    assert any(line.split() == ["all", "sampled", "worker_lost", "1,200"] for line in lines)
    assert any("pass@2" in line for line in lines)
    assert lines[-1] == "1 more metrics: results.json, and the page"
