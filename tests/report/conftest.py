"""Synthetic runs, made and drawn once."""

import contextlib
import io

import pytest
from matplotlib.figure import Figure

from genenv_jax.report import __main__ as report
from genenv_jax.report.runs import load_run
from tests.report import synthetic


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


@pytest.fixture
def saved(monkeypatch):
    """Name to figure, of what is drawn but, to save time, not rendered."""
    figures = {}
    monkeypatch.setattr(
        Figure, "savefig", lambda self, path, **_: figures.update({path.stem: self})
    )
    return figures
