"""Plans as text: reads what an agent wrote, writes a plan as an agent should, and parses the texts of slots.

A plan is a list of days, as JSON (the official evaluation files) or as a Python literal (the annotated
plans), perhaps in a code fence or between other text.  Routes, and names with their city, are parsed by the
rules of `extract_before_parenthesis`, `extract_from_to` and `get_valid_name_city` (TravelPlanner,
`utils/func.py` and `evaluation/commonsense_constraint.py`).  The official regular expressions take
quadratic or cubic time on some texts; these functions give the same results in about linear time.
"""

import bisect
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks.base import Rejection
from genenv_jax.benchmarks.safe_parse import QUOTED, check_text, parse_json, parse_literal

SLOTS = "current_city transportation breakfast attraction lunch dinner accommodation".split()
MEALS = ("breakfast", "lunch", "dinner")
NO_PLAN = "no_plan"  # text without a list of days
EMPTY_PLAN = "empty_plan"  # a list without days
BAD_PLAN = "bad_plan"  # a day is not an object, or a slot is not a string

_DEPTH = 8
_STARTS = 16  # how many opening brackets are tried as the start of a list
_MAX_DAYS = 64
_MAX_SLOTS = 64  # keys of a day
NO_NAME = ("-", "-")  # stands for a text without a name and a city

_FROM = re.compile(r"from(?=\s)")
_TO = re.compile(r"(?<=\s)to(?=\s)")
_SPACE = re.compile(r"\s+")
_LIST = re.compile(r"\[(?=\s*[{\]])")
_TOKEN = re.compile(rf"{QUOTED}|([\[{{])|([\]}}])", re.DOTALL)


def read_plan(text: str) -> list[dict[str, Any]] | Rejection:
    """The days in a text that a model wrote: the last list of objects that parses, or else the last list.

    Empty days at the end are padding and are dropped.  Or a `Rejection`: EMPTY, NOT_TEXT, TOO_LONG, `NO_PLAN`
    (no list, or only lists that do not parse), `EMPTY_PLAN`, `BAD_PLAN`.
    """
    if rejection := check_text(text):
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
        value = parse_json(text[found.start() : end], max_depth=_DEPTH)
        if isinstance(value, Rejection):
            value = parse_literal(text[found.start() : end], max_depth=_DEPTH)
        if isinstance(value, Rejection):
            if isinstance(best, Rejection):
                best = Rejection(NO_PLAN, f"{value.reason}: {value.detail}"[:200])
            continue
        position = end
        if value or isinstance(best, Rejection) or not best:
            best = value
    return best if isinstance(best, Rejection) else _checked(best)


def _end_of_list(text: str, start: int) -> int:
    """Index after the bracket that closes the one at `start`; -1 if there is none."""
    depth = 0
    for found in _TOKEN.finditer(text, start):
        depth += bool(found[1]) - bool(found[2])
        if depth > _DEPTH:
            return -1
        if depth == 0:
            return found.end()
    return -1


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
            return Rejection(BAD_PLAN, f"day {number} has too many keys, or keys that are not texts")
        for slot in SLOTS:
            value = day.get(slot)
            if value and not isinstance(value, str):
                return Rejection(BAD_PLAN, f"day {number}: {slot} is a {type(value).__name__}")
    return days


def write_plan(plan: Sequence[Mapping[str, Any]]) -> str:
    """A plan as an agent should write it: JSON, one line per day."""
    lines = ",\n".join(json.dumps(dict(day), ensure_ascii=False) for day in plan)
    return f"[{lines}]"


def before_parenthesis(text: str) -> str:
    """The part of `text` before its first parenthesis, e.g. "Denver" for "Denver(Colorado)".

    The whole text if the parenthesis is not closed, or if a line ends before it.
    """
    start = text.find("(")
    if start < 0 or text.find(")", start) < 0 or text.find("\n", 0, start) >= 0:
        return text
    return text[:start]


def route_of(text: str) -> tuple[str, str] | tuple[None, None]:
    """A and B in "... from A to B, ..."; B ends at a comma.  (None, None) if there is no route.

    The first "from" with a route after it counts, and the shortest A.  A is on one line.
    """
    ends: list[tuple[int, int, int]] = []  # starts of: "to", the white space before it, B
    for found in _TO.finditer(text):
        start = _SPACE.match(text, found.end()).end()
        if start == len(text) or text[start] == ",":
            start -= 1  # B may be a single space, if another space comes before it
            if start == found.end():
                continue
        before = found.start()
        while before and text[before - 1].isspace():
            before -= 1
        ends.append((found.start(), before, start))
    positions = [position for position, _, _ in ends]
    for found in _FROM.finditer(text):
        run = _SPACE.match(text, found.end()).end()
        for start in range(run, found.end(), -1):
            index = bisect.bisect_left(positions, start + 2)
            if index == len(ends):
                continue
            _, before, begin = ends[index]
            stop = max(start + 1, before)
            if text.find("\n", start, stop) >= 0:
                continue
            comma = text.find(",", begin)
            return text[start:stop], text[begin : len(text) if comma < 0 else comma]
    return None, None


def name_and_city(text: str) -> tuple[str, str]:
    """Name and city in "Name, City" or "Name, City(State)"; the last comma separates them.

    `NO_NAME` if there is no comma, or nothing after the last one.
    """
    comma = text.rfind(",")
    if comma < 0 or comma == len(text) - 1:
        return NO_NAME
    line = text.rfind("\n", 0, comma) + 1
    return text[line:comma].strip(), before_parenthesis(text[comma + 1 :].strip()).strip()
