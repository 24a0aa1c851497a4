"""Tables of the measurements, as Markdown."""

import shlex
import sys
from collections.abc import Iterable, Sequence


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose cells are text; all columns but the first are right-aligned numbers."""
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def command() -> str:
    """The command line of this script, as its users write it."""
    return f"`{shlex.join(['python', *sys.argv])}`"
