"""What BFCL's two players read: tool signatures, the agent's and the simulator's messages."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks.base import Message, SeedStatistics, Task
from genenv_jax.benchmarks.bfcl import ast_checker
from genenv_jax.benchmarks.bfcl.records import STATIC_MATCH

TOOLS_HEADER = "New Tools:"
TASK_HEADER = "New Task:"
ANSWER_HEADER = "New Answer:"
SAME_TOOLS = "same"

_SENTENCE = re.compile(r"(?<=[.!?])\s")
_PREAMBLE = "Tool description:"  # what the multi-turn classes put before each description
_MAX_NESTING = 4
_KEEP = (0.4, 0.6)  # success rates at which the difficulty is right
_DESCRIPTION_CHARS = (None, 160, 80)  # by level of detail: all, a sentence, half a sentence
_PARAMETER_CHARS = (None, 80, 0)

_AGENT_RULES = """\
You answer requests by calling functions. Reply with nothing but a list of calls in this form:
[name(parameter=value, other_parameter=value), second_name(parameter=value)]
Name every parameter, write values as {language} literals, and use only the functions listed \
below. Leave out optional parameters that the request does not need. {scope}If none of the \
functions can do what is asked, or a required value is missing, say so in one sentence and call \
nothing.
{note}
Functions, one a line:
{tools}"""
_ONE_TURN = "Give all calls that the latest request needs, in the order in which they are to run. "
_SOURCE_NOTE = """
The functions are written in {language}. Their parameters have {language} types, and a value is \
{language} source text, for example {example}.
"""
_SOURCE_EXAMPLES = {
    "java": 'f(count=5, total=10L, names=new ArrayList<>(Arrays.asList("a", "b")), label="text")',
    "javascript": 'f(count=5, names=["a", "b"], options={"deep": true}, label="text")',
}

_SIMULATOR_RULES = """\
You write training tasks for an agent that answers requests by calling functions. You are shown \
one task and how well the agent does on tasks like it. Write one new task: a variation, not a \
copy. Change the situation, the values and the wording, and if you like the functions. The new \
task must have exactly one correct answer, and every value in the answer must follow from the \
request.

Reply with exactly these three sections, each header at the start of a line, and nothing else:
{tools_header} the word `{same}` to keep the functions, or a JSON list of functions such as
{schema}
{task_header} the user's request
{answer_header} the correct calls, {answer_form}

Types that a parameter may have: {types}. "required" lists the parameters that a call must have."""
_SCHEMA_EXAMPLE = {
    "name": "function_name",
    "description": "What it does.",
    "parameters": {
        "type": "dict",
        "properties": {"parameter": {"type": "string", "description": "What it means."}},
        "required": ["parameter"],
    },
}
_ANSWER_FORMS = {
    "simple": "one call of the first function, as [name(parameter=value)]",
    "multiple": "one call of one of the functions, as [name(parameter=value)]",
    "parallel": "as [name(parameter=value), second_name(parameter=value)]",
    "relevance": "at least one call, as [name(parameter=value)]",
    "irrelevance": "which is [] because none of the functions can do what is asked",
}


def first_sentence(text: str, max_chars: int | None) -> str:
    """The first sentence of `text`, cut at `max_chars`; all of it where `max_chars` is None."""
    text = " ".join(text.split())
    if max_chars is None:
        return text
    text = _SENTENCE.split(text, maxsplit=1)[0]
    return text if len(text) <= max_chars else text[: max_chars - 1].rstrip() + "…"


def signature(tool: Mapping[str, Any], detail: int = 0) -> str:
    """A function description on one line of JSON: name, description and typed parameters.

    Args:
      tool: BFCL function description.
      detail: 0 keeps descriptions whole, 1 their first sentences, 2 drops those of parameters.
        Types, "required", enumerations and defaults are always kept.
    """
    parameters = tool["parameters"]
    required = parameters.get("required", ())
    description = tool.get("description", "").split(_PREAMBLE)[-1].strip()
    return json.dumps(
        {
            "name": tool["name"],
            "description": first_sentence(description, _DESCRIPTION_CHARS[detail]),
            "parameters": {
                name: _parameter(schema, name in required, detail)
                for name, schema in parameters["properties"].items()
            },
        },
        ensure_ascii=False,
    )


def _parameter(schema: Mapping[str, Any], required: bool, detail: int) -> str:
    parts = [_type_text(schema)]
    if required:
        parts.append("required")
    if "default" in schema:
        parts.append(f"default {_literal(schema['default'])}")
    text = ", ".join(parts)
    limit = _PARAMETER_CHARS[detail]
    if limit == 0:
        return text
    description = first_sentence(str(schema.get("description", "")), limit)
    return f"{text}. {description}" if description else text


def _type_text(schema: Any, depth: int = 0) -> str:
    if not isinstance(schema, Mapping) or depth > _MAX_NESTING:
        return "any"
    text = str(schema.get("type", "any"))
    if "items" in schema:
        text += f" of {_type_text(schema['items'], depth + 1)}"
    properties = schema.get("properties")
    if isinstance(properties, Mapping) and properties:
        required = schema.get("required") or ()
        inside = (
            f"{name}{'' if name in required or not required else '?'}: "
            + _type_text(entry, depth + 1)
            for name, entry in properties.items()
        )
        text += f" {{{', '.join(inside)}}}"
    if schema.get("enum"):
        text += f" in {_literal(schema['enum'])}"
    return text


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _literal(value: Any) -> str:
    """A value inside a JSON string: with single quotes, which need no escapes there."""
    if isinstance(value, str):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_literal(entry) for entry in value)}]"
    return _json(value)


def tool_text(tools: Sequence[Mapping[str, Any]], max_chars: int) -> str:
    """Signatures one a line, as detailed as fits into `max_chars` (the least detailed if none)."""
    text = ""
    for detail in range(len(_DESCRIPTION_CHARS)):
        text = "\n".join(signature(tool, detail) for tool in tools)
        if len(text) <= max_chars:
            break
    return text


def agent_messages(task: Task, max_tool_chars: int, max_chars: int) -> list[Message]:
    """Instructions and tools as the system message, then the task's own conversation.

    Args:
      task: the task; its own system message follows the instructions in the same message.
      max_tool_chars: space for the tools, which are shortened to fit.
      max_chars: space for everything; a long conversation leaves less for the tools.
    """
    spec = task.answer
    language = spec["language"]
    name = {"python": "Python", "java": "Java", "javascript": "JavaScript"}[language]
    note = ""
    if language != "python":
        note = _SOURCE_NOTE.format(language=name, example=_SOURCE_EXAMPLES[language])
    taken = len(_AGENT_RULES) + len(note) + sum(len(m["content"]) for m in task.messages)
    system = _AGENT_RULES.format(
        language=name,
        scope=_ONE_TURN if spec["rule"] == STATIC_MATCH else "",
        note=note,
        tools=tool_text(task.tools, min(max_tool_chars, max_chars - taken)),
    )
    messages = [dict(message) for message in task.messages]
    if messages and messages[0]["role"] == "system":
        system = f"{system}\n\n{messages.pop(0)['content']}"
    return [{"role": "system", "content": system}, *messages]


def simulator_messages(
    seed: Task, answer: str, statistics: SeedStatistics, max_tool_chars: int, max_chars: int
) -> list[Message]:
    """Asks for one variation of `seed`, given its reference calls and the agent's record.

    Args:
      seed: the task to vary.
      answer: its reference calls, written out.
      statistics: how the agent fared on earlier variations.
      max_tool_chars: space for the tools, which are shortened to fit.
      max_chars: space for everything.
    """
    spec = seed.answer
    system = _SIMULATOR_RULES.format(
        tools_header=TOOLS_HEADER,
        task_header=TASK_HEADER,
        answer_header=ANSWER_HEADER,
        same=SAME_TOOLS,
        schema=_json([_SCHEMA_EXAMPLE]),
        answer_form=_ANSWER_FORMS[spec["kind"]],
        types=", ".join(ast_checker.language_types(spec["language"])),
    )
    parts = []
    if len(seed.messages) > 1:
        history = "\n".join(f"{m['role']}: {m['content']}" for m in seed.messages[:-1])
        parts.append(f"Conversation so far (it stays as it is):\n{history}")
    parts.append(f"Request:\n{seed.messages[-1]['content'] if seed.messages else ''}")
    parts.append(f"Correct calls:\n{answer}")
    parts.append(record(statistics))
    taken = len(system) + sum(len(part) for part in parts)
    tools = tool_text(seed.tools, min(max_tool_chars, max_chars - taken))
    parts.insert(0, f"Functions, one a line:\n{tools}")
    return [
        {"role": "system", "content": system},
        {"role": "user", "content": "\n\n".join(parts)},
    ]


def record(statistics: SeedStatistics) -> str:
    """The agent's success statistics in words, with what they ask of the next task."""
    rate = statistics.success_rate
    if rate is None:
        return (
            "The agent has not tried variations of this task yet; "
            "aim at a task that it would solve about half of the time."
        )
    wish = "keep the difficulty"
    if rate < _KEEP[0]:
        wish = "write an easier task"
    elif rate > _KEEP[1]:
        wish = "write a harder task"
    return (
        f"The agent solved {statistics.successes} of {statistics.attempts} attempts at variations "
        f"of this task; aim at tasks solved about half of the time, so {wish}."
    )
