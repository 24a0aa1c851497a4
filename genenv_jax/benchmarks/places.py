"""Finds where in the user's own code an error arose."""

import os
import sysconfig
import traceback

# Path prefixes of files that are not the user's: this package, Python, installed packages, generated code.
_LIBRARIES = (
    os.path.join(os.path.dirname(os.path.dirname(__file__)), ""),
    *(os.path.join(sysconfig.get_path(kind), "") for kind in ("stdlib", "purelib", "platlib")),
    "<",
)


def place(error: BaseException) -> str:
    """The last line of the user's code in an error's traceback, as " (mine.py:3 in questions)"; or ""."""
    if isinstance(error, SyntaxError):
        return ""  # its message has the line
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(_LIBRARIES):
            inside = "" if frame.name == "<module>" else f" in {frame.name}"
            return f" ({os.path.basename(frame.filename)}:{frame.lineno}{inside})"
    return ""
