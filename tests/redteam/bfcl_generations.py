"""Generations in the form of BFCL's single turns, made from a seed or a held-out task."""

import json
from collections.abc import Callable
from typing import Any

from bench.bad_answers.bfcl import Calls, parsed_reference, write
from bench.bad_answers.common import word_in_five
from genenv_jax.benchmarks.base import Task
from tests.benchmarks.bfcl_tasks import function
from tests.redteam.exploits import Make, Scene


def generation(
    request: Callable[[Scene, Task, str], str] | str,
    answer: Callable[[Scene, Task, str], str] | str | None = None,
    tools: Any = None,
) -> Make:
    """A generation with a request, and the seed's reference or another, made from the seed and its reference.

    tools: its own, or None for the seed's.
    """

    def make(scene: Scene, seed: Task) -> str | None:
        calls = scene.benchmark.agent_answer(seed)
        said = request if isinstance(request, str) else request(scene, seed, calls)
        given = calls if answer is None else answer
        given = given if isinstance(given, str) else given(scene, seed, calls)
        if tools is not None and seed.answer["language"] != "python":
            return None
        own = "same" if tools is None else json.dumps(tools)
        return f"New Tools: {own}\nNew Task: {said}\nNew Answer: {given}"

    return make


_NUMBER = {"number": {"type": "integer", "description": "The number."}}
_SIDE = {"side": {"type": "string", "description": "The side."}}
PICK = function("pick", _NUMBER, _NUMBER, "Picks a number.")
COIN = function("set_coin", _SIDE, _SIDE, "Sets a coin to a side.")


def unseen(text: Callable[[str], str], tools: Callable[[Any], Any], calls: Callable[[Calls], Calls]) -> Make:
    """A held-out task with request, functions and reference changed."""

    def make(scene: Scene, seed: Task) -> str | None:
        task = scene.unseen(seed)
        of = None if task is None else parsed_reference(scene.benchmark, task)
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


def as_json(scene: Scene, task: Task) -> str:
    """The reference calls in other models' format."""
    calls = parsed_reference(scene.benchmark, task) or ()
    return json.dumps([{"name": name, "arguments": a} for name, a in calls], default=list)
