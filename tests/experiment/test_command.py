import functools
import pathlib
import re
import types

import pytest

from genenv_jax.experiment import __main__ as command
from genenv_jax.experiment import runner
from genenv_jax.experiment.plan import compare_or_store, make_plan
from genenv_jax.results import figures
from genenv_jax.results.suites import run_dir
from tests import commands
from tests.experiment.fake_main import write_run
from tests.experiment.suites import FAKE, arm, fake_suite

SUITE = """
from tests.experiment.suites import arm, fake_suite

def get_config():
    suite = fake_suite((0, 1, 2), **{"co-evolved": arm(0.3), "random": arm(0.2)})
    suite.contrasts = (("co-evolved", "random"),)
    return suite
"""


@pytest.fixture
def main(monkeypatch, capsys):
    """The command within this process, with stand-ins for runs and no figures: (exit code, output)."""
    monkeypatch.setattr(runner, "Runner", functools.partial(runner.Runner, command=FAKE))
    monkeypatch.setattr(figures, "draw_suite", lambda results, out: out.mkdir(exist_ok=True) or {})

    def call(config, workdir, **given):
        given = {"report_only": False} | given
        given = types.SimpleNamespace(config=config, workdir=str(workdir), **given)
        monkeypatch.setattr(command, "flags", types.SimpleNamespace(FLAGS=given))
        try:
            command.main()
        except SystemExit as error:
            return error.code, capsys.readouterr()
        return 0, capsys.readouterr()

    return call


def test_the_command_reports_what_is_there(tmp_path, main):
    (tmp_path / "suite.py").write_text(SUITE)
    workdir = tmp_path / "w"
    for name, gain in (("co-evolved", 0.3), ("random", 0.2)):
        for seed in (0, 1):
            write_run(run_dir(workdir, name, seed), gain, seed)
    result = commands.command(
        "experiment", f"--config={tmp_path / 'suite.py'}", "--config.seeds=(0,1)",
        "--config.overrides.rollouts=1000", f"--workdir={workdir}", "--report_only",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "co-evolved − random" in result.stdout and "runs: 4 finished" in result.stdout
    written = pathlib.Path(re.search(r"page: (.*)", result.stdout)[1])
    assert written.is_file() and (written.parent / "validation.png").is_file()
    assert not (workdir / "suite.json").exists()  # nothing was started

    suite = fake_suite((0, 1), **{"co-evolved": arm(0.3), "random": arm(0.2)})
    suite.contrasts = (("co-evolved", "random"),)
    compare_or_store(make_plan(suite), workdir)
    code, said = main(None, workdir, report_only=True)
    assert (code, said.out) == (0, result.stdout)
    suite.seeds = (0, 2)
    code, said = main(suite, workdir, report_only=True)
    assert code == 2 and "config.seeds = [0, 1], but now it is [0, 2]" in said.err


def test_a_mistake_is_one_line_and_exit_code_2(tmp_path):
    (tmp_path / "suite.py").write_text(SUITE)
    flag = "--config.overrides.curriculum.alpha=2"
    result = commands.call(
        "experiment", f"--config={tmp_path / 'suite.py'}", f"--workdir={tmp_path / 'w'}", flag
    )
    assert result.returncode == 2, result.stderr
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: config.arms.co-evolved: config.curriculum.alpha = 2")
    assert not (tmp_path / "w").exists()


def test_without_a_suite_or_a_finished_run_there_is_nothing_to_do(tmp_path, main):
    code, said = main(None, tmp_path)
    assert (code, said.err) == (2, "error: --config is missing: expected the configuration file of a suite\n")
    code, said = main(fake_suite(), tmp_path, report_only=True)
    assert code == 2 and "no run is finished yet" in said.err


def test_failed_runs_make_exit_code_1_and_the_others_are_reported(tmp_path, main):
    bad = {"bad": arm(0.3, "fails")}
    code, said = main(fake_suite((3,), **bad), tmp_path / "bad")
    assert code == 1 and "FAILED (exit code 3)" in said.out and "page:" not in said.out
    code, said = main(fake_suite((3,), **bad, good=arm(0.2)), tmp_path / "both")
    assert code == 1 and "NOT finished, left out: bad seed 3" in said.out and "page:" in said.out
