"""How the evaluator reads the texts of a plan: routes, and names with their city.

The rules of `extract_before_parenthesis`, `extract_from_to` and `get_valid_name_city` (TravelPlanner,
`utils/func.py` and `evaluation/commonsense_constraint.py`).  Theirs are regular expressions that take
quadratic or cubic time on some texts; these give the same results in about linear time.
"""

from __future__ import annotations

import bisect
import re

NO_NAME = ("-", "-")  # what stands for a text without a name and a city

_FROM = re.compile(r"from(?=\s)")
_TO = re.compile(r"(?<=\s)to(?=\s)")
_SPACE = re.compile(r"\s+")


def before_parenthesis(text: str) -> str:
    """The part of `text` before its first parenthesis, e.g. "Denver" of "Denver(Colorado)".

    The whole text if the parenthesis is not closed, or if a line ends before it.  TypeError for what is
    not a text (None where a route was not found), as in the official code.
    """
    if not isinstance(text, str):
        raise TypeError(f"expected a text, got {type(text).__name__}")
    start = text.find("(")
    if start < 0 or text.find(")", start) < 0 or text.find("\n", 0, start) >= 0:
        return text
    return text[:start]


def route_of(text: str) -> tuple[str, str] | tuple[None, None]:
    """A and B of "... from A to B, ..."; B ends at a comma.  (None, None) where there is no route.

    The first "from" that a route follows counts, and the shortest A.  A is on one line.
    """
    ends: list[
        tuple[int, int, int]
    ] = []  # (where "to" starts, its white space before, where B starts)
    for found in _TO.finditer(text):
        start = _SPACE.match(text, found.end()).end()
        if start == len(text) or text[start] == ",":
            start -= 1  # B may be a single space, if another one follows "to"
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
    """Name and city of "Name, City" or "Name, City(State)"; the last comma divides them.

    `NO_NAME` where there is no comma or nothing behind the last one.  TypeError for what is no text.
    """
    if not isinstance(text, str):
        raise TypeError(f"expected a text, got {type(text).__name__}")
    comma = text.rfind(",")
    if comma < 0 or comma == len(text) - 1:
        return NO_NAME
    line = text.rfind("\n", 0, comma) + 1
    return text[line:comma].strip(), before_parenthesis(text[comma + 1 :].strip()).strip()
