"""JavaScript source text to values, as BFCL's checker reads it.

Rules of `type_convertor/js_type_converter.py` (BFCL v4), found by reading and by running it.  The
official expressions backtrack without bound on hostile text; the scanning here is our own and
takes near-linear time.  The official limits are kept: elements are split at every comma (also
inside quotes), an object literal is read up to its first closing brace.
"""

from __future__ import annotations

import bisect
import re
from typing import Any

TYPES = {
    "String": str,
    "integer": int,
    "float": float,
    "Bigint": int,
    "Boolean": bool,
    "dict": dict,
    "array": list,
    "any": str,
}
NESTED_TYPES = ("Array", "ArrayList", "array")

_MAX_NESTED_OBJECTS = 32
_INTEGER = re.compile(r"-?\d+\n?")
_FLOAT = re.compile(r"-?\d+(?:\.\d+)?\n?")
_BIGINT = re.compile(r"-?\d+n")
_NEW_ARRAY = re.compile(r"new\s+Array\(")
_FIRST_ROW = re.compile(r"(?:(?P<literal>\[)|new\s+Array\()\s*\[")
_NEXT_ROW = re.compile(r"\s*,\s*\[")
_SPACE = re.compile(r"\s*")


def convert(text: str, declared: str, nested: str | None = None) -> Any:
    """Value of `text` as the JavaScript type `declared`; text where it is not such a literal.

    Raises:
      KeyError: `declared` is not a BFCL JavaScript type.
    """
    match declared:
        case "String":
            return text[1:-1] if _quoted(text) else text
        case "integer":
            return int(text) if _INTEGER.fullmatch(text) else text
        case "float":
            return float(text) if _FLOAT.fullmatch(text) else text
        case "Bigint":
            return int(text[:-1]) if _BIGINT.fullmatch(text) else text
        case "Boolean":
            return text == "true" if text in ("true", "false") else text
        case "array":
            return _array(text.strip(), nested)
        case "dict":
            return _object(text.strip())
        case "any":
            return text
    raise KeyError(declared)


def _quoted(text: str) -> bool:
    return any(text.startswith(quote) and text.endswith(quote) for quote in "\"'")


def guess(text: str) -> Any:
    """Value of a JavaScript literal whose type is not declared; other text stays text."""
    text = text.strip()
    if text in ("true", "false"):
        return text == "true"
    if _quoted(text):
        return text[1:-1]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _array(text: str, nested: str | None) -> Any:
    rows_end = _rows_end(text)
    if rows_end is not None:
        return _rows(text[:rows_end])
    if text.startswith("["):
        start, closing = 1, "]"
    elif head := _NEW_ARRAY.match(text):
        start, closing = head.end(), ")"
    else:
        return text
    end = text.find(closing, start)
    if end < 0 or text.find("\n", start, end) >= 0:
        return text
    body = text[start:end].strip()
    parts = [part.strip() for part in body.split(",")] if body else []
    if not nested:
        return [guess(part) for part in parts]
    try:
        return [
            convert(part, nested, "String" if part[:1] in ("'", '"') else None) for part in parts
        ]
    except (KeyError, ValueError, RecursionError):
        return text


def _rows_end(text: str) -> int | None:
    """End of `[[...], [...]]` or `new Array([...], [...])` at the start of `text`, else None.

    Each row runs to some "]" on its own line; after it comes either another row, which is taken
    where that leads to an end, or the closing bracket.  Worked out from the last "]" backwards, so
    that no choice is ever tried twice.
    """
    head = _FIRST_ROW.match(text)
    if not head:
        return None
    closing = "]" if head["literal"] else ")"
    positions: list[int] = []  # negated, so that the list built from the back is sorted
    ends: list[int] = []

    def first_success(start: int) -> int | None:
        index = bisect.bisect_right(positions, -start) - 1
        if index < 0 or text.find("\n", start, -positions[index]) >= 0:
            return None
        return ends[index]

    position = len(text)
    while (position := text.rfind("]", head.end(), position)) >= 0:
        if row := _NEXT_ROW.match(text, position + 1):
            end = first_success(row.end())
        else:
            after = _SPACE.match(text, position + 1).end()
            end = after + 1 if text[after : after + 1] == closing else None
        if end is not None:
            positions.append(-position)
            ends.append(end)
    return first_success(head.end())


def _rows(text: str) -> list[list[Any]]:
    rows = []
    position = 0
    while (start := text.find("[", position)) >= 0:
        end = text.find("]", start + 1)
        if end < 0:
            break
        position = end + 1
        if text.find("\n", start, end) >= 0:
            position = start + 1
            continue
        row = text[start + 1 : end].strip()
        if not rows and row.startswith("["):
            row = row[1:]
        rows.append([guess(part) for part in row.split(",")])
    return rows


def _object(text: str, depth: int = 0) -> Any:
    if text == "{}":
        return {}
    end = text.find("}")
    if not text.startswith("{") or end < 0 or text.find("\n", 0, end) >= 0:
        return text
    if depth > _MAX_NESTED_OBJECTS:
        raise ValueError("object nested too deeply")
    content = text[1:end]
    value = {}
    position = 0
    while position < len(content):
        if content[position] == ":":  # a key has at least one character
            position += 1
            continue
        colon = content.find(":", position)
        if colon < 0:
            break
        key = content[position:colon].strip().strip("'\"")
        start = _SPACE.match(content, colon + 1).end()
        stop = _value_end(content, start)
        entry = content[start:stop].strip()
        if entry.startswith("[") and entry.endswith("]"):
            value[key] = _array(entry, None)
        elif entry.startswith("{") and entry.endswith("}"):
            value[key] = _object(entry, depth + 1)
        else:
            value[key] = guess(entry.strip("'\""))
        position = stop
        if stop < len(content):
            position = _SPACE.match(content, stop + 1).end()
            following = content.find(",", position)
            if content.rfind(":", position + 1, None if following < 0 else following) < 0:
                position -= 1  # a space is all that this key consists of
    return value


def _value_end(content: str, start: int) -> int:
    """Index of the first comma from `start` that is followed by another `key:`, or the end."""
    comma = start - 1
    while (comma := content.find(",", comma + 1)) >= 0:
        following = content.find(",", comma + 1)
        following = len(content) if following < 0 else following
        if content.rfind(":", comma + 2, following) >= 0:
            return comma
    return len(content)
