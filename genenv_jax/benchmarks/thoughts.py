"""Thoughts that a reasoning model writes before its answer."""

from __future__ import annotations

import re

from genenv_jax.benchmarks.task import UNFINISHED_THOUGHT, Rejection

_OPENS = re.compile(r"\s*<(?:think|thinking|reasoning)>")
_ENDS = re.compile(r"</(?:think|thinking|reasoning)>")


def after_thoughts(text: str) -> str | Rejection:
    """What follows the last end of a thought; UNFINISHED_THOUGHT where a text is a thought without an end.

    A template may have opened the thought itself, so that its end alone is in the text.
    """
    *_, answer = _ENDS.split(text)
    return Rejection(UNFINISHED_THOUGHT) if _OPENS.match(answer) else answer
