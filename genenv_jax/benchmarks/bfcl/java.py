"""Converts Java source text to values, like BFCL's checker.

The rules are those of `type_convertor/java_type_converter.py` (BFCL v4), with its regular expressions
rewritten so that no text makes them backtrack.  Text that is not a literal of its type stays text, which then
fails the type check.  The official limitations are kept: elements are split at every comma (even inside
quotes), a map literal ends at its first closing brace, and `char` values keep their quotes.
"""

import re
from typing import Any

TYPES = {
    "byte": int, "short": int, "integer": int, "long": int, "float": float, "double": float, "boolean": bool,
    "char": str, "String": str, "any": str, "Array": list, "ArrayList": list, "Queue": list, "Stack": list,
    "Set": set, "HashMap": dict, "Hashtable": dict,
}  # fmt: skip

# In the official type table, but the official converter has no rule for them.
UNSUPPORTED_TYPES = ("Queue", "Stack", "Set", "Hashtable")

_NUMBERS = {
    **dict.fromkeys(("byte", "short", "integer"), re.compile(r"-?\d+\n?")),
    "long": re.compile(r"-?\d+[lL]\n?"),
    "float": re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?[fF]\n?"),
    "double": re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?\n?"),
}
_LIST_OF = re.compile(r"new\s+ArrayList<\w*>\(Arrays\.asList\((.(?>(?:[^)\n]++|\)(?!\)))*))\)\)")
_LIST_NEW = re.compile(r"new\s+ArrayList<\w*>\(\)")
# The first character of a block may also be white space.
_LIST_BLOCK = re.compile(_LIST_NEW.pattern + r"\s*\{\{((?:\s*+.|\s)(?>(?:[^}]++|\}(?!\}))*))\}\}", re.DOTALL)
_ADD = re.compile(r"add\((.[^)\n]*)\)")
_ARRAY = re.compile(r"new\s+\w+\[\]\s*\{([^}\n]*)\}")
_MAP = re.compile(r"new\s+HashMap<")
_MAP_BLOCK = re.compile(r">\s*\(\)\s*\{([^}]*)\}")
_MAP_EMPTY = re.compile(r"new\s+HashMap<.*?>\s*\(\)")  # no entries; the type must be on one line
_PUT = re.compile(r'put\("((?>(?:[^"\n]++|"(?!,))*))",\s*+([^)\n]*)\)')


def convert(text: str, declared: str, nested: str | None = None) -> Any:
    """Value of `text` as the Java type `declared`; `text` itself if it is not such a literal.

    Raises:
      KeyError: `declared` is not a BFCL Java type.
      NotImplementedError: the official converter has no rule for the type.
    """
    if declared in _NUMBERS:
        return TYPES[declared](text.rstrip("\nlLfF")) if _NUMBERS[declared].fullmatch(text) else text
    match declared:
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


def _array(text: str, nested: str | None) -> Any:
    found = _ARRAY.search(text)
    if not found:
        return text
    parts = (part.strip() for part in found[1].split(","))
    return [_element(part, nested) for part in parts if part]


def _array_list(text: str, nested: str | None) -> Any:
    if found := _LIST_OF.search(text):
        parts = found[1].split(",")
    elif block := _LIST_BLOCK.search(text):
        parts = _ADD.findall(block[1])
    else:
        return [] if _LIST_NEW.search(text) else text
    quoted = nested in ("char", "String")  # the elements lose their quotes
    return [part[1:-1] if quoted else _element(part, nested) for part in map(str.strip, parts)]


def _hash_map(text: str) -> Any:
    head = _MAP.search(text)
    block = head and _MAP_BLOCK.search(text, head.end())
    if block:
        return {key: guess(value.strip()) for key, value in _PUT.findall(block[1])}
    return {} if _MAP_EMPTY.search(text) else text


def guess(text: str) -> Any:
    """Value of a Java literal of undeclared type; other text stays text."""
    if text in ("true", "false"):
        return text == "true"
    if text.startswith('"') and text.endswith('"'):
        return text[1:-1]
    for declared in ("long", "float"):
        if _NUMBERS[declared].fullmatch(text):
            return convert(text, declared)
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
