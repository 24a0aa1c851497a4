"""BFCL's prompts: tool signatures, and the messages for the agent and the simulator."""

import functools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks import headers
from genenv_jax.benchmarks.base import Message, SeedStatistics, Task
from genenv_jax.benchmarks.bfcl import ast_checker
from genenv_jax.benchmarks.bfcl.categories import AST, CONVERSATION, STATIC_MATCH, TURN_STATE, varies
from genenv_jax.benchmarks.bfcl.fitting import fitted, merged, shortened, size_of
from genenv_jax.benchmarks.bfcl.pairs import PAIRED
from genenv_jax.benchmarks.calls import LLAMA
from genenv_jax.benchmarks.safe_parse import parse_calls
from genenv_jax.benchmarks.success_record import success_record
from genenv_jax.benchmarks.task import TOOLS, Tools
from genenv_jax.benchmarks.tools import rewritten, tools_message

# 4,096 tokens of a Qwen tokeniser hold about 14,000 characters of such text.
MAX_CHARS = 13_500  # of a whole prompt, as far as shortening the functions allows
MAX_TOOL_CHARS = 8_500  # of its functions; more is shortened (`tool_text`)

_SENTENCE = re.compile(r"(?<=[.!?])\s")
_PREAMBLE = "Tool description:"  # prefix of descriptions in the multi-turn classes
_MAX_NESTING = 4
_DESCRIPTION_CHARS = (None, 160, 80)  # by level of detail: all, a sentence, half a sentence
_PARAMETER_CHARS = (None, 80, 0)
_DETAILS = range(3)

# The form comes last: with the functions after it, Qwen2.5-Coder-0.5B answers with lists of texts (0 of 48
# single turns right); with the functions before it, it uses the form (20 of 48 right).
_AGENT_RULES = """\
You can call these functions:
{tools}
{note}
Find out which calls the {latest}request needs, one or several, and reply with these calls alone, in this \
form:
[name1(parameter1=value1, parameter2=value2), name2(parameter3=value3)]
{scope}Do not write anything else. If none of the functions can do what is asked, or a required value is \
missing, say so in one sentence instead."""
_ONE_TURN = "Write them in the order in which they are to run. "
_SCOPES = {
    STATIC_MATCH: _ONE_TURN,
    TURN_STATE: _ONE_TURN,
    CONVERSATION: (
        "The results of your calls come back to you, and you may call again, until the latest request "
        "is dealt with; then answer in plain words, without a call. "
    ),
}
_TEMPLATE_SCOPE = (
    "Call functions to do what is asked. A request may need one call or several; make all of them in one "
    "answer. If none of the functions can do it, say so in one sentence and call nothing."
)
_TEMPLATE_CONVERSATION = (
    f"Call functions to do what is asked. {_SCOPES[CONVERSATION]}If none of the functions can do it, or a "
    "required value is missing, say so in one sentence and call nothing."
)
_NEW_FUNCTIONS = "From now on these functions can be called too. Deal with what was asked above."
_FUNCTIONS = "Functions, one a line:"
_HISTORY = "Conversation so far (it stays as it is):"
_STATE = "State at the beginning:"
_HEADING_CHARS = 260  # total, of the headings in the simulator's message
_MESSAGE_CHARS = 2_000  # of an agent's own answer when shown again
# Characters of prose that take as many tokens as one of a JSON schema; Llama's templates indent schemas.
_SCHEMA_SIZE, _INDENTED_SIZE = 0.9, 1.3
_STATE_CHARS = 2_500  # of the objects' initial state in the simulator's prompt
_SOURCE_NOTE = """
The functions are written in {language}. Their parameters have {language} types, and a value is \
{language} source text, for example {example}.
"""
_SOURCE_EXAMPLES = {
    "Java": 'f(count=5, total=10L, names=new ArrayList<>(Arrays.asList("a", "b")), label="text")',
    "JavaScript": 'f(count=5, names=["a", "b"], options={"deep": true}, label="text")',
}

_SIMULATOR_RULES = """\
You write training tasks for an agent that answers requests by calling functions. After your first \
task you are told {told}. Then write the next: a variation, not a \
copy. Change the situation, the values and the wording, and if you like {free}. The new task must have \
exactly one correct answer, and every value in the answer must follow from the request.

{reply}

Types that a parameter may have: {types}. "required" lists the parameters that a call must have."""
_FREE = "the functions and the number of calls"
_FREE_IF_KEPT = "the functions that are called and how often"
_FREE_IF_ASKED = "the functions that are called"
_EXECUTED_RULES = """\


The functions stay as they are, so the first section is the word {same}. The correct calls are \
executed, after those of the conversation so far, on the state below: each must run without an error, \
so use names and numbers that are there."""
_ANSWER_FORMS = {
    "simple": "one correct call of the first function, as [name(parameter=value)]",
    "multiple": "one correct call of one of the functions, as [name(parameter=value)]",
    "parallel": "the correct calls, one or several, as [name(parameter=value), second_name(parameter=value)]",
    "relevance": "at least one correct call, as [name(parameter=value)]",
    "irrelevance": "[], because none of the functions can do what is asked",
}


def first_sentence(text: str, max_chars: int | None) -> str:
    """The first sentence of `text`, cut at `max_chars`; None: all of `text`, 0: nothing."""
    text = " ".join(text.split())
    if not max_chars:
        return text if max_chars is None else ""
    text = _SENTENCE.split(text, maxsplit=1)[0]
    return text if len(text) <= max_chars else text[: max_chars - 1].rstrip() + "…"


def signature(tool: Mapping[str, Any], detail: int = 0) -> str:
    """A function on one line of JSON: name, description and typed parameters.

    `detail` 0 keeps full descriptions, 1 their first sentences, 2 drops those of parameters.
    """
    required = tool["parameters"].get("required", ())
    parameters = {
        name: _parameter(schema, name in required, detail)
        for name, schema in tool["parameters"]["properties"].items()
    }
    return _json({"name": tool["name"], "description": _description(tool, detail), "parameters": parameters})


def _description(tool: Mapping[str, Any], detail: int) -> str:
    text = str(tool.get("description", "")).split(_PREAMBLE)[-1].strip()
    return first_sentence(text, _DESCRIPTION_CHARS[detail])


def _parameter(schema: Mapping[str, Any], required: bool, detail: int) -> str:
    parts = [_type_text(schema)]
    if required:
        parts.append("required")
    if "default" in schema:
        parts.append(f"default {_literal(schema['default'])}")
    text = ", ".join(parts)
    description = first_sentence(str(schema.get("description", "")), _PARAMETER_CHARS[detail])
    return f"{text}. {description}" if description else text


def _type_text(schema: Any, depth: int = 0) -> str:
    if not isinstance(schema, Mapping) or depth > _MAX_NESTING:
        return "any"
    text = str(schema.get("type", "any"))
    if "items" in schema:
        text += f" of {_type_text(schema['items'], depth + 1)}"
    properties = schema.get("properties")
    if isinstance(properties, Mapping) and properties:
        required = schema.get("required")
        required = required if isinstance(required, list | tuple) else ()  # may be anything
        inside = (
            f"{name}{'' if name in required or not required else '?'}: " + _type_text(entry, depth + 1)
            for name, entry in properties.items()
        )
        text += f" {{{', '.join(inside)}}}"
    if schema.get("enum"):
        text += f" in {_literal(schema['enum'])}"
    return text


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _literal(value: Any) -> str:
    """A value inside a JSON string, in single quotes, which need no escapes there."""
    if isinstance(value, str):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_literal(entry) for entry in value)}]"
    return _json(value)


def tool_text(tools: Tools, max_chars: int) -> str:
    """Signatures, one per line, as detailed as `max_chars` allows (least detailed if none fit)."""
    texts = _signatures(tools)
    return next((text for text in texts if len(text) <= max_chars), texts[-1])


def _signatures(tools: Tools) -> list[str]:
    """Signatures, one per line, by level of detail."""
    return ["\n".join(signature(tool, detail) for tool in tools) for detail in _DETAILS]


def readable(answer: str) -> str:
    """An agent's answer as shown to it again: of bounded length and valid Unicode."""
    return shortened(answer.encode("utf-8", "replace").decode(), _MESSAGE_CHARS)


def announcement(tools: Tools) -> str:
    """Announces functions that were not listed before."""
    return f"{tool_text(tools, _MESSAGE_CHARS)}\n{_NEW_FUNCTIONS}"


def is_announcement(text: str) -> bool:
    """Whether a message comes from `announcement`."""
    return text.endswith(_NEW_FUNCTIONS)


def agent_messages(task: Task, log: Sequence[Message] | None = None) -> list[Message]:
    """Instructions and tools as the system message, then the conversation.

    To fit, call results are shortened first, then function descriptions, then results further.  Then the
    oldest messages are dropped, never the latest request, and what follows it only as a last resort.

    Args:
      task: its own system message is appended to the instructions.
      log: the conversation so far; None means `task.messages`.
    """
    spec, note = task.answer, ""
    for name, example in _SOURCE_EXAMPLES.items():
        if spec["language"] == name.lower():
            note = _SOURCE_NOTE.format(language=name, example=example)
    messages = list(task.messages if log is None else log)
    own = ""
    if messages and messages[0]["role"] == "system":
        own = f"\n\n{messages.pop(0)['content']}"
    scope, latest = _SCOPES.get(spec["rule"], ""), "" if spec["rule"] == AST else "latest "
    rules = functools.partial(_AGENT_RULES.format, scope=scope, note=note, latest=latest)
    space = MAX_CHARS - len(rules(tools="")) - len(own)
    tools, messages = fitted(_signatures(task.tools), messages, MAX_TOOL_CHARS, space)
    return [{"role": "system", "content": f"{rules(tools=tools)}{own}"}, *merged(messages)]


def template_messages(task: Task, form: str, log: Sequence[Message] | None = None) -> list[Message] | None:
    """The tools for a chat template, then the conversation; None if they do not fit.

    Descriptions are as detailed as fits; nothing else is shortened.

    Args:
      form: the format of `calls.write_calls` for the calls in `task.messages`.
      log: the conversation so far, whose opening fits; it is shortened as by `agent_messages`.
    """
    messages = list(task.messages if log is None else log)
    own = [messages.pop(0)["content"]] if messages and messages[0]["role"] == "system" else []
    scope = _TEMPLATE_CONVERSATION if task.answer["rule"] == CONVERSATION else _TEMPLATE_SCOPE
    system = {"role": "system", "content": "\n\n".join([scope, *own])}
    language, factor = task.answer["language"], _INDENTED_SIZE if form == LLAMA else _SCHEMA_SIZE
    tools = [
        tools_message([described(tool, language, detail) for tool in task.tools])["content"]
        for detail in _DETAILS
    ]

    def size(text: str) -> int:
        return int(len(text) * factor)

    space = MAX_CHARS - size_of([system])
    if log is None:
        said = [
            {**m, "content": in_form(m["content"], form)} if m["role"] == "assistant" else m for m in messages
        ]
        space = min(MAX_TOOL_CHARS, space - size_of(said))
        shown = next((text for text in tools if size(text) <= space), None)
        if shown is None:
            return None
    else:
        shown, said = fitted(tools, messages, MAX_TOOL_CHARS, space, size)
    return [{"role": TOOLS, "content": shown}, system, *merged(said)]


def described(tool: Mapping[str, Any], language: str, detail: int = 0) -> dict[str, Any]:
    """A function with shorter descriptions; Java and JavaScript values are strings."""
    properties = {}
    for name, schema in tool["parameters"]["properties"].items():
        schema = dict(schema)
        text = str(schema.pop("description", ""))
        if language != "python":
            text = f"{text} A {language} {schema['type']}, written as a string.".strip()
            schema = {"type": "string"}
        elif detail:
            text = first_sentence(text, _PARAMETER_CHARS[detail])
        properties[name] = schema | ({"description": text} if text else {})
    return {
        "name": tool["name"],
        "description": _description(tool, detail),
        "parameters": {**tool["parameters"], "properties": properties},
    }


def in_form(answer: str, form: str) -> str:
    """An answer of a conversation with its calls in a format of `calls.write_calls`."""
    return rewritten(answer, parse_calls(answer), form)


def _wanted(calls: int) -> str:
    return f"Write a task that needs {calls} call{'s' if calls > 1 else ''}."


def simulator_messages(seed: Task, answer: str, statistics: SeedStatistics) -> list[Message]:
    """Asks for one variation of `seed`, given its reference calls as text.

    statistics: the number of calls to ask for, else the agent's record.
    """
    spec = seed.answer
    executed, paired = spec["rule"] == TURN_STATE, PAIRED in spec
    asked = statistics.difficulty is not None
    system = _SIMULATOR_RULES.format(
        told="how many calls the next one needs" if asked else "how well the agent does on tasks like it",
        free=_FREE_IF_ASKED if asked else _FREE_IF_KEPT if paired else _FREE,
        reply=headers.reply(
            "" if paired else "a JSON list of functions",
            "the user's request",
            _ANSWER_FORMS["parallel" if varies(spec) else spec["kind"]],
            answer_first=True,
        ),
        types=", ".join(ast_checker.CONVERTED_TYPES[spec["language"]]),
    )
    record = _wanted(statistics.difficulty) if asked else success_record(statistics)
    state = []
    if executed:
        system += _EXECUTED_RULES.format(same=headers.SAME)
        needed = (system, answer, record, tool_text(seed.tools, 0), seed.messages[-1]["content"])
        space = MAX_CHARS - sum(map(len, needed)) - _HEADING_CHARS
        state = [f"{_STATE}\n{_state_text(spec['scenario'], max(0, min(_STATE_CHARS, space)))}"]
    taken = sum(map(len, (system, answer, record, *state))) + _HEADING_CHARS
    texts = _signatures(seed.tools)
    if not executed:  # as the simulator writes them
        lines = [[_json(described(tool, "python", of)) for tool in seed.tools] for of in _DETAILS]
        texts = [*("[" + ",\n".join(functions) + "]" for functions in lines), *texts[1:]]
    tools, messages = fitted(texts, seed.messages, MAX_TOOL_CHARS, MAX_CHARS - taken)
    parts = [f"{_FUNCTIONS}\n{tools}", *state]
    *earlier, latest = messages
    if earlier:
        history = "\n".join(f"{m['role']}: {m['content']}" for m in earlier)
        parts.append(f"{_HISTORY}\n{history}")
    shown = headers.write_with_tools(None, latest["content"], answer, answer_first=True)
    return headers.ask(system, parts, shown, record)


def _state_text(scenario: Mapping[str, Any], max_chars: int) -> str:
    """Initial states of the objects as JSON, each with an equal share of the space."""
    share = max_chars // max(1, len(scenario["classes"]))
    return "\n".join(
        f"{name}: {shortened(_json(scenario['config'].get(name, {})), share)}" for name in scenario["classes"]
    )
