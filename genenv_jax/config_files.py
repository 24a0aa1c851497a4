"""Where a configuration file is: genenv_jax.configs has the files of configs/, in a checkout by a link."""

from __future__ import annotations

import difflib
import pathlib
import sys
from collections.abc import Sequence

_PACKAGE = pathlib.Path(__file__).resolve().parent
MISSING = "--config is missing: expected a file such as configs/quickstart.py"


def find(path: str) -> str:
    """The path, or that of the same file of the package where there is none.

    A line on stderr says so then.

    path: "FILE.py" or "FILE.py:ARGUMENT"; only files of a relative directory configs/ are looked for.
    """
    file, colon, argument = path.partition(":")
    relative = pathlib.PurePath(file)
    if pathlib.Path(file).exists() or relative.parts[:1] != ("configs",):
        return path
    found = _PACKAGE / relative
    if not found.is_file():
        return path
    print(f"config: there is no {file} here; taking {found}", file=sys.stderr)
    return f"{found}{colon}{argument}"


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
        file = (value if given else following).partition(":")[0]
        path, configs = pathlib.Path(file), pathlib.Path("configs")
        if not file:
            return MISSING
        if path.is_file():
            return ""
        there = {name.stem: name for name in path.parent.glob("*.py")}
        known = {name.stem: configs / name.name for name in (_PACKAGE / configs).glob("*.py")}
        for files in (there, known):
            if close := difflib.get_close_matches(path.stem, files, 1):
                return f"--config={file}: no such file; did you mean {files[close[0]]}?"
        folder = path.parent if there and path.parent != pathlib.Path() else configs
        names = sorted(name.name for name in (there if folder != configs else known).values())
        return f"--config={file}: no such file; in {folder}/ are {', '.join(names)}"
    return ""
