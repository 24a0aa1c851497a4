"""ALFWorld: whether a game is won, and after how many commands, in the official environment of 50 steps."""

from __future__ import annotations

import importlib
import pathlib
import random
from collections.abc import Callable, Iterator, Mapping

from bench.agreement.tally import Case, Judge, Verdict
from genenv_jax.benchmarks.alfworld import engine, expert, games
from genenv_jax.benchmarks.alfworld.benchmark import ALFWorld
from genenv_jax.benchmarks.alfworld.world import World

_LIMIT = 50
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
    return ["look"] * (_LIMIT - len(way) + rng.choice((0, 1))) + way


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


def cases(data_dir: pathlib.Path | None, seed: int, share: float) -> Iterator[Case]:
    """Games of valid_unseen, each with an expert's way and one change of it."""
    for game in games.load(games.find_directory(data_dir), ["valid_unseen"])["valid_unseen"]:
        rng = random.Random(f"agreement {seed} {game.id}")
        if rng.random() >= share:
            continue
        world = World(game.problem())
        way = expert.walkthrough(world, rng.choice(expert.EXPERTS))
        yield _case("expert", game, way)
        kind = rng.choice(sorted(CHANGES))
        yield _case(kind, game, CHANGES[kind](way, world, rng))


def _case(kind: str, game: games.Game, way: Way) -> Case:
    return Case(kind, game.task(), "\n".join(f"Action: {command}" for command in way), (game, way))


def judges(data_dir: pathlib.Path | None, official: pathlib.Path) -> tuple[Judge, Judge]:
    """Our episodes, and `AlfredTWEnv`'s environment for evaluation (`init_env`)."""
    benchmark = ALFWorld(data_dir=data_dir, eval_protocol="episode")
    module = engine._import("alfworld.agents.environment.alfred_tw_env")
    textworld, gym = importlib.import_module("textworld"), importlib.import_module("textworld.gym")

    def ours(case: Case) -> Verdict:
        score = benchmark.score(case.task, case.text) if case.text else None
        return Verdict(
            bool(score and score.success),
            score.reason if score else "",
            score.detail["steps"] if score else 0,
        )

    def theirs(case: Case) -> Verdict:
        game, way = case.given
        name = gym.register_games(
            [str(game.path)],
            textworld.EnvInfos(won=True, admissible_commands=True, extras=["gamefile"]),
            batch_size=1,
            asynchronous=False,
            max_episode_steps=_LIMIT,
            wrappers=[module.AlfredDemangler(shuffle=False), module.AlfredInfos],
        )
        environment = gym.make(name)
        environment.reset()
        steps, won, done = 0, False, False
        while steps < len(way) and not done:
            _, _, finished, infos = environment.step([way[steps]])
            steps, won, done = steps + 1, bool(infos["won"][0]), bool(finished[0])
        environment.close()
        return Verdict(won, "" if won else "not won", steps)

    return ours, theirs
