import pytest

from tests.sampling.small_model import make_params


@pytest.fixture(scope="session")
def params():
    """Parameters of the small decoder."""
    return make_params()
