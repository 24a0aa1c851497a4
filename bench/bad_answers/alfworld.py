"""Ways through a game of ALFWorld: an expert's, with one change."""

import random
from collections.abc import Callable, Iterator, Mapping

from genenv_jax.benchmarks.alfworld.world import World
from genenv_jax.benchmarks.base import Benchmark, Task

LIMIT = 50  # steps that count
Way = list[str]


def _cut(way: Way, world: World, rng: random.Random) -> Way:
    return way[: rng.randrange(len(way))]


def _dropped(way: Way, world: World, rng: random.Random) -> Way:
    at = rng.randrange(len(way))
    return way[:at] + way[at + 1 :]


def _inserted(way: Way, world: World, rng: random.Random) -> Way:
    """Commands that are not possible, and some that change nothing."""
    made = list(way)
    for _ in range(rng.randint(1, 6)):
        command = rng.choice(
            (
                "look",
                "inventory",
                "go to moon 1",
                "open window 1",
                "take apple 99 from desk 1",
                "use lamp",
                "xyzzy",
            )
        )
        made.insert(rng.randint(0, len(made)), command)
    return made


def _late(way: Way, world: World, rng: random.Random) -> Way:
    """The goal is reached with the last step that counts, or one later."""
    return ["look"] * (LIMIT - len(way) + rng.choice((0, 1))) + way


def _exchanged(way: Way, world: World, rng: random.Random) -> Way:
    made = list(way)
    i, j = rng.randrange(len(way)), rng.randrange(len(way))
    made[i], made[j] = made[j], made[i]
    return made


def _numbers(way: Way, world: World, rng: random.Random) -> Way:
    """Another thing or place of the same kind."""
    made = list(way)
    at = rng.randrange(len(way))
    made[at] = "".join(str(rng.randint(1, 3)) if c.isdigit() else c for c in made[at])
    return made


def _random(way: Way, world: World, rng: random.Random) -> Way:
    """Possible commands at random, then the expert's."""
    here, made = world.copy(), []
    for _ in range(rng.randint(5, 20)):
        possible = sorted(
            c
            for c, action in here.admissible().items()
            if action[0] not in ("look", "help", "examine_object")
        )
        made.append(rng.choice(possible))
        here.apply(made[-1])
    return made + way


CHANGES: Mapping[str, Callable[[Way, World, random.Random], Way]] = {
    "cut short": _cut, "one command left out": _dropped, "commands inserted": _inserted,
        "at the limit of steps": _late,
    "two commands exchanged": _exchanged, "other numbers": _numbers, "random commands first": _random,
}  # fmt: skip


def of_task(benchmark: Benchmark, task: Task, rng: random.Random) -> Iterator[tuple[str, str]]:
    """See `bad_answers`; for games that say how they are won."""
    for kind, change in CHANGES.items():
        if "plan" in task.answer and change is not _random:
            way = change(list(task.answer["plan"]), None, rng)
            yield kind, "\n".join(f"Action: {command}" for command in way)
