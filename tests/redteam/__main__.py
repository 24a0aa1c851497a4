"""Prints what every exploit earns.

python -m tests.redteam                         # on small tasks
python -m tests.redteam --records dial bfcl_single     # on a sample of the data sets, two scenes
"""

import argparse
import os
import pathlib

from bench.tables import markdown
from tests.redteam import table


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser("python -m tests.redteam", description="What exploits earn.")
    names = ", ".join(table.NAMES)
    parser.add_argument("scenes", nargs="*", metavar="scene", help=f"some of {names}")
    parser.add_argument("--records", action="store_true", help="a sample of the data sets")
    options = parser.parse_args()
    if unknown := set(options.scenes) - set(table.NAMES):
        parser.error(f"no scene {min(unknown)!r}: expected some of {names}")
    directory = os.environ.get("GENENV_DATA")
    if options.records and not directory:
        parser.error("--records: expected the data sets in $GENENV_DATA")
    data_dir = pathlib.Path(directory) if options.records else None
    print(markdown(table.COLUMNS, table.rows(options.scenes or table.NAMES, data_dir)))


if __name__ == "__main__":
    main()
