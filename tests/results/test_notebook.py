import base64
import os
import signal
import subprocess
import sys
import time

import pytest
from PIL import Image

from genenv_jax.results import notebook
from genenv_jax.results.answers import read_answers
from genenv_jax.results.html import DPI
from tests.commands import ROOT
from tests.results.synthetic import Page, append, generation, hostile, run_of


def test_parts_of_a_run():
    tasks = [generation(1, k, p_hat=k / 10) for k in range(11)] + [generation(1, 11, "duplicate")]
    page = Page(notebook.texts_by_success(run_of(*tasks)))
    assert "Nearest to p̂ ≈ 0.1, p̂ ≈ 0.5, p̂ ≈ 0.9:" in page.within("p")
    assert [data for tag, data in page.text if tag == "b"] == [f"p̂ = {k / 10} ({k} of 10)" for k in (1, 5, 9)]
    assert [data for tag, data in page.text if tag == "pre"][::4] == [tasks[k]["text"] for k in (1, 5, 9)]
    table = Page(notebook.rejection_table(run_of(*tasks)))
    assert table.within("td") == "all121.000duplicate10.083" and table.within("b") == "duplicate"
    assert "not recorded" in notebook.texts_by_success(run_of())


def test_a_figure(tmp_path):
    found = {"p_hat": tmp_path / "p_hat.png"}
    Image.new("1", (5 * DPI, 10)).save(found["p_hat"])
    data, metadata = notebook.figure(found, "p_hat")._repr_mimebundle_()
    assert base64.b64decode(data["image/png"]) == found["p_hat"].read_bytes()
    assert metadata["image/png"]["width"] == 5 * 108  # points are 1/72 inch: 8 of them are 12 pixels
    assert notebook.figure(found, "solved").data == "solved: not recorded"


def test_answers_are_compared():
    def answers(name, solved):
        record = {"category": "depth_1", "reason": "wrong"}
        return {t: record | {"answer": f"{name}-{t}", "success": t in solved} for t in "abcde"}

    before, after = answers("before", "ab"), answers("after", "bcd")
    page = Page(notebook.compare_answers(before, after, {"c": "the task c"}, shown=1))
    numbers = [data for tag, data in page.text if tag == "td" and data.strip()]
    assert numbers == [
        *("all", "5", "1.000"), *("learnt", "2", "0.400"), *("lost", "1", "0.200"),
        *("never solved", "1", "0.200"), *("always solved", "1", "0.200"),
    ]  # fmt: skip
    assert "before: ✓before-aafter: ✗ wrongafter-a" in page.within("pre", "p").replace("\n", "")
    assert page.within("b").count(" · depth_1") == 4
    both = Page(notebook.compare_answers(before, after, {"c": "the task c"}, shown=2))
    assert "the task c" in both.within("pre") and "before-d" in both.within("pre")


def test_the_first_answer_of_a_mode_is_read(tmp_path):
    records = [{"mode": m, "task_id": "a", "answer": i} for i, m in enumerate("sgg")]
    append(tmp_path, "predictions", *records)
    assert read_answers(tmp_path, "g") == {"a": records[1]}
    with pytest.raises(ValueError, match="no answer of mode 'other'"):
        read_answers(tmp_path, "other")


def test_text_of_models_is_shown_and_does_nothing():
    record = {"mode": "greedy", "task_id": "t", "category": "c", "answer": "a", "reason": "r"}
    answers = {"t": hostile(record, "answer")}
    task, rejected = generation(1, 0, p_hat=0.5), generation(1, 1, "duplicate", detail="d")
    run = run_of(hostile(task, "task"), hostile(rejected, "rejected"))
    pages = {
        "task.seed_id": notebook.texts_by_success(run),
        "rejected.detail": notebook.rejection_table(run),
        "answer.reason": notebook.compare_answers(answers, answers, hostile({"t": ""}, "prompt")),
    }
    for place, text in pages.items():
        page = Page(text)
        page.check_harmless(images=0)
        assert f"[{place}]" in page.within()


def test_the_output_of_a_command_is_printed(capfd):
    notebook.run("calendar", "1999", "1")
    assert capfd.readouterr().out.startswith("$ python -m calendar 1999 1\n    January 1999")


def test_a_command_that_fails(capfd, tmp_path):
    with pytest.raises(RuntimeError, match=r"calendar ended with exit code 2"):
        notebook.run("calendar", "no-year")
    assert "invalid" in capfd.readouterr().out


def test_an_interrupt_ends_the_command_in_good_order(tmp_path):
    (tmp_path / "wait.py").write_text(
        "import signal, sys, time\n"
        "def end(*_):\n    open('ended', 'w').close(); sys.exit(143)\n"
        "signal.signal(signal.SIGTERM, end)\nprint('waiting', flush=True)\ntime.sleep(900)\n"
    )
    code = (
        # A shell starts background jobs with interrupts ignored; children inherit this.
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from genenv_jax.results import notebook; notebook.run('wait')\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"},
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while "waiting" not in (line := process.stdout.readline()):
        assert line, process.stderr.read()
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=300)
    assert "KeyboardInterrupt" in error and time.monotonic() - began < 300
    assert process.returncode != 0 and (tmp_path / "ended").exists()
