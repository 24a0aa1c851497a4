"""Writes the small files of each benchmark into a directory.

python -m tests.benchmarks.small DIRECTORY         # a directory each, for bench.fuzz
"""

import pathlib
import shutil
import sys

from tests.benchmarks import (
    alfworld_toys,
    api_bank_files,
    bamboogle_files,
    bfcl_tasks,
    custom_files,
    travelplanner_files,
)

WRITERS = {
    "alfworld": alfworld_toys.write,
    "api_bank": api_bank_files.write,
    "bamboogle": bamboogle_files.write,
    "bfcl": bfcl_tasks.write,
    "travelplanner": travelplanner_files.write,
}
# Including those without a data set.
ALL_WRITERS = {**WRITERS, "custom": custom_files.write}


def write(directory: pathlib.Path) -> pathlib.Path:
    """Writes the small files of all benchmarks, one directory each, replacing earlier ones."""
    shutil.rmtree(directory, ignore_errors=True)
    for name, write_files in ALL_WRITERS.items():
        write_files(directory / name)
    return directory


if __name__ == "__main__":
    write(pathlib.Path(sys.argv[1]))
