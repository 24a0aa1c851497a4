"""What an evaluation says on the terminal; all of it is in results.json."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from genenv_jax.scoring.attempts import Attempt

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
    """Aligned lines."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
