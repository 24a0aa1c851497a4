"""Synthetic runs, and a finished suite of three arms and eight seeds, made and drawn once."""

import contextlib
import io

import pytest

from genenv_jax import report
from genenv_jax.results.pages import write_suite_page
from genenv_jax.results.runs import load_run
from genenv_jax.results.suites import load_results, run_dir
from tests.experiment.fake_main import write_run
from tests.experiment.suites import fake_plan
from tests.results import synthetic

_GAINS = {"co-evolved": 0.3, "random": 0.2, "static": 0.08}
_SEEDS = (0, 1, 2, 3, 4, 5, 6, 7)


@pytest.fixture(scope="session")
def workdir(tmp_path_factory):
    """A finished run; read only."""
    return synthetic.write_run(tmp_path_factory.mktemp("runs") / "quickstart")


@pytest.fixture(scope="session")
def run(workdir):
    return load_run(workdir)


@pytest.fixture(scope="session")
def reported(workdir, tmp_path_factory):
    """(directory written by the command, what it printed) of `workdir`."""
    out = tmp_path_factory.mktemp("reported") / "out"
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        report.main([str(workdir), "--out", str(out)])
    return out, printed.getvalue()


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """(plan, workdir) of the suite; read only."""
    workdir = tmp_path_factory.mktemp("suite")
    for arm, gain in _GAINS.items():
        for seed in _SEEDS:
            write_run(run_dir(workdir, arm, seed), gain, seed)
    return fake_plan(_SEEDS, (("co-evolved", "random"), ("random", "static")), **_GAINS), workdir


@pytest.fixture(scope="session")
def results(finished):
    return load_results(*finished)


@pytest.fixture(scope="session")
def suite_report(results, tmp_path_factory):
    """The directory of its report; read only."""
    out = tmp_path_factory.mktemp("report")
    _, summary = write_suite_page(results, out)
    assert "co-evolved − random" in summary and "0.0156" in summary
    return out
