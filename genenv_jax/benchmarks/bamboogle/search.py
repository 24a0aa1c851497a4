"""A search that needs no corpus: what is found are the task's own two sub-questions with their answers.

The second sub-question names the answer of the first, so it is found only by a query that names that
answer too, or after the first was found.  Queries that resemble neither find nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks.bamboogle.answers import normalize

_COMMON = frozenset(
    "of in on at by for to from with and or is are was were be been did do does has have had that "
    "who whom whose which what when where why how many much it its this these".split()
)
NOTHING = "no results"


@dataclasses.dataclass(frozen=True)
class Found:
    """What a search returned: its text, and which sub-question it is (-1: none)."""

    text: str
    step: int


def _words(text: str) -> set[str]:
    words = set(normalize(text).split())
    return words - _COMMON or words


def similarity(query: str, question: str) -> float:
    """F1 of the two texts' sets of words, common words aside; in [0, 1]."""
    a, b = _words(query), _words(question)
    return 2 * len(a & b) / (len(a) + len(b)) if a and b else 0.0


def find(
    query: str, steps: Sequence[Mapping[str, Any]], found: frozenset[int], threshold: float
) -> Found:
    """The sub-question that is most like the query, with its answer.

    Args:
      query: what the agent looks for.
      steps: sub-questions, [{"question", "answers"}, ...].
      found: those that were found before.
      threshold: least similarity.
    """
    best, best_value = -1, 0.0
    for index, step in enumerate(steps):
        if index and index - 1 not in found and not _names(query, steps[index - 1]["answers"]):
            continue
        value = similarity(query, step["question"])
        if value >= threshold and value > best_value:
            best, best_value = index, value
    if best < 0:
        return Found(NOTHING, -1)
    return Found(f"{steps[best]['question']} {'; '.join(steps[best]['answers'])}", best)


def _names(query: str, answers: Sequence[str]) -> bool:
    text = f" {normalize(query)} "
    return any(f" {normalize(answer)} " in text for answer in answers if normalize(answer))
