"""Functions, and generations made from held-out tasks, for BFCL's single turns."""

import json
from collections.abc import Callable
from typing import Any

from bench.bad_answers.bfcl import Calls, parsed_reference, write
from bench.bad_answers.common import word_in_five
from genenv_jax.benchmarks.base import Task
from tests.benchmarks.bfcl_tasks import function
from tests.redteam.exploits import Make, Scene

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
