"""The simulator's side: reads and checks a situation in four sections.

A situation is one step of a game: a chore, the observations, the possible commands and the right one.
An invented room cannot be executed, but its text must be consistent.
"""

import dataclasses
import re

from genenv_jax.benchmarks import base
from genenv_jax.benchmarks.alfworld import commands, prompts
from genenv_jax.benchmarks.base import Rejection, Task
from genenv_jax.benchmarks.headers import is_same, parse_headers
from genenv_jax.benchmarks.wording import fold

MAX_COMMANDS = 200
MAX_GOAL = 200

_PICK = re.compile(r"You pick up the ([a-z]{1,32} [0-9]{1,3}) from")
_PUT = re.compile(r"You (?:put|move) the ([a-z]{1,32} [0-9]{1,3}) ")
_BULLET = re.compile(r"(?:[-*>•]|[0-9]{1,3}[.)]) +")
_WORDS = {"clean": ("clean",), "heat": ("hot", "heat", "warm"), "cool": ("cool", "cold", "chill")}


def read(text: str, seed: Task) -> Task | Rejection:
    """The step in four sections.  Never raises.  Reasons: UNPARSABLE (sections), BAD_ANSWER (the action)."""
    found = parse_headers(text, prompts.HEADERS)
    if isinstance(found, Rejection):
        return found
    goal, observations, listed, action = found
    goal = goal.removesuffix(".")
    if "\n" in goal:
        return Rejection(base.UNPARSABLE, "the task has more than one line")
    if is_same(observations):
        observations = prompts.split_state(seed.messages[-1]["content"])[1]
    admissible = seed.answer["admissible"]
    if not is_same(listed):  # one per line, perhaps with bullets; sorted as in the games
        lines = (_BULLET.sub("", line.strip(), count=1) for line in listed.splitlines())
        admissible = sorted({commands.normalise(line) for line in lines if line.strip()})
    action = commands.normalise(action) if "\n" not in action else ""
    if not action:
        return Rejection(base.BAD_ANSWER, "the action: expected one line")
    return dataclasses.replace(
        seed,
        messages=({"role": "user", "content": prompts.state_text(goal, observations)},),
        answer={
            "kind": "step", "game": "", "split": "", "grammar": seed.answer["grammar"],
            "admissible": list(admissible), "action": action,
        },
    )  # fmt: skip


def asked(goal: str) -> list[str]:
    """What a task asks for besides fetching and putting: its type, found from the words of its sentence."""
    known = {**_WORDS, "examine": ("examine", "look at"), "two": ("two",)}
    return [what for what, told in known.items() if any(word in goal.lower() for word in told)]


def fault(task: Task) -> Rejection | None:
    """Why a situation is inconsistent, or None.

    Reasons: UNPARSABLE (the chore), BAD_TOOLS (the list of commands), BAD_ANSWER (the action is not in
    the list, or has nothing to do with the chore), GIVEN_AWAY (the chore spells out the action),
    NOT_EXECUTABLE (the observations contradict the action).
    """
    goal, observations = prompts.split_state(task.messages[-1]["content"])
    admissible, action = task.answer["admissible"], task.answer["action"]
    if not goal or "\n" in goal or len(goal) > MAX_GOAL:
        return Rejection(base.UNPARSABLE, f"the task: expected one line of at most {MAX_GOAL} characters")
    if not 2 <= len(admissible) <= MAX_COMMANDS:
        return Rejection(base.BAD_TOOLS, f"{len(admissible)} commands, expected 2 to {MAX_COMMANDS}")
    for command in admissible:
        if not commands.is_command(command, task.answer["grammar"]):
            return Rejection(base.BAD_TOOLS, f"{command[:60]!r} is not a command")
    verbs = {command.partition(" ")[0] for command in admissible}
    if "take" in verbs and verbs & {"put", "move", "clean", "heat", "cool", "slice"}:
        return Rejection(base.BAD_TOOLS, "the hands are empty and full at once")
    if action not in admissible:
        return Rejection(base.BAD_ANSWER, f"{action[:60]!r} is not among the commands")
    verb, chore = action.partition(" ")[0], goal.lower()
    named = commands.entities(action)
    if verb in ("take", "put", "move", "use", "clean", "heat", "cool"):
        for entity in named if verb in ("put", "move") else named[:1]:
            kind = entity.partition(" ")[0]
            if kind not in chore:
                return Rejection(base.BAD_ANSWER, f"the task does not name {kind!r}")
    if verb in _WORDS and not any(word in chore for word in _WORDS[verb]):
        return Rejection(base.BAD_ANSWER, f"the task asks for nothing to {verb}")
    if verb in ("look", "inventory", "help"):
        return Rejection(base.BAD_ANSWER, f"{verb!r} advances no task")
    if action in " ".join(fold(goal).split()):
        return Rejection(base.GIVEN_AWAY, "the task is the action")
    seen = set(commands.entities(observations))
    for entity in named:
        if entity not in seen:
            return Rejection(base.NOT_EXECUTABLE, f"{entity} was not seen")
    if verb in ("take", "put", "move", "clean", "heat", "cool") and f"go to {named[-1]}" in admissible:
        return Rejection(base.NOT_EXECUTABLE, f"the agent is not at {named[-1]}")
    if prompts.LEFT_OUT in observations:
        return None  # the omitted steps may say what is carried
    held = _held_object(observations)
    if verb == "take" and held:
        return Rejection(base.NOT_EXECUTABLE, f"{held} is in the hands")
    if verb in ("put", "move", "clean", "heat", "cool") and held != named[0]:
        return Rejection(base.NOT_EXECUTABLE, f"{named[0]} is not in the hands")
    return None


def _held_object(observations: str) -> str | None:
    """The object that the agent carries, according to the observations."""
    held = None
    for line in observations.splitlines():
        if found := _PICK.match(line):
            held = found[1]
        elif (found := _PUT.match(line)) and found[1] == held:
            held = None
    return held
