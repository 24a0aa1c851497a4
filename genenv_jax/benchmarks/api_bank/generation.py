"""The simulator's side of API-Bank: reads its generations into tasks and checks them."""

import dataclasses
import re
from typing import Any

from genenv_jax.benchmarks import base
from genenv_jax.benchmarks.api_bank import prompts, reward, scoring, tasks
from genenv_jax.benchmarks.api_bank.calls import Call, own_form, read_call
from genenv_jax.benchmarks.api_bank.tasks import CALL, CALL_PREFIX, TOOL_SEARCHER, known_apis
from genenv_jax.benchmarks.base import Rejection, Task
from genenv_jax.benchmarks.grounding import judge, leaves
from genenv_jax.benchmarks.headers import read_tools, read_with_tools
from genenv_jax.benchmarks.tools import json_type

MAX_CHARS = 16_384  # of a generation
_MAX_DIALOGUE = 8_192
_MAX_REPLY = 1_024  # of a reference reply: ROUGE-L is quadratic in words
_MAX_PROMPT = 13_000  # of the agent's prompt: about 4,096 tokens of a Qwen tokeniser
_MAX_TOOLS = 32
_MAX_PARAMETERS = 32
_OWN_TYPES = {  # API-Bank's names of JSON schema's types
    "string": "str", "integer": "int", "number": "float", "boolean": "bool", "array": "list", "object": "dict"
}  # fmt: skip
_TURNS = ("User:", "AI:", CALL_PREFIX)
_SPEAKER = re.compile("^(?:User|AI):", re.MULTILINE)


def read(text: str, seed: Task) -> Task | Rejection:
    """Reads a task from a generation of at most `MAX_CHARS`.  Total.

    Rejections: UNPARSABLE (sections or conversation), TOO_LONG, BAD_TOOLS or BAD_ANSWER.
    """
    sections = read_with_tools(text, "conversation", _MAX_DIALOGUE)
    if isinstance(sections, Rejection):
        return sections
    listed, dialogue, answer = sections
    if not dialogue.startswith(_TURNS):
        return Rejection(base.UNPARSABLE, "the conversation does not begin with a turn")
    tools = seed.tools if listed is None else read_tools(listed)
    if isinstance(tools, Rejection):
        return tools
    if listed is not None and (rejection := check_tools(tools)):
        tools = list(map(_in_own_form, tools))
        if check_tools(tools):
            return rejection
    kind = seed.answer["kind"]
    spec: dict[str, Any] = {"kind": kind, "level": seed.answer["level"]}
    if kind == CALL:
        call = read_call(answer)
        if isinstance(call, Rejection):
            call = read_call(own_form(answer, tools))
        if isinstance(call, Rejection):
            return Rejection(base.BAD_ANSWER, f"{call.reason}: {call.detail}"[:200])
        spec |= tasks.call_spec(call.name, call.arguments, dialogue, tools)
    else:
        spec["text"] = answer
    if listed is not None:
        spec["new_tools"] = True
    messages = ({"role": "user", "content": dialogue},)
    return dataclasses.replace(seed, messages=messages, tools=tuple(tools), answer=spec)


def _in_own_form(tool: Any) -> Any:
    """A description with JSON schema's "parameters" in API-Bank's form; any other unchanged."""
    match tool:
        case {"parameters": {"properties": dict(properties)}, **others} if "input_parameters" not in others:
            inputs = {
                name: of | {"type": _OWN_TYPES.get(json_type(of.get("type")), of.get("type"))}
                for name, of in properties.items()
                if isinstance(of, dict)
            }
            return others | {"input_parameters": properties | inputs}
    return tool


def check_tools(tools: Any) -> Rejection | None:
    """Whether API descriptions are well formed: BAD_TOOLS with the fault, or None."""
    if not isinstance(tools, list | tuple) or not 0 < len(tools) <= _MAX_TOOLS:
        return Rejection(base.BAD_TOOLS, f"expected a list of 1 to {_MAX_TOOLS} API descriptions")
    names = set()
    for index, tool in enumerate(tools):
        if not tasks.is_description(tool) or not isinstance(tool.get("description", ""), str):
            return Rejection(base.BAD_TOOLS, f"API {index}: expected name, description, input_parameters")
        parameters = tool["input_parameters"]
        identifiers = (tool["name"], *parameters)
        if not all(name.isidentifier() and name.isascii() for name in identifiers):
            return Rejection(base.BAD_TOOLS, f"API {index}: a name is not an identifier")
        if len(parameters) > _MAX_PARAMETERS or not all(
            isinstance(schema.get("type"), str) for schema in parameters.values()
        ):
            return Rejection(base.BAD_TOOLS, f"API {index}: a parameter has no type, or too many")
        if tool["name"] in names:
            return Rejection(base.BAD_TOOLS, f"API {index}: its name is used twice")
        names.add(tool["name"])
    return None


def fault(task: Task) -> Rejection | None:
    """Checks a task except its reference's score: BAD_TOOLS, BAD_ANSWER, TOO_LONG or None.

    Calls are not executed: new APIs have no implementation.
    """
    spec, dialogue = task.answer, prompts.dialogue(task)
    if spec["kind"] == CALL:
        known = known_apis(dialogue, task.tools)
        if spec["name"] not in known:
            return Rejection(base.BAD_TOOLS, f"{spec['name'][:60]} is not described")
        for name, value in spec["parameters"].items():
            if name not in known[spec["name"]]["input_parameters"]:
                return Rejection(base.BAD_ANSWER, f"{name[:60]} is not a parameter")
            if not value.strip():
                return Rejection(base.BAD_ANSWER, f"{name[:60]} is empty")
    elif task.origin == "generated" and len(spec["text"]) > _MAX_REPLY:
        return Rejection(base.TOO_LONG, f"a reply of {len(spec['text'])} characters")
    size = sum(len(message["content"]) for message in prompts.agent_messages(task))
    if size > _MAX_PROMPT:
        return Rejection(base.TOO_LONG, f"an agent prompt of {size} characters")
    return None


def grounding(task: Task) -> Rejection | str:
    """See `Benchmark.grounding`; replies are free text, so UNDECIDED.

    A request does not determine a tool search's keywords, but must contain one of them.
    """
    spec, dialogue = task.answer, prompts.dialogue(task)
    if spec["kind"] != CALL:
        return base.UNDECIDED
    values = list(spec["parameters"].values())
    if spec["name"] == TOOL_SEARCHER:
        values = [scoring.split_capitals(value) for value in values]
    turns = prompts.wording(task).split("\n")
    spoken = "\n".join(turn for turn in turns if not turn.startswith(CALL_PREFIX))
    for turn in turns:
        made = read_call(turn)
        if isinstance(made, Call) and not scoring.mismatch(made, spec, reward.is_paid):
            return Rejection(base.GIVEN_AWAY, "the call was made before")
    calls = [(spec["name"], spec["parameters"])]
    known = [tool for tool in task.tools if tool["name"] == spec["name"]]
    described = " ".join(map(str, leaves(known)))
    context = _SPEAKER.sub("", dialogue)  # a keyword may be `user`
    found = judge(calls, [values], spoken, context, described, prompts.year(task))
    if spec["name"] == TOOL_SEARCHER and getattr(found, "reason", "") == base.NOT_ASKED:
        return judge([], [], context, context, " ".join(values))
    return found
