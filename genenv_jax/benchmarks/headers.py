"""The form in which simulators write tasks: sections that begin with headers, each at the start of a line."""

from __future__ import annotations

from collections.abc import Sequence

from genenv_jax.benchmarks.task import UNPARSABLE, Rejection


def parse_headers(text: str, headers: Sequence[str]) -> tuple[str, ...] | Rejection:
    """The sections of a text, stripped, in the order of the headers.

    UNPARSABLE unless each header is there once, in order, with nothing before the first and something
    after each.
    """
    found: list[tuple[int, int, int]] = []
    position = 0
    for line in text.splitlines(keepends=True):
        stripped = line.lstrip()
        for index, header in enumerate(headers):
            if stripped.startswith(header):
                start = position + len(line) - len(stripped)
                found.append((index, start, start + len(header)))
        position += len(line)
    order = [index for index, _, _ in found]
    if order != list(range(len(headers))):
        names = ", ".join(headers[index] for index in order[:6]) or "none"
        return Rejection(
            UNPARSABLE, f"expected the {len(headers)} headers once and in order, found {names}"
        )
    if text[: found[0][1]].strip():
        return Rejection(UNPARSABLE, "text before the first header")
    ends = [start for _, start, _ in found[1:]] + [len(text)]
    parts = [text[begin:end].strip() for (_, _, begin), end in zip(found, ends, strict=True)]
    for header, part in zip(headers, parts, strict=True):
        if not part:
            return Rejection(UNPARSABLE, f"{header} is empty")
    return tuple(parts)
