"""Where a configuration file is: configs/NAME.py is part of the installed package, too."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Sequence

_PACKAGE = pathlib.Path(__file__).resolve().parent


def find(path: str) -> str:
    """The path, or that of the same file of the package where there is none.

    A line on stderr says so then.

    path: "FILE.py" or "FILE.py:ARGUMENT"; only files of a relative directory configs/ are looked for.
    """
    file, colon, argument = path.partition(":")
    relative = pathlib.PurePath(file)
    if pathlib.Path(file).exists() or relative.parts[:1] != ("configs",):
        return path
    # A checkout has the directory beside the package, a wheel inside it.
    for root in (_PACKAGE, _PACKAGE.parent):
        if (root / "configs").is_dir():
            if not (root / relative).is_file():
                break
            print(f"config: there is no {file} here; taking {root / relative}", file=sys.stderr)
            return f"{root / relative}{colon}{argument}"
    return path


def find_in(argv: Sequence[str]) -> list[str]:
    """Command-line arguments in which --config has the path that `find` gives."""
    found = []
    for argument, before in zip(argv, ["", *argv], strict=False):
        name, equals, value = argument.partition("=")
        if equals and name in ("--config", "-config"):
            argument = f"{name}={find(value)}"
        elif before in ("--config", "-config"):
            argument = find(argument)
        found.append(argument)
    return found
