"""JSON values as text for a reader."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_DEEPEST = 12  # levels that are laid out; what lies deeper is written as JSON
_LONGEST = 100_000  # characters of a text that is read as JSON
_LINE = 100  # characters of a list in one line


def readable(value: Any) -> str:
    """A JSON value by indented lines, "name: value" and "- item"; a text stays as it is.

    A text that is itself a JSON object, or a list of such, is laid out likewise.
    """
    if isinstance(value, str) and len(value) <= _LONGEST and value.lstrip()[:1] in ("{", "["):
        try:
            found = json.loads(value)
        except (ValueError, RecursionError):
            return value
        value = found if _holds_objects(found) else value
    try:
        return "\n".join(_lines(value, 0))
    except RecursionError:
        return "(nested too deeply)"


def _holds_objects(value: Any) -> bool:
    items = value if isinstance(value, list) else [value]
    return bool(items) and all(isinstance(item, dict) and item for item in items)


def _lines(value: Any, depth: int) -> list[str]:
    if isinstance(value, str):
        return value.split("\n")
    plain = not isinstance(value, (Mapping, list)) or not value
    if plain or depth >= _DEEPEST:
        return [json.dumps(value, ensure_ascii=False)]
    if isinstance(value, list):
        if not any(isinstance(item, (Mapping, list)) for item in value):
            texts = ["\n".join(_lines(item, depth)) for item in value]
            line = ", ".join(texts)
            if len(line) <= _LINE and "\n" not in line:
                return [line]
        pairs = [("-", item) for item in value]
    else:
        pairs = [(f"{name}:", item) for name, item in value.items()]
    lines = []
    for name, item in pairs:
        first, *more = _lines(item, depth + 1)
        if name == "-" or not (more or isinstance(item, Mapping)):
            lines += [f"{name} {first}", *(f"  {line}" for line in more)]
        else:
            lines += [name, *(f"  {line}" for line in (first, *more))]
    return lines
