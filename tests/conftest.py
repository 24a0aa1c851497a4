"""Runs the tests on eight virtual CPU devices, without a network."""

import os

# Before anything imports jax, torch or transformers: they read these once.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.setdefault("OMP_NUM_THREADS", "2")
_FLAG = "--xla_force_host_platform_device_count"
if _FLAG not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_FLAG}=8".strip()

import gc
import pathlib
import sys

import pytest

from tests import tiny

_ROOT = pathlib.Path(__file__).resolve().parent.parent


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes more than about ten seconds")


# A process may have 65,530 memory mappings on Linux, and each program that XLA compiles for CPUs takes a few.
# Beyond, an allocation fails somewhere in native code and the process dies.
_MANY_MAPPINGS = 15_000


@pytest.fixture(scope="module", autouse=True)
def _bounded_mappings():
    """Lets go of compiled programs between modules, where many have come together."""
    yield
    maps = pathlib.Path("/proc/self/maps")
    if "jax" in sys.modules and maps.exists():
        with maps.open("rb") as file:
            count = sum(1 for _ in file)
        if count > _MANY_MAPPINGS:
            sys.modules["jax"].clear_caches()
            gc.collect()


@pytest.fixture(scope="session")
def data_dir() -> pathlib.Path:
    """Directory of the real benchmark data; skips the test where it is absent."""
    path = pathlib.Path(os.environ.get("GENENV_DATA") or _ROOT / ".." / "shared" / "data").resolve()
    if not path.is_dir():
        pytest.skip(f"benchmark data not found at {path}; set GENENV_DATA")
    return path


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory) -> pathlib.Path:
    """A small Qwen2 checkpoint with a tokenizer and random weights; read only."""
    return tiny.write_model(tmp_path_factory.mktemp("tiny") / "model")
