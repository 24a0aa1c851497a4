"""Directories of benchmark files: small ones, written for the tests, and the real ones."""

import pytest

from genenv_jax.benchmarks.alfworld.benchmark import ALFWorld
from genenv_jax.benchmarks.bfcl import backends
from tests.benchmarks import alfworld_toys, bfcl_classes
from tests.benchmarks.small import WRITERS


def _directory(name):
    """A fixture: the small files of a benchmark, then the real data."""

    @pytest.fixture(scope="session", params=["small", pytest.param("real", marks=pytest.mark.data)])
    def directory(request, tmp_path_factory):
        if request.param == "real":
            return request.getfixturevalue("data_dir")
        return WRITERS[name](tmp_path_factory.mktemp(name))

    return directory


alfworld_dir = _directory("alfworld")
api_bank_dir = _directory("api_bank")
bamboogle_dir = _directory("bamboogle")
bfcl_dir = _directory("bfcl")
travelplanner_dir = _directory("travelplanner")


@pytest.fixture(scope="session")
def alfworld_games(tmp_path_factory) -> ALFWorld:
    """ALFWorld that trains and evaluates on whole small games, by the rules."""
    return ALFWorld(
        data_dir=alfworld_toys.write(tmp_path_factory.mktemp("games")),
        episodes=True,
        eval_protocol="episode",
        played_on="rules",
    )


@pytest.fixture(params=["small", pytest.param("official", marks=pytest.mark.slow)])
def executable(request):
    """BFCL's stateful classes: small ones of the tests, then the official ones of bfcl-eval."""
    if request.param == "official":
        if not backends.is_installed():
            pytest.skip(backends.INSTALL)
        yield
        return
    with bfcl_classes.executing():
        yield
