"""What an evaluation says on the terminal, in at most 80 columns; all of it is in results.json."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from genenv_jax.scoring.attempts import Attempt

_WIDTH = 80
_CUT = 0.1  # share of the answers from which on it is said that they were cut off


def summary(results: Mapping[str, Mapping[str, float]]) -> list[str]:
    """The headline numbers of `write_results`, then what every benchmark has: form of the answers, pass@k.

    The headline is each split's accuracy, by mode, with the number of its tasks.
    """
    heads: dict[str, list[list[str]]] = {}  # by split, the main one first
    rest: list[list[str]] = []
    unlisted = 0
    for full, found in results.items():
        _, split, mode, name = full.split("/", 3)
        value = found["value"]
        # How many answers could not be scored is a count.
        text = f"{value:,}" if isinstance(value, int) else f"{value:.3f}"
        if "low" in found:
            text += f" [{found['low']:.3f}, {found['high']:.3f}]"
        if name == "accuracy":
            heads.setdefault(split, []).append(
                [split, mode, name, text, f"n = {found['tasks']:,}" if "tasks" in found else ""]
            )
        elif isinstance(value, int) or name.startswith(
            ("valid_", "invalid_", "truncated_", "pass@")
        ):
            rest.append([split, mode, name, text])
        else:
            unlisted += 1
    lines = [*_table(row for rows in heads.values() for row in rows), *_table(rest)]
    if unlisted:
        lines.append(f"{unlisted} more metrics: results.json, and the page")
    return lines


def cut_off(attempts: Mapping[str, Sequence[Sequence[Attempt]]], limits: str) -> str:
    """A warning where many answers were cut off, else ""; attempts: by mode and task."""
    ended = [a.ended for made in attempts.values() for of in made for a in of]
    cut = len(ended) - sum(ended)
    if not ended or cut < _CUT * len(ended):
        return ""
    return f"{cut:,} of {len(ended):,} answers were cut off at {limits}"


def _table(rows: Iterable[Sequence[str]]) -> list[str]:
    """Aligned lines; where they are too wide, the names (columns 0 and 2) are shortened."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if excess := max(sum(widths) + 2 * len(widths) - 2 - _WIDTH, 0):
        room = widths[0] + widths[2] - excess
        widths[0] = min(widths[0], max(room // 2, room - widths[2]))
        widths[2] = room - widths[0]
    return [
        "  ".join(_fit(text, width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _fit(text: str, width: int) -> str:
    return (text if len(text) <= width else text[: width - 2] + "..")[:width].ljust(width)
