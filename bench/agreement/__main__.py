"""Our verdicts on held-out tasks beside the official evaluators', on answers of many kinds.

    python -m bench.agreement bfcl
    python -m bench.agreement travelplanner --official=/clones --share=0.1
    python -m bench.agreement bfcl --keep         # writes the official verdicts that the tests compare with

Seeded generators (`bench.bad_answers`) make answers of named kinds.  The comparison covers what an evaluation
reports (`Score.success` of a held-out task, or what else the official code computes), not the training
reward.  It prints a table of the kinds, every class of disagreement with an example of each kind, and both
sides' verdicts per CPU second.

Each process takes one benchmark, since the official codes have modules of the same names.  Requirements
besides the benchmarks' data (GENENV_DATA):

    bfcl, conversations,  bfcl-eval==2026.3.23 without its dependencies, tenacity, filelock, and the extra
    handlers              `bfcl` of this package
    travelplanner         OFFICIAL/TravelPlanner at da7c1d4; pandas==2.2.3, tqdm
    api_bank              OFFICIAL/DAMO-ConvAI at 483554e
    replies               rouge==1.0.1
    bamboogle             OFFICIAL/Search-R1, OFFICIAL/FlashRAG
    alfworld              alfworld==0.4.2, textworld==1.7.0
"""

import argparse
import importlib
import os
import pathlib

from bench.agreement import kept
from bench.agreement.tally import Tally

SUITES = (*kept.SUITES, "replies", "bamboogle", "alfworld")


def main() -> None:
    """Compares and prints, or keeps the official verdicts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("--official", type=pathlib.Path, default=pathlib.Path(), help="directory of clones")
    parser.add_argument("--seed", type=int, default=1, help="of the generators")
    parser.add_argument("--share", type=float, default=1.0, help="of the tasks, drawn by the seed")
    parser.add_argument("--keep", action="store_true", help="write the official verdicts")
    arguments = parser.parse_args()
    data_dir = os.environ.get("GENENV_DATA")
    directory = pathlib.Path(data_dir).resolve() if data_dir else None
    suite = importlib.import_module(f"bench.agreement.{arguments.suite}")
    clones = arguments.official.resolve()
    cases = suite.cases(directory, arguments.seed, arguments.share)
    if arguments.keep:
        judge = suite.official(directory, clones)
        print(kept.write(arguments.suite, cases, judge, arguments.seed, arguments.share))
        return
    tally = Tally()
    tally.run(cases, suite.ours(directory), suite.official(directory, clones))
    print(tally.table())
    print(f"\n{tally.speed()}")


if __name__ == "__main__":
    main()
