"""Where child processes find the modules, and configuration files are named from."""

import pytest

from tests.commands import ROOT


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)
