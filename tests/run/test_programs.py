import contextlib
import threading

import jax
import pytest

from genenv_jax.run import programs

NAMES = (
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_enable_xla_caches",
)


@pytest.fixture
def unset(monkeypatch, tmp_path):
    """JAX without a cache, and the test's own user cache directory."""
    before = {name: getattr(jax.config, name) for name in NAMES}
    jax.config.update("jax_compilation_cache_dir", None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield tmp_path
    for name, value in before.items():
        jax.config.update(name, value)


def test_programs_are_kept_for_the_user(unset):
    programs.enable_compilation_cache(unset / "workdir")
    kept = jax.config.jax_compilation_cache_dir
    assert kept.startswith(str(unset / "cache" / "genenv_jax" / "xla"))
    programs.enable_compilation_cache(unset / "other")
    assert jax.config.jax_compilation_cache_dir == kept  # one cache, whatever the workdir
    jax.config.update("jax_compilation_cache_dir", str(unset / "named"))
    programs.enable_compilation_cache(unset / "workdir")
    assert jax.config.jax_compilation_cache_dir == str(unset / "named")


def test_several_processes_share_theirs(unset, monkeypatch):
    monkeypatch.setattr(programs.processes, "process_count", lambda: 2)
    programs.enable_compilation_cache(unset / "workdir")
    assert jax.config.jax_compilation_cache_dir == str(unset / "workdir" / "xla_cache")


@pytest.mark.parametrize("side_by_side", [False, True])
def test_every_step_runs_once_in_its_chains_order(side_by_side):
    ran, counted, entered = [], [], []

    @contextlib.contextmanager
    def activate():
        entered.append(threading.get_ident())
        yield

    def step(chain, i):
        return lambda: ran.append((chain, i))

    chains = [[step(c, i) for i in range(5)] for c in range(6)] + [[]]
    programs.compile_in_parallel(chains, activate, side_by_side, lambda: counted.append(1))
    assert [sum(c == chain for c, _ in ran) for chain in range(6)] == [5] * 6
    for chain in range(6):
        assert [i for c, i in ran if c == chain] == list(range(5))
    assert len(counted) == 30 and len(entered) == 7
    assert side_by_side or set(entered) == {threading.get_ident()}


def test_two_chains_run_at_a_time(monkeypatch):
    monkeypatch.setattr(programs.os, "cpu_count", lambda: 2)
    meeting = threading.Barrier(2, timeout=60)
    programs.compile_in_parallel([[meeting.wait], [meeting.wait]], contextlib.nullcontext, True, lambda: None)


@pytest.mark.parametrize("side_by_side", [False, True])
def test_a_step_that_fails_ends_it(side_by_side):
    def fails():
        raise ValueError("out of memory")

    with pytest.raises(ValueError, match="out of memory"):
        programs.compile_in_parallel([[fails]] * 3, contextlib.nullcontext, side_by_side, lambda: None)
