"""Java source text to values, as BFCL's checker reads it.

Rules of `type_convertor/java_type_converter.py` (BFCL v4), found by reading and by running it; the
scanning here is our own and linear, because the text comes from a model.  Text that does not look
like a literal of its type stays text, which then fails the type check.  The official limits are
kept: elements are split at every comma (also inside quotes), a map literal is read up to its first
closing brace, and `char` values keep their quotes.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator
from typing import Any

TYPES = {
    "byte": int,
    "short": int,
    "integer": int,
    "long": int,
    "float": float,
    "double": float,
    "boolean": bool,
    "char": str,
    "String": str,
    "any": str,
    "Array": list,
    "ArrayList": list,
    "Queue": list,
    "Stack": list,
    "Set": set,
    "HashMap": dict,
    "Hashtable": dict,
}
NESTED_TYPES = ("Array", "ArrayList", "array")
# Declared in the official table, but its converter has no rule for them.
UNSUPPORTED_TYPES = ("Queue", "Stack", "Set", "Hashtable")

_INTEGER = re.compile(r"-?\d+\n?")
_LONG = re.compile(r"-?\d+[lL]\n?")
_FLOAT = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?[fF]\n?")
_DOUBLE = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?\n?")
_LIST_OF = re.compile(r"new\s+ArrayList<\w*>\(Arrays\.asList\(")
_LIST_NEW = re.compile(r"new\s+ArrayList<\w*>\(\)")
_LIST_BLOCK = re.compile(r"\s*\{\{(\s*)")
_ARRAY = re.compile(r"new\s+\w+\[\]\s*\{")
_MAP = re.compile(r"new\s+HashMap<")
_MAP_CALL = re.compile(r">\s*\(\)")
_MAP_BLOCK = re.compile(r">\s*\(\)\s*\{\s*\{?\s*")


def convert(text: str, declared: str, nested: str | None = None) -> Any:
    """Value of `text` as the Java type `declared`; `text` itself where it is not such a literal.

    Raises:
      KeyError: `declared` is not a BFCL Java type.
      NotImplementedError: a type for which the official converter has no rule.
    """
    match declared:
        case "byte" | "short" | "integer":
            return int(text) if _INTEGER.fullmatch(text) else text
        case "long":
            return int(text.rstrip("\n")[:-1]) if _LONG.fullmatch(text) else text
        case "float":
            return float(text.rstrip("\n")[:-1]) if _FLOAT.fullmatch(text) else text
        case "double":
            return float(text) if _DOUBLE.fullmatch(text) else text
        case "boolean":
            return text == "true" if text in ("true", "false") else text
        case "char" | "String" | "any":
            return text
        case "Array":
            return _array(text, nested)
        case "ArrayList":
            return _array_list(text, nested)
        case "HashMap":
            return _hash_map(text)
    if declared in UNSUPPORTED_TYPES:
        raise NotImplementedError(f"no conversion of Java {declared}")
    raise KeyError(declared)


def _element(text: str, nested: str | None) -> Any:
    return convert(text, nested) if nested else guess(text)


def _list_element(text: str, nested: str | None) -> Any:
    if nested in ("char", "String"):
        return text[1:-1]  # without its quotes
    return _element(text, nested)


def _same_line(text: str, start: int, end: int) -> bool:
    return text.find("\n", start, end) < 0


def _array(text: str, nested: str | None) -> Any:
    for head in _ARRAY.finditer(text):
        end = text.find("}", head.end())
        if end < 0:
            break
        if _same_line(text, head.end(), end):
            parts = (part.strip() for part in text[head.end() : end].split(","))
            return [_element(part, nested) for part in parts if part]
    return text


def _array_list(text: str, nested: str | None) -> Any:
    for head in _LIST_OF.finditer(text):
        end = text.find("))", head.end() + 1)
        if end < 0:
            break
        if _same_line(text, head.end(), end):
            parts = text[head.end() : end].split(",")
            return [_list_element(part.strip(), nested) for part in parts]
    empty = False
    for head in _LIST_NEW.finditer(text):
        empty = True
        block = _LIST_BLOCK.match(text, head.end())
        if not block:
            continue
        end = text.find("}}", block.end() + 1)
        if end < 0:  # the first character of the block may also be its white space
            end = text.find("}}", block.start(1) + 1) if block[1] else -1
        if end >= 0:
            added = _arguments_of_add(text[block.start(1) : end])
            return [_list_element(part.strip(), nested) for part in added]
    return [] if empty else text


def _arguments_of_add(block: str) -> Iterator[str]:
    position = 0
    while (start := block.find("add(", position)) >= 0:
        start += len("add(")
        end = block.find(")", start + 1)
        if end < 0:
            return
        if _same_line(block, start, end):
            yield block[start:end]
            position = end + 1
        else:
            position = start


def _hash_map(text: str) -> Any:
    heads = [head.end() for head in _MAP.finditer(text)]
    if not heads:
        return text
    for block in _MAP_BLOCK.finditer(text, heads[0]):
        end = text.find("}", block.end())
        if end < 0:
            break
        return dict(_puts(text[block.end() : end]))
    for call in _MAP_CALL.finditer(text, heads[0]):  # no entries: the type must be on one line
        head = heads[bisect.bisect_right(heads, call.start()) - 1]
        if _same_line(text, head, call.start()):
            return {}
    return text


def _puts(block: str) -> Iterator[tuple[str, Any]]:
    position = 0
    while (start := block.find('put("', position)) >= 0:
        start += len('put("')
        position = start
        line_end = block.find("\n", start)
        line_end = len(block) if line_end < 0 else line_end
        separator = start - 1
        while 0 <= (separator := block.find('",', separator + 1)) < line_end:
            value = separator + 2
            while value < len(block) and block[value].isspace():
                value += 1
            end = block.find(")", value)
            if end < 0:
                return
            if _same_line(block, value, end):
                yield block[start:separator], guess(block[value:end].strip())
                position = end + 1
                break


def guess(text: str) -> Any:
    """Value of a Java literal whose type is not declared; other text stays text."""
    if text in ("true", "false"):
        return text == "true"
    if text.startswith('"') and text.endswith('"'):
        return text[1:-1]
    if _LONG.fullmatch(text) or _FLOAT.fullmatch(text):
        number = text.rstrip("\n")[:-1]
        return int(number) if _LONG.fullmatch(text) else float(number)
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
