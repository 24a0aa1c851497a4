"""An expert for ALFWorld's games, which finds commands that reach the goal.

It searches one receptacle after another, likely ones first, until it has seen what it needs.  It knows no
more than a player does, so an agent can learn its steps.  It fails only where the goal cannot be reached: the
tests compare it with a search through all states.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from genenv_jax.benchmarks.alfworld.chores import CHORES
from genenv_jax.benchmarks.alfworld.commands import kind_and_number, put
from genenv_jax.benchmarks.alfworld.world import World

# (kind of object, kind of receptacle) -> expected number of such objects in one such receptacle
Likelihood = Mapping[tuple[str, str], float]


class NoPlan(Exception):
    """The expert cannot reach the goal."""


def likelihood(worlds: Iterable[World]) -> dict[tuple[str, str], float]:
    """Where objects of each kind are at the start of some (training) games."""
    things: Counter[tuple[str, str]] = Counter()
    places: Counter[str] = Counter()
    for world in worlds:
        places.update(world.receptacle_kind[r] for r in world.receptacles)
        kinds, holders = world.object_kind, world.receptacle_kind
        inside = ((o, r) for o, r in world.inside if o in kinds and r in holders)
        things.update((kinds[o], holders[r]) for o, r in inside)
    return {pair: count / places[pair[1]] for pair, count in things.items()}


def walkthrough(world: World, likely: Likelihood | None = None, informed: bool = False) -> list[str]:
    """Commands that win the game `world`, which is not modified; NoPlan if none were found.

    Args:
      likely: decides which receptacles are searched first; None searches in the order of the names.
      informed: whether the expert knows where everything is, and searches nothing.
    """
    run = _Run(world.copy(), likely or {})
    if informed:
        run.seen.update(world.receptacles)
    try:
        run.solve()
    except ValueError as error:  # an impossible command
        raise NoPlan(str(error)) from error
    if not run.world.won():
        raise NoPlan("the goal is not reached")
    return run.commands


class _Run:
    def __init__(self, world: World, likely: Likelihood):
        self.world = world
        self.likely = likely
        self.commands: list[str] = []
        self.seen: set[str] = set()
        self.by_kind: dict[str, list[str]] = defaultdict(list)
        for receptacle in sorted(world.receptacles, key=lambda r: kind_and_number(world.names[r])):
            self.by_kind[world.receptacle_kind.get(receptacle, "")].append(receptacle)

    def solve(self) -> None:
        goal, world = self.world.goal, self.world
        if goal.kind == "light":
            self.take(self.find(goal.object_kind, ["pickupable"]))
            lamp, place = self.find(goal.place_kind, ["toggleable"])
            self.go(place)
            self.do(f"use {world.names[lamp]}")
            return
        target, chore = self.target(), CHORES[goal.kind]
        flags = ["pickupable", chore.flag or "pickupable"]
        for _ in range(2 if goal.kind == "two" else 1):
            if world.won():
                return
            left_out = None if chore.state else target
            found = self.find(goal.object_kind, flags, left_out, fits=target)
            self.take(found)
            if chore.tools:
                tool = self.tool(chore.tools)
                self.go(tool)
                self.do(f"{goal.kind} {world.names[found[0]]} with {world.names[tool]}")
            self.go(target)
            self.open(target)
            self.do(put(world.names[found[0]], world.names[target], world.grammar))

    def target(self) -> str:
        """Where the objects go; for "two", the receptacle that already holds most of them."""
        world, goal = self.world, self.world.goal
        places = self.by_kind.get(goal.place_kind)
        if not places:
            raise NoPlan(f"there is no {goal.place_kind}")
        if goal.kind != "two":
            return min(places, key=lambda r: r in world.flags["openable"])

        def held(receptacle: str) -> int:
            kinds = [world.object_kind.get(o) for o in world.contents(receptacle)]
            return kinds.count(goal.object_kind) if receptacle in self.seen else 0

        return max(places, key=held)  # ties: the first

    def tool(self, kinds: tuple[str, ...]) -> str:
        for kind in kinds:
            if self.by_kind.get(kind):
                return self.by_kind[kind][0]
        raise NoPlan(f"there is no {kinds[0]}")

    def find(
        self, kind: str, flags: list[str], left_out: str | None = None, fits: str | None = None
    ) -> tuple[str, str]:
        """An object of the given kind and its receptacle; searches the room if none was seen yet."""
        world = self.world
        unseen = [r for r in world.receptacles if r not in self.seen]
        unseen.sort(key=lambda receptacle: self.rank(kind, receptacle))
        while True:
            for receptacle in sorted(self.seen, key=self.cost):
                if receptacle == left_out:
                    continue
                for thing in world.contents(receptacle):
                    right = world.object_kind.get(thing) == kind
                    right = right and all(thing in world.flags[name] for name in flags)
                    if right and (fits is None or world.fits(thing, fits)):
                        return thing, receptacle
            if not unseen:
                raise NoPlan(f"there is no {kind}")
            self.look_into(unseen.pop(0))

    def rank(self, kind: str, receptacle: str):
        """Sort key for receptacles: expected finds per command spent on looking, then name."""
        world = self.world
        found = self.likely.get((kind, world.receptacle_kind.get(receptacle, "")), 0.0)
        return -found / self.cost_of_a_look(receptacle), kind_and_number(world.names[receptacle])

    def cost_of_a_look(self, receptacle: str) -> int:
        return 1 if self.world.is_accessible(receptacle) else 2

    def cost(self, receptacle: str):
        """Sort key for receptacles with known contents: near ones first, then open ones."""
        away = self.world.location[receptacle] != self.world.here
        return away, self.cost_of_a_look(receptacle), kind_and_number(self.world.names[receptacle])

    def take(self, found: tuple[str, str]) -> None:
        thing, receptacle = found
        self.go(receptacle)
        self.open(receptacle)
        self.do(f"take {self.world.names[thing]} from {self.world.names[receptacle]}")

    def look_into(self, receptacle: str) -> None:
        if self.world.location[receptacle] == self.world.here:
            if self.world.is_accessible(receptacle):
                self.do(f"examine {self.world.names[receptacle]}")
        else:
            self.go(receptacle)
        self.open(receptacle)
        self.seen.add(receptacle)

    def go(self, receptacle: str) -> None:
        if self.world.location[receptacle] != self.world.here:
            self.do(f"go to {self.world.names[receptacle]}")
            # Contents seen on arrival need no second visit.
            if self.world.is_accessible(receptacle):
                self.seen.add(receptacle)

    def open(self, receptacle: str) -> None:
        if not self.world.is_accessible(receptacle):
            self.do(f"open {self.world.names[receptacle]}")
            self.seen.add(receptacle)

    def do(self, command: str) -> None:
        self.world.apply(command)
        self.commands.append(command)
