import dataclasses

from matplotlib import image as matplotlib_image

from genenv_jax.results.pages import facts, shared_settings, write_suite_page
from genenv_jax.results.suites import load_results, run_dir
from genenv_jax.results.tables import suite_tables
from tests.experiment.fake_main import accuracy_alone, write_run
from tests.experiment.suites import fake_plan


def test_the_report_holds_everything(suite_report):
    text, markdown = ((suite_report / name).read_text() for name in ("report.html", "tables.md"))
    for title in ("Held-out scores", "Main contrasts", "Gain over its own start", "By stratum",
                  "Out of distribution", "The generated tasks",
                  "Cost", "AUC by seed", "Main contrasts in secondary scores"):  # fmt: skip
        assert f"<h2>{title}</h2>" in text, title
        assert f"## {title}\n" in markdown, title
    figures = {path.stem: path for path in suite_report.glob("*.png")}
    assert text.count("<img ") == len(figures) == 9
    for name, path in figures.items():
        pixels = matplotlib_image.imread(path)
        assert pixels.shape[0] > 200 and pixels[..., :3].std() > 0.02, name


def test_one_odd_run_of_few_metrics_is_drawn_escaped_and_without_intervals(tmp_path):
    """Names of arms come from a file that a user wrote, metrics from a run that may record little."""
    write_run(run_dir(tmp_path, "random", 0), 0.2, 0, change=accuracy_alone)
    results = load_results(fake_plan((0, 1), random=0.2), tmp_path)
    name = "<b>$random|"
    suite = dataclasses.replace(results.suite, arms={name: {}})
    odd = dataclasses.replace(results, runs={name: results.runs["random"]}, suite=suite)
    out = tmp_path / "report"
    out.mkdir()
    (out / "diversity.png").touch()  # of an earlier report
    page, summary = write_suite_page(odd, out)
    assert {path.stem for path in out.glob("*.png")} == {"validation", "validation_arms", "validation_splits"}
    assert "<b>" not in page.read_text()
    assert "<b>$random\\|" in (out / "tables.md").read_text()
    assert "random seed 1" in summary and "[0." not in summary


def test_what_the_numbers_rest_on(results):
    said = dict(facts(results))
    assert said["runs"] == "24 finished, of 3 arms"
    assert said["main contrasts"] == "co-evolved − random; random − static"
    assert "NOTE" not in said and "NOT finished, left out" not in said
    unfinished = dataclasses.replace(
        results, missing=[("c", 0, 2), *(("c", seed, None) for seed in range(1, 31))]
    )
    said = dict(facts(unfinished))["NOT finished, left out"]
    assert said.startswith("c seed 0 (at epoch 2), c seed 1, ") and said.endswith(" and 11 more")


def test_what_the_runs_were_made_with(results):
    def made(seed, run):
        about = {"code": f"jax {seed % 2}", "settings": f"config.a = 1\nconfig.seed = {seed}"}
        return dataclasses.replace(run, about=about)

    runs = {arm: {seed: made(seed, run) for seed, run in of.items()} for arm, of in results.runs.items()}
    settings = {arm: {"a": 1, "simulator.train": arm != "random"} for arm in runs}
    whole = dataclasses.replace(results, runs=runs, configs=settings)
    assert dict(facts(whole))["code"] == "jax 0; or jax 1"
    assert shared_settings(whole) == "config.a = 1"
    (table,) = (table for table in suite_tables(whole) if table.title == "What the arms change")
    assert table.header == ("setting", "co-evolved", "random", "static")
    assert table.rows == [("simulator.train", "true", "false", "true")]


def test_a_run_that_shortens_the_comparison_is_pointed_out(tmp_path):
    for seed, tokens in enumerate((1000, 100, 1000)):

        def change(lines, tokens=tokens):
            for line in lines[1:]:
                line["tokens/total"] = line["step"] * tokens

        write_run(run_dir(tmp_path, "random", seed), 0.2, seed, change=change)
    said = dict(facts(load_results(fake_plan((0, 1, 2), random=0.2), tmp_path)))
    assert said["NOTE"] == (
        "R is only 10 % of the median run's processed tokens, since these ended early: random/seed-1"
    )
