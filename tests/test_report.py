"""report.py on workdirs that the tests write: what it reads, draws and says."""

from __future__ import annotations

import html.parser
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from matplotlib import image as matplotlib_image
from matplotlib.figure import Figure

from genenv_jax import report
from genenv_jax.reporting import panels
from genenv_jax.reporting.examples import select_examples
from genenv_jax.reporting.groups import COLOURS, group_runs
from genenv_jax.reporting.page import render

EPOCHS = 8
REASONS = ("unparsable", "wrong_answer", "duplicate", "near_duplicate", "too_long")


def write_run(
    workdir: pathlib.Path,
    seed: int = 0,
    beta: float = 2.0,
    gain: float = 0.5,
    epochs: int = EPOCHS,
) -> pathlib.Path:
    """A plausible run: p̂ nears alpha, held-out accuracy rises, fewer generations are rejected."""
    random = np.random.default_rng(seed)
    workdir.mkdir(parents=True)
    config = {
        "seed": seed,
        "epochs": epochs,
        "benchmark": {"name": "embedded"},
        "curriculum": {"alpha": 0.5, "k_min": 0.1, "beta": beta},
        "gain": gain,
    }
    (workdir / "config.json").write_text(json.dumps(config))
    metrics, timing, tasks = [], [], []
    rollouts = 0
    for step in range(epochs + 1):
        progress = 1 - np.exp(-step / 2.5)
        record: dict[str, float] = {"step": step}
        for split, base, scale in (
            ("in_distribution", 0.30, 1.0),
            ("deeper", 0.12, 0.7),
            ("renamed", 0.24, 0.9),
        ):
            for mode, shift in (("greedy", 0.03), ("sampled", 0.0)):
                value = base + shift + gain * scale * progress + random.normal(0, 0.008)
                record[f"eval/{split}/{mode}/accuracy"] = float(value)
                record[f"eval/{split}/{mode}/depth_2"] = float(value + 0.05)
        if step:
            generated = 256
            rejected = random.multinomial(
                int(generated * (0.45 - 0.35 * progress)), (0.35, 0.3, 0.15, 0.12, 0.08)
            )
            mean = 0.16 + 0.37 * progress
            accepted = generated - int(rejected.sum())
            p_hats = random.binomial(8, random.beta(4 * mean, 4 * (1 - mean), accepted)) / 8
            rollouts += 8 * generated
            record |= {
                "generated/count": generated,
                "generated/valid_share": accepted / generated,
                "generated/p_hat_mean": float(p_hats.mean()),
                "generated/p_hat_in_band": float(np.mean(abs(p_hats - 0.5) <= 0.1)),
                "generated/solved_all": int(np.sum(p_hats == 1)),
                "generated/solved_none": int(np.sum(p_hats == 0)),
                "generated/task_length_mean": 210 + 60 * progress + random.normal(0, 4),
                "agent/response_length_mean": 137 + 67 * progress + random.normal(0, 3),
                "agent/reward_mean": float(p_hats.mean()),
                "simulator/kl_to_initial": 0.03 * progress + 0.002 * step,
                "rollouts/total": rollouts,
            }
            record |= {
                f"generated/rejected/{reason}": int(n)
                for reason, n in zip(REASONS, rejected, strict=True)
            }
            verdicts = ["accepted"] * accepted + list(np.repeat(REASONS, rejected))
            for index, verdict in enumerate(verdicts):
                p_hat = float(p_hats[index]) if verdict == "accepted" else None
                tasks.append(generation(step, index, verdict, p_hat))
        metrics.append(record)
        timing.append({"step": step, "seconds/generate": 12.0, "seconds/evaluate": 18.0})
    for name, records in (("metrics", metrics), ("timing", timing), ("tasks", tasks)):
        (workdir / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    return workdir


def generation(epoch, index, verdict="accepted", p_hat=None, text=None, **changes):
    """One line of tasks.jsonl."""
    text = text or f"Compute ({index} + 3) * 2 with the tools (epoch {epoch})."
    task = {
        "messages": [{"role": "user", "content": text}],
        "tools": [{"name": "add"}],
        "answer": {"value": 2 * (index + 3)},
        "category": "depth_2",
    }
    return {
        "epoch": epoch,
        "id": f"g{epoch}-{index}",
        "seed_id": f"s{index % 7}",
        "context_success_rate": None,
        "text": text,
        "verdict": verdict,
        "detail": "",
        "task": task if verdict == "accepted" else None,
        "attempts": None if p_hat is None else 8,
        "successes": None if p_hat is None else round(8 * p_hat),
        "p_hat": p_hat,
        "r_env": None if p_hat is None else float(np.exp(-2 * (p_hat - 0.5) ** 2)),
        "weight": None,
        "response_length_mean": None if p_hat is None else 140.0,
    } | changes


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "quickstart")


@pytest.fixture(scope="module")
def drawn(workdir, tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    run = report.load_run(workdir)
    figures = report.draw([run], out)
    return run, figures, report.write_page([run], figures, out / "report.html")


def append(workdir, name, *records):
    with open(workdir / f"{name}.jsonl", "a") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


class Page(html.parser.HTMLParser):
    """Tags with attributes, and text by the tag that holds it."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.open, self.text = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, "the tags do not nest"

    def handle_data(self, data):
        self.text.append((self.open[-1] if self.open else "", data))


# Reading.


def test_load_run_reads_every_file(workdir):
    run = report.load_run(str(workdir))
    assert run.name == "quickstart"
    assert list(run.metrics) == list(range(EPOCHS + 1))
    assert list(run.series("generated/count")) == list(range(1, EPOCHS + 1))
    assert run.series("absent") == {}
    assert run.band == (0.4, 0.6)
    assert run.setting("benchmark.name") == "embedded"
    assert run.setting("benchmark.name.deeper") is None
    assert run.minutes == pytest.approx(9 * 30 / 60)
    assert len(run.tasks) == 256 * EPOCHS


def test_nulls_are_left_out_and_repeats_count_once(tmp_path):
    (tmp_path / "metrics.jsonl").write_text(
        '{"step": 0, "a": 1}\n{"step": 1, "a": null, "nonfinite": ["a"]}\n{"step": 0, "a": 2}\n'
        '{"step": 2, "a": 3, "b": Infinity, "c": true}\n{"step": 3, "a"'
    )
    append(tmp_path, "tasks", generation(1, 0, p_hat=0.25), generation(1, 0, p_hat=0.75))
    run = report.load_run(tmp_path)
    assert run.metrics == {0: {"a": 2.0}, 1: {}, 2: {"a": 3.0}}
    assert [task["p_hat"] for task in run.tasks] == [0.75]
    assert (run.config, run.band, run.minutes) == ({}, None, None)


def test_epochs_of_tasks_are_the_steps_of_their_metrics(workdir):
    run = report.load_run(workdir)
    assert {task["epoch"] for task in run.tasks} == set(run.series("generated/count"))
    for step, share in run.series("generated/valid_share").items():
        verdicts = [task["verdict"] for task in run.tasks if task["epoch"] == step]
        assert verdicts.count("accepted") / len(verdicts) == share


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("metrics.jsonl", None, "not the workdir of a run"),
        ("metrics.jsonl", "", "nothing recorded yet"),
        ("metrics.jsonl", '{"step": 0', "nothing recorded yet"),
        ("metrics.jsonl", "{}\n", r"metrics\.jsonl:1: damaged line: no step"),
        ("tasks.jsonl", '{"epoch": 1}\n{"epoch": "x"}\n', r"tasks\.jsonl:2: damaged line"),
        ("timing.jsonl", "[]\n", r"timing\.jsonl:1: damaged line"),
        ("config.json", "{", r"config\.json: damaged"),
        ("config.json", "[]", r"config\.json: damaged: not a JSON object"),
    ],
)
def test_bad_workdirs_give_one_line_and_exit_code_2(tmp_path, capsys, name, content, message):
    (tmp_path / "metrics.jsonl").write_text('{"step": 0}\n')
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_text(content)
    assert report.main([str(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    with pytest.raises((OSError, ValueError), match=message) as error:
        report.load_run(tmp_path)
    assert captured.err == f"report: {error.value}\n"
    assert not (tmp_path / "report").exists()


def test_a_missing_workdir_is_named(tmp_path, capsys):
    assert report.main([str(tmp_path / "nowhere")]) == 2
    assert capsys.readouterr().err == f"report: {tmp_path / 'nowhere'}: no such directory\n"


def test_an_unwritable_out_is_named(workdir, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert report.main([str(workdir), "--out", str(tmp_path / "file")]) == 1
    assert "cannot write to" in capsys.readouterr().err


# Figures.


def test_figures_are_written_and_hold_ink(drawn):
    _, figures, _ = drawn
    assert list(figures) == [
        *("report", "p_hat", "accuracy", "learning", "solved", "validity", "lengths")
    ]
    for name, path in figures.items():
        pixels = matplotlib_image.imread(path)[..., :3]
        assert pixels.shape[:2] == ((1240, 2200) if name == "report" else (680, 1040))
        assert np.mean(pixels.min(axis=-1) < 0.9) > 0.01, name


def axes_of(panel, runs):
    """The axes that one panel draws."""
    figure = Figure()
    panel(figure, figure.add_gridspec(1, 1)[0], group_runs(runs))
    return figure.axes


def test_p_hat_panel_shows_mean_band_and_quartiles(workdir):
    run = report.load_run(workdir)
    (axes,) = axes_of(panels.panel_p_hat, [run])
    (line,) = [line for line in axes.lines if len(line.get_xdata())]
    assert dict(zip(*line.get_data(), strict=True)) == run.series("generated/p_hat_mean")
    (band,) = axes.patches
    assert (band.get_y(), band.get_y() + band.get_height()) == pytest.approx((0.4, 0.6))
    (whiskers,) = axes.collections
    for step, segment in zip(range(1, EPOCHS + 1), whiskers.get_segments(), strict=True):
        p_hats = [t["p_hat"] for t in run.tasks if t["epoch"] == step and t["p_hat"] is not None]
        assert segment[:, 0].tolist() == [step, step]
        assert segment[:, 1] == pytest.approx(np.percentile(p_hats, [25, 75]))


def test_accuracy_panel_has_a_line_for_each_split_and_mode(workdir):
    run = report.load_run(workdir)
    (axes,) = axes_of(panels.panel_accuracy, [run])
    drawn = {(line.get_color(), line.get_linestyle()): line for line in axes.lines}
    assert len(drawn) == len(axes.lines) == 6
    first = drawn[COLOURS[0], "--"]
    assert first.get_ydata().tolist() == list(
        run.series("eval/in_distribution/sampled/accuracy").values()
    )
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["in distribution", "deeper", "renamed", "greedy", "sampled"]


def test_validity_panel_stacks_to_the_rejected_share(workdir):
    run = report.load_run(workdir)
    (axes,) = axes_of(panels.panel_validity, [run])
    tops = np.max([[bar.get_y() + bar.get_height() for bar in c] for c in axes.containers], axis=0)
    valid = np.array(list(run.series("generated/valid_share").values()))
    assert tops == pytest.approx(1 - valid)
    assert len(axes.containers) == len(REASONS)


def test_validity_comes_from_the_tasks_where_metrics_do_not_count(workdir, tmp_path):
    records = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    kept = [{"step": record["step"]} for record in records]
    append(tmp_path, "metrics", *kept)
    (tmp_path / "tasks.jsonl").write_bytes((workdir / "tasks.jsonl").read_bytes())
    (full,), (bare,) = (group_runs([report.load_run(d)]) for d in (workdir, tmp_path))
    expected, found = panels.rejections(full), panels.rejections(bare)
    assert list(found) == list(expected)
    for step, reasons in expected.items():
        assert {k: v for k, v in reasons.items() if v} == pytest.approx(found[step])


def test_many_reasons_share_one_colour(tmp_path):
    reasons = {f"generated/rejected/reason_{i}": 10 - i for i in range(9)}
    append(tmp_path, "metrics", {"step": 1, "generated/count": 100, **reasons})
    (axes,) = axes_of(panels.panel_validity, [report.load_run(tmp_path)])
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert len(labels) == 7
    assert labels[0] == "other"
    assert axes.containers[-1][0].get_height() == pytest.approx((4 + 3 + 2) / 100)


def test_missing_metrics_say_not_recorded(tmp_path, capsys):
    (tmp_path / "metrics.jsonl").write_text('{"step": 0}\n')
    assert report.main([str(tmp_path)]) == 0
    assert "| epochs with p̂ in band |  | - |  |" in capsys.readouterr().out
    runs = [report.load_run(tmp_path)]
    for name, panel in panels.PANELS.items():
        texts = [text.get_text() for axes in axes_of(panel, runs) for text in axes.texts]
        assert texts, name
        assert all(text.endswith("not recorded") for text in texts), name
    page = (tmp_path / "report" / "report.html").read_text()
    assert page.count("not recorded</p>") == 2


def test_runs_that_differ_in_the_seed_become_one_curve(tmp_path):
    runs = [report.load_run(write_run(tmp_path / f"full_seed{s}", seed=s)) for s in range(3)]
    runs.append(report.load_run(write_run(tmp_path / "static", seed=0, gain=0.2, epochs=5)))
    runs.append(report.load_run(write_run(tmp_path / "other" / "static", seed=1, beta=1.0)))
    groups = group_runs(runs)
    assert [group.label for group in groups] == [
        "full (mean and range of 3 runs)",
        f"{tmp_path.name}/static",
        "other/static",
    ]
    name = "eval/deeper/greedy/accuracy"
    steps, values = groups[0].curve(name)
    assert steps.tolist() == list(range(EPOCHS + 1))
    assert values.tolist() == [list(run.series(name).values()) for run in runs[:3]]
    columns = axes_of(panels.panel_accuracy, runs)
    assert len(columns) == 3
    assert [text.get_text() for axes in columns for text in axes.texts] == [
        *("in distribution", "deeper", "renamed")
    ]
    deeper = columns[1]
    assert deeper.lines[0].get_ydata() == pytest.approx(values.mean(axis=0))
    (area,) = deeper.collections  # one range: the other groups are single runs
    inside = area.get_paths()[0].vertices
    assert inside[:, 1].min() == pytest.approx(values.min())
    assert inside[:, 1].max() == pytest.approx(values.max())
    figures = report.draw(runs, tmp_path / "out")
    assert "accuracy_sampled" in figures
    assert all(path.stat().st_size > 5000 for path in figures.values())


def test_an_unfinished_run_of_a_group_shortens_the_mean(tmp_path):
    runs = []
    for seed, epochs in ((0, 6), (1, 3)):
        workdir = write_run(tmp_path / f"run{seed}", seed=seed, epochs=epochs)
        config = json.loads((workdir / "config.json").read_text())
        (workdir / "config.json").write_text(json.dumps(config | {"epochs": 6}))
        runs.append(report.load_run(workdir))
    (group,) = group_runs(runs)
    steps, values = group.curve("generated/p_hat_mean")
    assert steps.tolist() == [1, 2, 3]
    assert values.shape == (2, 3)


def test_labels_cannot_break_the_figures(tmp_path):
    names = ("_a$b$c", "x{^}_$" + 40 * "long")
    runs = [
        report.load_run(write_run(tmp_path / name, beta=float(index), epochs=2))
        for index, name in enumerate(names)
    ]
    append(
        runs[0].workdir,
        "metrics",
        {"step": 3, "generated/count": 4, "generated/rejected/$\\frac$\x07": 2},
    )
    append(runs[0].workdir, "metrics", {"step": 4, "eval/$x$/\\mode/accuracy": 0.5})
    runs[0] = report.load_run(runs[0].workdir)
    assert len(report.draw(runs, tmp_path / "out")) == 9
    assert report.draw(runs[:1], tmp_path / "out")["report"].exists()


def test_draw_needs_a_run(tmp_path):
    with pytest.raises(ValueError, match="no runs"):
        report.draw([], tmp_path)


# Tables.


def test_summary_table_of_known_numbers(tmp_path):
    workdir = tmp_path / "tiny"
    workdir.mkdir()
    (workdir / "config.json").write_text('{"curriculum": {"alpha": 0.5, "k_min": 0.1}}')
    append(
        workdir,
        "metrics",
        {"step": 0, "eval/test/sampled/accuracy": 0.25, "eval/test/greedy/accuracy": 0.5},
        {"step": 1, "generated/p_hat_mean": 0.138, "generated/valid_share": 0.5},
        {"step": 2, "generated/p_hat_mean": 0.6, "rollouts/total": 1024},
        {
            "step": 3,
            "eval/test/sampled/accuracy": 0.375,
            "eval/test/greedy/accuracy": 0.45,
            "generated/p_hat_mean": 0.4,
            "generated/valid_share": 0.875,
            "rollouts/total": 4096,
        },
    )
    append(workdir, "timing", {"step": 1, "seconds/a": 30, "seconds/b": 60, "seconds/total": 91})
    assert report.summary_table([report.load_run(workdir)]).splitlines() == [
        "| run | quantity | start | end | change |",
        "|---|---|---:|---:|---:|",
        "| tiny | accuracy, test, greedy | 0.500 | 0.450 | -0.050 |",
        "| tiny | accuracy, test, sampled | 0.250 | 0.375 | +0.125 |",
        "| tiny | p̂ of generated tasks | 0.138 | 0.400 | +0.262 |",
        "| tiny | epochs with p̂ in [0.4, 0.6] |  | 2 of 3 (first: epoch 2) |  |",
        "| tiny | valid share of generations | 0.500 | 0.875 | +0.375 |",
        "| tiny | response length (tokens) | - | - | - |",
        "| tiny | task length (tokens) | - | - | - |",
        "| tiny | rollouts |  | 4,096 |  |",
        "| tiny | minutes |  | 1.5 |  |",
    ]


def test_summary_table_of_seeds_has_mean_and_range(tmp_path):
    for seed, (start, end) in enumerate(((0.2, 0.4), (0.3, 0.7))):
        (tmp_path / f"run{seed}").mkdir()
        (tmp_path / f"run{seed}" / "config.json").write_text(json.dumps({"seed": seed, "a": 1}))
        name = "eval/test/sampled/accuracy"
        records = ({"step": 0, name: start}, {"step": 1, name: end})
        append(tmp_path / f"run{seed}", "metrics", *records)
    table = report.summary_table([report.load_run(tmp_path / f"run{seed}") for seed in (0, 1)])
    assert (
        "| run (mean and range of 2 runs) | accuracy, test, sampled "
        "| 0.250 [0.200, 0.300] | 0.550 [0.400, 0.700] | +0.300 [+0.200, +0.400] |"
    ) in table.splitlines()


def test_main_prints_the_table_and_the_paths(workdir, tmp_path, capsys):
    assert report.main([str(workdir), "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(report.summary_table([report.load_run(workdir)]))
    assert printed.splitlines()[-2:] == [
        f"figure: {tmp_path / 'out' / 'report.png'}",
        f"page:   {tmp_path / 'out' / 'report.html'}",
    ]


def test_default_directories(tmp_path):
    runs = [report.load_run(write_run(tmp_path / name, epochs=1)) for name in ("a", "b")]
    assert report._out_dir(None, runs[:1]) == tmp_path / "a" / "report"
    assert report._out_dir(None, runs) == tmp_path / "report"


# The page.


def test_page_is_self_contained(drawn):
    _, figures, path = drawn
    page = Page(path.read_text("utf-8"))
    assert page.open == []
    images = [attrs["src"] for tag, attrs in page.tags if tag == "img"]
    assert len(images) == len(figures) == 7
    assert all(source.startswith("data:image/png;base64,") for source in images)
    assert not {"script", "link", "iframe", "object"} & {tag for tag, _ in page.tags}
    (policy,) = [attrs["content"] for tag, attrs in page.tags if "http-equiv" in attrs]
    assert policy.startswith("default-src 'none'")


def test_page_shows_nine_examples_of_early_and_late_epochs(drawn):
    run, _, path = drawn
    examples = select_examples(run)
    assert len({task["id"] for _, task in examples}) == 9
    assert [label for label, _ in examples][::3] == [
        f"epoch {epoch}, low p̂" for epoch in (1, EPOCHS // 2 + 1, EPOCHS)
    ]
    for start in range(0, 9, 3):
        low, near, high = (task["p_hat"] for _, task in examples[start : start + 3])
        epoch = examples[start][1]["epoch"]
        p_hats = [t["p_hat"] for t in run.tasks if t["epoch"] == epoch and t["p_hat"] is not None]
        assert (low, high) == (min(p_hats), max(p_hats))
        assert abs(near - 0.5) == min(abs(p - 0.5) for p in p_hats)
    page = Page(path.read_text("utf-8"))
    text = "".join(data for tag, data in page.text if tag == "pre")
    assert all(task["text"] in text for _, task in examples)


HOSTILE = (
    "</pre></div><script>alert(1)</script><img src=x onerror=alert(1)>\" ' & \x00\x1b[2J\u202e"
    "<!-- \ud800 ]]> --></style><style>*{display:none}</style>"
)


def test_hostile_text_is_shown_and_does_nothing(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "generated/p_hat_mean": 0.5}\n')
    (tmp_path / "config.json").write_text(json.dumps({"benchmark": {"name": HOSTILE}}))
    accepted = generation(1, 0, p_hat=0.5, text=HOSTILE, id=HOSTILE, seed_id=HOSTILE)
    accepted["task"]["tools"] = [{HOSTILE: HOSTILE}]
    accepted["task"]["answer"] = HOSTILE
    refused = generation(1, 1, verdict=HOSTILE, text=HOSTILE, detail=HOSTILE)
    append(tmp_path, "tasks", accepted, refused)
    assert report.main([str(tmp_path)]) == 0
    written = (tmp_path / "report" / "report.html").read_bytes()
    page = Page(written.decode("utf-8"))
    assert page.open == []
    tags = [tag for tag, _ in page.tags]
    assert tags.count("script") == 0
    assert tags.count("style") == 1
    assert tags.count("img") == 7
    assert not any(name.startswith("on") for _, attrs in page.tags for name in attrs)
    shown = "".join(data for tag, data in page.text if tag == "pre")
    assert "<script>alert(1)</script>" in shown
    for character in ("\x00", "\x1b", "\u202e"):
        assert character not in written.decode("utf-8")
        assert f"\\u{ord(character):04x}" in shown


@pytest.mark.parametrize(
    "changes",
    [
        {"task": None},
        {"task": []},
        {"task": {"messages": "text", "tools": {"a": 1}, "answer": None}},
        {"task": {"messages": [1, None, {"role": []}], "tools": None}},
        {"task": {"messages": 3, "tools": 3}},
        {"text": None, "id": None, "seed_id": [1]},
        {"p_hat": "0.5"},
        {"p_hat": 10**400},
        {"attempts": "8", "successes": True, "r_env": [], "weight": {}},
        {"verdict": None},
        {"verdict": ["accepted"]},
        {"text": "x" * 200_000},
    ],
    ids=lambda changes: str(changes)[:60],
)
def test_records_of_any_shape_give_a_page(tmp_path, changes):
    changes = dict(changes)
    record = generation(1, 0, p_hat=0.5) | changes
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n')
    append(tmp_path, "tasks", record)
    run = report.load_run(tmp_path)
    page = Page(render([run], {}))
    assert page.open == []
    assert sum(len(data) for _, data in page.text) < 20_000


def test_deeply_nested_tasks_give_a_page(tmp_path):
    deep: list = []
    for _ in range(200):
        deep = [deep]
    record = generation(1, 0, p_hat=0.5)
    record["task"]["answer"] = deep
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n')
    append(tmp_path, "tasks", record)
    run = report.load_run(tmp_path)
    assert "[answer] [[[" in render([run], {})
    for _ in range(100_000):
        deep = [deep]
    run.tasks[0]["task"]["answer"] = deep
    run.tasks[0]["id"] = deep
    assert "(nested too deeply)" in render([run], {})
    while deep:  # so that freeing it does not recurse
        deep = deep.pop()


def test_report_starts_without_jax(workdir, tmp_path):
    """In a process of its own, through the command line, with an ASCII terminal."""
    code = (
        "import runpy, sys\n"
        "try: runpy.run_module('genenv_jax.report', run_name='__main__')\n"
        "except SystemExit as done: print('exit', done.code)\n"
        "print(sorted({'jax', 'clu', 'tensorflow', 'matplotlib.pyplot'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(workdir), "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
    )
    assert done.stdout.splitlines()[-2:] == ["exit 0", "[]"]
    assert "p? of generated tasks" in done.stdout
    assert (tmp_path / "report.html").is_file()
