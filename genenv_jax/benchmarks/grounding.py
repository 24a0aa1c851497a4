"""Checks by words alone whether a reference answer follows from its request.

The request must contain the values of the reference calls, in the same words or in an equivalent form: other
case or punctuation, numbers as words, in another unit or as a percentage, dates and times in another format.
A value that takes knowledge or a calculation (an airport's code, the cards of a deck) looks the same as a
made-up one.  So a request with fewer than a third of the values, even in part, is rejected.  A request that
lacks some values is undecided; so is one whose reference has no value to look for.
"""

from __future__ import annotations

import decimal
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks.task import GIVEN_AWAY, GROUNDED, NOT_ASKED, UNDECIDED, Rejection
from genenv_jax.benchmarks.wording import fold, letters, words

_MONTHS = (
    "january february march april may june july august september october november december".split()
)
_MONTH = {name: str(i) for i, month in enumerate(_MONTHS, 1) for name in (month, month[:3])}
_AFTER_NOON = {"pm", "p", "afternoon", "evening", "tonight"}
_FUNCTION_WORDS = frozenset(
    "a an and as at be by do for from i in is it me my of on or s t that the this to with you".split()
)
_HOURS = frozenset(map(str, range(1, 12)))
_LEADING_ZEROS = re.compile("^0+(?=[0-9])")
_STEM = 5  # words that share this many first letters are related (`remind`, `reminder`)
_ROW = 3  # values of at least this many letters are also found inside words (`EUR` in `euros`)
_UNSPOKEN = re.compile(r"[\s'\"`]")


def judge(
    calls: Sequence[tuple[str, Mapping[str, Any]]],
    values: Sequence[Any],
    request: str,
    context: str,
    described: str,
    known: str = "",
) -> Rejection | str:
    """Whether reference calls follow from a request and are not written out in it.

    Args:
      calls: (function, arguments) of each call.  A request writes a call out if it has `function(`, or in one
        line the function and each `argument=value` or `argument: value`.
      values: the values that the request must contain; lists and mappings are flattened (`leaves`).
      request: what the agent is asked, without calls that were made before.
      context: everything that the agent reads of the conversation.
      described: the descriptions of the called functions that the agent reads.  If no value is required, the
        request must at least share a word with them, unless they are empty.
      known: text known for any request, such as the year; it can complete a value, but not match it in part.
    Returns:
      GROUNDED, UNDECIDED, or a `Rejection`: GIVEN_AWAY, NOT_ASKED.
    """
    lines = [_squeezed(line) for line in request.split("\n")]
    request = fold(request)
    for name, arguments in calls:
        if f"{fold(name)}(" in request or any(_is_written(name, arguments, line) for line in lines):
            return Rejection(GIVEN_AWAY, f"the request has the call of {name[:60]}")
    sought = [leaf for leaf in leaves(values) if _needed(leaf)]
    if described and not sought and not _Said(request).part(described):
        return Rejection(NOT_ASKED, "the request has no word of the functions that are called")
    said = _Said(context)
    missing = [value for value in sought if not said.part(value)]
    if 3 * (len(sought) - len(missing)) < len(sought):
        shown = f"{len(missing)} of {len(sought)} values are not in the request: {missing[0]!r}"
        return Rejection(NOT_ASKED, shown[:200])
    complete = _Said(f"{known}\n{context}") if known else said
    return GROUNDED if sought and all(map(complete.whole, sought)) else UNDECIDED


def _is_written(name: str, arguments: Mapping[str, Any], line: str) -> bool:
    """Whether a squeezed line has a function's name and each argument with its value."""
    if not arguments or _squeezed(name) not in line:
        return False
    pairs = [(fold(key), _squeezed(_text(value))) for key, value in arguments.items()]
    return all(f"{key}={value}" in line or f"{key}:{value}" in line for key, value in pairs)


def _squeezed(text: str) -> str:
    """A folded text without white space and quotes."""
    return _UNSPOKEN.sub("", fold(text))


class _Said:
    """A text prepared for looking up values."""

    def __init__(self, text: str):
        self._words = set(map(_form, words(text)))
        if self._words & _AFTER_NOON:
            hours = [int(word) for word in self._words if word in _HOURS]
            self._words |= {str(hour + 12) for hour in hours}
        self._digits = {_digits(word) for word in self._words if word[0].isdigit()}
        self._stems = {word[:_STEM] for word in self._words if len(word) >= _STEM}
        self._letters = letters(text)

    def whole(self, value: Any) -> bool:
        """Whether the text has all words of a value, or its letters in a row."""
        return all(map(self._has, _needed(value))) or self._in_a_row(value)

    def part(self, value: Any) -> bool:
        """Whether the text has a word of a value, a word with the same stem, or its letters in a row."""
        words_of = _needed(value)
        return (
            any(map(self._has, words_of))
            or any(word[:_STEM] in self._stems for word in words_of if len(word) >= _STEM)
            or self._in_a_row(value)
        )

    def _in_a_row(self, value: Any) -> bool:
        found = letters(_text(value))
        return len(found) >= _ROW and not found.isdigit() and found in self._letters

    def _has(self, word: str) -> bool:
        return word in self._words or (word[0].isdigit() and _digits(word) in self._digits)


def leaves(value: Any) -> Iterator[Any]:
    """The values inside nested lists and mappings; any other value itself."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for entry in value:
            yield from leaves(entry)
    else:
        yield value


def _needed(value: Any) -> list[str]:
    """The words of a value that the request must contain; [] for booleans, zero and function words."""
    if value is None or isinstance(value, bool):
        return []
    found = map(_form, words(_text(value)))
    return [word for word in found if word not in _FUNCTION_WORDS and _digits(word)]


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{decimal.Decimal(repr(value)):f}"
    return str(value)


def _form(word: str) -> str:
    """A month as its number; a number without leading zeros."""
    return _MONTH.get(word) or _LEADING_ZEROS.sub("", word)


def _digits(word: str) -> str:
    """The digits of a number that stay the same in any unit; any other word as it is."""
    return word.replace(".", "").strip("0") if word[0].isdigit() else word
