"""Answers and generations in the form of BFCL's calls, made with and without the reference."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from bench.bad_answers.common import word_in_five
from genenv_jax.benchmarks.base import Task
from genenv_jax.benchmarks.safe_parse import parse_calls

Calls = list[tuple[str, dict[str, Any]]]
_GUESSES = {"integer": 1, "float": 1.0, "boolean": True, "array": [], "tuple": (), "dict": {}}


def reference(scene: Any, task: Task) -> Calls | None:
    """The reference calls; None where they are not written in Python."""
    found = parse_calls(scene.benchmark.agent_answer(task), 100_000, 60)
    if not isinstance(found, list) or task.answer["language"] != "python":
        return None
    return [(name, dict(arguments)) for call in found for name, arguments in call.items()]


def write(calls: Calls) -> str:
    """Calls as an agent writes them."""
    inside = (f"{name}({', '.join(f'{k}={v!r}' for k, v in a.items())})" for name, a in calls)
    return f"[{', '.join(inside)}]"


def changed(change: Callable[[Calls], Calls | None]) -> Callable[[Any, Task], str | None]:
    """The reference with a change, where that makes a difference."""

    def make(scene: Any, task: Task) -> str | None:
        calls = reference(scene, task)
        if not calls:
            return None
        other = change([(name, dict(arguments)) for name, arguments in calls])
        return None if other is None or other == calls else write(other)

    return make


def values(change: Callable[[Any], Any]) -> Callable[[Any, Task], str | None]:
    """The reference with all its values changed."""
    return changed(lambda calls: [(n, {k: change(v) for k, v in a.items()}) for n, a in calls])


def strings(change: Callable[[str], str]) -> Callable[[Any, Task], str | None]:
    """The reference with its texts changed."""
    return values(lambda value: change(value) if isinstance(value, str) else value)


def guess(tool: Mapping[str, Any], text: str = "value") -> tuple[str, dict[str, Any]]:
    """A call with something for each required parameter."""
    properties = tool["parameters"].get("properties", {})
    return tool["name"], {
        name: _GUESSES.get(properties[name].get("type"), text)
        for name in tool["parameters"].get("required", ())
        if name in properties
    }


def free(task: Task) -> Calls:
    """A call of every function that needs no argument."""
    return [(tool["name"], {}) for tool in task.tools if not tool["parameters"].get("required")]


def shotgun(scene: Any, task: Task) -> str:
    """A call of every function."""
    return write([guess(tool) for tool in task.tools])


def quoting(scene: Any, task: Task) -> str:
    """A call of every function with the request for each text."""
    return write([guess(tool, scene.benchmark.text(task)) for tool in task.tools])


# -- generations ----------------------------------------------------------------------------------------


def generation(
    request: Callable[[Any, Task, str], str] | str,
    answer: Callable[[Any, Task, str], str] | str | None = None,
    tools: Any = None,
) -> Callable[[Any, Task], str | None]:
    """A generation with a request, and the seed's reference or another, made of the seed and its reference.

    tools: of its own, or None for the seed's.
    """

    def make(scene: Any, seed: Task) -> str | None:
        calls = scene.benchmark.agent_answer(seed)
        said = request if isinstance(request, str) else request(scene, seed, calls)
        given = calls if answer is None else answer
        given = given if isinstance(given, str) else given(scene, seed, calls)
        if tools is not None and seed.answer["language"] != "python":
            return None
        own = "same" if tools is None else json.dumps(tools)
        return f"New Tools: {own}\nNew Task: {said}\nNew Answer: {given}"

    return make


def tool(name: str, description: str, **parameters: Mapping[str, Any]) -> dict[str, Any]:
    """A function whose parameters are all required."""
    schema = {"type": "dict", "properties": parameters, "required": list(parameters)}
    return {"name": name, "description": description, "parameters": schema}


PICK = tool("pick", "Picks a number.", number={"type": "integer", "description": "The number."})
COIN = tool(
    "set_coin", "Sets a coin to a side.", side={"type": "string", "description": "The side."}
)


def unseen(
    text: Callable[[str], str],
    tools: Callable[[Any], Any],
    calls: Callable[[Calls], Calls],
) -> Callable[[Any, Task], str | None]:
    """A held-out task with request, functions and reference changed."""

    def make(scene: Any, seed: Task) -> str | None:
        task = scene.unseen(seed)
        of = None if task is None else reference(scene, task)
        if not of:
            return None
        own = json.dumps(tools([dict(tool) for tool in task.tools]))
        said = text(scene.benchmark.text(task))
        return f"New Tools: {own}\nNew Task: {said}\nNew Answer: {write(calls(of))}"

    return make


added = unseen(
    lambda text: f"{text} And pick the number 5.",
    lambda tools: [*tools, PICK],
    lambda calls: [*calls, ("pick", {"number": 5})],
)
renamed = unseen(
    word_in_five,
    lambda tools: [{**tool, "name": f"{tool['name']}_now"} for tool in tools],
    lambda calls: [(f"{name}_now", arguments) for name, arguments in calls],
)


def as_json(scene: Any, task: Task) -> str:
    """The reference calls in the form that other models write."""
    found = [{"name": name, "arguments": a} for name, a in reference(scene, task) or ()]
    return json.dumps(found, default=list)
