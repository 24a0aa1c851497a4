"""A table of what every exploit earns."""

import importlib
import pathlib
from collections.abc import Iterator, Sequence

from tests.redteam.exploits import Exploit, attempt
from tests.redteam.scenes import SCENES, scene

COLUMNS = ("exploit", "benchmark", "role", "tried", "earned", "bound", "verdict")
NAMES = tuple(SCENES)
_MODULES = ("bfcl", *NAMES[3:])


def exploits_of(name: str) -> list[Exploit]:
    """The exploits of a scene."""
    modules = (importlib.import_module(f"tests.redteam.{module}") for module in _MODULES)
    return [e for module in modules for e in module.EXPLOITS if e.benchmark == name]


def rows(names: Sequence[str], data_dir: pathlib.Path | None) -> Iterator[list[str]]:
    """The rows of scenes, on small tasks or on a sample of the data sets."""
    for name in names:
        with scene(name, data_dir) as opened:
            for exploit in exploits_of(name):
                found = attempt(exploit, opened)
                often = (f"{reason} {count}" for reason, count in found.reasons.most_common(2))
                most = exploit.most(data_dir is not None)
                numbers = [str(found.tried), f"{found.earned:.3f}", f"{most:.3f}"]
                yield [exploit.name, name, exploit.role, *numbers, ", ".join(often) or "-"]
