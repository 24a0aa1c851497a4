"""What is true in a game, and what it says: the rules of ALFWorld's text games, without their engine.

Training needs (state, action) pairs of hundreds of games, and the engine takes seconds a game.  This
follows the same rules (the PDDL domain and the text grammar in the game files) for the commands that an
expert uses, in milliseconds.  The tests compare it with the engine, state by state.  Episodes that are
scored are always played on the engine.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import Counter, defaultdict

from genenv_jax.benchmarks.alfworld import commands, pddl

_SINKS = ("sinktype", "sinkbasintype")
_KNIVES = ("knifetype", "butterknifetype")
_TOOLS = {"clean": "cleanable", "heat": "heatable", "cool": "coolable"}
_STATES = {"clean": "isclean", "heat": "ishot", "cool": "iscool"}
_SIGNS = (("_bar_", "|"), ("_minus_", "-"), ("_plus_", "+"), ("_dot_", "."), ("_comma_", ","))


def entity_names(identifiers: set[str]) -> dict[str, str]:
    """Names as the game's text has them ("cabinet 3"), by PDDL identifier.

    The numbering of `Demangler` (alfworld/agents/utils/misc.py) without shuffling: identifiers in
    alphabetical order get the numbers of their kind from the highest down.
    """
    kinds = {}
    for identifier in sorted(identifiers):
        text = identifier
        for word, sign in _SIGNS:
            text = text.replace(word, sign)
        kind, bar, _ = text.partition("|")
        kinds[identifier] = (kind + "basin" if bar and "basin" in identifier else kind, bool(bar))
    left = Counter(kind for kind, numbered in kinds.values() if numbered)
    names = {}
    for identifier, (kind, numbered) in kinds.items():
        names[identifier] = f"{kind} {left[kind]}" if numbered else kind
        left[kind] -= numbered
    return names


@dataclasses.dataclass(frozen=True)
class Goal:
    """What is to be done.

    Attributes:
      kind: "put", "two", "clean", "heat", "cool" or "light".
      object_type: what is handled, a PDDL type such as "applytype".
      place_type: type of the receptacle that it goes to; for "light" the type of the lamp.
    """

    kind: str
    object_type: str
    place_type: str


def read_goal(tree: object) -> Goal:
    """The goal of a problem (`pddl.Problem.goal`); ValueError where it is none of the six kinds."""
    conditions = pddl.atoms(tree)
    predicates = {condition[0] for condition in conditions}
    objects = [c[2] for c in conditions if c[0] == "objecttype" and len(c) == 3]
    places = [c[2] for c in conditions if c[0] == "receptacletype" and len(c) == 3]
    if "istoggled" in predicates and len(objects) == 2:
        return Goal("light", objects[1], objects[0])
    if len(set(objects)) != 1 or len(set(places)) != 1:
        raise ValueError("the goal is none of ALFWorld's six kinds")
    kinds = [kind for kind, state in _STATES.items() if state in predicates]
    kind = kinds[0] if kinds else "two" if len(objects) == 2 else "put"
    return Goal(kind, objects[0], places[0])


class World:
    """The state of one game.

    Args:
      problem: the game's PDDL problem.
      grammar: one of `commands.GRAMMARS`.

    Raises:
      ValueError: the problem lacks what every game has (an agent, receptacles), or its goal is unknown.
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
        self.receptacle_type = dict(facts["receptacletype"])
        self.object_type = dict(facts["objecttype"])
        self.flags = {
            flag: {arguments[0] for arguments in facts[flag]}
            for flag in ("openable", "pickupable", "cleanable", "heatable", "coolable",
                         "toggleable", "sliceable")
        }  # fmt: skip
        self.can_contain = set(facts["cancontain"])
        self.opened = {arguments[0] for arguments in facts["opened"]}
        self.inside = set(facts["inreceptacle"])  # (object, receptacle)
        self.near = set(facts["objectatlocation"])  # (object, location)
        self.states = {
            name: {a[0] for a in facts[name]} for name in (*_STATES.values(), "istoggled")
        }
        self.held = facts["holds"][0][1] if facts["holds"] else None
        if not self.receptacles or not facts["atlocation"]:
            raise ValueError("the problem has no receptacle or no place for the agent")
        self.here = facts["atlocation"][0][1]

    def copy(self) -> World:
        """A world that changes on its own."""
        other = copy.copy(self)
        other.opened, other.inside, other.near = set(self.opened), set(self.inside), set(self.near)
        other.states = {name: set(members) for name, members in self.states.items()}
        return other

    def contents(self, receptacle: str) -> list[str]:
        """Objects in or on a receptacle, open or not, in the order in which the text lists them."""
        return sorted(o for o, r in self.inside if r == receptacle)

    def is_accessible(self, receptacle: str) -> bool:
        """Whether things can be put in and taken out, from where it stands."""
        return receptacle not in self.flags["openable"] or receptacle in self.opened

    def at(self) -> list[str]:
        """Receptacles where the agent is."""
        return [r for r in self.receptacles if self.location[r] == self.here]

    def fits(self, thing: str, receptacle: str) -> bool:
        """Whether the rules let the object be put into the receptacle."""
        pair = self.receptacle_type.get(receptacle), self.object_type.get(thing)
        return pair in self.can_contain

    def won(self) -> bool:
        """Whether the goal is reached."""
        goal = self.goal
        if goal.kind == "light":
            here = set(self.at())
            lit = any(
                self.object_type.get(o) == goal.place_type and r in here
                for o, r in self.inside
                if o in self.states["istoggled"] and o in self.flags["toggleable"]
            )
            return lit and self.object_type.get(self.held) == goal.object_type
        per_place: Counter[str] = Counter()
        for thing, receptacle in self.inside:
            right = self.object_type.get(thing) == goal.object_type
            if goal.kind in _STATES:
                right = right and thing in self.states[_STATES[goal.kind]]
                right = right and thing in self.flags[_TOOLS[goal.kind]]
            if right and self.receptacle_type.get(receptacle) == goal.place_type:
                per_place[receptacle] += 1
        return max(per_place.values(), default=0) >= (2 if goal.kind == "two" else 1)

    # -- commands ---------------------------------------------------------------------------------------

    def admissible(self) -> dict[str, tuple[str, ...]]:
        """All commands that are possible now, sorted; for each its verb and PDDL identifiers."""
        name, here = self.names, self.at()
        found = {"look": ("look",), "inventory": ("inventory",)}
        if self.grammar == commands.MOVE_TO:
            found["help"] = ("help",)
        for r in self.receptacles:
            if self.location[r] != self.here:
                found[f"go to {name[r]}"] = ("go", r)
        if self.held:
            # The domain means what is in view too, but a comma in that precondition ("?l - location, ?r")
            # makes Fast Downward read a type that nothing has.
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
        if self.held and self.object_type.get(self.held) in _KNIVES:
            for thing, place in self.near:
                if place == self.here and thing in self.flags["sliceable"]:
                    found[f"slice {name[thing]} with {name[self.held]}"] = ("slice", thing)
        return dict(sorted(found.items()))

    def _with_held(self, receptacle: str) -> dict[str, tuple[str, ...]]:
        """What can be done here with the object in hand and a receptacle."""
        thing, found = self.held, {}
        o, r = self.names[thing], self.names[receptacle]
        if self.is_accessible(receptacle) and self.fits(thing, receptacle):
            put = commands.translate(f"put {o} in/on {r}", self.grammar)
            found[put] = ("put", thing, receptacle)
        kind = self.receptacle_type.get(receptacle)
        sinks = _SINKS if self.grammar == commands.PUT_IN_ON else _SINKS[1:]
        tools = (("clean", sinks), ("heat", ("microwavetype",)), ("cool", ("fridgetype",)))
        for verb, kinds in tools:
            if kind in kinds and thing in self.flags[_TOOLS[verb]]:
                found[f"{verb} {o} with {r}"] = (verb, thing, receptacle)
        return found

    def apply(self, command: str) -> str:
        """Does what an admissible command says.

        Returns:
          What the game answers, without "You arrive at loc 3. ", which names no place.
        Raises:
          ValueError: the command is not admissible, or is one whose answer is not told here (`look`,
            `help`, `slice`, and `examine` of an object).
        """
        action = self.admissible().get(command)
        if action is None:
            raise ValueError(f"{command!r} is not possible here")
        verb, *arguments = action
        names = [self.names[a] for a in arguments]
        if verb == "go":
            self.here = self.location[arguments[0]]
            arrived = f"You arrive at {names[0]}. " if self.grammar == commands.MOVE_TO else ""
            return arrived + self.describe(arguments[0])
        if verb == "examine":
            return self.describe(arguments[0])
        if verb == "open":
            self.opened.add(arguments[0])
            return f"You open the {names[0]}. {self.describe(arguments[0])}"
        if verb == "close":
            self.opened.discard(arguments[0])
            return f"You close the {names[0]}."
        if verb == "take":
            self.inside.discard((arguments[0], arguments[1]))
            self.near.discard((arguments[0], self.here))
            self.held = arguments[0]
            return f"You pick up the {names[0]} from the {names[1]}."
        if verb == "put":
            self.inside.add((arguments[0], arguments[1]))
            self.near.add((arguments[0], self.here))
            self.held = None
            if self.grammar == commands.MOVE_TO:
                return f"You move the {names[0]} to the {names[1]}."
            return f"You put the {names[0]} in/on the {names[1]}."
        if verb == "use":
            self.states["istoggled"].add(arguments[0])
            return f"You turn on the {names[0]}."
        if verb == "inventory":
            carried = f"a {self.names[self.held]}" if self.held else ""
            return f"You are carrying: {carried}." if carried else "You are not carrying anything."
        if verb in _STATES:
            self.states[_STATES[verb]].add(arguments[0])
            opposite = {"heat": "iscool", "cool": "ishot"}.get(verb)
            if opposite:
                self.states[opposite].discard(arguments[0])
            return f"You {verb} the {names[0]} using the {names[1]}."
        raise ValueError(f"{command!r} is not told here")

    def describe(self, receptacle: str) -> str:
        """What is seen of a receptacle from where it stands."""
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
        return f"You are in the middle of a room. Looking quickly around you, you see {things}."


def _listed(things: list[str]) -> str:
    if len(things) < 2:
        return things[0] if things else "nothing"
    return ", ".join(things[:-1]) + ", and " + things[-1]
