"""Thoughts that a reasoning model writes before its answer."""

from __future__ import annotations

import re

from genenv_jax.benchmarks.task import UNFINISHED_THOUGHT, Rejection

_OPENS = re.compile(r"\s*<(?:think|thinking|reasoning)>")
_ENDS = re.compile(r"</(?:think|thinking|reasoning)>")


def after_thoughts(text: str) -> str | Rejection:
    """The text after the last closing thought tag; UNFINISHED_THOUGHT if a thought is never closed.

    The chat template may have opened the thought, so that the text has only the closing tag.
    """
    *_, answer = _ENDS.split(text)
    return Rejection(UNFINISHED_THOUGHT) if _OPENS.match(answer) else answer
