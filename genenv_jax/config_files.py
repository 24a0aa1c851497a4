"""Where a configuration file is: configs/NAME.py is part of the installed package, too."""

from __future__ import annotations

import difflib
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


def missing(argv: Sequence[str]) -> str:
    """What to say where the file that --config names does not exist, with those that do; else ""."""
    for argument, following in zip(argv, [*argv[1:], ""], strict=True):
        name, given, value = argument.partition("=")
        if name not in ("--config", "-config"):
            continue
        path = pathlib.Path((value if given else following).partition(":")[0])
        if path.is_file():
            return ""
        folder = path.parent if path.parent.is_dir() else pathlib.Path("configs")
        there = sorted(file.name for file in folder.glob("*.py"))
        close = difflib.get_close_matches(path.name, there, 1)
        others = f"in {folder}/ are {', '.join(there)}" if there else f"there is none in {folder}/"
        return f"--config={path}: no such file; " + (
            f"did you mean {folder / close[0]}?" if close else others
        )
    return ""
