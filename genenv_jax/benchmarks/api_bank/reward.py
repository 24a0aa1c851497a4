"""The training reward for a call: the official rules with their loopholes closed.

The official relaxations accept values with nearly half of the words made up, and never compare some
parameters.  So each parameter is also checked by its type: texts by their words in order, lists entry by
entry, booleans as booleans, and tool searches for words from elsewhere.
"""

import collections
from collections.abc import Mapping
from typing import Any

from genenv_jax.benchmarks import graded as grading
from genenv_jax.benchmarks.api_bank import scoring
from genenv_jax.benchmarks.api_bank.calls import Call, read_call
from genenv_jax.benchmarks.api_bank.scoring import Rule
from genenv_jax.benchmarks.api_bank.tasks import TOOL_SEARCHER
from genenv_jax.benchmarks.base import Rejection, Score, Task
from genenv_jax.benchmarks.wording import words

_MOST_EXTRA = 1  # words of a tool search that the gold one lacks


def _same_words(value: str, gold: str) -> bool:
    """The same words in the same order, ignoring case and punctuation (`wording.words`)."""
    return scoring.TRIMMED(value, gold) or (bool(words(gold)) and words(value) == words(gold))


def _only_a_language(value: str, gold: str) -> bool:
    """Only a language name; the official rule finds `chinese` in any text."""
    names = {"chinese", "simplified", "traditional"}
    return "chinese" not in value.lower() or set(words(value)) <= names


# Extra checks for official rules that leave the value open.
_STRICT: Mapping[Rule, Rule] = {
    scoring.most_words: _same_words,
    scoring.most_folded_words: _same_words,
    scoring.given: _same_words,
    scoring.health_data: lambda value, gold: scoring.typed(value, gold, "list"),
    scoring.LANGUAGE: _only_a_language,
}


def is_paid(api: str, name: str, value: str, gold: str, kind: str) -> bool:
    """Whether a parameter passes the checks added to the official rules."""
    official = scoring.rule_of(api, name)
    rule = _STRICT.get(official)
    if official is None and kind in scoring.BOOLEAN:
        rule = scoring.FOLDED
    return rule is None or rule(value, gold)


def _is_padded(keywords: str, spec: Mapping[str, Any], dialogue: str) -> bool:
    """Whether a search has more than one word found in neither the gold keywords nor the found tool's name.

    A repeated word counts as extra, and the one allowed word must be in the conversation.
    """
    found = scoring.keywords_of(keywords)
    expected = scoring.keywords_of(str(spec["parameters"]["keywords"]))
    if found == expected:
        return False
    extra = collections.Counter(found.split())
    extra.subtract({*expected.split(), *scoring.keywords_of(spec["target"]).split()})
    extra = +extra
    return extra.total() > _MOST_EXTRA or not extra.keys() <= set(words(dialogue))


def _agreement(call: Call, spec: Mapping[str, Any]) -> float:
    """See `graded.agreement`; 0 for another API.  The keywords of a tool search must be exact."""
    if call.name != spec["name"]:
        return 0.0
    gold, arguments = spec["parameters"].keys(), scoring.arguments_of(call, spec)
    both = gold & arguments.keys()
    equal = {name for name in both if scoring.agrees(name, arguments[name], spec, is_paid)}
    return grading.agreement(arguments.keys(), gold, equal)


def score_call(task: Task, answer: str, dialogue: str, lenient_search: bool, graded: bool = False) -> Score:
    """Reward 1 for a call that the training rules accept, else 0; if `graded`, a `partial_reward`.

    Success is the official match for a held-out task and the strict match otherwise.  `reason` is the
    official error statistic's name in snake case, or why no call could be read.
    """
    spec = task.answer
    call = read_call(answer)
    if isinstance(call, Rejection):
        return Score(0.0, False, False, call.reason)
    given, last = dict(call.arguments), next(reversed(call.arguments), "")
    if not given.get(last, "x") and last not in spec["parameters"] and answer.count(last) == 1:
        del given[last]  # the official expression skips an empty value at the end
    official = scoring.mismatch(Call(call.name, given), spec, lenient_search=lenient_search)
    strictly = scoring.mismatch(call, spec, is_paid, lenient_search)
    detail = {}
    if spec["name"] == TOOL_SEARCHER:
        detail["tool_search_words"] = not scoring.mismatch(call, spec, lenient_search=True)
        by_words = lenient_search and not strictly
        if by_words and _is_padded(call.arguments["keywords"], spec, dialogue):
            strictly = scoring.INPUT_MISMATCH
    reason = official if task.origin == "eval" else strictly
    reward = float(not strictly)
    if strictly and graded:
        reward = grading.partial_reward([call], [spec], _agreement)
    return Score(reward, not reason, True, reason, detail)
