"""Converts JavaScript source text to values, like BFCL's checker.

The rules are those of `type_convertor/js_type_converter.py` (BFCL v4), with its regular expressions rewritten
so that no text makes them backtrack.  The official limitations are kept: elements are split at every comma
(even inside quotes), and an object literal ends at its first closing brace.
"""

import re
from typing import Any

TYPES = {
    "String": str, "integer": int, "float": float, "Bigint": int, "Boolean": bool, "dict": dict,
    "array": list, "any": str,
}  # fmt: skip

_NUMBERS = {
    "integer": re.compile(r"-?\d+\n?"),
    "float": re.compile(r"-?\d+(?:\.\d+)?\n?"),
    "Bigint": re.compile(r"-?\d+n"),
}
_ARRAY = re.compile(r"\[([^\]\n]*)\]|new\s+Array\(([^)\n]*)\)")
# `[[...], [...]]`: each row ends at a "]" on the same line, followed by another row or the end.
_ROWS = "|".join(
    rf"{opening}\s*\[(?>(?:[^\]\n]*+\](?!\s*{closing})(?:\s*,\s*\[)?)*)[^\]\n]*+\]\s*{closing}"
    for opening, closing in ((r"\[", r"\]"), (r"new\s+Array\(", r"\)"))
)
_ROWS = re.compile(_ROWS)
_ROW = re.compile(r"\[([^\]\n]*)\]")
_OBJECT = re.compile(r"\{([^}\n]*)\}")
# A value ends at a comma followed by another key of at least one character (a space counts).
_PAIR = re.compile(r"([^:]+):\s*(.*?)(?:,(?:\s*+(?=[^,]+:)|\s*(?=\s:))|$)")


def convert(text: str, declared: str, nested: str | None = None) -> Any:
    """Value of `text` as the JavaScript type `declared`; `text` itself if it is not such a literal.

    Raises:
      KeyError: `declared` is not a BFCL JavaScript type.
    """
    if declared in _NUMBERS:
        return TYPES[declared](text.rstrip("n")) if _NUMBERS[declared].fullmatch(text) else text
    match declared:
        case "String":
            return text[1:-1] if _quoted(text) else text
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
    """Value of a JavaScript literal of undeclared type; other text stays text."""
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
    if rows := _ROWS.match(text):
        found = [row.strip() for row in _ROW.findall(rows[0])]
        found[0] = found[0].removeprefix("[")
        return [[guess(part) for part in row.split(",")] for row in found]
    found = _ARRAY.match(text)
    if not found:
        return text
    body = (found[1] or found[2] or "").strip()
    parts = [part.strip() for part in body.split(",")] if body else []
    if not nested:
        return [guess(part) for part in parts]
    try:
        return [convert(part, nested, "String" if part[:1] in ("'", '"') else None) for part in parts]
    except (KeyError, ValueError):
        return text


def _object(text: str) -> Any:
    found = _OBJECT.match(text)
    if not found:
        return text
    value, content = {}, found[1].lstrip(":")
    for key, entry in _PAIR.findall(content) if ":" in content else ():
        entry = entry.strip()
        is_array = entry.startswith("[") and entry.endswith("]")
        read = _array(entry, None) if is_array else guess(entry.strip("'\""))
        value[key.strip().strip("'\"")] = read
    return value
