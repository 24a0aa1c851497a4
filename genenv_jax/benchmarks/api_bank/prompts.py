"""API-Bank's prompts for the agent and the simulator."""

import json
from collections.abc import Mapping
from typing import Any

from genenv_jax.benchmarks import headers
from genenv_jax.benchmarks.api_bank.calls import write_call
from genenv_jax.benchmarks.api_bank.scoring import read_list
from genenv_jax.benchmarks.api_bank.tasks import CALL, CALL_PREFIX, known_apis, types_of
from genenv_jax.benchmarks.base import Message, Rejection, SeedStatistics, Task, chat
from genenv_jax.benchmarks.calls import write_calls
from genenv_jax.benchmarks.success_record import success_record
from genenv_jax.benchmarks.tools import json_schema, tools_message

_FORM = "[ApiName(key1='value1', key2='value2')]"
_YEAR = "It is the year 2023. "  # completes the dates in dialogues of levels 1 and 2

_CALL_RULES = """\
You are an assistant that serves a user through APIs. Read the conversation and write the one API call \
that has to be made next, on one line and in this form, with nothing before or after it:
{prefix}{form}
Put every value in single quotes. Use the names of the API and of its parameters as they are described, \
and values that the conversation states. {year}{search}

APIs, one a line:
{tools}"""
_SEARCH = (
    "To use an API that is not described here, first look for it by calling ToolSearcher with keywords; "
    "what it finds may be called afterwards."
)
_TEMPLATE_RULES = (
    "You are an assistant that serves a user through APIs. Make the one call that has to be made next, with "
    "values as the conversation states them. {year}{search}"
)
_RESPONSE_RULES = """\
You are an assistant that serves a user through APIs. Read the conversation, in which API calls stand \
with their results, and write what you say to the user next: plain text, as short as the facts allow, \
without any API call. {year}

APIs, one a line:
{tools}"""
_CONVERSATION = "Conversation:\n"
# Last line of a prompt: without it, small models continue the conversation.
_CALL_CUE = "\n\nWrite the one API call that has to be made next."
_RESPONSE_CUE = "\n\nWrite what you say to the user next."

_SIMULATOR_RULES = """\
You write training tasks for an assistant that serves users through APIs. After your first task you are \
told how well the assistant does on tasks like it. Then write the next: a variation, not a copy. Change the \
situation, the values and the wording, and if you like the APIs. {goal}

{reply}"""
_CALL_GOAL = (
    "Exactly one call must be right, it must call an API that is described or that a search in the "
    "conversation found, and every value in it must follow from the conversation."
)
_RESPONSE_GOAL = "One reply must clearly be right, and follow from the calls' results."
_CALL_ANSWER = f"the call that has to be made next, as {_FORM}"
_RESPONSE_ANSWER = "what the assistant says to the user next, on one line"
_TURNS = (
    "the conversation, one turn a line, `User: ...` or `AI: ...`, and calls that were already made as "
    f"`{CALL_PREFIX}{_FORM}->result`"
)


def dialogue(task: Task) -> str:
    """The conversation of a task."""
    return task.messages[-1]["content"] if task.messages else ""


def wording(task: Task) -> str:
    """The conversation without call results, which are boilerplate."""
    return "\n".join(
        line.partition("->")[0] if line.startswith(CALL_PREFIX) else line
        for line in dialogue(task).split("\n")
    )


def reference(task: Task) -> str:
    """A task's gold call or reply, as the simulator writes it."""
    spec = task.answer
    return write_call(spec["name"], spec["parameters"]) if spec["kind"] == CALL else spec["text"]


def year(task: Task) -> str:
    """The sentence that tells the agent the year; "" for level 3."""
    return _YEAR if task.answer["level"] < 3 else ""


def agent_messages(task: Task) -> list[Message]:
    """The system message with instructions and APIs, then the conversation and what to write."""
    call = task.answer["kind"] == CALL
    system = (_CALL_RULES if call else _RESPONSE_RULES).format(
        prefix=CALL_PREFIX,
        form=_FORM,
        year=year(task),
        search=_SEARCH if task.answer["level"] > 1 else "",
        tools="\n".join(json.dumps(dict(tool), ensure_ascii=False) for tool in task.tools),
    )
    return chat(system, _CONVERSATION + dialogue(task) + (_CALL_CUE if call else _RESPONSE_CUE))


def template_tools(task: Task) -> list[dict[str, Any]]:
    """The APIs that may be called, for a chat template (`tools.tools_message`)."""
    return [_described(api) for api in known_apis(dialogue(task), task.tools).values()]


def _described(api: Mapping[str, Any]) -> dict[str, Any]:
    inputs = api["input_parameters"]
    properties = {
        name: _schema(kind) | {"description": str(inputs[name].get("description", ""))}
        for name, kind in types_of(api).items()
    }
    return {
        "name": api["name"],
        "description": api.get("description", ""),
        "parameters": {"type": "object", "properties": properties},
    }


def _schema(kind: str) -> dict[str, Any]:
    """The JSON schema of a declared type, such as `int` or `list(str)`."""
    outer, _, inner = kind.partition("(")
    items = {"items": {"type": inner.removesuffix(")")}} if inner else {}
    return json_schema({"type": outer} | items)


def template_messages(task: Task) -> list[Message]:
    """The APIs for a chat template, which defines the form of a call; then as in `agent_messages`.

    The conversation is one message.  As chat turns, it usually ends with the assistant, and small models chat
    on (Qwen2.5-Coder-0.5B: 2 of 24 held-out calls right, against 8 this way).
    """
    search = _SEARCH if task.answer["level"] > 1 else ""
    system = _TEMPLATE_RULES.format(year=year(task), search=search)
    return [tools_message(template_tools(task)), *chat(system, _CONVERSATION + dialogue(task) + _CALL_CUE)]


def template_answer(task: Task, form: str) -> str:
    """The gold call in a format of `calls.write_calls`, with values of their declared types."""
    spec = task.answer
    types, parameters = spec["types"], spec["parameters"].items()
    arguments = {name: _json_value(text, types.get(name, "str")) for name, text in parameters}
    try:
        return write_calls([{spec["name"]: arguments}], form)
    except (TypeError, ValueError):  # a literal that JSON has no form for
        return write_calls([{spec["name"]: spec["parameters"]}], form)


def _json_value(text: str, kind: str) -> Any:
    value = text if _schema(kind)["type"] == "string" else read_list(text)
    return text if isinstance(value, Rejection) else value


def simulator_messages(seed: Task, statistics: SeedStatistics) -> list[Message]:
    """Asks for one variation of `seed`, given its gold answer and the agent's record."""
    call = seed.answer["kind"] == CALL
    answer = _CALL_ANSWER if call else _RESPONSE_ANSWER
    system = _SIMULATOR_RULES.format(
        goal=_CALL_GOAL if call else _RESPONSE_GOAL,
        reply=headers.reply("a JSON list of API descriptions", _TURNS, answer),
    )
    shown = headers.write_with_tools(None, dialogue(seed), reference(seed))
    apis = f"APIs:\n{json.dumps(list(map(dict, seed.tools)), ensure_ascii=False)}"
    return headers.ask(system, [apis], shown, success_record(statistics, who="assistant"))
