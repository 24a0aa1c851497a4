"""Splits Java and JavaScript source text into tokens, in linear time.

Enough of both languages for the arguments of a call: names, numbers, literals and symbols.
"""

from __future__ import annotations

import dataclasses
import re

_TOKEN = re.compile(
    r"(?P<space>\s+)"
    r"|(?P<name>[^\W\d]\w*|\$\w*|@\w+)"
    r"|(?P<number>0[xX][0-9a-fA-F_]+[lLn]?|(?:\d[\d_]*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?[lLfFdDn]?)(?!\w)"
    r"|(?P<symbol>>>>=|\.\.\.|===|!==|\*\*=|<<=|>>=|&&=|\|\|=|\?\?=|=>|->|::|\?\.|\?\?|==|!=|<=|>=|&&"
    r"|\|\||\+\+|--|\*\*|<<|[-+*/%&|^]=|[-+*/%=<>!~?:;,.&|^(){}\[\]])"
)
_FOREIGN_TO_JAVA = re.compile(
    r"\?\.|\s*[^\S\x00-\x7f]"
)  # optional chaining, and white space beyond ASCII
_FOREIGN_SUFFIX = {"java": "n", "javascript": "lLfFdD"}


class MalformedError(Exception):
    """The text is not what this reader accepts."""


@dataclasses.dataclass(frozen=True)
class Token:
    """A token: its kind (name, number, symbol or string), its text and where it stands."""

    kind: str
    text: str
    start: int
    end: int


def tokens(source: str, language: str) -> list[Token]:
    """Tokens of `source`, white space and comments left out.

    Args:
      source: text of one call.
      language: "java" or "javascript"; they differ in quotes, numbers and regular expressions.

    Raises:
      MalformedError: an unterminated literal or comment, or a character that no token begins with.
    """
    found: list[Token] = []
    position = 0
    while position < len(source):
        character = source[position]
        if source.startswith(("//", "/*"), position):
            end = _comment_end(source, position)
        elif character in "\"'`":
            end = _string_end(source, position, language)
            found.append(Token("string", source[position:end], position, end))
        elif character == "/" and language == "javascript" and _expects_operand(found):
            end = _string_end(source, position, language)
            while end < len(source) and source[end] in "dgimsuvy":
                end += 1
            found.append(Token("string", source[position:end], position, end))
        else:
            match = _TOKEN.match(source, position)
            if not match or (language == "java" and _FOREIGN_TO_JAVA.match(match.group())):
                raise MalformedError(f"unexpected character {character!r}")
            digits = match.group() if match.lastgroup == "number" else "0"
            if digits[:2].lower() != "0x" and digits[-1] in _FOREIGN_SUFFIX[language]:
                raise MalformedError(f"number {match.group()[:40]}")
            end = match.end()
            if match.lastgroup != "space":
                found.append(Token(match.lastgroup, match.group(), position, end))
        position = end
    return found


def _comment_end(source: str, start: int) -> int:
    line = source.startswith("//", start)
    end = source.find("\n" if line else "*/", start + 2)
    if end < 0 and not line:
        raise MalformedError("unterminated comment")
    return len(source) if end < 0 else end + (0 if line else 2)


def _expects_operand(found: list[Token]) -> bool:
    return not found or (found[-1].kind == "symbol" and found[-1].text not in (")", "]", "}"))


def _string_end(source: str, start: int, language: str) -> int:
    quote = source[start]
    if quote == "`" and language == "java":
        raise MalformedError("backtick")
    multiline = quote == "`" or (quote == '"' and language == "java")
    position = start + 1
    in_class = False  # a "/" inside the brackets of a regular expression does not end it
    while position < len(source):
        character = source[position]
        if character == "\\":
            position += 2
            continue
        if quote == "/" and character in "[]":
            in_class = character == "["
        if character == quote and not in_class:
            if quote == "'" and language == "java" and position == start + 1:
                raise MalformedError("empty character literal")
            return position + 1
        if character == "\n" and not multiline:
            break
        position += 1
    raise MalformedError("unterminated literal")
