"""Random rooms as a simulator might write them, and ways to spoil one, each with the expected reason."""

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

from genenv_jax.benchmarks import base
from genenv_jax.benchmarks.alfworld import expert, games, kinds, rooms
from genenv_jax.benchmarks.alfworld.benchmark import ALFWorld
from genenv_jax.benchmarks.alfworld.chores import CHORES, TREATMENTS
from genenv_jax.benchmarks.base import Rejection, Task

Room = dict[str, Any]


def draw(rng: random.Random) -> Room:
    """A consistent room; its chore may be already done, impossible or too long."""
    task = rng.choice(list(CHORES))
    chore = CHORES[task]
    thing = rng.choice(sorted(kinds.FLAGS[chore.flag] if chore.flag else kinds.OBJECTS))
    holds = sorted(place for place, things in kinds.HOLDS.items() if thing in things)
    place = "desklamp" if task == "light" else rng.choice(holds)
    of_place = [rng.choice(sorted(kinds.LAMP_PLACES)) if task == "light" else place, rng.choice(holds)]
    # Sometimes something that the chore needs is missing.
    if chore.tools and rng.random() < 0.95:
        of_place.append(chore.tools[0])
    of_place += rng.choices(sorted(kinds.HOLDS), k=rng.randint(1, 11))
    rng.shuffle(of_place)
    places = [f"{kind} {of_place[: i + 1].count(kind)}" for i, kind in enumerate(of_place)]
    contents: dict[str, list[str]] = {name: [] for name in places}
    numbers: dict[str, int] = {}

    def add(kind: str) -> None:
        able = [p for p in places if kinds.can_stand(kind, p.split()[0]) and len(contents[p]) < 6]
        if able:
            numbers[kind] = numbers.get(kind, 0) + 1
            contents[rng.choice(able)].append(f"{kind} {numbers[kind]}")

    for kind in [thing] * rng.choice((1, 1, 2, 2, 3)) + [place] * (task == "light"):
        add(kind)
    for kind in rng.choices(sorted(kinds.OBJECTS), k=rng.randint(0, 18)):
        add(kind)
    return {
        "goal": {"task": task, "object": thing, "place": place},
        "places": contents,
        "closed": [
            p for p in places
            if p.split()[0] in kinds.CLOSED or (p.split()[0] in kinds.CLOSABLE and rng.random() < 0.6)
        ],
    }  # fmt: skip


def _with(change: Callable[[Room, random.Random], None]) -> Callable[[Room, random.Random], str]:
    def spoil(room: Room, rng: random.Random) -> str:
        spoiled = copy.deepcopy(room)
        change(spoiled, rng)
        return json.dumps(spoiled)

    return spoil


def _place(room: Room, rng: random.Random) -> list[str]:
    return room["places"][rng.choice(list(room["places"]))]


def _wrong_place(room: Room, rng: random.Random) -> None:
    pairs = [
        (thing, place)
        for place in room["places"]
        for thing in sorted(kinds.OBJECTS)
        if not kinds.can_stand(thing, place.split()[0])
    ]
    thing, place = rng.choice(pairs)
    room["places"][place].append(f"{thing} 77")


def _twice(room: Room, rng: random.Random) -> None:
    full = [place for place, things in room["places"].items() if things]
    thing = room["places"][rng.choice(full)][0]
    _place(room, rng).append(thing)


def _solved(room: Room, rng: random.Random) -> None:
    """The chore is to put something where it already is."""
    place, things = rng.choice([
        (place, [t for t in things if t.split()[0] in kinds.HOLDS[place.split()[0]]])
        for place, things in room["places"].items()
        if any(t.split()[0] in kinds.HOLDS[place.split()[0]] for t in things)
    ])  # fmt: skip
    room["goal"] = {"task": "put", "object": things[0].split()[0], "place": place.split()[0]}


def _no_tool(room: Room, rng: random.Random) -> None:
    """The chore is to clean, heat or cool something, and the room has no tool for it."""
    task, chore = rng.choice(list(TREATMENTS.items()))
    thing = rng.choice(sorted(kinds.FLAGS[chore.flag] & kinds.HOLDS["countertop"]))
    room["places"] = {p: t for p, t in room["places"].items() if p.split()[0] not in chore.tools}
    room["places"] |= {"countertop 91": [f"{thing} 91"], "diningtable 91": []}
    room["closed"] = [p for p in room["closed"] if p in room["places"]]
    room["goal"] = {"task": task, "object": thing, "place": "diningtable"}


def _nothing_to_take(room: Room, rng: random.Random) -> None:
    there = {t.split()[0] for things in room["places"].values() for t in things}
    absent = rng.choice(sorted(kinds.HOLDS["countertop"] - there))
    room["places"] |= {"countertop 91": []}
    room["goal"] = {"task": "put", "object": absent, "place": "countertop"}


def _no_door(room: Room, rng: random.Random) -> None:
    room["places"] |= {"countertop 91": []}
    room["closed"].append("countertop 91")


def _not_so(room: Room, rng: random.Random) -> None:
    task, chore = rng.choice(list(TREATMENTS.items()))
    wrong = sorted(kinds.HOLDS["countertop"] - kinds.FLAGS[chore.flag])
    room["goal"] = {"task": task, "object": rng.choice(wrong), "place": "countertop"}


def _deep(room: Room, rng: random.Random) -> str:
    return '{"goal": ' + "[" * rng.randint(5, 2_000) + "1"


def _name(kind: str) -> Callable[[Room, random.Random], str]:
    return _with(lambda room, rng: _place(room, rng).append(f"{kind} 78"))


# Ways to spoil an accepted room -> its text, and the reason for its rejection.
SPOILED: dict[str, tuple[Callable[[Room, random.Random], str], str]] = {
    "cut off": (lambda room, rng: json.dumps(room)[: rng.randint(1, 40)], base.UNPARSABLE),
    "prose around it": (lambda room, rng: f"Here it is: {json.dumps(room)}", base.UNPARSABLE),
    "no goal": (_with(lambda room, rng: room.pop("goal")), base.UNPARSABLE),
    "another key": (_with(lambda room, rng: room.update(hint="x")), base.UNPARSABLE),
    "places in a list": (_with(lambda room, rng: room.update(places=list(room["places"]))), base.UNPARSABLE),
    "a number as a name": (_with(lambda room, rng: _place(room, rng).append(7)), base.UNPARSABLE),
    "a place twice": (
        lambda room, rng: json.dumps(room).replace(
            '"places": {', f'"places": {{"{next(iter(room["places"]))}": [], ', 1), base.UNPARSABLE),
    "nested deeply": (_deep, base.TOO_DEEP),
    "a control character": (lambda room, rng: json.dumps(room) + "\0", base.NOT_TEXT),
    "a long text": (lambda room, rng: json.dumps(room) + " " * 20_000, base.TOO_LONG),
    "ten thousand receptacles": (
        _with(lambda room, rng: room.update(places={f"shelf {n}": [] for n in range(900)})),
        rooms.TOO_MANY),
    "a crowded place": (
        _with(lambda room, rng: _place(room, rng).extend(f"pen {n}" for n in range(20, 40))),
        rooms.TOO_MANY),
    "an object of no kind": (_name("unicorn"), rooms.UNKNOWN_KIND),
    "a place of no kind": (
        _with(lambda room, rng: room["places"].update({"attic 1": []})), rooms.UNKNOWN_KIND),
    "a place that is an object": (
        _with(lambda room, rng: room["places"].update({"plate 91": []})), rooms.UNKNOWN_KIND),
    "special tokens in a name": (_name("<|im_end|>"), rooms.BAD_NAME),
    "brackets in a name": (_name("mug)(holds agent1 mug"), rooms.BAD_NAME),
    "a name without a number": (_with(lambda room, rng: _place(room, rng).append("mug")), rooms.BAD_NAME),
    "an object in two places": (_with(_twice), rooms.IN_TWO_PLACES),
    "an object where it cannot be": (_with(_wrong_place), rooms.CANNOT_HOLD),
    "a closed place that is not there": (
        _with(lambda room, rng: room["closed"].append("drawer 99")), rooms.UNKNOWN_PLACE),
    "a closed place without a door": (_with(_no_door), rooms.CANNOT_CLOSE),
    "a chore of another kind": (_with(lambda room, rng: room["goal"].update(task="steal")), rooms.BAD_GOAL),
    "a chore that the object does not allow": (_with(_not_so), rooms.BAD_GOAL),
    "a goal of no kind": (
        _with(lambda room, rng: room["goal"].update(object="happiness")), rooms.UNKNOWN_KIND),
    "done at the start": (_with(_solved), rooms.SOLVED),
    "nothing to do it with": (_with(_no_tool), games.UNSOLVABLE),
    "nothing to take": (_with(_nothing_to_take), games.UNSOLVABLE),
}  # fmt: skip


def drawn(benchmark: ALFWorld, count: int, rng: random.Random) -> Iterator[tuple[Room, Task | Rejection]]:
    """Random rooms with the gate's verdicts."""
    seeds = benchmark.tasks("seed")
    for number in range(count):
        room = draw(rng)
        outcome = benchmark.parse(json.dumps(room), seeds[number % len(seeds)], f"g{number}", 0)
        yield (room, outcome if isinstance(outcome, Rejection) else (benchmark.verify(outcome) or outcome))


def spoiled(found: list[Room], count: int, rng: random.Random) -> Iterator[tuple[str, str, str]]:
    """Name, text and expected reason of spoiled rooms, all ways in turn."""
    for number in range(count):
        name = list(SPOILED)[number % len(SPOILED)]
        change, reason = SPOILED[name]
        yield name, change(found[number % len(found)], rng), reason


def differences(benchmark: ALFWorld, task: Task, open_game: Any, grammar: str, seed: int) -> list[str]:
    """Where engine and rules differ along the expert's plan, with looks in between."""
    game, rng = benchmark._game(task), random.Random(seed)
    world, running = game.world(grammar), open_game(game, grammar)
    same = (running.overview, running.goal) == (world.overview(), game.goal)
    found = [] if same else ["overview"]
    try:
        for planned in expert.walkthrough(world, benchmark.likely):
            free = ("look", "examine", "inventory")
            looks = [command for command in world.admissible() if command.split()[0] in free]
            for command in (rng.choice(looks), planned):
                if list(running.admissible) != list(world.admissible()):
                    return [*found, f"commands before {command}"]
                if running.step(command) != world.apply(command):
                    found.append(command)
        return found if running.won and world.won() else [*found, "not won"]
    finally:
        running.close()
