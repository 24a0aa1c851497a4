"""One attempt at a question with searches."""

from __future__ import annotations

from collections.abc import Callable

from genenv_jax.benchmarks.bamboogle import search
from genenv_jax.benchmarks.base import TOO_LONG, Message, Score, Task
from genenv_jax.benchmarks.safe_parse import check_text

NO_ANSWER = "no_answer"
_SEARCH, _END_SEARCH = "<search>", "</search>"
_END_ANSWER = "</answer>"
_KEPT_CHARS = 1_500  # of an answer in the conversation: five of them must fit into the prompt
_GROWING_CHARS = 2_000  # of a search in an episode that agents are trained on
_INFORMATION_CHARS = 1_000  # of what comes back there
_QUERY_CHARS = 400
_NO_MORE = "no searches are left; give your answer"


class SearchEpisode:
    """A question, searches and an answer; implements `genenv_jax.benchmarks.base.Episode`.

    Each answer of the agent is either a search, `<search>query</search>`, or the end.  The tag that is
    closed first decides.  A search beyond `max_searches` finds nothing; the next one ends the episode without
    an answer.

    Args:
      task: the question with its two sub-questions.
      opening: the messages that the agent reads first.
      finish: scores the last answer.
      max_searches: how many searches find something.
      threshold: see `search.find`.
      answer_chars: longest answer that is read.
      grows: the conversation is only added to, as agents are trained on it: a search stands as it was given,
        a longer one than `_GROWING_CHARS` ends the episode, and what is found is cut.  Otherwise what stands
        after a search is left out of the conversation, and so is the beginning of a long one.
    """

    def __init__(
        self,
        task: Task,
        opening: list[Message],
        finish: Callable[[str], Score],
        max_searches: int,
        threshold: float,
        answer_chars: int,
        grows: bool = False,
    ):
        self._steps = task.answer["steps"]
        self._messages = list(opening)
        self._finish = finish
        self._max_searches = max_searches
        self._threshold = threshold
        self._answer_chars = answer_chars
        self._grows = grows
        self._searches = 0
        self._found: frozenset[int] = frozenset()
        self._score: Score | None = None

    def messages(self) -> list[Message]:
        """See `Episode.messages`."""
        return [dict(message) for message in self._messages]

    def step(self, answer: str) -> Score | None:
        """See `Episode.step`; after the end it gives the same score again."""
        if self._score is not None:
            return self._score
        rejection = check_text(answer, self._answer_chars)
        if rejection:
            return self._end(Score(0.0, False, False, rejection.reason))
        query = _query(answer)
        if query is None:
            return self._end(self._finish(answer))
        if self._grows and len(answer) > _GROWING_CHARS:
            return self._end(Score(0.0, False, False, TOO_LONG))
        if self._searches > self._max_searches:
            return self._end(Score(0.0, False, False, NO_ANSWER))
        self._searches += 1
        if self._searches > self._max_searches:
            text = _NO_MORE
        else:
            found = search.find(query[:_QUERY_CHARS], self._steps, self._found, self._threshold)
            self._found |= {found.step} - {-1}
            text = found.text
        said = answer
        if self._grows:
            text = text[:_INFORMATION_CHARS]
        else:  # what stands after a search is made up
            end = answer.find(_END_SEARCH, answer.find(_SEARCH)) + len(_END_SEARCH)
            said = answer[:end][-_KEPT_CHARS:]
        self._messages += [
            {"role": "assistant", "content": said},
            {"role": "user", "content": f"<information>{text}</information>"},
        ]
        return None

    def close(self) -> None:
        """See `Episode.close`; there is nothing to free."""

    def _end(self, score: Score) -> Score:
        detail = {
            **score.detail,
            "searches": min(self._searches, self._max_searches),
            "found": len(self._found),
        }
        self._score = Score(score.reward, score.success, score.valid, score.reason, detail)
        return self._score


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
