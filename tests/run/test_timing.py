import pytest

from genenv_jax.run.timing import Stopwatch


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
