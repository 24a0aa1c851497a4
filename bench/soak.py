"""What grows in a process that co-evolves for an hour.

    python bench/soak.py --config=tests/run_toy.py             # an hour of epochs of a second
    python bench/soak.py --config=configs/quickstart.py --minutes=10 --at=1,5,10

trains without end in one process and prints a table: resident memory, open files, threads, blocks of memory
that Python has, live compiled programs and arrays of JAX, when everything has been compiled and after --at
minutes.  It exits with 1 where the last row is more than a bound above the row at --steady minutes, see
`BOUNDS`.

Each row is the least of the five epochs that end at its time: a checkpoint that is being written holds files,
threads and arrays for a moment.
"""

from __future__ import annotations

import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence

from absl import flags
from memory import held
from tables import command, markdown

_ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(_ROOT))

from genenv_jax import cli  # noqa: E402

# How much may be added by name: a share of the row at --steady, a number, and a number an epoch.  A run keeps
# what its curriculum, replay and pools need, which are bounded but fill up in the first thousand epochs.
# An epoch ends with a checkpoint, of which tensorstore (0.1.78 to 0.1.86) keeps some 45 KB: its conversion of
# JSON to Python never frees keys and values, and Orbax converts specs and metrics for every checkpoint.
BOUNDS = {
    "resident MiB": (0.10, 16.0, 0.06),
    "open files": (0.0, 20.0, 0.0),  # of a checkpoint under way
    "threads": (0.0, 20.0, 0.0),  # pools make theirs as they need them
    "blocks": (0.10, 50_000.0, 1_200.0),
    "programs": (0.0, 0.0, 0.0),
    "arrays": (0.0, 0.0, 0.0),
    "array MiB": (0.0, 0.1, 0.0),
}
_LEAST_OF = 5  # epochs

Row = Mapping[str, float]


def measure() -> dict[str, float]:
    """This process now, by the names of `BOUNDS`."""
    import jax
    from jax.extend import backend

    arrays = jax.live_arrays()
    return {
        "resident MiB": held("VmRSS") / 2**20,
        "open files": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        # Not gc.get_objects(): a tuple that another thread is making must not be seen.
        "blocks": sys.getallocatedblocks(),
        "programs": len(backend.get_backend().live_executables()),
        "arrays": len(arrays),
        "array MiB": sum(x.nbytes for x in arrays) / 2**20,
    }


def least(rows: Sequence[Row]) -> dict[str, float]:
    """The smallest value of each name."""
    return {name: min(row[name] for row in rows) for name in rows[0]}


def grown(steady: Row, last: Row) -> list[str]:
    """What has grown beyond its bound, a sentence each."""
    found = []
    epochs = last["epochs"] - steady["epochs"]
    for name, (share, number, each) in BOUNDS.items():
        most = steady[name] * (1 + share) + number + each * epochs
        if last[name] > most:
            found.append(
                f"{name}: {last[name]:,.1f}, from {steady[name]:,.1f}; at most {most:,.1f}"
            )
    return found


def soak(
    epoch: Callable[[], None],
    minutes: float,
    at: Sequence[float],
    measure: Callable[[], Row] = measure,
    clock: Callable[[], float] = time.monotonic,
) -> dict[float, dict[str, float]]:
    """Calls `epoch` until the time is over.

    Args:
      epoch: one of the run; the first few compile and do not count.
      minutes: from when they are over.
      at: minutes at which a row is wanted; the last one is `minutes`.
    Returns:
      rows by minute, 0 among them.  "epochs" says how many have been made.
    """
    rows: dict[float, dict[str, float]] = {}
    wanted = sorted({0.0, minutes, *(t for t in at if t < minutes)})
    last: list[Row] = []
    began, count = clock(), 0
    while wanted:
        epoch()
        count += 1
        last = [*last, measure()][-_LEAST_OF:]
        if count < 2 * _LEAST_OF:
            began = clock()
        elif (clock() - began) / 60 >= wanted[0]:
            rows[wanted.pop(0)] = {"epochs": float(count)} | least(last)
    return rows


def main() -> None:
    """Runs and prints."""
    from genenv_jax.coevolve import Coevolution
    from genenv_jax.config import validate

    options = flags.FLAGS
    with tempfile.TemporaryDirectory() as folder:
        with cli.one_line_errors():
            at = [float(t) for t in options.at]
            if options.steady not in at or options.steady >= options.minutes:
                raise ValueError(f"--steady={options.steady}: expected one of --at={options.at}")
            config = options.config
            # The pool of tasks is whole unless bounded.  Learning rates are for runs of some
            # epochs: after a thousand they diverge.
            config.verification.pool_epochs = 3
            config.agent.learning_rate = config.simulator.learning_rate = 1e-5
            config.epochs, config.export, config.tracking.trackers = 2**31 - 1, False, ()
            run = Coevolution(validate(config), pathlib.Path(folder) / "run")
        with run.scorer, run.session.running(), run.host.activate():
            epochs = run.session.epochs()
            rows = soak(lambda: run.epoch(next(epochs)), options.minutes, at)
    print(f"{command()}\n")
    table = []
    for minute, row in rows.items():
        cells = (f"{x:,.1f}" if "MiB" in name else f"{x:,.0f}" for name, x in row.items())
        table.append([f"{minute:g} minutes", *cells])
    print(markdown(["", *rows[0.0]], table))
    if found := grown(rows[options.steady], rows[options.minutes]):
        print("\nMore than expected: " + "; ".join(found))
        sys.exit(1)
    print(f"\nWithin bounds from minute {options.steady:g} to minute {options.minutes:g}.")


if __name__ == "__main__":
    cli.define_config("Configuration file.")
    flags.DEFINE_float("minutes", 60.0, "How long to train.", 0.1)
    flags.DEFINE_list("at", ["5", "30", "60"], "Minutes of the table's rows.")
    flags.DEFINE_float("steady", 5.0, "Minutes of the row from which on nothing may grow.")
    flags.mark_flags_as_required(["config"])
    cli.run(main)
