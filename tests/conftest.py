"""Runs the tests on eight virtual CPU devices, without a network."""

import os

from tests.commands import COMPILE_FAST, ROOT

# Before anything imports jax, torch or transformers: they read these once.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.setdefault("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")  # so that commands need not start again
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count=8 {COMPILE_FAST}"

import collections
import gc
import pathlib
import signal
import sys
import time

import pytest

from tests import tiny

_LEFT_OUT: collections.Counter[str] = collections.Counter()

# Whole runs take longest: they begin first, so that no process waits for them at the end.
_FIRST = (
    *("test_executed", "test_processes", "test_coevolve", "test_commands", "test_options"),
    *("test_guide", "test_documented", "test_kill", "test_warm_start"),
)


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.module.__name__.rpartition(".")[2] not in _FIRST)


def pytest_deselected(items):
    marks = (mark for item in items for mark in ("slow", "data") if item.get_closest_marker(mark))
    _LEFT_OUT.update(marks)


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):  # one of several processes; each collects all tests
        session.config.workeroutput["left out"] = dict(_LEFT_OUT)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    for mark, count in getattr(node, "workeroutput", {}).get("left out", {}).items():
        _LEFT_OUT[mark] = count


def pytest_terminal_summary(terminalreporter):
    """Prints which tests were left out, and the command that runs them."""
    if _LEFT_OUT:
        counts = " and ".join(f"{count} {mark}" for mark, count in sorted(_LEFT_OUT.items()))
        terminalreporter.write_line(
            f"left out: {counts} tests; `make test-rest` runs them, those marked data on the files that "
            "`genenv datasets --name=NAME` downloads or $GENENV_DATA names"
        )


# A process may have 65,530 memory mappings on Linux, and each program that XLA compiles for CPUs takes a few.
# Beyond that, an allocation in native code fails and the process dies.
_MANY_MAPPINGS = 15_000


@pytest.fixture(scope="module", autouse=True)
def _bounded_mappings():
    """Drops compiled programs between modules once there are many."""
    yield
    maps = pathlib.Path("/proc/self/maps")
    if "jax" in sys.modules and maps.exists():
        with maps.open("rb") as file:
            count = sum(1 for _ in file)
        if count > _MANY_MAPPINGS:
            sys.modules["jax"].clear_caches()
            gc.collect()


@pytest.fixture(scope="session", autouse=True)
def _toy_benchmark():
    """Registers the tests' benchmark, so that a configuration may name it."""
    from genenv_jax.benchmarks import registry

    registry._BENCHMARKS["toy"] = ("tests.toy", "Drawing")


@pytest.fixture(scope="session", autouse=True)
def _trusted_templates():
    """Skips trying the tests' chat templates in separate processes, which takes seconds each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("genenv_jax.models.templates.check", lambda *_, **__: None)
        yield


@pytest.fixture(scope="session")
def _made_models(tmp_path_factory):
    root = tmp_path_factory.getbasetemp()
    # Test processes share it.
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root
    (root / "models").mkdir(exist_ok=True)
    return root / "models"


@pytest.fixture(scope="session", autouse=True)
def _shared_programs(_made_models):
    """Processes that tests start share compiled programs, also with this one if it uses `cache`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_COMPILATION_CACHE_DIR", str(_made_models / "xla"))
        patch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
        yield


@pytest.fixture(scope="module")
def cache(_made_models):
    """Directory of made models, and, during a module of whole runs, of compiled programs.

    The module's runs also share their traced update steps.
    """
    import jax

    from tests.runs import shared_steps

    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = {name: getattr(jax.config, name) for name in names}
    jax.config.update("jax_compilation_cache_dir", str(_made_models / "xla"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
    with shared_steps():
        yield _made_models
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.fixture(scope="session")
def data_dir() -> pathlib.Path:
    """Directory of the real benchmark data; skips the test if it is absent."""
    path = pathlib.Path(os.environ.get("GENENV_DATA") or ROOT / ".." / "shared" / "data").resolve()
    if not path.is_dir():
        pytest.skip(f"benchmark data not found at {path}; set GENENV_DATA")
    return path


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory) -> pathlib.Path:
    """A small Qwen2 checkpoint with a tokenizer and random weights; read only."""
    return tiny.write_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture
def interruptible():
    """Handles SIGINT even if a script runs the tests in the background, where it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def bounded():
    """Fails a test of hostile input that takes 10 s of CPU; one second is normal."""
    start = time.process_time()
    yield
    assert time.process_time() - start < 10
