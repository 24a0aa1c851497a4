"""Plans as text: reading what an agent wrote, writing a plan as an agent should.

A plan is a list of days, as JSON (the official evaluation files) or as a Python literal (the annotated
plans), perhaps in a code fence or between other text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks.base import UNPARSABLE, Rejection
from genenv_jax.benchmarks.safe_parse import check_text, parse_json, parse_literal

SLOTS = (
    "current_city",
    "transportation",
    "breakfast",
    "attraction",
    "lunch",
    "dinner",
    "accommodation",
)
NO_PLAN = "no_plan"  # text without a list of days
EMPTY_PLAN = "empty_plan"  # a list without a day
BAD_PLAN = "bad_plan"  # days that are no objects, or slots that are no texts

_DEPTH = 8
_STARTS = 16  # brackets at which a list may begin, of which so many are tried
_MAX_DAYS = 64
_MAX_SLOTS = 64  # keys of a day
_LIST = re.compile(r"\[(?=\s*[{\]])")
_TOKEN = re.compile(r"['\"\[\]{}]")


def read_plan(text: str, max_chars: int) -> list[dict[str, Any]] | Rejection:
    """The plan in a text: the last list of objects that parses, or else the last list.

    Empty days at the end are padding and are dropped; an empty list is no plan.

    Args:
      text: what a model wrote.
      max_chars: longest text to accept.

    Returns:
      The days, or a `Rejection`: EMPTY, NOT_TEXT, TOO_LONG, `NO_PLAN` (no list, or one that does not
      parse), `EMPTY_PLAN`, `BAD_PLAN`.
    """
    rejection = check_text(text, max_chars)
    if rejection:
        return rejection
    best: list[Any] | Rejection = Rejection(NO_PLAN, "no list of days")
    position = 0
    for _ in range(_STARTS):
        found = _LIST.search(text, position)
        if not found:
            break
        position = found.end()
        end = _end_of_list(text, found.start())
        if end < 0:
            continue
        value = _parse(text[found.start() : end], max_chars)
        if isinstance(value, Rejection):
            if isinstance(best, Rejection):
                best = Rejection(NO_PLAN, f"{value.reason}: {value.detail}"[:200])
            continue
        position = end
        if value or isinstance(best, Rejection) or not best:
            best = value
    return best if isinstance(best, Rejection) else _checked(best)


def _end_of_list(text: str, start: int) -> int:
    """Index after the bracket that closes the one at `start`; -1 where there is none."""
    depth = 0
    position = start
    while found := _TOKEN.search(text, position):
        position = found.end()
        token = found.group()
        if token in "[{":
            depth += 1
            if depth > _DEPTH:
                return -1
        elif token in "]}":
            depth -= 1
            if depth == 0:
                return position
        else:
            position = _end_of_string(text, position, token)
    return -1


def _end_of_string(text: str, position: int, quote: str) -> int:
    while True:
        end = text.find(quote, position)
        if end < 0:
            return len(text)
        backslash = end
        while backslash > position and text[backslash - 1] == "\\":
            backslash -= 1
        if (end - backslash) % 2 == 0:
            return end + 1
        position = end + 1


def _parse(text: str, max_chars: int) -> list[Any] | Rejection:
    value = parse_json(text, max_chars, _DEPTH)
    if isinstance(value, Rejection):
        value = parse_literal(text, max_chars, _DEPTH)
    if isinstance(value, Rejection | list):
        return value
    return Rejection(UNPARSABLE, f"a {type(value).__name__}")


def _checked(days: list[Any]) -> list[dict[str, Any]] | Rejection:
    while days and days[-1] == {}:
        days = days[:-1]
    if not days:
        return Rejection(EMPTY_PLAN)
    if len(days) > _MAX_DAYS:
        return Rejection(BAD_PLAN, f"{len(days)} days")
    for number, day in enumerate(days, 1):
        if not isinstance(day, dict):
            return Rejection(BAD_PLAN, f"day {number} is a {type(day).__name__}")
        if len(day) > _MAX_SLOTS or not all(isinstance(key, str) for key in day):
            return Rejection(BAD_PLAN, f"day {number} has odd keys")
        for slot in SLOTS:
            value = day.get(slot)
            if value and not isinstance(value, str):
                return Rejection(BAD_PLAN, f"day {number}: {slot} is a {type(value).__name__}")
    return days


def write_plan(plan: Sequence[Mapping[str, Any]]) -> str:
    """A plan as an agent should write it: JSON, a line a day."""
    lines = ",\n".join(json.dumps(dict(day), ensure_ascii=False) for day in plan)
    return f"[{lines}]"
