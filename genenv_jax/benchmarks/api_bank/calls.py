"""Reads and writes API-Bank's call notation, `[ApiName(key1='value1', key2='value2')]`.

The official reader (`api-bank/api_call_extraction.py`) takes the first `[Name(` of an answer up to the
last `)]` of the same line, and finds the arguments with one regular expression.  `read_call` finds the
call in the same place, but a quoted value ends at the quote that precedes the next argument or the end.  So
it reads quoted lists (`attendees='['Ann', 'Bob']'`), apostrophes and empty values whole.  An unquoted value
is one word or a list in both; `read_gold` accepts any other too (`place=New York`).  Values stay text.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks.base import EMPTY, Rejection
from genenv_jax.benchmarks.safe_parse import check_text
from genenv_jax.benchmarks.tools import read_tool_calls

# Reasons, named after the official evaluator's error statistics.
NO_API_CALL = "no_api_call"
FAILED_PARSE = "failed_parse_api_call"

MAX_CHARS = 8_192  # of an answer
_MAX_ARGUMENTS = 64

_START = re.compile(r"\[(\w+)\(")
_NAME = re.compile(r"\s*(\w+)\s*=\s*")
_AFTER_VALUE = re.compile(r"\s*(?:,\s*(?:\w+\s*=|\Z)|\Z)")
_CLOSING = {quote: re.compile(rf"{quote}(?={_AFTER_VALUE.pattern})") for quote in "'\""}
# Inside a value: the end of one call and the beginning of another.
_SECOND_CALL = re.compile(r"""['"]\)\]?[\s,]*\[?\w+\(\w+\s*=""")
_BARE_VALUE = re.compile(r"\w*|\[.*\]")
_BARE_NAME = re.compile(r"(\w+)\((.*)\)\s*\Z")


@dataclasses.dataclass(frozen=True)
class Call:
    """One call: the API's name and its arguments as text, in the order written."""

    name: str
    arguments: Mapping[str, str]


def read_call(text: Any, max_chars: int = MAX_CHARS, gold: bool = False) -> Call | Rejection:
    """The call in an answer of at most `max_chars`; `gold`: unquoted values may have any form.  Total.

    Or a `Rejection`: NOT_TEXT, TOO_LONG, NO_API_CALL (nothing of the form `[Name(...)]` on one line) or
    FAILED_PARSE (the arguments do not follow the form).
    """
    if rejection := check_text(text, max_chars):
        return Rejection(NO_API_CALL, "empty") if rejection.reason == EMPTY else rejection
    # Like the official expression: the first "[Name(" with a ")]" after it on the same line ('.' in a
    # regular expression matches everything but "\n").
    for line in text.split("\n"):
        end = line.rfind(")]")
        start = _START.search(line)
        if start and end >= start.end():
            return _read_arguments(start[1], line[start.end() : end], gold)
    return Rejection(NO_API_CALL, "no [Name(...)] on one line")


def read_gold(text: str) -> Call | Rejection:
    """Reads the call of a training record; also accepts the two records that lack the brackets."""
    call = read_call(text, len(text) + 1, gold=True)
    if not isinstance(call, Rejection) or call.reason != NO_API_CALL:
        return call
    bare = _BARE_NAME.match(text.removeprefix("API-Request:").strip())
    return _read_arguments(bare[1], bare[2], gold=True) if bare else call


def _read_arguments(name: str, body: str, gold: bool) -> Call | Rejection:
    arguments: dict[str, str] = {}
    position = 0
    while body[position:].strip(" ,"):
        found = _NAME.match(body, position)
        if not found:
            return Rejection(FAILED_PARSE, f"no name= at character {position} of the arguments")
        if len(arguments) >= _MAX_ARGUMENTS:
            return Rejection(FAILED_PARSE, f"more than {_MAX_ARGUMENTS} arguments")
        read = _read_value(body, found.end())
        if read is None:
            return Rejection(FAILED_PARSE, f"the value of {found[1][:40]!r} is not closed")
        bare = body[found.end() : found.end() + 1] not in ("'", '"')
        if bare and not gold and not _BARE_VALUE.fullmatch(read[0]):
            return Rejection(FAILED_PARSE, f"the value of {found[1][:40]!r} has no quotes")
        if _SECOND_CALL.search(read[0]):
            return Rejection(FAILED_PARSE, "more than one call on the line")
        arguments[found[1]], end = read  # repeated name: the last one counts, as officially
        separator = body.find(",", end)
        position = len(body) if separator < 0 else separator + 1
    return Call(name, arguments)


def _read_value(body: str, start: int) -> tuple[str, int] | None:
    """The value that begins at `start` and the index after it; None for an unclosed quote."""
    quote = body[start : start + 1]
    if quote and quote in "'\"":
        closing = _CLOSING[quote].search(body, start + 1)
        if not closing:
            return None
        value = body[start + 1 : closing.start()]
        return value.replace("\\" + quote, quote), closing.end()
    depth = 0
    position = start
    while position < len(body):
        character = body[position]
        if character in "[{(":
            depth += 1
        elif character in "]})":
            depth -= 1
        elif character == "," and depth <= 0 and _AFTER_VALUE.match(body, position):
            break
        position += 1
    return body[start:position].strip(), position


def write_call(name: str, arguments: Mapping[str, Any]) -> str:
    """Writes `[Name(key='value', ...)]`, every value in single quotes, like the official files."""
    inside = ", ".join(f"{key}='{value}'" for key, value in arguments.items())
    return f"[{name}({inside})]"


def own_form(answer: str, tools: Sequence[Mapping[str, Any]]) -> str:
    """An answer with its calls as `[Name(key='value')]`, or unchanged if they cannot be read or written so.

    Several calls stand in one pair of brackets, which `read_call` rejects.  `tools`: see `read_tool_calls`.
    """
    found = read_tool_calls(answer, tools)
    if isinstance(found, Rejection) or not found:
        return answer
    try:
        written = [write_call(name, of)[1:-1] for call in found for name, of in call.items()]
    except ValueError:  # a number with too many digits
        return answer
    return f"[{', '.join(written)}]"
