"""A* over the rules, with a limit on nodes: the shortest plan for a game's goal, or a proof that none exists.

Every state is a `World` and every step one of its actions, so the rules themselves prove that a plan works.
The search moves only objects that the goal is about, and visits only the places they are at or go to.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Collection

from genenv_jax.benchmarks.alfworld.chores import CHORES
from genenv_jax.benchmarks.alfworld.world import World
from genenv_jax.benchmarks.base import Rejection

UNSOLVABLE = "unsolvable"
UNDECIDED = "planner_undecided"
MAX_NODES = 1_000  # expanded states; a published game takes a few dozen, a random room fewer


def shortest(world: World, max_nodes: int = MAX_NODES) -> list[str] | Rejection:
    """The fewest commands that win a game, found in `max_nodes` states; or UNSOLVABLE, UNDECIDED.

    The plan is guaranteed to be a shortest one if no two receptacles share a location.
    """
    search = _Search(world)
    missing = search.missing()
    if missing:
        return Rejection(UNSOLVABLE, f"there is no {missing}")
    ticks = itertools.count()
    queue = [(search.left(world), next(ticks), world, ())]
    known = {search.key(world): 0}
    expanded = 0
    while queue:
        _, _, state, done = heapq.heappop(queue)
        if state.won():
            return list(done)
        if known[search.key(state)] < len(done):
            continue  # a shorter path was found meanwhile
        if expanded == max_nodes:
            return Rejection(UNDECIDED, f"no plan within {max_nodes} states")
        expanded += 1
        for command, action in state.admissible().items():
            if not search.helps(action):
                continue
            after = state.copy()
            after.act(action)
            key = search.key(after)
            if len(done) + 1 < known.get(key, len(done) + 2):
                known[key] = len(done) + 1
                left = len(done) + 1 + search.left(after)
                heapq.heappush(queue, (left, next(ticks), after, (*done, command)))
    return Rejection(UNSOLVABLE, "no command leads there")


class _Search:
    """What a search knows about a game: the things that matter, and a lower bound on the commands left."""

    def __init__(self, world: World):
        goal = world.goal
        self.goal = goal.kind
        chore = CHORES[goal.kind]
        self.state = chore.state
        inside = {thing for thing, _ in world.inside} | {world.held}
        of_thing, of_place = world.object_kind.get, world.receptacle_kind.get
        goods = inside & world.flags["pickupable"] & world.flags[chore.flag or "pickupable"]
        self.goods = {thing for thing in goods if of_thing(thing) == goal.object_kind}
        there = {r for r in world.receptacles if of_place(r) == goal.place_kind}
        self.targets = there if goal.kind != "light" else set()
        self.tools = {r for r in world.receptacles if of_place(r) in chore.tools}
        lamps = {t for t in inside & world.flags["toggleable"] if of_thing(t) == goal.place_kind}
        self.lamps = lamps if goal.kind == "light" else set()
        self.lamp_places = {r for thing, r in world.inside if thing in self.lamps}
        self.places = {r for thing, r in world.inside if thing in self.goods}
        self.places |= self.targets | self.tools | self.lamp_places
        self.world = world

    def missing(self) -> str:
        """Something that the goal needs and the room lacks, or ""."""
        goal, world = self.world.goal, self.world
        if len(self.goods) < (2 if goal.kind == "two" else 1):
            return f"{goal.object_kind} to take"
        if goal.kind == "light":
            return "" if self.lamps else f"{goal.place_kind} to turn on"
        if self.state and not self.tools:
            return f"place to {goal.kind} it"
        if not any(world.fits(thing, place) for thing in self.goods for place in self.targets):
            return f"{goal.place_kind} to put it"
        return ""

    def helps(self, action: tuple[str, ...]) -> bool:
        """Whether an action can be part of a shortest plan."""
        verb, *arguments = action
        if verb in ("go", "open"):
            return arguments[0] in self.places
        if verb == "take":
            return arguments[0] in self.goods
        if verb == "put":
            return arguments[1] in self.targets
        if verb == "use":
            return arguments[0] in self.lamps
        return verb == self.goal

    def key(self, world: World):
        """Equal for states that do not differ in anything that matters."""
        return (
            world.here,
            world.held,
            frozenset(world.opened & self.places),
            frozenset(pair for pair in world.inside if pair[0] in self.goods),
            frozenset(world.states[self.state] & self.goods if self.state else ()),
            frozenset(world.states["istoggled"] & self.lamps),
        )

    def left(self, world: World) -> int:
        """A lower bound on the commands still needed."""
        where: dict[str, set[str]] = {thing: set() for thing in self.goods}
        for thing, r in world.inside:  # some games have an object in two receptacles
            if thing in where:
                where[thing].add(r)
        if self.goal == "light":
            lit = {r for thing, r in world.inside
                   if thing in self.lamps and thing in world.states["istoggled"]}  # fmt: skip
            end = (lit, 0, False) if lit else (self.lamp_places, 1, False)
            first = [] if world.held in self.goods else [(set().union(*where.values()), 1, True)]
            return self._legs(world, [*first, end])
        if self.goal == "two":
            return min(self._pair(world, where, target) for target in self.targets)
        return min(self._one(world, where, thing) for thing in self.goods)

    def _one(self, world: World, where: dict[str, set[str]], thing: str) -> int:
        done = not self.state or thing in world.states[self.state]
        if done and where[thing] & self.targets:
            return 0
        fetch = [] if thing == world.held else [(where[thing], 1, True)]
        tool = [] if done else [(self.tools, 1, False)]
        return self._legs(world, [*fetch, *tool, (self.targets, 1, True)])

    def _pair(self, world: World, where: dict[str, set[str]], target: str) -> int:
        there = sum(target in places for places in where.values())
        others = set().union(*where.values()) - {target}
        legs = [({target}, 1, True)] if world.held in self.goods else []
        fetch = [(others, 1, True), ({target}, 1, True)]
        return self._legs(world, legs + fetch * max(0, 2 - there - len(legs)))

    def _legs(self, world: World, legs: list[tuple[Collection[str], int, bool]]) -> int:
        """Commands to visit stops in order; a stop is (any of these places, commands there, must be open)."""
        total, here = 0, {world.here}
        for places, commands, opening in legs:
            spots = {world.location[r] for r in places}
            closed = opening and not any(world.is_accessible(r) for r in places)
            total += commands + here.isdisjoint(spots) + closed
            here = spots
        return total
