"""Seconds that add up, and programs that are counted."""

import jax
import numpy as np
import pytest

from genenv_jax.run.timing import Compilations, Stopwatch


def test_the_parts_are_the_whole():
    now = [0.0]
    watch = Stopwatch(lambda: now[0])
    now[0] = 1.0
    with watch.measure("a"):
        now[0] = 3.0
        with watch.measure("b"):
            now[0] = 7.0
        with watch.measure("a"):
            now[0] = 8.0
    with watch.measure("b"):
        now[0] = 10.0
    now[0] = 13.0
    assert watch.lap("rest") == {"a": 3.0, "b": 6.0, "rest": 4.0, "total": 13.0}
    now[0] = 14.0
    assert watch.lap("rest") == {"rest": 1.0, "total": 1.0}


def test_a_measurement_that_ends_in_an_error_counts():
    now = [0.0]
    watch = Stopwatch(lambda: now[0])
    with pytest.raises(KeyError), watch.measure("a"), watch.measure("b"):
        now[0] = 2.0
        raise KeyError
    assert watch.lap("rest") == {"a": 0.0, "b": 2.0, "rest": 0.0, "total": 2.0}


def test_compilations_made_and_loaded(tmp_path):
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = {name: getattr(jax.config, name) for name in names}
    x = jax.device_put(np.ones((3, 5), np.float32))
    counter = Compilations()
    try:
        jax.config.update("jax_compilation_cache_dir", str(tmp_path))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax._src.compilation_cache.reset_cache()  # it is opened once
        counter.lap()
        make = lambda: jax.jit(lambda x: (x * 17).sum())  # noqa: E731
        program = make()
        program(x)
        assert counter.lap() == (1, 0)
        program(x)
        assert counter.lap() == (0, 0)
        jax.clear_caches()
        make()(x)
        assert counter.lap() == (0, 1)
        # Ahead of time is as good as by a call.
        ahead = jax.jit(lambda x: x - 19)
        ahead.lower(x).compile()
        assert counter.lap() == (1, 0)
        ahead(x)
        assert counter.lap() == (0, 0)
    finally:
        counter.close()
        for name, value in before.items():
            jax.config.update(name, value)
        jax._src.compilation_cache.reset_cache()
    jax.jit(lambda x: x + 23)(x)
    assert counter.lap() == (0, 0)
