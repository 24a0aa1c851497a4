"""The directory where child processes find modules and configuration files."""

import pytest

from tests.commands import ROOT


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)
