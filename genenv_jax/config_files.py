"""Finds configuration files: genenv_jax/configs has the files of configs/, in a checkout through a link."""

from __future__ import annotations

import difflib
import pathlib
import sys
from collections.abc import Sequence

_PACKAGE = pathlib.Path(__file__).resolve().parent
_FLAGS = ("--config", "-config")
MISSING = "--config is missing: expected a file such as configs/quickstart.py"


def find(path: str) -> str:
    """The path, or the package's file if the working directory has none; prints a line on stderr if so.

    path: "FILE.py" or "FILE.py:ARGUMENT"; the package is searched only for files in the relative configs/.
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
    """The command-line arguments, with --config's path replaced by the one from `find`.

    Raises ValueError if --config names a file that does not exist; the message lists existing ones.
    """
    found = []
    for argument, before in zip(argv, ["", *argv], strict=False):
        name, equals, value = argument.partition("=")
        if equals and name in _FLAGS:
            argument = f"{name}={_existing(value)}"
        elif before in _FLAGS:
            argument = _existing(argument)
        found.append(argument)
    return found


def _existing(path: str) -> str:
    file = path.partition(":")[0]
    if not file:
        raise ValueError(MISSING)
    found = find(path)
    if pathlib.Path(found.partition(":")[0]).is_file():
        return found
    asked, configs = pathlib.Path(file), pathlib.Path("configs")
    there = {name.stem: name for name in asked.parent.glob("*.py")}
    known = {name.stem: configs / name.name for name in (_PACKAGE / configs).glob("*.py")}
    for files in (there, known):
        if close := difflib.get_close_matches(asked.stem, files, 1):
            raise ValueError(f"--config={file}: no such file; did you mean {files[close[0]]}?")
    folder = asked.parent if there and asked.parent != pathlib.Path() else configs
    names = sorted(name.name for name in (there if folder != configs else known).values())
    raise ValueError(f"--config={file}: no such file; in {folder}/ are {', '.join(names)}")
