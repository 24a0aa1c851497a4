"""ALFWorld: whether a game is won, and after how many commands, in the official environment of 50 steps."""

import importlib
import pathlib
import random
from collections.abc import Iterator

from bench.agreement.tally import Case, Judge, Verdict
from bench.bad_answers.alfworld import CHANGES, LIMIT, Way
from genenv_jax.benchmarks.alfworld import engine, expert, tasks
from genenv_jax.benchmarks.alfworld.benchmark import ALFWorld


def cases(data_dir: pathlib.Path | None, seed: int, share: float) -> Iterator[Case]:
    """Games of valid_unseen, each with an expert's commands and one change to them."""
    for game in tasks.load(tasks.find_directory(data_dir), "valid_unseen"):
        rng = random.Random(f"agreement {seed} {game.id}")
        if rng.random() >= share:
            continue
        world = game.world()
        way = expert.walkthrough(world, informed=rng.choice((False, True)))
        yield _case("expert", game, way)
        kind = rng.choice(sorted(CHANGES))
        yield _case(kind, game, CHANGES[kind](way, world, rng))


def _case(kind: str, game: tasks.Game, way: Way) -> Case:
    return Case(kind, game.task(), "\n".join(f"Action: {command}" for command in way), (game, way))


def ours(data_dir: pathlib.Path | None) -> Judge:
    """Our episodes."""
    benchmark = ALFWorld(data_dir=data_dir, eval_protocol="episode")

    def judge(case: Case) -> Verdict:
        score = benchmark.score(case.task, case.text) if case.text else None
        steps = score.detail["steps"] if score else 0
        return Verdict(bool(score and score.success), score.reason if score else "", steps)

    return judge


def official(data_dir: pathlib.Path | None, clones: pathlib.Path) -> Judge:
    """`AlfredTWEnv`'s environment for evaluation (`init_env`)."""
    module = engine._import("alfworld.agents.environment.alfred_tw_env")
    textworld, gym = importlib.import_module("textworld"), importlib.import_module("textworld.gym")

    def judge(case: Case) -> Verdict:
        game, way = case.given
        name = gym.register_games(
            [str(game.path)],
            textworld.EnvInfos(won=True, admissible_commands=True, extras=["gamefile"]),
            batch_size=1,
            asynchronous=False,
            max_episode_steps=LIMIT,
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

    return judge
