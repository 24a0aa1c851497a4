"""Reads JSON as models write it.

Only what has one meaning is mended: a code fence, Python's quotes and constants, commas before a closing
bracket, several values in a row, and the brackets that close the text.  Nothing is evaluated.
"""

import json
import re
from typing import Any

from genenv_jax.benchmarks.safe_parse import MAX_CHARS, MAX_DEPTH, QUOTED, parse_json, parse_literal, unfenced
from genenv_jax.benchmarks.task import UNPARSABLE, Rejection

_MOST_BRACKETS = 2  # too few or too many at the end; a text that lacks more was cut off
_CLOSING = {"[": "]", "{": "}"}
_CONSTANTS = {"True": "true", "False": "false", "None": "null"}
_TOKEN = re.compile(rf"{QUOTED}|\w+|\s+|.", re.DOTALL)


def parse_lenient(text: Any, max_chars: int = MAX_CHARS, max_depth: int = MAX_DEPTH) -> Any:
    """`parse_json` of the text or, if that fails, of the mended text.  Total, in linear time.

    Returns:
      The value, a list of the values if there are several, or a `Rejection` as from `parse_json`.
    """
    value = parse_json(text, max_chars, max_depth)
    if not isinstance(value, Rejection) or value.reason != UNPARSABLE:
        return value
    mended = _mended(unfenced(text))
    return parse_json(mended, len(mended), max_depth) if mended else value


def _mended(text: str) -> str:
    """The text with the changes above; "" if its commas or brackets have more than one reading."""
    body = text.rstrip("]} \t\r\n")
    written: list[str] = []
    due: list[str] = []  # closing brackets
    comma, values, before = "", 0, ""
    for token in _TOKEN.findall(body):
        if token.isspace():
            written.append(token)
            continue
        if token == ",":
            if comma or before in _CLOSING:
                return ""
            comma = ","
        elif token in _CLOSING.values():
            if not due or due.pop() != token:
                return ""
            written.append(token)
            comma = ""
            values += not due
        else:
            if values and not due:
                comma = ","
            if token in _CLOSING:
                due.append(_CLOSING[token])
            written += (comma, _CONSTANTS.get(token) or _string(token))
            comma = ""
        before = token
    closed = sum(mark in "]}" for mark in text[len(body) :])
    if abs(closed - len(due)) > _MOST_BRACKETS:
        return ""
    mended = "".join([*written, *reversed(due)])
    return f"[{mended}]" if values + bool(due) > 1 else mended


def _string(token: str) -> str:
    """A string with Python's quotes or escapes as JSON; any other token unchanged."""
    if token[0] == "'" and "\\" not in token and "\n" not in token and token[1:].endswith("'"):
        return json.dumps(token[1:-1])
    if token[0] == "'" or (token[0] == '"' and "\\'" in token):
        value = parse_literal(token, len(token))
        return json.dumps(value) if isinstance(value, str) else token
    return token
