"""Fuzzing: generated texts through every entry point of a model's texts.

    python -m bench.fuzz --minutes=10                    # or: make fuzz MINUTES=10
    python -m bench.fuzz --texts=200 --names='bfcl'      # exactly so many texts for each target of that name

Texts are made by grammars and by changes to right texts (`texts`) of the benchmarks' own tasks, from
$GENENV_DATA if the files are there, else from --small.  Text number i of a target depends on --seed and i
alone.  Each has two seconds of CPU time.  A find is an exception, a longer run, the end of the process or an
outcome that is not what its type promises (`promises`).  Finds are shrunk and written to --out, and the exit
code is 1.
"""

import argparse
import os
import pathlib
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzzes and prints; 1 if there were finds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="of CPU time")
    parser.add_argument("--texts", type=int, default=1 << 60, help="inputs a target, at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--names", default="", help="words of targets' names, separated by commas")
    parser.add_argument("--out", type=pathlib.Path, default="runs/fuzz", help="for finds")
    parser.add_argument("--small", type=pathlib.Path, help="files of tests.benchmarks.small")
    options = parser.parse_args(arguments)
    options.out = options.out.absolute()
    from bench.fuzz.loop import finds, fuzz, summary, table

    tallies = fuzz(options)
    print(f"{table(tallies)}\n\n{summary(tallies)}")
    found = any(any(finds(tally)) for tally in tallies.values())
    if found:
        print(f"Finds are in {options.out}.")
    sys.stdout.flush()
    return int(found)


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    sys.exit(main())
