"""Thoughts that a reasoning model writes before its answer."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks.task import UNFINISHED_THOUGHT, Rejection

_NAMES = "(?:think|thinking|reasoning)"
_OPENS = re.compile(rf"\s*<{_NAMES}>", re.IGNORECASE)
_ENDS = re.compile(rf"</{_NAMES}>", re.IGNORECASE)
# A closing tag, or a string that may hold one.  No string starts at an escaped quote: that would take
# quadratic time.
_ENDS_OR_STRING = re.compile(
    rf"""({_ENDS.pattern})|(?<![\w\\])(["'])(?>(?:(?!\2)[^\\\n]|\\.)*)\2""", re.IGNORECASE
)


def after_thoughts(text: Any) -> Any:
    """The text after the last thought, or UNFINISHED_THOUGHT as a `Rejection` if a thought is never closed.

    A closing tag also ends a thought that was opened outside the text.  A tag in quotes on one line does not:
    it belongs to the answer.  Anything but text comes back as it is.
    """
    if not isinstance(text, str) or "<" not in text:
        return text
    start = 0
    while True:
        if opened := _OPENS.match(text, start):
            end = _ENDS.search(text, opened.end())
            if not end:
                return Rejection(UNFINISHED_THOUGHT)
        else:
            end = next((found for found in _ENDS_OR_STRING.finditer(text, start) if found[1]), None)
            if not end:
                return text[start:]
        start = end.end()


def lengths(texts: Sequence[str]) -> dict[str, float]:
    """Mean lengths of thoughts and of answers in characters; {} if nothing is a thought."""
    return mean_lengths(totals(texts))


def totals(texts: Sequence[str]) -> dict[str, int]:
    """The number of texts, and of characters of their thoughts and of their answers; can be added up."""
    answers = sum(len(said) for text in texts if isinstance(said := after_thoughts(text), str))
    thoughts = sum(map(len, texts)) - answers
    return {"texts": len(texts), "thought_chars": thoughts, "answer_chars": answers}


def mean_lengths(total: Mapping[str, int]) -> dict[str, float]:
    """`lengths` from `totals`."""
    if not total["thought_chars"]:
        return {}
    names = ("thought_chars", "answer_chars")
    return {f"{name}_mean": total[name] / total["texts"] for name in names}
