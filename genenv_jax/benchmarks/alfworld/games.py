"""Whole games as training tasks: published games, and games that a simulator writes as `rooms`."""

import dataclasses
import pathlib
from typing import Any

from genenv_jax.benchmarks.alfworld import expert, kinds, pddl, rooms, tasks
from genenv_jax.benchmarks.alfworld.chores import CHORES
from genenv_jax.benchmarks.alfworld.commands import MAX_TEXT, kind_and_number
from genenv_jax.benchmarks.alfworld.world import World
from genenv_jax.benchmarks.base import Rejection, Task
from genenv_jax.benchmarks.lenient import parse_lenient

UNSOLVABLE = "unsolvable"  # the expert finds no way
TOO_MANY_STEPS = "too_many_steps"  # more than an episode allows

_MAX_DEPTH = 4  # nesting of a room's JSON, which has 3
# How much of a published game's room the simulator is shown.
_PLACES, _OBJECTS, _CONTENTS = 12, 20, 4


@dataclasses.dataclass(frozen=True)
class WrittenGame(tasks.Game):
    """A game compiled from a room, with the rules and texts of a published game."""

    room: rooms.Room
    texts: tasks.Game  # supplies `pddl_domain` and `grammar`

    def read(self) -> dict[str, Any]:
        data = self.texts.read()
        return {
            "pddl_domain": data["pddl_domain"],
            "grammar": tasks.GOAL.sub(lambda _: f'"Your task is to: {self.goal}."', data["grammar"], 1),
            "pddl_problem": self.room.problem(),
            "solvable": True,
        }

    def problem(self) -> pddl.Problem:
        """See `tasks.Game.problem`; does not read the texts."""
        return pddl.parse(self.room.problem())


def written_game(task: Task, texts: tasks.Game) -> WrittenGame:
    """The game of a generated task; ValueError if its room is invalid."""
    room = rooms.read(task.answer["room"])
    if isinstance(room, Rejection):
        raise ValueError(f"room: {room.reason}: {room.detail}")
    return WrittenGame(
        task.id, pathlib.Path(task.id), "", CHORES[room.task].task_type, room.sentence(),
        texts.grammar, room, texts,
    )  # fmt: skip


def solve(world: World, likely: expert.Likelihood, max_steps: int) -> dict[str, Any] | Rejection:
    """How to win a game, or why it is rejected: SOLVED, UNSOLVABLE, TOO_MANY_STEPS.

    Returns an entry of a task's answer: "plan", the expert's commands (`expert.walkthrough`), at most
    `max_steps`.
    """
    if world.won():
        return Rejection(rooms.SOLVED, "the goal is met at the start")
    try:
        plan = expert.walkthrough(world, likely)
    except expert.NoPlan as error:
        return Rejection(UNSOLVABLE, str(error))
    if len(plan) > max_steps:
        return Rejection(TOO_MANY_STEPS, f"the expert takes {len(plan)} steps, an episode has {max_steps}")
    return {"plan": plan}


def read(text: str, seed: Task, grammar: str, likely: expert.Likelihood, max_steps: int) -> Task | Rejection:
    """The game of a room that a simulator wrote; total.

    Reasons: those of `parse_lenient`, `rooms.read` and `solve`.
    """
    value = parse_lenient(text, MAX_TEXT, _MAX_DEPTH)
    room = value if isinstance(value, Rejection) else rooms.read(value)
    if isinstance(room, Rejection):
        return room
    solution = solve(_world(room, grammar), likely, max_steps)
    if isinstance(solution, Rejection):
        return solution
    return dataclasses.replace(
        seed,
        category=CHORES[room.task].task_type,
        messages=(_message(room),),
        answer={
            "kind": "episode", "game": "", "split": "",
            "texts": seed.answer.get("texts") or seed.answer["game"], "grammar": grammar,
            "room": room.to_json(), **solution,
        },
    )  # fmt: skip


def signature(task: Task) -> str:
    """The chore, the kind of object and the kind of place."""
    goal = task.answer["room"]["goal"]
    return f"{goal['task']} {goal['object']} {goal['place']}"


def known_room(task: Task) -> rooms.Room | None:
    """The room of a task, or None if it has none."""
    room = rooms.read(task.answer.get("room"))
    return None if isinstance(room, Rejection) else room


def compact(world: World) -> rooms.Room | None:
    """The important part of a game, as a room that a simulator could have written.

    It has the places that an informed expert visits and the objects it handles; then one place of each kind,
    a second of each, and so on, as many as fit into a short text.  None if no such room has the game's goal.
    """
    goal = world.goal
    told = " ".join(_way(world)) + " "
    kind_of = world.receptacle_kind | world.object_kind

    def name(entity: str) -> str:
        return f"{kind_of[entity]} {kind_and_number(world.names[entity])[1]}"

    def order(entity: str) -> tuple[bool, int, str]:
        """Sort key: things named in the plan, then the first of each kind, the second of each, ..."""
        kind, number = kind_and_number(name(entity))
        return f"{world.names[entity]} " not in told, number, kind

    places: dict[str, list[str]] = {}
    left, seen = _OBJECTS, set()  # some games have an object in two receptacles
    known = [r for r in world.receptacles if kind_of.get(r) in kinds.HOLDS]
    chosen = sorted(known, key=order)[:_PLACES]
    for receptacle in chosen:
        held = [t for t in world.contents(receptacle) if t in kind_of and t not in seen]
        things = [t for t in held if kinds.can_stand(kind_of[t], kind_of[receptacle])]
        things = sorted(things, key=order)[: min(_CONTENTS, left)]
        places[name(receptacle)] = [name(thing) for thing in things]
        left -= len(things)
        seen.update(things)
    room = rooms.read({
        "goal": {"task": goal.kind, "object": goal.object_kind, "place": goal.place_kind},
        "places": places,
        "closed": [name(r) for r in chosen if not world.is_accessible(r)],
    })  # fmt: skip
    if isinstance(room, Rejection):
        return None
    own = _world(room, world.grammar)
    return room if not own.won() and _way(own) else None


def _way(world: World) -> list[str]:
    """The commands of an expert that knows where everything is; none if it cannot win."""
    try:
        return expert.walkthrough(world, informed=True)
    except expert.NoPlan:
        return []


def _world(room: rooms.Room, grammar: str) -> World:
    return World(pddl.parse(room.problem()), grammar)


def _message(room: rooms.Room) -> dict[str, str]:
    return {"role": "user", "content": f"Your task is to: {room.sentence()}."}
