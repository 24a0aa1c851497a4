"""Commands of ALFWorld's text games: their two grammars, and how to parse an agent's text.

The grammars differ in one command.  The games of json_2.1.1 say "put X in/on Y"; alfworld 0.4 says
"move X to Y" (and has `help`).  Sources: alfworld/data/alfred.twl2, and `grammar` in the game files.
"""

import re

from genenv_jax.benchmarks.base import EMPTY, Rejection
from genenv_jax.benchmarks.safe_parse import check_text

PUT_IN_ON, MOVE_TO = "put_in_on", "move_to"
GRAMMARS = (PUT_IN_ON, MOVE_TO)

NO_COMMAND = "not_a_command"  # a line that matches no command of the grammar
MAX_TEXT = 16_384  # characters; a longer answer or generation is rejected
MAX_COMMAND = 120  # characters; the longest real command has about 60

_THING = r"[a-z]{1,32} [0-9]{1,3}"
_COMMON = (
    rf"go to {_THING}|open {_THING}|close {_THING}|take {_THING} from {_THING}|examine {_THING}"
    rf"|use {_THING}|(?:clean|heat|cool|slice) {_THING} with {_THING}|look|inventory"
)
_GRAMMAR = {
    PUT_IN_ON: re.compile(rf"(?:{_COMMON}|put {_THING} in/on {_THING})\Z"),
    MOVE_TO: re.compile(rf"(?:{_COMMON}|move {_THING} to {_THING}|help)\Z"),
}
_ENTITY = re.compile(_THING)
_PUT = re.compile(rf"put ({_THING}) (?:in ?/ ?on|in|on|into|onto|in or on|inside) ({_THING})\Z")
_NUMBER = r"[(\[#]?[0-9]{1,3}[)\]]?"
_ACTION = re.compile(
    rf"[\s*_#>-]{{0,8}}(?:{_NUMBER}\.? )?(?:next )?(?:action|command)(?: ?{_NUMBER})?[ *_]{{0,4}}:",
    re.IGNORECASE,
)
_NUMBERED = re.compile(rf"\A{_NUMBER}(?:[.:]|(?<=[)\]])) ?")
_TAGS = ("<action>", "</action>")
_EDGES = " \t\r`'\"*>.!"


def parse(text: str) -> list[str] | Rejection:
    """The normalised commands in an agent's text, at least one; or a rejection: EMPTY, NOT_TEXT, TOO_LONG.

    Every line that begins with "Action:" or has an <action> tag counts, or the next line if nothing follows
    there; if none has, the last non-empty line counts.
    """
    if rejection := check_text(text, MAX_TEXT):
        return rejection
    lines = [line for line in text.splitlines() if line.strip(_EDGES)]
    named, announced = [], False
    for line in lines:
        found, tag = _ACTION.match(line), line.lower().rfind(_TAGS[0])
        start = found.end() if found else tag + len(_TAGS[0]) if tag >= 0 else 0
        if start or announced:
            named.append(line[start:])
        announced = bool(start) and not line[start:].strip(_EDGES)
    commands = [normalise(line) for line in named or lines[-1:]]
    commands = [command for command in commands if command]
    return commands or Rejection(EMPTY, "no command")


def normalise(line: str) -> str:
    """One command in normal form: lower case, single spaces, no quotes or number, "in/on" for "on"."""
    line = line[: 8 * MAX_COMMAND].lower()
    for tag in _TAGS:
        line = line.replace(tag, " ")
    line = _NUMBERED.sub("", " ".join(line.strip(_EDGES).split())).strip(_EDGES)
    line = line[: MAX_COMMAND + 1]
    found = _PUT.match(line)
    return f"put {found[1]} in/on {found[2]}" if found else line


def is_command(command: str, grammar: str) -> bool:
    """Whether a normalised command follows the grammar, whatever the game's state."""
    return bool(_GRAMMAR[grammar].match(command))


def entities(command: str) -> list[str]:
    """The things that a command names, without the verb, for example ["mug 1", "desk 2"]."""
    return _ENTITY.findall(command)


def put(thing: str, place: str, grammar: str) -> str:
    """The command in which the grammars differ."""
    return f"put {thing} in/on {place}" if grammar == PUT_IN_ON else f"move {thing} to {place}"


def kind_and_number(name: str) -> tuple[str, int]:
    """Sort key for names: ("cabinet", 3) for "cabinet 3"; the number is 0 if the name has none."""
    kind, _, number = name.partition(" ")
    return kind, int(number) if number.isdecimal() else 0
