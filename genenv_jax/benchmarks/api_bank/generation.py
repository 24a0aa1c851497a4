"""The simulator's side of API-Bank: reads the three sections of a generation into a task's parts."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks.api_bank import prompts
from genenv_jax.benchmarks.api_bank.records import is_description
from genenv_jax.benchmarks.base import BAD_TOOLS, EMPTY, UNPARSABLE, Rejection
from genenv_jax.benchmarks.headers import parse_headers
from genenv_jax.benchmarks.safe_parse import check_text, parse_json

MAX_TOOLS = 32
MAX_PARAMETERS = 32
_HEADERS = (prompts.TOOLS_HEADER, prompts.TASK_HEADER, prompts.ANSWER_HEADER)
_DEPTH = 32
_TURNS = ("User:", "AI:", prompts.CALL_PREFIX)


@dataclasses.dataclass(frozen=True)
class Generation:
    """What a simulator wrote: APIs (None: the seed's), the conversation and the gold answer."""

    tools: tuple[dict[str, Any], ...] | None
    dialogue: str
    answer: str


def write(tools: Sequence[Mapping[str, Any]] | None, dialogue: str, answer: str) -> str:
    """The text that `read` inverts; `tools` None keeps the seed's."""
    listed = prompts.SAME_TOOLS
    if tools is not None:
        listed = json.dumps([dict(tool) for tool in tools], ensure_ascii=False)
    sections = (listed, dialogue.strip(), answer)
    return "\n".join(f"{h} {s}" for h, s in zip(_HEADERS, sections, strict=True))


def read(text: Any, max_chars: int, max_dialogue: int) -> Generation | Rejection:
    """Reads a generation; total.

    Returns:
      The parts, or a `Rejection`: EMPTY, NOT_TEXT, TOO_LONG, UNPARSABLE (sections or conversation) or
      BAD_TOOLS.
    """
    rejection = check_text(text, max_chars)
    if rejection:
        return rejection
    sections = parse_headers(text, _HEADERS)
    if isinstance(sections, Rejection):
        return sections
    listed, dialogue, answer = sections
    rejection = check_text(dialogue, max_dialogue)
    if rejection:
        reason = UNPARSABLE if rejection.reason == EMPTY else rejection.reason
        return Rejection(reason, f"conversation: {rejection.detail or 'empty'}")
    if not dialogue.startswith(_TURNS):
        return Rejection(UNPARSABLE, "the conversation does not begin with a turn")
    if listed.strip("`.").lower() == prompts.SAME_TOOLS:
        return Generation(None, dialogue, answer)
    tools = parse_json(listed, max_chars, _DEPTH)
    if isinstance(tools, Rejection):
        return Rejection(BAD_TOOLS, f"{tools.reason}: {tools.detail}"[:200])
    rejection = check_tools(tools)
    return rejection or Generation(tuple(tools), dialogue, answer)


def check_tools(tools: Any) -> Rejection | None:
    """Whether API descriptions are well formed: BAD_TOOLS with the fault, or None."""
    if not isinstance(tools, list | tuple) or not 0 < len(tools) <= MAX_TOOLS:
        return Rejection(BAD_TOOLS, f"expected a list of 1 to {MAX_TOOLS} API descriptions")
    names = set()
    for index, tool in enumerate(tools):
        if not is_description(tool) or not isinstance(tool.get("description", ""), str):
            return Rejection(
                BAD_TOOLS, f"API {index}: expected name, description, input_parameters"
            )
        parameters = tool["input_parameters"]
        identifiers = (tool["name"], *parameters)
        if not all(name.isidentifier() and name.isascii() for name in identifiers):
            return Rejection(BAD_TOOLS, f"API {index}: a name is not an identifier")
        if len(parameters) > MAX_PARAMETERS or not all(
            isinstance(schema.get("type"), str) for schema in parameters.values()
        ):
            return Rejection(BAD_TOOLS, f"API {index}: a parameter has no type, or too many")
        if tool["name"] in names:
            return Rejection(BAD_TOOLS, f"API {index}: its name is there twice")
        names.add(tool["name"])
    return None
