"""What an evaluation prints; results.json has all of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from genenv_jax.scoring.attempts import Attempt

_CUT = 0.1  # share of cut-off answers at which a warning is printed


def summary(results: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Lines with the headline metrics of `write_results`, then those of every benchmark: validity, pass@k.

    The headline is each split's accuracy by mode, with its number of tasks.
    """
    heads: dict[str, list[list[str]]] = {}  # by split, the main one first
    rest: list[list[str]] = []
    unlisted = 0
    for full, found in results.items():
        _, split, mode, name = full.split("/", 3)
        value = found["value"]
        # Integers count the answers that could not be scored.
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
    """A warning if many answers were cut off, else ""; attempts: by mode and task."""
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
