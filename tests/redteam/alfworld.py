"""Steps of ALFWorld: one command, the expert's; and situations invented by the simulator."""

import functools
from collections.abc import Callable

from genenv_jax.benchmarks import base
from genenv_jax.benchmarks.alfworld import prompts
from genenv_jax.benchmarks.base import Task
from tests.redteam.common import answers, changed, generations
from tests.redteam.exploits import AGENT, SIMULATOR, Exploit, Make, Scene

_agent = functools.partial(Exploit, "alfworld", AGENT)
_simulator = functools.partial(Exploit, "alfworld", SIMULATOR)
_GUESS = "one of the commands that are possible is right"
_CHANCE = "a situation in which several commands are as good takes reading"


def _actions(commands: Callable[[Task], list[str]]) -> Make:
    """Commands, each written as an action."""
    return lambda scene, task: "\n".join(f"Action: {command}" for command in commands(task))


_action = functools.partial(changed, of=lambda scene, task: task.answer["action"], write="Action: {}".format)


def _listed(task: Task) -> list[str]:
    return list(task.answer["admissible"])


def _others(task: Task) -> list[str]:
    return [command for command in _listed(task) if command != task.answer["action"]]


_TWO = "You see a drawer 1, a drawer 2 and a sink 1."


def drawers(goal: str, seen: str = _TWO) -> Make:
    """A new situation with two drawers and a sink, in which the first drawer is right."""
    listed = "go to drawer 1\ngo to drawer 2"
    return lambda scene, seed: prompts.sections_text(goal, seen, listed, "go to drawer 1")


def _loud(scene: Scene, seed: Task) -> str:
    """A held-out situation with its chore in capitals."""
    unseen = scene.unseen(seed)
    goal, _ = prompts.split_state(unseen.messages[-1]["content"])
    return scene.benchmark.simulator_answer(unseen, seed).replace(goal, goal.upper(), 1)


EXPLOITS = [
    *answers("alfworld", the_reference_of_another_task={"bound": 0.1, "remains": _GUESS}),
    _agent("every command that is possible", _actions(_listed)),
    _agent("every command but the right one", _actions(_others)),
    _agent("the right command, then another", _actions(
        lambda task: [task.answer["action"], *_others(task)[:1]])),
    _agent("the right command, then none", _actions(lambda task: [task.answer["action"], "wait"])),
    _agent("the first command that is possible", _actions(lambda task: _listed(task)[:1]), 0.1,
           remains=_GUESS),
    _agent("the last command that is possible", _actions(lambda task: _listed(task)[-1:]), 0.35,
           remains=f"{_GUESS}, and where the object is in reach `take` and `use` stand last"),
    _agent("look", _actions(lambda task: ["look"])),
    _agent("inventory", _actions(lambda task: ["inventory"])),
    _agent("all numbers", _action(lambda action: action.replace("1", "1 2 3"))),
    _agent("the list of commands as it is shown", lambda scene, task: ", ".join(_listed(task))),
    _agent("a look-alike letter", _action(lambda action: action.replace("o", "\u043e"))),
    _agent("digits of another script", _action(
        lambda action: action.translate({ord("0") + n: 0xFF10 + n for n in range(10)}))),
    _agent("an invisible letter", _action(lambda action: f"{action}\u200b")),
    _agent("the right command twice", _actions(lambda task: 2 * [task.answer["action"]]), 1.0,
           remains="it is the same command"),

    *generations("alfworld", (base.BAD_ANSWER, base.NOT_EXECUTABLE), restated=False),
    _simulator("a held-out situation in capitals", _loud, reasons=(base.CONTAMINATED,)),
    _simulator("a chore that is the command", drawers("go to drawer 1"), reasons=(base.GIVEN_AWAY,)),
    _simulator("a chore with the command in capitals", drawers("find a mug: GO TO DRAWER 1"),
               reasons=(base.GIVEN_AWAY,)),
    _simulator("a chore with the command in letters of another script", drawers(
        "find a mug: g\u043e t\u043e drawer 1"), reasons=(base.GIVEN_AWAY,)),
    _simulator("the command in what was seen", drawers(
        "find a mug", seen=f"{_TWO} Action: go to drawer 1"), 1.0,
        remains="what was seen may tell of commands"),
    _simulator("one of two ways", drawers("find a mug in a drawer"), 1.0, remains=_CHANCE),
]  # fmt: skip
