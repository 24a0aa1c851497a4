"""Fixtures of the players' tests."""

import pytest

from genenv_jax.run.timing import Compilations


@pytest.fixture
def compilations():
    """Counts the programs that JAX compiles: `lap` gives (compiled, loaded)."""
    counter = Compilations()
    yield counter
    counter.close()
