import pytest

from genenv_jax.report import main
from genenv_jax.results.runs import load_run
from tests.commands import exit_code
from tests.results.synthetic import EPOCHS, GENERATIONS, append, generation, write_run
from tests.runs import lines


def test_every_file_is_read(run):
    assert run.name == "quickstart"
    assert list(run.metrics) == list(range(EPOCHS + 1))
    assert list(run.series("generated/count")) == list(range(1, EPOCHS + 1))
    assert run.series("absent") == {}
    assert run.band == (0.4, 0.6)
    assert run.setting("benchmark.name") == "embedded"
    assert run.setting("benchmark.name.deeper") is None
    assert run.minutes == pytest.approx(9 * 6 / 60)
    assert len(run.tasks) == GENERATIONS * EPOCHS


def test_nulls_are_left_out_and_repeats_count_once(tmp_path):
    (tmp_path / "metrics.jsonl").write_text(
        '{"step": 0, "a": 1}\n{"step": 1, "a": null, "nonfinite": ["a"]}\n{"step": 0, "a": 2}\n'
        '{"step": 2, "a": 3, "b": Infinity, "c": true}\n{"step": 3, "a"'
    )
    append(tmp_path, "tasks", generation(1, 0, p_hat=0.25), generation(1, 0, p_hat=0.75))
    run = load_run(tmp_path)
    assert run.metrics == {0: {"a": 2.0}, 1: {}, 2: {"a": 3.0}}
    assert [task["p_hat"] for task in run.tasks] == [0.75]
    assert (run.config, run.band, run.minutes) == ({}, None, None)


def test_tasks_can_be_left_out(tmp_path):
    append(tmp_path, "metrics", {"step": 0})
    (tmp_path / "tasks.jsonl").write_text("damaged\n")
    assert load_run(tmp_path, tasks=False).tasks == []


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("metrics.jsonl", None, "not the workdir of a run"),
        ("metrics.jsonl", "", "nothing recorded yet"),
        ("metrics.jsonl", '{"step": 0', "nothing recorded yet"),
        ("metrics.jsonl", "{}\n", r"metrics\.jsonl:1: damaged line: no step"),
        ("tasks.jsonl", '{"epoch": 1}\n{"epoch": "x"}\n', r"tasks\.jsonl:2: damaged line"),
        ("timing.jsonl", "[]\n", r"timing\.jsonl:1: damaged line"),
        ("config.json", "{", r"config\.json is damaged"),
        ("config.json", "[]", r"config\.json is damaged: not a JSON object"),
    ],
)
def test_a_bad_workdir_is_one_line_and_exit_code_2(tmp_path, capsys, name, content, message):
    (tmp_path / "metrics.jsonl").write_text('{"step": 0}\n')
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_text(content)
    assert exit_code(main, [str(tmp_path)]) == 2
    captured = capsys.readouterr()
    with pytest.raises((OSError, ValueError), match=message) as error:
        load_run(tmp_path)
    assert (captured.out, captured.err) == ("", f"error: {error.value}\n")
    assert len(captured.err.splitlines()) == 1
    assert not (tmp_path / "report").exists()


def test_texts_stay_in_the_file_until_they_are_shown(tmp_path):
    workdir = write_run(tmp_path / "run")
    run, records = load_run(workdir), lines(workdir, "tasks.jsonl")
    assert all("text" not in task and "messages" not in task.get("task", {}) for task in run.tasks)
    assert [run.whole(task) for task in run.tasks] == records
    file = workdir / "tasks.jsonl"
    file.write_bytes(file.read_bytes().split(b"\n", 1)[1])  # of a run that was begun anew
    assert run.whole(run.tasks[1]) == run.tasks[1]
    file.unlink()
    assert run.whole(run.tasks[0]) == run.tasks[0]
    in_memory = records[0]
    assert run.whole(in_memory) is in_memory
