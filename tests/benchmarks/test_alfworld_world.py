"""The rules of the games against the official engine's words, and the expert's ways."""

import json
import pathlib

import pytest

from genenv_jax.benchmarks.alfworld import commands, expert, games, pddl
from genenv_jax.benchmarks.alfworld.world import World, entity_names
from tests.benchmarks.alfworld_toys import PLAN, PROBLEM

OFFICIAL = pathlib.Path(__file__).with_name("alfworld_walkthroughs.json")


def toy(grammar: str = commands.PUT_IN_ON) -> World:
    return World(pddl.parse(PROBLEM), grammar)


def test_names_are_numbered_from_the_highest_down():
    names = entity_names(
        {"desk_bar__minus_1", "desk_bar__plus_2", "sink_bar_1_bar_sinkbasin", "agent1"}
    )
    assert names == {
        "desk_bar__minus_1": "desk 2", "desk_bar__plus_2": "desk 1",
        "sink_bar_1_bar_sinkbasin": "sinkbasin 1", "agent1": "agent1",
    }  # fmt: skip


def test_a_game_by_the_rules():
    world = toy()
    assert world.overview() == (
        "You are in the middle of a room. Looking quickly around you, you see a desk 1, "
        "a drawer 2, a drawer 1, and a sinkbasin 1."
    )
    assert world.apply("go to drawer 2") == "The drawer 2 is closed."
    assert world.apply("open drawer 2") == (
        "You open the drawer 2. The drawer 2 is open. In it, you see a mug 1."
    )
    assert "take mug 1 from drawer 2" in world.admissible()
    assert world.apply("take mug 1 from drawer 2") == "You pick up the mug 1 from the drawer 2."
    assert world.apply("inventory") == "You are carrying: a mug 1."
    assert world.apply("examine drawer 2") == "The drawer 2 is open. In it, you see nothing."
    assert world.apply("go to desk 1") == "On the desk 1, you see a desklamp 1."
    assert "clean mug 1 with sinkbasin 1" in world.admissible()  # it is at the same place
    assert world.apply("put mug 1 in/on desk 1") == "You put the mug 1 in/on the desk 1."
    assert not world.won()  # it is not clean
    world.apply("take mug 1 from desk 1")
    assert (
        world.apply("clean mug 1 with sinkbasin 1") == "You clean the mug 1 using the sinkbasin 1."
    )
    world.apply("put mug 1 in/on desk 1")
    assert world.won()
    with pytest.raises(ValueError, match="not possible"):
        world.apply("open drawer 1")


def test_the_grammar_of_the_newer_version():
    world = toy(commands.MOVE_TO)
    assert (
        world.apply("go to desk 1") == "You arrive at desk 1. On the desk 1, you see a desklamp 1."
    )
    assert "help" in world.admissible()
    plan = [commands.translate(command, commands.MOVE_TO) for command in PLAN]
    assert expert.walkthrough(toy(commands.MOVE_TO), expert.PLANNER) == plan


def test_both_experts():
    world = toy()
    assert expert.walkthrough(world, expert.PLANNER) == PLAN
    explored = expert.walkthrough(world)
    assert explored == ["go to desk 1", "go to drawer 1", "open drawer 1", *PLAN]
    likely = {("mugtype", "drawertype"): 1.0}
    assert expert.walkthrough(world, expert.EXPLORER, likely)[0] == "go to drawer 1"
    assert toy().overview() == world.overview() and world.held is None  # it was not changed


def test_no_plan_is_an_error():
    with pytest.raises(expert.NoPlan, match="no mugtype"):
        expert.walkthrough(World(pddl.parse(PROBLEM.replace("(pickupable Mug_bar_1)", ""))))


@pytest.mark.parametrize(
    "text", ["", "(", ")", "(define)", "(define (:init) )", "()" * 9, "(" * 100, "x"]
)
def test_what_is_no_problem(text):
    with pytest.raises(ValueError, match=r"expected|brackets"):
        pddl.parse(text)


@pytest.fixture(scope="module")
def official_games(data_dir):
    directory = games.find_directory(data_dir)
    return directory, {
        game.id: game for game in games.load(directory, ["valid_unseen"])["valid_unseen"]
    }


def test_the_official_expert_wins_and_loses_the_same_games(official_games):
    """134 games, 4,067 commands: `won` after the last command is the official engine's."""
    _, found = official_games
    recorded = json.loads(OFFICIAL.read_text())["games"]
    assert set(recorded) == set(found) and len(found) == 134
    wrong = []
    for name, record in recorded.items():
        world = World(found[name].problem(), commands.MOVE_TO)
        wins = []
        for command in record["commands"].split(", "):
            assert command in world.admissible(), (name, command)
            if (
                command not in ("look", "help")
                and world.admissible()[command][0] != "examine_object"
            ):
                world.apply(command)
            wins.append(world.won())
        if any(wins[:-1]) or wins[-1] != record["won"]:
            wrong.append(name)
    assert wrong == []
    won = [len(r["commands"].split(", ")) for r in recorded.values() if r["won"]]
    assert len(won) == 124 and sum(steps <= 50 for steps in won) == 119


def test_the_rules_say_what_the_engine_said(official_games):
    """Every answer of the engine in 120 recorded games (grammar 0.4), where the rules tell one."""
    directory, found = official_games
    path = directory / "DERIVED" / "handcoded_expert_valid_unseen_partial.jsonl"
    if not path.is_file():
        pytest.skip(f"no recorded answers at {path}")
    compared = 0
    for line in path.read_text().splitlines():
        record = json.loads(line)
        world = World(found[record["rel"]].problem(), commands.MOVE_TO)
        for command, observation in zip(record["actions"], record["observations"], strict=True):
            action = world.admissible()[command]
            if action[0] in ("look", "help", "examine_object"):
                continue
            assert world.apply(command) == observation
            compared += 1
    assert compared > 1500


@pytest.mark.parametrize("name", expert.EXPERTS)
def test_the_expert_wins_every_game_within_fifty_steps(name, data_dir):
    directory = games.find_directory(data_dir)
    worlds = {
        game.id: World(game.problem())
        for part in games.load(directory, games.available(directory)).values()
        for game in part
    }
    likely = expert.likelihood(w for name, w in worlds.items() if "train" in name.split("/")[0])
    lengths = [len(expert.walkthrough(world, name, likely)) for world in worlds.values()]
    assert len(lengths) >= 334 and max(lengths) <= 50
