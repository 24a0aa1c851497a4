"""The form in which BFCL's simulator writes a task: three sections with headers."""

from __future__ import annotations

from genenv_jax.benchmarks.base import UNPARSABLE, Rejection
from genenv_jax.benchmarks.bfcl import prompts

HEADERS = (prompts.TOOLS_HEADER, prompts.TASK_HEADER, prompts.ANSWER_HEADER)


def sections(text: str) -> tuple[str, str, str] | Rejection:
    """The three sections of a generation, stripped, or UNPARSABLE."""
    found: list[tuple[int, int, int]] = []
    position = 0
    for line in text.splitlines(keepends=True):
        stripped = line.lstrip()
        for index, header in enumerate(HEADERS):
            if stripped.startswith(header):
                start = position + len(line) - len(stripped)
                found.append((index, start, start + len(header)))
        position += len(line)
    order = [index for index, _, _ in found]
    if order != list(range(len(HEADERS))):
        names = ", ".join(HEADERS[index] for index in order[:6]) or "none"
        return Rejection(UNPARSABLE, f"expected the three headers once and in order, found {names}")
    if text[: found[0][1]].strip():
        return Rejection(UNPARSABLE, "text before the first header")
    ends = [start for _, start, _ in found[1:]] + [len(text)]
    parts = [text[begin:end].strip() for (_, _, begin), end in zip(found, ends, strict=True)]
    for header, part in zip(HEADERS, parts, strict=True):
        if not part:
            return Rejection(UNPARSABLE, f"{header} is empty")
    return parts[0], parts[1], parts[2]
