"""The real engine: skipped where `alfworld` and `textworld` are not installed.

    pip install alfworld textworld
    ALFWORLD_GAMES=134 python -m pytest -m slow tests/benchmarks/test_alfworld_engine.py

`WALKTHROUGHS` has the official expert's commands (HandCodedTWAgent, at most 150 steps) in the 134 games
in alfworld 0.4.2's grammar, and whether the official engine called the game won.
"""

import json
import os
import pickle
import random
import re

import pytest

from bench.agreement.alfworld_walkthroughs import WALKTHROUGHS
from genenv_jax.benchmarks.alfworld import commands, engine, expert, tasks
from genenv_jax.benchmarks.alfworld.benchmark import ALFWorld
from genenv_jax.benchmarks.alfworld.world import NOTHING_HAPPENS, World
from genenv_jax.benchmarks.base import Task
from tests.benchmarks.alfworld_rooms import differences, drawn
from tests.benchmarks.alfworld_toys import write_game

pytestmark = [
    pytest.mark.slow,
    pytest.mark.data,
    pytest.mark.skipif(not engine.is_installed(), reason="needs the engine: pip install alfworld textworld"),
]


def follow(running: engine.Engine, world: World) -> None:
    """Follows the expert in both, which must agree at each step."""
    for command in expert.walkthrough(world):
        assert list(running.admissible) == list(world.admissible())
        assert running.step(command) == world.apply(command)
        assert running.won == world.won()
    assert running.won


@pytest.fixture(scope="module")
def directory(data_dir):
    return tasks.find_directory(data_dir)


@pytest.mark.parametrize("grammar", commands.GRAMMARS)
def test_the_rules_are_the_engines(grammar, directory):
    """Compares every text and every list of commands along the expert's walkthrough."""
    found = tasks.load(directory, "valid_unseen")
    for game in (found[0], found[60]):
        running = engine.Engine(game, grammar)
        assert (running.overview, running.goal) == (game.world(grammar).overview(), game.goal)
        follow(running, game.world(grammar))
        running.close()


@pytest.mark.parametrize("grammar", commands.GRAMMARS)
def test_written_games_are_the_same_by_the_rules_and_on_the_engine(grammar, directory):
    """Overviews, commands and texts agree along the expert's plans, with looks in between; both win."""
    benchmark = ALFWorld(data_dir=directory, episodes=True, max_seeds=6)
    assert benchmark.isolated and isinstance(benchmark.open_game, engine.Engines)
    # Tasks are parsed and verified; verification plays them on the engine.
    found = [task for _, task in drawn(benchmark, 6, random.Random(4)) if isinstance(task, Task)]
    assert len(found) >= 3
    for number, task in enumerate(found):
        assert differences(benchmark, task, benchmark.open_game, grammar, number) == []


def test_games_do_not_disturb_each_other(directory):
    """Several in one process, interleaved."""
    found = tasks.load(directory, "valid_unseen")[:2]
    worlds = [game.world() for game in found]
    ways = [expert.walkthrough(world) for world in worlds]
    running = [engine.Engine(game, commands.PUT_IN_ON) for game in found]
    for step in range(max(map(len, ways))):
        for world, way, game in zip(worlds, ways, running, strict=True):
            if step < len(way):
                assert game.step(way[step]) == world.apply(way[step])
    assert all(game.won for game in running)


def test_an_environment_is_used_again(directory):
    """Texts equal those of a fresh one, without a second copy of Fast Downward's library."""
    found = tasks.load(directory, "valid_unseen")[:2]
    open_game = engine.Engines()
    first = open_game(found[0], commands.PUT_IN_ON)
    first.step("go to desk 1")
    first.close()
    assert first.step("look") == NOTHING_HAPPENS
    second = open_game(found[1], commands.PUT_IN_ON)
    assert open_game._idle == []
    follow(second, found[1].world())
    second.close()
    assert len(open_game._idle) == 1 and pickle.loads(pickle.dumps(open_game))._idle == []


def test_versions_and_grammar_are_told(directory):
    about = ALFWorld(data_dir=directory, eval_protocol="episode", grammar="move_to").about()
    assert about["engine"].startswith("alfworld 0.") and "textworld 1." in about["engine"]
    assert "'move X to Y'" in about["grammar"] and "50 steps" in about["protocol"]


def test_a_game_that_cannot_be_opened(tmp_path):
    write_game(tmp_path, "valid_unseen", pddl_domain="(define")
    game = tasks.load(tmp_path, "valid_unseen")[0]
    with pytest.raises(ValueError, match="the engine cannot open it"):
        engine.Engine(game, commands.PUT_IN_ON)


@pytest.mark.parametrize("grammar", ["games", "move_to"])
def test_verdicts_of_the_official_expert(grammar, directory):
    """`won` and the number of steps equal the official engine's.  All games: ALFWORLD_GAMES=134.

    In a sample, each grammar plays every other game.
    """
    recorded = json.loads(WALKTHROUGHS.read_text())["games"]
    options = {"eval_protocol": "episode", "grammar": grammar, "max_steps": 151}
    benchmark = ALFWorld(data_dir=directory, **options)
    stride = max(1, 134 // int(os.environ.get("ALFWORLD_GAMES", "8")))
    played = benchmark.tasks("eval")[::stride]
    for task in played if stride == 1 else played[grammar == "move_to" :: 2]:
        record = recorded[task.id]
        written = record["commands"].split(", ")
        if grammar == "games":
            # The older grammar has neither the other put command nor `help`.
            written = [re.sub("move (.+) to (.+)", r"put \1 in/on \2", command) for command in written]
        score = benchmark.episode(task).play(f"Action: {command}" for command in written)
        assert score.success == record["won"], task.id
        if record["won"]:
            assert score.detail["steps"] == len(written), task.id


def test_our_ways_win(directory):
    """Within 50 steps.  All games: ALFWORLD_GAMES=134."""
    benchmark = ALFWorld(data_dir=directory, eval_protocol="episode")
    stride = max(1, 134 // int(os.environ.get("ALFWORLD_GAMES", "8")))
    for task in benchmark.tasks("eval")[::stride]:
        world = benchmark._game(task).world()
        for way in (expert.walkthrough(world, benchmark.likely), expert.walkthrough(world, informed=True)):
            score = benchmark.episode(task).play(f"Action: {command}" for command in way)
            assert score.success and score.detail["steps"] == len(way)
            assert not score.detail["inadmissible"]
