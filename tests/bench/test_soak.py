"""The soak's rows and bounds."""

import soak


def test_rows_are_the_least_of_the_last_epochs():
    epochs = []
    measure = lambda: {"x": [9, 1, 5, 4, 6][len(epochs) % 5]}  # noqa: E731
    # Half a minute each; the minutes count from the ninth on.
    clock = lambda: 30.0 * len(epochs)  # noqa: E731
    rows = soak.soak(lambda: epochs.append(0), 6, [2, 99], measure, clock)
    assert rows == {m: {"epochs": e, "x": 1} for m, e in ((0.0, 10), (2, 13), (6, 21))}


def test_what_grows_beyond_its_bound_is_named():
    steady = dict.fromkeys(soak.BOUNDS, 1000.0) | {"epochs": 10.0}
    assert soak.grown(steady, steady) == []
    (said,) = soak.grown(steady, steady | {"programs": 1001.0})
    assert said == "programs: 1,001.0, from 1,000.0; at most 1,000.0"
    assert soak.grown(steady, steady | {"resident MiB": 1117.0}) and not soak.grown(
        steady, steady | {"resident MiB": 1115.0}
    )
    # What each checkpoint costs is added to both bounds.
    assert soak.grown(steady, steady | {"resident MiB": 1117.0, "epochs": 60.0}) == []


def test_a_process_is_measured():
    found = soak.measure()
    assert (
        found.keys() == soak.BOUNDS.keys() and found["resident MiB"] > 50 and found["threads"] >= 1
    )
