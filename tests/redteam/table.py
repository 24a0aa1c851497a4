"""What every exploit earns, as rows: exploit, benchmark, role, what it earned, its bound, the verdict."""

from __future__ import annotations

import dataclasses
import importlib
import json
import pathlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

COLUMNS = ("exploit", "benchmark", "role", "tried", "earned", "bound", "verdict")
NAMES = (
    "bfcl_single", "bfcl_turn_static", "bfcl_turn_state", "bfcl_conversations", "bfcl_irrelevance",
    "api_bank", "alfworld", "alfworld_games", "bamboogle", "travelplanner", "travelplanner_micro", "custom",
    "dial", "dial_turns",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table; `earned` is None where the package could not try it."""

    exploit: str
    benchmark: str
    role: str
    tried: int = 0
    earned: float | None = None
    bound: float | None = None
    verdict: str = "-"


MODULES = tuple(dict.fromkeys("bfcl" if n in NAMES[:3] else n for n in NAMES))


def exploits_of(name: str) -> list[Any]:
    """The exploits of a scene."""
    modules = (importlib.import_module(f"tests.redteam.{module}") for module in MODULES)
    return [e for module in modules for e in module.EXPLOITS if e.benchmark == name]


def rows(names: Sequence[str], data_dir: pathlib.Path | None) -> Iterator[Row]:
    """The rows of some scenes, on small tasks or on a sample of the data sets.

    What an older package does not have (a scene, a function) earns None.
    """
    for name in names:
        try:
            found = list(_of_scene(name, data_dir))
        except (ImportError, AttributeError, TypeError, ValueError) as error:
            found = [Row("*", name, "-", verdict=f"{type(error).__name__}: {error}"[:80])]
        yield from found


def _of_scene(name: str, data_dir: pathlib.Path | None) -> Iterator[Row]:
    # Imported when the package to try is known.
    from tests.redteam import exploits, scenes

    with scenes.scene(name, data_dir) as scene:
        for exploit in exploits_of(name):
            row = Row(exploit.name, name, exploit.role, bound=exploit.most(data_dir is not None))
            try:
                outcome = exploits.attempt(exploit, scene)
            except Exception as error:  # of an older package; with this one the tests show it
                yield dataclasses.replace(row, verdict=type(error).__name__)
                continue
            often = ", ".join(
                f"{reason} {count}" for reason, count in outcome.reasons.most_common(2)
            )
            yield dataclasses.replace(
                row, tried=outcome.tried, earned=outcome.earned, verdict=often or "-"
            )


def of_package(directory: str, names: Sequence[str], records: bool) -> list[Row]:
    """The rows with the package of another checkout, in a process of its own."""
    command = [sys.executable, "-m", "tests.redteam", "--json", f"--package={directory}", *names]
    found = subprocess.run(
        [*command, *(["--records"] if records else [])], check=True, stdout=subprocess.PIPE
    )
    return [Row(**json.loads(line)) for line in found.stdout.splitlines()]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def markdown(found: Sequence[Row], before: Sequence[Row] | None = None) -> Iterator[str]:
    """The lines of the table, with another package's numbers if there are some."""
    known = {(row.benchmark, row.role, row.exploit): row for row in before or ()}
    columns: list[Any] = ["exploit", "benchmark", "role", "tried"]
    columns += (["before"] if before is not None else []) + ["earned", "bound", "verdict"]
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    for row in found:
        old = known.get((row.benchmark, row.role, row.exploit))
        cells = [row.exploit, row.benchmark, row.role, str(row.tried)]
        cells += [_number(old and old.earned)] if before is not None else []
        yield f"| {' | '.join([*cells, _number(row.earned), _number(row.bound), row.verdict])} |"
