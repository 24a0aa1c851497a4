"""Kills a co-evolution at random instants, or damages its files, and compares where it ends.

    python -m bench.kill --config=tests/run_toy.py --kills=200 --signals=25 --minutes=120 --seed=0
    python -m bench.kill --config=tests/run_toy.py --corruptions=3 --kills=0 --signals=0

A short run is made to its end.  The same run is then struck in every phase (--kills SIGKILLs over all phases;
--signals SIGTERMs and as many SIGINTs in each), started again after each strike, and compared byte for byte
when it has ended: records, settings, exports, and what the checkpoints hold.  timing.jsonl and what the
checkpoints say of it are not compared.  A --corruptions times every file of the newest checkpoint and every
record is cut short, changed in a byte and removed, each in a copy of the run that lacks its last epoch.

Commands run in processes that are forked with all modules imported.  After a SIGTERM or SIGINT such a process
takes the next command, with what it has compiled, unless --fresh; after a SIGKILL it is gone.  --processes=2
kills both or ends one of two.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import os
import pathlib
import random
import sys
import tempfile
from collections.abc import Sequence

from bench.kill.runs import Harness, table
from bench.kill.strikes import plan

_ROOT = pathlib.Path(__file__).resolve().parents[2]


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--config", required=True, help="file of the run's configuration")
    for name, default, text in (
        ("kills", 200, "SIGKILLs, over all phases"),
        ("signals", 25, "SIGTERMs, and SIGINTs, in each phase"),
        ("corruptions", 0, "how often every file is damaged in each way"),
        ("per_run", 12, "strikes of one run, at most"),
        ("epochs", 4, "of a run"),
        ("lora", 0, "rank of the adapters; 0: all parameters are trained"),
        ("workers", 0, "scoring processes"),
        ("seed", 0, "of the strikes"),
    ):
        parser.add_argument(f"--{name}", type=int, default=default, help=text)
    parser.add_argument("--processes", type=int, default=1, choices=(1, 2))
    parser.add_argument(
        "--minutes", type=float, default=1e6, help="after which it ends, with its counts"
    )
    parser.add_argument(
        "--fresh", action="store_true", help="a new process after every signal, too"
    )
    parser.add_argument("--out", type=pathlib.Path, help="where everything is written and kept")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Strikes and prints; the exit code is 1 where something is not as it should be."""
    options = parse(arguments)
    os.chdir(_ROOT)
    os.environ["JAX_PLATFORMS"] = "cpu"
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: inherits what the killed left
    with tempfile.TemporaryDirectory() as folder:
        out = (options.out or pathlib.Path(folder)).absolute()
        out.mkdir(parents=True, exist_ok=True)
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(out / "xla"))
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        importlib.import_module("genenv_jax.coevolve")  # once, before the forks

        harness = Harness(options, out)
        reference = out / "reference" / "run"
        code, _, said = harness.run(reference)
        if code:
            print("\n".join(said))
            return 1
        if options.corruptions:
            harness.corrupt_all(reference, options.corruptions)
        rng = random.Random(options.seed)
        if strikes := plan(options.kills, options.signals, rng):
            harness.strike_all(reference, strikes)
        if harness.child:
            harness.child.kill()
    print(table(harness.counts))
    bad = ("wrong", "runs that differ", "leftover processes", "differs", "code")
    return int(any(n and key[-1].startswith(bad) for key, n in harness.counts.items()))


if __name__ == "__main__":
    sys.exit(main())
