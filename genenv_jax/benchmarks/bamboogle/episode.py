"""One attempt at a question with searches, and the search itself, which needs no corpus.

A search finds the task's own two sub-questions with their answers.  The second sub-question names the
answer to the first, so it is found only by a query that also names that answer, or after the first was
found.  Queries that resemble neither find nothing.
"""

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
_LEAST_SIMILARITY = 0.4  # between a query and the sub-question that it finds
_SEARCH_CHARS = 2_000  # longest answer with a search
_INFORMATION_CHARS = 1_000  # a longer search result is cut
_QUERY_CHARS = 400
_COMMON = frozenset(
    "of in on at by for to from with and or is are was were be been did do does has have had that "
    "who whom whose which what when where why how many much it its this these".split()
)


class SearchEpisode(Episode):
    """A question, searches (`<search>query</search>`) and an answer; the tag that is closed first decides.

    The first search beyond `MAX_SEARCHES` finds nothing; the next one ends the episode without an answer.
    `steps` are the two sub-questions, [{"question", "answers"}, ...]; `finish` scores the final answer.
    """

    def __init__(
        self, opening: list[Message], steps: Sequence[Mapping[str, Any]], finish: Callable[[str], Score]
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
        """What an answer's search finds, or the score if the answer ends the episode."""
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
    """The answer that searches for `question`."""
    return f"{_SEARCH}{question}{_END_SEARCH}"


def _query(answer: str) -> str | None:
    """The first search query, if its tag closes before an answer's does; else None."""
    before, _, after = answer.partition(_SEARCH)
    query, closed, _ = after.partition(_END_SEARCH)
    return query.strip() if closed and _END_ANSWER not in before + _SEARCH + query else None


def find(query: str, steps: Sequence[Mapping[str, Any]], found: set[int]) -> int | None:
    """The index of the sub-question most similar to the query, given those found; None if none is."""
    best, best_value = None, 0.0
    for index, step in enumerate(steps):
        if index and index - 1 not in found and not _names(query, steps[index - 1]["answers"]):
            continue
        value = similarity(query, step["question"])
        if value >= _LEAST_SIMILARITY and value > best_value:
            best, best_value = index, value
    return best


def similarity(query: str, question: str) -> float:
    """F1 of the two texts' word sets without common words; in [0, 1]."""
    a, b = _words(query), _words(question)
    return 2 * len(a & b) / (len(a) + len(b)) if a and b else 0.0


def _words(text: str) -> set[str]:
    words = set(normalize(text).split())
    return words - _COMMON or words


def _names(query: str, answers: Sequence[str]) -> bool:
    text = f" {normalize(query)} "
    return any(f" {normalize(answer)} " in text for answer in answers if normalize(answer))
