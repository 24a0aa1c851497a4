"""A finished suite of three arms and eight seeds, and its report, made once."""

import pytest

from genenv_jax.experiment.page import write_report
from genenv_jax.experiment.plan import run_dir
from genenv_jax.experiment.results import load_results
from tests.experiment.fake_main import write_run
from tests.experiment.suites import ROOT, fake_plan

_GAINS = {"co-evolved": 0.3, "random": 0.2, "static": 0.08}
_SEEDS = (0, 1, 2, 3, 4, 5, 6, 7)


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch):
    """Where child processes find the modules, and configuration files are named from."""
    monkeypatch.chdir(ROOT)


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """(plan, workdir) of the suite; read only."""
    workdir = tmp_path_factory.mktemp("suite")
    for arm, gain in _GAINS.items():
        for seed in _SEEDS:
            write_run(run_dir(workdir, arm, seed), gain, seed)
    contrasts = (("co-evolved", "random"), ("random", "static"))
    return fake_plan(_SEEDS, contrasts, "random", **_GAINS), workdir


@pytest.fixture(scope="session")
def results(finished):
    return load_results(*finished)


@pytest.fixture(scope="session")
def report(results, tmp_path_factory):
    """What was written, tables, figures and page; read only."""
    return write_report(results, tmp_path_factory.mktemp("report"))
