"""Prints what every exploit earns.

    python -m tests.redteam                         # on small tasks
    python -m tests.redteam --records dial bfcl_single     # on a sample of the data sets, two scenes
    python -m tests.redteam --before=../old         # beside what an older checkout pays

The package under attack is this checkout's, or with --package that of another one.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import sys

from tests.redteam import table

_ROOT = pathlib.Path(__file__).resolve().parents[2]


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.redteam", description="Exploits and what they earn."
    )
    parser.add_argument(
        "scenes", nargs="*", metavar="scene", help=f"some of {', '.join(table.NAMES)}"
    )
    parser.add_argument(
        "--records", action="store_true", help="a sample of the data sets ($GENENV_DATA)"
    )
    parser.add_argument("--package", metavar="DIR", help="checkout whose genenv_jax is attacked")
    parser.add_argument("--before", metavar="DIR", help="checkout whose numbers stand beside")
    parser.add_argument("--json", action="store_true", help="a JSON object a line")
    options = parser.parse_args()
    unknown = set(options.scenes) - set(table.NAMES)
    if unknown:
        parser.error(f"no scene {min(unknown)!r}: expected some of {', '.join(table.NAMES)}")
    names = options.scenes or table.NAMES
    if options.package:
        sys.path.insert(0, options.package)
    data_dir = None
    if options.records:
        data_dir = pathlib.Path(os.environ.get("GENENV_DATA") or _ROOT.parent / "shared" / "data")
    before = table.of_package(options.before, names, options.records) if options.before else None
    rows = list(table.rows(names, data_dir))
    if options.json:
        lines = (json.dumps(dataclasses.asdict(row)) for row in rows)
    else:
        lines = table.markdown(rows, before)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
