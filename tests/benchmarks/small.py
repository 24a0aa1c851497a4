"""What writes the small files of each benchmark into a directory."""

from __future__ import annotations

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
# With those of nobody's data set.
ALL_WRITERS = {**WRITERS, "custom": custom_files.write}
