"""Checks by words alone whether a reference answer follows from its request.

The request must contain every value of the reference calls, in the same words or in an equivalent form:
other case, punctuation or spelling, numbers as words, in another unit or as a percentage, dates and times in
another format, the first and last day of a year, initials and short forms.  What takes more knowledge or a
calculation (the state of a city) looks the same as a made-up value and is rejected.  A request that has only
parts of some values is undecided; so is one whose reference has no value to look for, or whose values appear
in a different order from their arguments, as if two were swapped.
"""

import collections
import decimal
import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks.task import GIVEN_AWAY, GROUNDED, NOT_ASKED, UNDECIDED, Rejection
from genenv_jax.benchmarks.wording import fold, letters, readings, words

_MONTHS = "january february march april may june july august september october november december".split()
_MONTH = {name: str(i) for i, month in enumerate(_MONTHS, 1) for name in (month, month[:3])}
_AFTER_NOON = {"pm", "p", "afternoon", "evening", "tonight"}
_FUNCTION_WORDS = frozenset(
    "a an and as at be by do for from i in is it me my of on or s t that the this to with you".split()
)
_HOURS = frozenset(map(str, range(1, 12)))
_LEADING_ZEROS = re.compile("^0+(?=[0-9])")
_UNITS = {  # their size in smaller units
    "minute": (60,), "hour": (60, 3600), "week": (7,), "month": (30, 12), "monthly": (12,), "quarterly": (4,),
    "quarter": (0.25,), "half": (0.5,), "decade": (10,), "century": (100,), "foot": (12,), "ft": (12,),
    "dozen": (12,), "twice": (2,), "double": (2,), "couple": (2,), "card": (52, 13, 4), "dice": (6,),
}  # fmt: skip
_HUNDREDS = {"percent", "percentage", "hundred", "cm", "centimeters", "cents"}
_CODES = {  # short forms that do not have their letters in order
    "gbp": {"pound", "pounds"}, "usd": {"dollar", "dollars"}, "cny": {"yuan"}, "gb": {"uk"},
    "aapl": {"apple"}, "lax": {"angeles"}, "jfk": {"york"},
}  # fmt: skip
_DAYS = "monday tuesday wednesday thursday friday saturday sunday"
_RELATIVE = set(f"today tonight tomorrow yesterday weekend next {_DAYS}".split())
_NUMBER = re.compile(r"[-+]?[0-9]+(?:[.][0-9]+)?")
_DATE = re.compile("[0-9]+[-/][0-9]+[-/][0-9]+")
_YEAR_BOUNDS = ["1", "1"], ["12", "31"]  # the numbers of its first and last day
_DAY_BOUNDS = re.compile("(?<=[0-9])[ T](?:00:00|23:59)(?::[0-9]+)?(?:Z|[+]00:00)?$")
# Lists, dates and names written as one word: their parts count, too.
_GLUED = re.compile(r"[0-9]+(?:,[0-9]+)+|[0-9]+(?:[.][0-9]+){2,}|[^\W\d_]+[0-9]+")
_PART = re.compile(r"[0-9]+|[^\W\d_]+")
_LONG = 16  # letters of a word that are compared
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
      calls: (function, arguments) of each call.  A request writes a call out if it has `function(`, or the
        function and each `argument=value`, `argument: value` or `<argument>value`.
      values: the values of each call that the request must contain; lists and mappings are flattened
        (`leaves`).  It must contain a number as often as a call has it; "sides of 5" is not enough for two.
      request: what the agent is asked, without calls that were made before.
      context: everything that the agent reads of the conversation.
      described: the descriptions of the called functions that the agent reads.  If no value is required, the
        request must at least share a word with them or with the arguments, unless they are empty.
      known: text known for any request, such as the year; it can complete a value, but not match it in part.
    Returns:
      GROUNDED, UNDECIDED, or a `Rejection`: GIVEN_AWAY, NOT_ASKED.
    """
    told = [fold(text) for text in readings(request)]
    squeezed = list(map(_squeezed, told))
    for name, arguments in calls:
        called = any(f"{fold(name)}(" in text for text in told)
        if called or _is_written(name, arguments, squeezed):
            return Rejection(GIVEN_AWAY, f"the request contains the call of {name[:60]}")
    of_calls = [[leaf for leaf in leaves(of) if _needed(leaf)] for of in values]
    sought = list(leaves(of_calls))
    meant = [described, *map(str, leaves([arguments for _, arguments in calls]))]
    asked = _Said(request)
    if described and not (sought or asked.is_foreign or asked.part(" ".join(meant))):
        return Rejection(NOT_ASKED, "the request shares no word with the functions that are called")
    said = _Said(context)
    if missing := said.missing(sought, frozenset(map(_form, words(described))), _most(of_calls)):
        shown = f"{len(missing)} of {len(sought)} values are not in the request: {missing[0]!r}"
        return Rejection(NOT_ASKED, shown[:200])
    complete = _Said(f"{known}\n{context}") if known else said
    placed = ([(type(value), said.place(value)) for value in of.values()] for _, of in calls)
    in_order = all(
        one <= other or not other
        for of in placed
        for (kind, one), (others_kind, other) in itertools.combinations(of, 2)
        if kind is others_kind
    )
    grounded = sought and in_order and all(map(complete.whole, sought))
    return GROUNDED if grounded else UNDECIDED


def _is_written(name: str, arguments: Mapping[str, Any], texts: Sequence[str]) -> bool:
    """Whether one of the squeezed texts has a function's name and each argument with its value."""
    short = _squeezed(name)
    texts = [text for text in texts if short in text] if arguments else []
    patterns = []
    for key, value in arguments.items() if texts else ():
        key, value = re.escape(fold(key)), _squeezed(_text(value))
        end = r"(?![0-9])" if value[-1:].isdigit() else ""  # 10 is not in 100
        patterns.append(re.compile(f"(?:{key}[=:]|[=<]{key}>){re.escape(value)}{end}"))
    return any(all(pattern.search(text) for pattern in patterns) for text in texts)


def _squeezed(text: str) -> str:
    """A folded text without white space and quotes."""
    return _UNSPOKEN.sub("", fold(text))


class _Said:
    """A text prepared for looking up values."""

    def __init__(self, text: str):
        glued = (part for found in _GLUED.findall(text) for part in _PART.findall(found))
        self._order = list(map(_form, [*words(text), *words(" ".join(glued))]))
        self._words = set(self._order)
        if self._words & _AFTER_NOON:
            hours = [int(word) for word in self._words if word in _HOURS]
            self._words |= {str(hour + 12) for hour in hours}
        self._digits = {_digits(word) for word in self._words if word[0].isdigit()}
        self._stems = {stem for word in self._words for stem in _stems(word)}
        self._letters = letters(text)
        self.is_foreign = 2 * sum(map(str.isascii, self._letters)) < len(self._letters)
        self._words |= set() if self.is_foreign else {"english"}
        self._hundreds = "%" in text or not _HUNDREDS.isdisjoint(self._words)

    def place(self, value: Any) -> int:
        """Where a value begins in the text, from 1; 0 if its first word is not there."""
        first = _needed(value)[:1]
        return self._order.index(first[0]) + 1 if first and first[0] in self._order else 0

    def whole(self, value: Any) -> bool:
        """Whether the text has all words of a value, or its letters in a row."""
        return all(map(self._has, _needed(value))) or self._in_a_row(value)

    def part(self, value: Any) -> bool:
        """Whether the text has a word of a value, a word with the same stem, or its letters in a row."""
        found = _needed(value)
        related = any(stem in self._stems for word in found for stem in _stems(word)[:1])
        return related or any(map(self._has, found)) or self._in_a_row(value)

    def missing(self, values: Sequence[Any], usual: Collection[str], times: Mapping[str, int]) -> list[Any]:
        """The values that the text does not state; `usual`: words that say nothing about a text.

        Each number equals one of the text's times a unit, or needs `times` numbers of its own with the same
        digits.
        """
        numbers = {_text(value): value for value in values if _NUMBER.fullmatch(_text(value))}
        texts = {_text(value): value for value in values if _text(value) not in numbers}
        spoken = collections.Counter(word for word in self._order if word[0].isdigit())
        spoken.subtract(word for value in texts.values() for word in _needed(value))
        units = [n for word in self._words for n in _UNITS.get(word.removesuffix("s"), ())]
        said = [1.0, *(float(word) for word in self._words if word[0].isdigit())]
        counted = {"1", *(f"{number * unit:g}" for number in said for unit in units)}
        rest = []
        for text, value in numbers.items():
            word = _needed(value)[0]
            for _ in range(times[text]):
                if spoken[word] > 0:
                    spoken[word] -= 1
                elif f"{float(text):g}" not in counted:
                    rest.append((word, value))
        alike = collections.Counter(map(self._scaled, spoken.elements()))
        alike.subtract(self._scaled(word) for word, _ in rest)
        missing = [value for word, value in rest if alike[self._scaled(word)] < 0]
        return missing + [value for value in texts.values() if not self._tells(value, usual)]

    def _scaled(self, word: str) -> str:
        """Equal for numbers that differ by a power of 1,000, or of ten if the text mentions hundreds."""
        whole, _, decimals = word.partition(".")
        power = -len(decimals) if decimals else len(whole) - len(whole.rstrip("0"))
        return f"{_digits(word)} {0 if self._hundreds else power % 3}"

    def _tells(self, value: Any, usual: Collection[str]) -> bool:
        """Whether the text has two thirds of a value's words, or of those before a comma, or short forms."""
        needed, head = _needed(value), _text(value).partition(",")[0]
        own = [w for w in needed if w.isdigit() or (w not in usual and len(w) > 2)] or needed
        return (
            any(3 * sum(map(self._hints, few)) >= 2 * len(few) > 0 for few in (own, _needed(head)))
            or self._in_a_row(value)
            or (self.is_foreign and _text(value).isascii())
            or (_DATE.match(_text(value)) and not _RELATIVE.isdisjoint(self._words))
            or self._bounds(_text(value))
            or self._shortens(needed)
        )

    def _bounds(self, value: str) -> bool:
        """Whether a value begins or ends a year or day that the text has in full."""
        period = _needed(_DAY_BOUNDS.sub("", value))
        years = [word for word in period if len(word) == 4 and word.isdigit()]
        if len(years) == 1 and sorted(word for word in period if word not in years) in _YEAR_BOUNDS:
            period = years
        return period != _needed(value) and all(map(self._has, period))

    def _shortens(self, needed: Sequence[str]) -> bool:
        """Whether the text has a value's initials, or words that have the letters of a code in order."""
        initials = "".join(word[0] for word in needed)
        if len(needed) > 1:
            short = {initials[:2], initials, f"{initials[:2]}c"} - _FUNCTION_WORDS
            return not short.isdisjoint(self._words)
        code = needed[0]
        if not 2 <= len(code) < _STEM or not code.isalpha():
            return False
        starts = (i for i, word in enumerate(self._order) if word[0] == code[0])
        runs = ("".join(self._order[i : i + 3]) for i in starts)
        return not self._words.isdisjoint(_CODES.get(code, ())) or any(
            all(letter in rest for letter in code) for rest in map(iter, runs)
        )

    def _hints(self, word: str) -> bool:
        return (
            self._has(word)
            or not self._stems.isdisjoint(_stems(word))
            or any(word[:end] in self._words for end in range(_STEM - 1, min(len(word), _LONG)))
        )

    def _in_a_row(self, value: Any) -> bool:
        found = letters(_text(value))
        return len(found) >= _ROW and not found.isdigit() and found in self._letters

    def _has(self, word: str) -> bool:
        return word in self._words or (word[0].isdigit() and _digits(word) in self._digits)


def _most(of_calls: Sequence[Sequence[Any]]) -> Mapping[str, int]:
    """How often the call that has a value most often has it."""
    most: collections.Counter[str] = collections.Counter()
    for values in of_calls:
        most |= collections.Counter(map(_text, values))
    return most


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


def _stems(word: str) -> list[str]:
    """Keys that a word shares with related words and other spellings."""
    return [word[:_STEM], f"{word[:3]}-{word[-1]}"] if len(word) >= _STEM else []


def _text(value: Any) -> str:
    return f"{decimal.Decimal(repr(value)):f}" if isinstance(value, float) else str(value)


def _form(word: str) -> str:
    """A month as its number; a number without leading zeros."""
    return _MONTH.get(word) or _LEADING_ZEROS.sub("", word)


def _digits(word: str) -> str:
    """The digits of a number that stay the same in any unit; any other word as it is."""
    return word.replace(".", "").strip("0") if word[0].isdigit() else word
