"""The rules of ALFWorld's text games without the engine: a game's state, and the texts that it answers.

Training needs (state, action) pairs from hundreds of games, and the engine takes seconds per game.  This
module follows the same rules (the PDDL domain and the text grammar in the game files) in milliseconds.
The tests compare it with the engine, state by state.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import Counter, defaultdict

from genenv_jax.benchmarks.alfworld import commands, pddl
from genenv_jax.benchmarks.alfworld.chores import TREATMENTS

NOTHING_HAPPENS = "Nothing happens."  # a game's answer to an impossible command

_KNIVES = ("knife", "butterknife")
# `help.feedback` of alfworld/data/alfred.twl2 (0.4), as it is laid out there.
_HELP = """Available commands:
  look:                             look around your current location
  inventory:                        check your current inventory
  go to (receptacle):               move to a receptacle
  open (receptacle):                open a receptacle
  close (receptacle):               close a receptacle
  take (object) from (receptacle):  take an object from a receptacle
  move (object) to (receptacle):  place an object in or on a receptacle
  examine (something):              examine a receptacle or an object
  use (object):                     use an object
  heat (object) with (receptacle):  heat an object using a receptacle
  clean (object) with (receptacle): clean an object using a receptacle
  cool (object) with (receptacle):  cool an object using a receptacle
  slice (object) with (object):     slice an object using a sharp object"""
_TOLD = {
    "take": "You pick up the {} from the {}.",
    "use": "You turn on the {}.",
    "close": "You close the {}.",
    "help": _HELP,
    **{verb: f"You {verb} the {{}} using the {{}}." for verb in TREATMENTS},
}
_PUT = {commands.PUT_IN_ON: "You put the {} in/on the {}.", commands.MOVE_TO: "You move the {} to the {}."}
_MIDDLE = "You are in the middle of a room. Looking quickly around you, you see "


def entity_names(identifiers: set[str]) -> dict[str, str]:
    """Maps each PDDL identifier to its name in the game's text ("cabinet 3").

    Numbers as `Demangler` (alfworld/agents/utils/misc.py) does without shuffling: in alphabetical order,
    identifiers get the numbers of their kind from the highest down.
    """
    kinds = {}
    for identifier in sorted(identifiers):
        kind, bar, _ = identifier.partition("_bar_")
        kinds[identifier] = (kind + "basin" if bar and "basin" in identifier else kind, bool(bar))
    left = Counter(kind for kind, numbered in kinds.values() if numbered)
    names = {}
    for identifier, (kind, numbered) in kinds.items():
        names[identifier] = f"{kind} {left[kind]}" if numbered else kind
        left[kind] -= numbered
    return names


def _kind(pddl_type: str) -> str:
    return pddl_type.removesuffix("type")


@dataclasses.dataclass(frozen=True)
class Goal:
    """The goal of a game."""

    kind: str  # one of `CHORES`
    object_kind: str  # what is handled, such as "apple"
    place_kind: str  # the kind of receptacle that it goes to; for "light", of lamp


def read_goal(tree: object) -> Goal:
    """The goal of a problem (`pddl.Problem.goal`); ValueError if it is none of the six kinds."""
    conditions = pddl.atoms(tree)
    predicates = {condition[0] for condition in conditions}
    objects = [_kind(c[2]) for c in conditions if c[0] == "objecttype" and len(c) == 3]
    places = [_kind(c[2]) for c in conditions if c[0] == "receptacletype" and len(c) == 3]
    if "istoggled" in predicates and len(objects) == 2:
        return Goal("light", objects[1], objects[0])
    if len(set(objects)) != 1 or len(set(places)) != 1:
        raise ValueError("the goal is none of ALFWorld's six kinds")
    kinds = [kind for kind, chore in TREATMENTS.items() if chore.state in predicates]
    kind = kinds[0] if kinds else "two" if len(objects) == 2 else "put"
    return Goal(kind, objects[0], places[0])


class World:
    """The state of one game, made from its PDDL problem; answers in one of `commands.GRAMMARS`.

    Raises ValueError: the problem lacks an agent or receptacles, or its goal is unknown.
    """

    def __init__(self, problem: pddl.Problem, grammar: str = commands.PUT_IN_ON):
        self.grammar = grammar
        self.goal = read_goal(problem.goal)
        facts = defaultdict(list)
        for predicate, *arguments in problem.facts:
            facts[predicate].append(tuple(arguments))
        self.names = entity_names({a for fact in problem.facts for a in fact[1:]})
        self.location = dict(facts["receptacleatlocation"])
        self.receptacles = sorted(self.location)
        self.receptacle_kind = {r: _kind(type_) for r, type_ in facts["receptacletype"]}
        self.object_kind = {o: _kind(type_) for o, type_ in facts["objecttype"]}
        self.flags = {
            flag: {arguments[0] for arguments in facts[flag]}
            for flag in ("openable", "pickupable", "cleanable", "heatable", "coolable",
                         "toggleable", "sliceable", "isreceptacleobject")
        }  # fmt: skip
        self.on_top = set(facts["inreceptacleobject"])  # (object, what holds it); never changes
        self.can_contain = {(_kind(place), _kind(thing)) for place, thing in facts["cancontain"]}
        self.opened = {arguments[0] for arguments in facts["opened"]}
        self.inside = set(facts["inreceptacle"])  # (object, receptacle)
        self.near = set(facts["objectatlocation"])  # (object, location)
        states = (*(c.state for c in TREATMENTS.values()), "istoggled", "issliced")
        self.states = {name: {a[0] for a in facts[name]} for name in states}
        self.held = facts["holds"][0][1] if facts["holds"] else None
        if not self.receptacles or not facts["atlocation"]:
            raise ValueError("the problem has no receptacle or no place for the agent")
        self.here = facts["atlocation"][0][1]

    def copy(self) -> World:
        """An independent copy."""
        other = copy.copy(self)
        other.opened, other.inside, other.near = set(self.opened), set(self.inside), set(self.near)
        other.states = {name: set(members) for name, members in self.states.items()}
        return other

    def contents(self, receptacle: str) -> list[str]:
        """Objects in or on a receptacle, open or not, in the order in which the text lists them."""
        return sorted(o for o, r in self.inside if r == receptacle)

    def is_accessible(self, receptacle: str) -> bool:
        """Whether an agent at its location can put things in and take them out."""
        return receptacle not in self.flags["openable"] or receptacle in self.opened

    def at(self) -> list[str]:
        """The receptacles at the agent's location."""
        return [r for r in self.receptacles if self.location[r] == self.here]

    def fits(self, thing: str, receptacle: str) -> bool:
        """Whether the rules allow the object in the receptacle."""
        pair = self.receptacle_kind.get(receptacle), self.object_kind.get(thing)
        return pair in self.can_contain

    def won(self) -> bool:
        """Whether the goal is reached."""
        goal = self.goal
        if goal.kind == "light":
            here = set(self.at())
            on = self.states["istoggled"] & self.flags["toggleable"]
            lamps = (o for o, r in self.inside if o in on and r in here)
            lit = any(self.object_kind.get(lamp) == goal.place_kind for lamp in lamps)
            return lit and self.object_kind.get(self.held) == goal.object_kind
        per_place: Counter[str] = Counter()
        for thing, receptacle in self.inside:
            right = self.object_kind.get(thing) == goal.object_kind
            if chore := TREATMENTS.get(goal.kind):
                right = right and thing in self.states[chore.state]
                right = right and thing in self.flags[chore.flag]
            if right and self.receptacle_kind.get(receptacle) == goal.place_kind:
                per_place[receptacle] += 1
        return max(per_place.values(), default=0) >= (2 if goal.kind == "two" else 1)

    def admissible(self) -> dict[str, tuple[str, ...]]:
        """All commands that are possible now, sorted, each with its verb and PDDL identifiers."""
        name, here = self.names, self.at()
        found = {"look": ("look",), "inventory": ("inventory",)}
        if self.grammar == commands.MOVE_TO:
            found["help"] = ("help",)
        for r in self.receptacles:
            if self.location[r] != self.here:
                found[f"go to {name[r]}"] = ("go", r)
        if self.held:
            # The domain also intends objects in view, but a comma in that precondition ("?l - location, ?r")
            # makes Fast Downward read a type that no object has.
            found[f"examine {name[self.held]}"] = ("examine_object", self.held)
        for r in here:
            found[f"examine {name[r]}"] = ("examine", r)
            if r in self.flags["openable"]:
                verb = "close" if r in self.opened else "open"
                found[f"{verb} {name[r]}"] = (verb, r)
            for thing in self.contents(r):
                if thing in self.flags["toggleable"]:
                    found[f"use {name[thing]}"] = ("use", thing)
                if not self.held and self.is_accessible(r) and thing in self.flags["pickupable"]:
                    found[f"take {name[thing]} from {name[r]}"] = ("take", thing, r)
            if self.held:
                found |= self._with_held(r)
        if self.held and self.object_kind.get(self.held) in _KNIVES:
            for thing, place in self.near:
                if place == self.here and thing in self.flags["sliceable"]:
                    found[f"slice {name[thing]} with {name[self.held]}"] = ("slice", thing)
        return dict(sorted(found.items()))

    def _with_held(self, receptacle: str) -> dict[str, tuple[str, ...]]:
        """The commands that use the held object and a receptacle here."""
        thing, found = self.held, {}
        o, r = self.names[thing], self.names[receptacle]
        if self.is_accessible(receptacle) and self.fits(thing, receptacle):
            found[commands.put(o, r, self.grammar)] = ("put", thing, receptacle)
        kind = self.receptacle_kind.get(receptacle)
        for verb, chore in TREATMENTS.items():
            # The newer rules allow cleaning only in a sink's basin.
            tools = chore.tools if self.grammar == commands.PUT_IN_ON else chore.tools[:1]
            if kind in tools and thing in self.flags[chore.flag]:
                found[f"{verb} {o} with {r}"] = (verb, thing, receptacle)
        return found

    def apply(self, command: str) -> str:
        """Executes a command; the game's answer, without "You arrive at loc 3. ", or ValueError."""
        action = self.admissible().get(command)
        if action is None:
            raise ValueError(f"{command!r} is not possible here")
        self.act(action)
        return self._told(*action)

    def act(self, action: tuple[str, ...]) -> None:
        """Applies one of the actions of `admissible` to the state."""
        verb, *arguments = action
        thing = arguments[0] if arguments else ""
        if verb == "go":
            self.here = self.location[thing]
        elif verb == "open":
            self.opened.add(thing)
        elif verb == "close":
            self.opened.discard(thing)
        elif verb == "take":
            self.inside.discard((thing, arguments[1]))
            self.near.discard((thing, self.here))
            self.held = thing
        elif verb == "put":
            self.inside.add((thing, arguments[1]))
            self.near.add((thing, self.here))
            self.held = None
        elif verb == "use":
            self.states["istoggled"].add(thing)
        elif verb == "slice":
            self.states["issliced"].add(thing)
        elif verb in TREATMENTS:
            self.states[TREATMENTS[verb].state].add(thing)
            if opposite := {"heat": "iscool", "cool": "ishot"}.get(verb):
                self.states[opposite].discard(thing)

    def _told(self, verb: str, *arguments: str) -> str:
        """The game's answer to an action after it was applied."""
        names = [self.names[a] for a in arguments]
        if verb in _TOLD:
            return _TOLD[verb].format(*names)
        if verb == "put":
            return _PUT[self.grammar].format(*names)
        if verb == "go":
            arrived = f"You arrive at {names[0]}. " if self.grammar == commands.MOVE_TO else ""
            return arrived + self.describe(arguments[0])
        if verb == "examine":
            return self.describe(arguments[0])
        if verb == "open":
            return f"You open the {names[0]}. {self.describe(arguments[0])}"
        if verb == "slice":
            return f"You sliced the {names[0]} with the {self.names[self.held]}."
        if verb == "inventory":
            carried = f"a {self.names[self.held]}" if self.held else ""
            return f"You are carrying: {carried}." if carried else "You are not carrying anything."
        return self.look() if verb == "look" else self._examined(arguments[0])

    def look(self) -> str:
        """The answer to `look`: the receptacles at the agent's location; "nothing" in the middle of the room.

        If several receptacles share a location, the engine occasionally also mentions an object that is in
        one of them and not in another.
        """
        facing = _listed([self.names[r] for r in self.at()])
        if not self.at():
            return f"{_MIDDLE}nothing."
        return f"You are facing the {facing}. Next to it, you see nothing."

    def _examined(self, thing: str) -> str:
        name = self.names[thing]
        if thing in self.flags["isreceptacleobject"]:
            inside = [o for o, outer in sorted(self.on_top) if outer == thing]
            held = _listed([f"a {self.names[o]}" for o in inside])
            return f"This is a normal {name}. In it, you see {held}."
        states = ("isclean", "ishot", "iscool", "issliced")
        clean, hot, cool, sliced = (thing in self.states[state] for state in states)
        kept = "hot" if hot else "cool" if cool and (clean or sliced) else "cold" if cool else ""
        words = " and ".join(word for word in (kept, "clean" * clean) if word)
        words = " ".join(word for word in (words, "sliced" * sliced) if word)
        return f"This is a {words} {name}." if words else f"There's nothing special about {name}."

    def describe(self, receptacle: str) -> str:
        """The description of a receptacle that an agent at its location gets."""
        name = self.names[receptacle]
        if not self.is_accessible(receptacle):
            return f"The {name} is closed."
        things = _listed([f"a {self.names[o]}" for o in self.contents(receptacle)])
        if receptacle in self.flags["openable"]:
            return f"The {name} is open. In it, you see {things}."
        return f"On the {name}, you see {things}."

    def overview(self) -> str:
        """The first text of a game, without the greeting and the task."""
        things = _listed([f"a {self.names[r]}" for r in self.receptacles])
        return f"{_MIDDLE}{things}."


def _listed(things: list[str]) -> str:
    if len(things) < 2:
        return things[0] if things else "nothing"
    return ", ".join(things[:-1]) + ", and " + things[-1]
