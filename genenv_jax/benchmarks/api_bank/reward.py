"""What training pays for a call: the official rules without what they leave open.

The official relaxations accept values of which nearly half of the words are made up, and some parameters
they never compare.  So each parameter is also asked for by its type: texts by their words in order, lists
entry by entry, booleans as such, and tool searches without words from elsewhere.
"""

from __future__ import annotations

import collections
from collections.abc import Collection, Mapping
from typing import Any

from genenv_jax.benchmarks.api_bank import scoring
from genenv_jax.benchmarks.api_bank.calls import Call, read_call
from genenv_jax.benchmarks.api_bank.scoring import EXACT, WORDS, Parameter, Rule
from genenv_jax.benchmarks.api_bank.tasks import TOOL_SEARCHER
from genenv_jax.benchmarks.base import Rejection, Score, Task
from genenv_jax.benchmarks.wording import words

_MOST_EXTRA = 1  # words of a tool search that are not those of the gold one


def _same_words(value: str, gold: str) -> bool:
    """The same words in the same order, without regard to case and punctuation (`wording.words`)."""
    return scoring.TRIMMED(value, gold) or (bool(words(gold)) and words(value) == words(gold))


def _same_list(value: str, gold: str) -> bool:
    return scoring.typed(value, gold, "list")


def _only_a_language(value: str, gold: str) -> bool:
    """Nothing but a name; the official rule finds `chinese` in any text."""
    names = {"chinese", "simplified", "traditional"}
    return "chinese" not in value.lower() or set(words(value)) <= names


# What else a value must be under official rules that leave it open.
_STRICT: Mapping[Rule, Rule] = {
    scoring.most_words: _same_words,
    scoring.most_folded_words: _same_words,
    scoring.given: _same_words,
    scoring.health_data: _same_list,
    scoring.LANGUAGE: _only_a_language,
}


def mismatch(
    call: Call, spec: Mapping[str, Any], tool_search: str = EXACT, said: Collection[str] = ()
) -> tuple[str, str]:
    """`scoring.mismatch` with the rules of training; `said` are the words of the conversation.

    A tool search may have one word that neither the gold keywords nor the name of what they find have (a
    repeated one counts), and that must be among the words that were said.
    """

    def is_paid(parameter: Parameter) -> bool:
        if parameter.is_search:
            return not _is_padded(parameter, said)
        official = scoring.rule_of(parameter.api, parameter.name)
        rule = _STRICT.get(official)
        if official is None and parameter.kind in scoring.BOOLEAN:
            rule = scoring.FOLDED
        return rule is None or rule(parameter.value, parameter.gold)

    return scoring.mismatch(call, spec, tool_search, is_paid)


def _is_padded(search: Parameter, said: Collection[str]) -> bool:
    found, expected, name = map(scoring.keywords_of, (search.value, search.gold, search.target))
    if found == expected:
        return False
    extra = collections.Counter(found.split())
    extra.subtract({*expected.split(), *name.split()})
    extra = +extra
    return extra.total() > _MOST_EXTRA or not all(word in said for word in extra)


def score_call(task: Task, answer: str, dialogue: str, tool_search: str, max_chars: int) -> Score:
    """1 for a call that the rules of training accept, else 0.

    Success is the official match for a held-out task, else the strict one.  `reason` is the official error
    statistic's name in snake case, or why the text was not read; an answer without a readable call is not
    valid.
    """
    spec = task.answer
    call = read_call(answer, max_chars)
    if isinstance(call, Rejection):
        return Score(0.0, False, False, call.reason)
    searched = tool_search == WORDS and call.name == TOOL_SEARCHER
    said = frozenset(words(dialogue) if searched else ())
    strictly, _ = mismatch(call, spec, tool_search, said)
    official, _ = scoring.mismatch(call, spec, tool_search)
    reason = official if task.origin == "eval" else strictly
    detail = {}
    if spec["name"] == TOOL_SEARCHER:
        detail["tool_search_words"] = not scoring.mismatch(call, spec, WORDS)[0]
    return Score(float(not strictly), not reason, True, reason, detail)
