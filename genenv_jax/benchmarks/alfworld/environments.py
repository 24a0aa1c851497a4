"""Whole games as training tasks: those of the data set, and those that a simulator writes as `rooms`."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Mapping
from typing import Any

from genenv_jax.benchmarks import safe_parse
from genenv_jax.benchmarks.alfworld import expert, games, kinds, pddl, planner, rooms
from genenv_jax.benchmarks.alfworld.world import World
from genenv_jax.benchmarks.base import BAD_ANSWER, WRONG_ANSWER, Rejection, Task

TOO_MANY_STEPS = "too_many_steps"  # more than an episode has

_MAX_DEPTH = 4  # of the JSON; a room has 3
# Of a published game's room, so much is shown to the simulator.
_PLACES, _OBJECTS, _CONTENTS = 12, 20, 4


@dataclasses.dataclass(frozen=True)
class WrittenGame(games.Game):
    """A game of a room; its rules and texts are those of a published game.

    Attributes:
      room: what the game is about.
      texts: the game whose `pddl_domain` and `grammar` it has.
    """

    room: rooms.Room
    texts: games.Game

    def read(self) -> dict[str, Any]:
        """The contents of a game file."""
        data = self.texts.read()
        return {
            "pddl_domain": data["pddl_domain"],
            "grammar": games.with_goal(data["grammar"], self.goal),
            "pddl_problem": self.room.problem(),
            "solvable": True,
        }

    def problem(self) -> pddl.Problem:
        """See `games.Game.problem`; the texts are not read for it."""
        return pddl.parse(self.room.problem())


def written_game(task: Task, texts: games.Game) -> WrittenGame:
    """The game of a generated task; ValueError where its room is none."""
    room = rooms.read(task.answer["room"])
    if isinstance(room, Rejection):
        raise ValueError(f"room: {room.reason}: {room.detail}")
    return WrittenGame(
        task.id, pathlib.Path(task.id), "", rooms.TASKS[room.task], room.sentence(), texts.grammar,
        room, texts,
    )  # fmt: skip


def game_task(
    game: games.Game, origin: str, room: rooms.Room | None, solution: Solution | None
) -> Task:
    """A published game, with what of its room a simulator is shown and with its expert's commands."""
    task = game.task(origin)
    extra: dict[str, Any] = {} if room is None else {"room": room.to_json()}
    if solution is not None:
        extra |= {"plan": list(solution.plan), "shortest": solution.shortest}
    return dataclasses.replace(task, answer={**task.answer, **extra})


def has_room(task: Task) -> bool:
    """Whether a task is a game whose room is known."""
    return isinstance(task.answer, Mapping) and "room" in task.answer


def read_room(text: str, max_chars: int) -> rooms.Room | Rejection:
    """The room that a simulator wrote, perhaps in a code fence.  Total.

    Reasons: those of `safe_parse.parse_json` and `rooms.read`.
    """
    rejection = safe_parse.check_text(text, max_chars)
    if rejection:
        return rejection
    value = safe_parse.parse_json(safe_parse.unfenced(text), max_chars, _MAX_DEPTH)
    if isinstance(value, Rejection):
        return value
    return rooms.read(value)


@dataclasses.dataclass(frozen=True)
class Solution:
    """Commands of the expert, and how many the shortest plan has."""

    plan: tuple[str, ...]
    shortest: int


def solve(
    world: World, name: str, likely: expert.Likelihood | None, max_steps: int
) -> Solution | Rejection:
    """How a game is won, or why not: UNSOLVABLE, UNDECIDED (`planner`), SOLVED, TOO_MANY_STEPS.

    Args:
      world: at its beginning; it is not changed.
      name, likely: see `expert.walkthrough`.
      max_steps: of an episode.
    """
    if world.won():
        return Rejection(rooms.SOLVED, "the goal is met at the start")
    shortest = planner.shortest(world)
    if isinstance(shortest, Rejection):
        return shortest
    try:
        plan = expert.walkthrough(world, name, likely)
    except expert.NoPlan:
        plan = shortest
    if len(plan) > max_steps:
        return Rejection(
            TOO_MANY_STEPS, f"the expert takes {len(plan)}, an episode has {max_steps}"
        )
    return Solution(tuple(plan), len(shortest))


def fault(task: Task, max_steps: int) -> Rejection | None:
    """Why a generated game is none: its room, its text, or a stored plan that does not win.

    Reasons: those of `rooms.read`, BAD_ANSWER, SOLVED, TOO_MANY_STEPS, WRONG_ANSWER.
    """
    spec = task.answer
    room, plan = rooms.read(spec["room"]), spec["plan"]
    if isinstance(room, Rejection):
        return room
    if room.to_json() != spec["room"] or task.messages != (_message(room.sentence()),):
        return Rejection(BAD_ANSWER, "the room is not in its normal form, or the task another")
    if not isinstance(plan, list) or not all(isinstance(command, str) for command in plan):
        return Rejection(BAD_ANSWER, "the plan: expected a list of commands")
    if len(plan) > max_steps:
        return Rejection(TOO_MANY_STEPS, f"{len(plan)}, an episode has {max_steps}")
    world = World(pddl.parse(room.problem()), spec["grammar"])
    if world.won():
        return Rejection(rooms.SOLVED, "the goal is met at the start")
    for command in plan:
        if command not in world.admissible():
            return Rejection(WRONG_ANSWER, f"{command[:60]!r} is not possible")
        world.apply(command)
    return None if world.won() else Rejection(WRONG_ANSWER, "the plan does not reach the goal")


def generated_task(
    room: rooms.Room, solution: Solution, grammar: str, seed: Task, task_id: str, generation: int
) -> Task:
    """The task of a room that was solved."""
    return Task(
        id=task_id,
        benchmark=games.NAME,
        category=rooms.TASKS[room.task],
        messages=(_message(room.sentence()),),
        answer={
            "kind": "episode",
            "game": "",
            "split": "",
            "texts": seed.answer.get("texts") or seed.answer["game"],
            "grammar": grammar,
            "room": room.to_json(),
            "plan": list(solution.plan),
            "shortest": solution.shortest,
        },
        seed_id=seed.id,
        origin="generated",
        generation=generation,
    )


def room_text(task: Task) -> str:
    """The room of a task as the simulator writes it."""
    return json.dumps(task.answer["room"])


def signature(task: Task) -> str:
    """Chore, kind of object and kind of place."""
    goal = task.answer["room"]["goal"]
    return f"{goal['task']} {goal['object']} {goal['place']}"


def known_room(task: Task) -> rooms.Room | None:
    """The room of a task, if it has one."""
    room = rooms.read(task.answer["room"]) if has_room(task) else None
    return None if isinstance(room, Rejection) else room


def compact(world: World) -> rooms.Room | None:
    """What matters in a game, as a room that a simulator could have written.

    The places that a shortest plan visits and what is handled there; then one place of each kind, a second
    of each, and so on, as many as a short text has room for.  None where its goal has no such room.
    """
    goal = world.goal
    plan = planner.shortest(world)
    if isinstance(plan, Rejection):
        return None
    told = " ".join(plan) + " "
    named = {
        entity: (types[entity].removesuffix("type"), _number(world.names[entity]))
        for types in (world.receptacle_type, world.object_type)
        for entity in types
    }

    def order(entity: str) -> tuple[bool, int, str]:
        """What the plan is about first, then the first of each kind, the second of each, ..."""
        kind, number = named[entity]
        return f"{world.names[entity]} " not in told, number, kind

    kept: dict[str, list[str]] = {}
    left, seen = _OBJECTS, set()  # in some games an object is in two receptacles
    known = [r for r in world.receptacles if r in named and named[r][0] in kinds.HOLDS]
    for receptacle in sorted(known, key=order)[:_PLACES]:
        things = [
            thing
            for thing in world.contents(receptacle)
            if thing in named and thing not in seen
            if kinds.can_stand(named[thing][0], named[receptacle][0])
        ]
        kept[receptacle] = sorted(things, key=order)[: min(_CONTENTS, left)]
        left -= len(kept[receptacle])
        seen.update(kept[receptacle])
    places = {named[r]: [named[thing] for thing in things] for r, things in kept.items()}
    closed = [named[r] for r in kept if not world.is_accessible(r)]
    what = (part.removesuffix("type") for part in (goal.object_type, goal.place_type))
    room = rooms.from_parts(goal.kind, *what, places, closed)
    checked = rooms.read(room.to_json())
    if isinstance(checked, Rejection):
        return None
    own = World(pddl.parse(checked.problem()), world.grammar)
    return None if own.won() or isinstance(planner.shortest(own), Rejection) else checked


def _number(name: str) -> int:
    number = name.rpartition(" ")[2]
    return int(number) if number.isdigit() else 0


def _message(sentence: str) -> dict[str, str]:
    return {"role": "user", "content": f"Your task is to: {sentence}."}
