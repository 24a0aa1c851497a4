"""Kills a co-evolution at random instants and compares where it ends.

    python -m bench.kill --config=tests/run_toy.py --kills=200 --signals=25 --minutes=120 --seed=0
    python -m bench.kill --config=tests/run_toy.py --kills=0 --signals=2 --config.lora.rank=4
    python -m bench.kill --config=tests/run_toy.py --epochs=2 --config.checkpoint.minutes=1e-9 \\
        --config.agent.batch_size=4 --config.agent.minibatch_size=4     # checkpoints after every batch

A short run is completed.  The same run is then struck in every phase (--kills SIGKILLs over all phases;
--signals SIGTERMs and as many SIGINTs in each), started again after each strike, and compared byte for byte
when it has ended: records, settings, exports, and what the checkpoints hold.  timing.jsonl and what the
checkpoints record of it are not compared.  Other arguments are settings of the runs.
"""

import argparse
import ctypes
import importlib
import os
import pathlib
import random
import sys
import tempfile
from collections.abc import Sequence

from bench.kill.runs import Harness, plan

_ROOT = pathlib.Path(__file__).resolve().parents[2]


def main(arguments: Sequence[str] | None = None) -> int:
    """Strikes and prints; the exit code is 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--config", required=True, help="file of the run's configuration")
    for name, default, text in (
        ("kills", 200, "SIGKILLs, over all phases"),
        ("signals", 25, "SIGTERMs, and SIGINTs, in each phase"),
        ("per_run", 12, "strikes of one run, at most"),
        ("epochs", 4, "of a run"),
        ("seed", 0, "of the strikes"),
    ):
        parser.add_argument(f"--{name}", type=int, default=default, help=text)
    parser.add_argument("--minutes", type=float, default=1e6, help="after which it ends")
    parser.add_argument("--out", type=pathlib.Path, help="where everything is written and kept")
    options, settings = parser.parse_known_args(arguments)
    os.chdir(_ROOT)
    os.environ["JAX_PLATFORMS"] = "cpu"
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: inherits what the killed left
    with tempfile.TemporaryDirectory() as folder:
        out = (options.out or pathlib.Path(folder)).absolute()
        out.mkdir(parents=True, exist_ok=True)
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(out / "xla"))
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        importlib.import_module("genenv_jax.coevolve")  # once, before the forks

        harness = Harness(options, settings, out)
        reference = out / "reference" / "run"
        code, _, said = harness.run(reference)
        if code:
            print("\n".join(said))
            return 1
        rng = random.Random(options.seed)
        harness.strike_all(reference, plan(options.kills, options.signals, rng))
    for key, count in sorted(harness.counts.items()):
        print(f"{'  '.join(key)}: {count}")
    bad = ("wrong", "runs that differ", "leftover processes")
    return int(any(harness.counts[key,] for key in bad))


if __name__ == "__main__":
    sys.exit(main())
