"""One attempt at a question with searches, and the search, which needs no corpus.

What is found are the task's own two sub-questions with their answers.  The second sub-question names the
answer of the first, so it is found only by a query that names that answer too, or after the first was
found.  Queries that resemble neither find nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks.bamboogle.scoring import MAX_CHARS, NO_ANSWER, normalize
from genenv_jax.benchmarks.base import TOO_LONG, Episode, Message, Score
from genenv_jax.benchmarks.safe_parse import check_text

NOTHING = "no results"
MAX_SEARCHES = 3
_SEARCH, _END_SEARCH = "<search>", "</search>"
_END_ANSWER = "</answer>"
_LEAST_SIMILARITY = 0.4  # of a query and the sub-question that it finds
_SEARCH_CHARS = 2_000  # of an answer that searches
_INFORMATION_CHARS = 1_000  # of what comes back
_QUERY_CHARS = 400
_COMMON = frozenset(
    "of in on at by for to from with and or is are was were be been did do does has have had that "
    "who whom whose which what when where why how many much it its this these".split()
)


class SearchEpisode(Episode):
    """A question, searches and an answer.

    Each answer of the agent is either a search, `<search>query</search>`, or the end.  The tag that is
    closed first decides.  A search beyond `MAX_SEARCHES` finds nothing; the next one ends the episode without
    an answer.

    Args:
      opening: the messages that the agent reads first.
      steps: the question's two sub-questions, [{"question", "answers"}, ...].
      finish: scores the last answer.
    """

    def __init__(
        self,
        opening: list[Message],
        steps: Sequence[Mapping[str, Any]],
        finish: Callable[[str], Score],
    ):
        super().__init__(opening)
        self._steps = steps
        self._finish = finish
        self._searches = 0
        self._found: set[int] = set()

    def take(self, answer: str) -> Score | Sequence[Message]:
        after = self._search(answer)
        if isinstance(after, str):
            return [{"role": "user", "content": f"<information>{after}</information>"}]
        counts = {"searches": min(self._searches, MAX_SEARCHES), "found": len(self._found)}
        return dataclasses.replace(after, detail={**after.detail, **counts})

    def _search(self, answer: str) -> Score | str:
        """What an answer's search finds, or the score that it ends with."""
        if rejection := check_text(answer, MAX_CHARS):
            return Score(0.0, False, False, rejection.reason)
        query = _query(answer)
        if query is None:
            return self._finish(answer)
        if len(answer) > _SEARCH_CHARS:
            return Score(0.0, False, False, TOO_LONG)
        if self._searches > MAX_SEARCHES:
            return Score(0.0, False, False, NO_ANSWER)
        self._searches += 1
        if self._searches > MAX_SEARCHES:
            return "no searches are left; give your answer"
        step = find(query[:_QUERY_CHARS], self._steps, self._found)
        if step is None:
            return NOTHING
        self._found.add(step)
        found = self._steps[step]
        return f"{found['question']} {'; '.join(found['answers'])}"[:_INFORMATION_CHARS]


def search_answer(question: str) -> str:
    """An answer that searches."""
    return f"{_SEARCH}{question}{_END_SEARCH}"


def _query(answer: str) -> str | None:
    """The first search, if it is closed before an answer is; else None."""
    start = answer.find(_SEARCH)
    end = answer.find(_END_SEARCH, start + len(_SEARCH)) if start >= 0 else -1
    if end < 0:
        return None
    answered = answer.find(_END_ANSWER)
    return None if 0 <= answered < end else answer[start + len(_SEARCH) : end].strip()


def find(query: str, steps: Sequence[Mapping[str, Any]], found: set[int]) -> int | None:
    """The index of the sub-question that is most like the query; None where none is like it.

    Args:
      query: what the agent looks for.
      steps: sub-questions, [{"question", "answers"}, ...].
      found: those that were found before.
    """
    best, best_value = None, 0.0
    for index, step in enumerate(steps):
        if index and index - 1 not in found and not _names(query, steps[index - 1]["answers"]):
            continue
        value = similarity(query, step["question"])
        if value >= _LEAST_SIMILARITY and value > best_value:
            best, best_value = index, value
    return best


def similarity(query: str, question: str) -> float:
    """F1 of the two texts' sets of words, common words aside; in [0, 1]."""
    a, b = _words(query), _words(question)
    return 2 * len(a & b) / (len(a) + len(b)) if a and b else 0.0


def _words(text: str) -> set[str]:
    words = set(normalize(text).split())
    return words - _COMMON or words


def _names(query: str, answers: Sequence[str]) -> bool:
    text = f" {normalize(query)} "
    return any(f" {normalize(answer)} " in text for answer in answers if normalize(answer))
