"""Rooms that a simulator writes: a small JSON schema, its checks, and the game compiled from a room.

    {"goal": {"task": "clean", "object": "mug", "place": "desk"},
     "places": {"desk 1": ["book 1"], "cabinet 1": ["mug 1"], "sinkbasin 1": []},
     "closed": ["cabinet 1"]}

A room is compiled to the PDDL problem of a game file, so it is played with the rules and texts of the
published games.  As in those, the agent starts in the middle of the room: only there does a game list the
places.
"""

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from genenv_jax.benchmarks.alfworld import kinds
from genenv_jax.benchmarks.alfworld.chores import CHORES
from genenv_jax.benchmarks.alfworld.commands import kind_and_number
from genenv_jax.benchmarks.base import UNPARSABLE, Rejection

# Why a room is rejected.
TOO_MANY = "too_many_things"
BAD_NAME = "bad_name"  # not a kind and a number
UNKNOWN_KIND = "unknown_kind"  # a kind that ALFWorld does not have
IN_TWO_PLACES = "in_two_places"  # the same object twice
CANNOT_HOLD = "cannot_hold"  # such a place never holds such an object
UNKNOWN_PLACE = "unknown_place"  # "closed" names a place that is not in the room
CANNOT_CLOSE = "cannot_close"  # "closed" names a place without a door
BAD_GOAL = "bad_goal"  # none of the six chores, or a chore that its kinds do not allow
SOLVED = "solved_at_start"

MAX_PLACES, MAX_OBJECTS, MAX_CONTENTS = 20, 32, 10

_NAME = re.compile(r"([a-z]{1,32}) ([1-9][0-9]?)")
# Types that the domain always names, even if the room has none of them.
_OBJECT_TYPES = {"knife", "butterknife"}
_PLACE_TYPES = {"sink", "sinkbasin", "microwave", "fridge"}

Name = tuple[str, int]  # kind and number


@dataclasses.dataclass(frozen=True)
class Room:
    """A consistent room in normal form: each kind is numbered from 1, and everything is sorted."""

    task: str  # one of `CHORES`
    thing: str  # the goal's kind of object
    place: str  # the goal's kind of place; for "light", of lamp
    places: Mapping[Name, tuple[Name, ...]]  # the contents of each place
    closed: frozenset[Name]  # places that are closed at the start

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `read` inverts it."""
        return {
            "goal": {"task": self.task, "object": self.thing, "place": self.place},
            "places": {
                _text(place): [_text(thing) for thing in things] for place, things in self.places.items()
            },
            "closed": [_text(place) for place in sorted(self.closed)],
        }

    def sentence(self) -> str:
        """The chore in words, without a final stop."""
        return CHORES[self.task].sentence.format(self.thing, self.place)

    def description(self) -> str:
        """The chore and the places with their contents, without numbers: equal for equivalent rooms."""
        kinds_in = {p: sorted(kind for kind, _ in things) for p, things in self.places.items()}
        lines = sorted(f"{self._told(place)}: {' '.join(of)}" for place, of in kinds_in.items())
        return "\n".join([self.sentence(), *lines])

    def wording(self) -> str:
        """One sentence for each thing in the room, each with the chore, sorted.

        For rooms with the same chore, the share of common word n-grams is the share of common things.
        """
        facts = sorted(
            f"{kind} {self._told(place)}"
            for place, things in self.places.items()
            for kind, _ in (things or (("nothing", 0),))
        )
        return "\n".join(f"{self.sentence()}, {fact}" for fact in facts)

    def meaning(self) -> str:
        """The chore, and the kinds of places that hold the objects it needs."""
        needed = (self.thing, self.place)
        there = ((thing, place) for place, things in self.places.items() for thing in things)
        found = {f"{thing[0]} {place[0]}" for thing, place in there if thing[0] in needed}
        return "\n".join([self.sentence(), *sorted(found)])

    def _told(self, place: Name) -> str:
        return f"{'closed' if place in self.closed else 'open'} {place[0]}"

    def problem(self) -> str:
        """The PDDL problem of a game file."""
        places = {place: _identifier(place) for place in self.places}
        spots = {place: f"loc_bar_{number}" for number, place in enumerate(self.places, 1)}
        facts = ["(atLocation agent1 loc_bar_0)"]
        here: list[str] = ["agent1 - agent", "loc_bar_0 - location"]
        for place, things in self.places.items():
            name, spot = places[place], spots[place]
            here += [f"{name} - receptacle", f"{spot} - location"]
            facts.append(f"(receptacleType {name} {place[0]}Type)")
            facts.append(f"(receptacleAtLocation {name} {spot})")
            facts += [f"(openable {name})"] * (place in self.closed)
            for thing in things:
                other = _identifier(thing)
                here.append(f"{other} - object")
                facts.append(f"(objectType {other} {thing[0]}Type)")
                facts.append(f"(inReceptacle {other} {name})")
                facts.append(f"(objectAtLocation {other} {spot})")
                facts += [f"({flag} {other})" for flag in _flags(thing[0])]
        objects = {thing[0] for things in self.places.values() for thing in things} | {self.thing}
        receptacles = {place[0] for place in self.places} | ({self.place} - kinds.LAMPS)
        for place in sorted(receptacles):
            held = sorted(objects & kinds.HOLDS[place])
            facts += [f"(canContain {place}Type {thing}Type)" for thing in held]
        lamps = {self.place} & kinds.LAMPS
        here += [f"{kind}Type - otype" for kind in sorted(objects | lamps | _OBJECT_TYPES)]
        here += [f"{kind}Type - rtype" for kind in sorted(receptacles | _PLACE_TYPES)]
        return (
            "(define (problem room)\n(:domain alfred)\n"
            f"(:objects\n{_lines(here)})\n(:init\n{_lines(facts)})\n(:goal (and {self._goal()})))\n"
        )

    def _goal(self) -> str:
        """The conditions of alfworld/gen/goal_library.py."""
        if self.task == "light":
            return (
                "(exists (?ot - object ?r - receptacle ?a - agent ?l - location) (and "
                f"(objectType ?ot {self.place}Type) (toggleable ?ot) (isToggled ?ot) "
                "(receptacleAtLocation ?r ?l) (atLocation ?a ?l) (inReceptacle ?ot ?r))) "
                "(exists (?o - object ?a - agent) (and "
                f"(objectType ?o {self.thing}Type) (holds ?a ?o)))"
            )
        place = f"(receptacleType ?r {self.place}Type) (inReceptacle {{0}} ?r)"
        right = f"(objectType {{0}} {self.thing}Type) {place}"
        chore = CHORES[self.task]
        if chore.state:
            right += f" ({chore.flag} {{0}}) ({chore.state} {{0}})"
        if self.task == "two":
            other = f"(exists (?o2 - object) (and (not (= ?o1 ?o2)) {right.format('?o2')}))"
            inner = f"(exists (?o1 - object) (and {right.format('?o1')} {other}))"
        else:
            inner = f"(exists (?o - object) (and {right.format('?o')}))"
        return f"(exists (?r - receptacle) {inner})"


def read(value: Any) -> Room | Rejection:
    """A room from JSON values, or a rejection for one of the reasons above or UNPARSABLE.  Never raises."""
    if not isinstance(value, Mapping) or set(value) - {"closed"} != {"goal", "places"}:
        return Rejection(UNPARSABLE, "expected an object with goal, places and closed")
    goal, places, closed = value["goal"], value["places"], value.get("closed", [])
    if not isinstance(goal, Mapping) or set(goal) != {"task", "object", "place"}:
        return Rejection(UNPARSABLE, "goal: expected an object with task, object and place")
    if not isinstance(places, Mapping) or not all(isinstance(v, list) for v in places.values()):
        return Rejection(UNPARSABLE, "places: expected an object of lists")
    if not places:
        return Rejection(UNPARSABLE, "places: the room is empty")
    if not isinstance(closed, list):
        return Rejection(UNPARSABLE, "closed: expected a list")
    names = [*goal.values(), *places, *closed, *(t for v in places.values() for t in v)]
    if not all(isinstance(name, str) for name in names):
        return Rejection(UNPARSABLE, "expected texts as names")
    return _fault(goal, places, closed) or _room(goal, places, closed)


def _room(goal: Mapping[str, str], places: Mapping[str, list[str]], closed: list[str]) -> Room:
    of_places, of_things = _ranks(places), _ranks(t for things in places.values() for t in things)
    shut = {of_places[place] for place in closed}
    shut |= {name for name in of_places.values() if name[0] in kinds.CLOSED}
    named = sorted(of_places.items(), key=lambda pair: pair[1])
    filled = {name: tuple(sorted(of_things[t] for t in places[at])) for at, name in named}
    return Room(goal["task"], goal["object"], goal["place"], filled, frozenset(shut))


def _ranks(names: Iterable[str]) -> dict[str, Name]:
    """Maps each name to its normal form: the names of each kind, in order, are numbered from 1."""
    found, counts = {}, Counter()
    for name in sorted(names, key=kind_and_number):
        kind, _ = kind_and_number(name)
        counts[kind] += 1
        found[name] = (kind, counts[kind])
    return found


def _fault(goal: Mapping[str, str], places: Mapping[str, list[str]], closed: list[str]) -> Rejection | None:
    """The first reason why a room is rejected, or None."""
    things = [thing for held in places.values() for thing in held]
    for what, number, most in (
        ("places", len(places), MAX_PLACES),
        ("closed places", len(closed), MAX_PLACES),
        ("objects", len(things), MAX_OBJECTS),
        ("objects at one place", max(map(len, places.values())), MAX_CONTENTS),
    ):
        if number > most:
            return Rejection(TOO_MANY, f"{number} {what}, at most {most}")
    for names, known in ((places, kinds.HOLDS), (things, kinds.OBJECTS | kinds.LAMPS)):
        for name in names:
            found = _NAME.fullmatch(name)
            if not found:
                return Rejection(BAD_NAME, f"{name[:40]!r}: expected a kind and a number to 99")
            if found[1] not in known:
                return Rejection(UNKNOWN_KIND, f"{name!r}")
    for name, times in Counter(things).items():
        if times > 1:
            return Rejection(IN_TWO_PLACES, f"{name} is there {times} times")
    for at, held in places.items():
        for name in held:
            if not kinds.can_stand(kind_and_number(name)[0], kind_and_number(at)[0]):
                return Rejection(CANNOT_HOLD, f"{name} at {at}")
    for at in closed:
        if at not in places:
            return Rejection(UNKNOWN_PLACE, f"closed: {at[:40]!r} is not among the places")
        if kind_and_number(at)[0] not in kinds.CLOSABLE | kinds.CLOSED:
            return Rejection(CANNOT_CLOSE, f"{at} has no door")
    task, thing, place = goal["task"], goal["object"], goal["place"]
    if task not in CHORES:
        return Rejection(BAD_GOAL, f"{task[:40]!r}: expected one of {', '.join(CHORES)}")
    if thing not in kinds.OBJECTS:
        return Rejection(UNKNOWN_KIND, f"goal: {thing[:40]!r} is not a kind of object")
    if place not in (kinds.LAMPS if task == "light" else kinds.HOLDS):
        what = "lamp" if task == "light" else "place"
        return Rejection(UNKNOWN_KIND, f"goal: {place[:40]!r} is not a kind of {what}")
    flag = CHORES[task].flag
    if flag and thing not in kinds.FLAGS[flag]:
        return Rejection(BAD_GOAL, f"{thing} is not {flag}")
    if task != "light" and thing not in kinds.HOLDS[place]:
        return Rejection(BAD_GOAL, f"{thing} cannot be put in {place}")
    return None


def _text(name: Name) -> str:
    return f"{name[0]} {name[1]}"


def _identifier(name: Name) -> str:
    """A PDDL identifier that the game shows under this name; games number from the highest down."""
    kind, number = name
    # If an identifier contains "basin", the game appends it to the name.
    short = kind.removesuffix("basin")
    return f"{short}_bar_{100 - number:02}" + (f"_bar_{kind}" if short != kind else "")


def _flags(kind: str) -> list[str]:
    if kind in kinds.LAMPS:
        return ["toggleable"]
    return ["pickupable", *(flag for flag, those in kinds.FLAGS.items() if kind in those)]


def _lines(parts: Iterable[str]) -> str:
    return "".join(f"  {part}\n" for part in parts)
