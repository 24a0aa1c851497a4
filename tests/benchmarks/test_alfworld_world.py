"""The games' rules against the official engine's texts, and the expert's plans."""

import itertools

import pytest

from genenv_jax.benchmarks.alfworld import commands, expert, pddl, tasks
from genenv_jax.benchmarks.alfworld.world import World, entity_names
from tests.benchmarks import alfworld_toys
from tests.benchmarks.alfworld_toys import PLAN, PROBLEM


def toy(grammar: str = commands.PUT_IN_ON) -> World:
    return World(pddl.parse(PROBLEM), grammar)


def wins(world: World, way: list[str]) -> bool:
    """Whether the last command, and none before, wins a game."""
    world, won = world.copy(), []
    for command in way:
        world.apply(command)
        won.append(world.won())
    return won == [False] * (len(way) - 1) + [True]


def test_names_are_numbered_from_the_highest_down():
    entities = {"desk_bar__minus_1", "desk_bar__plus_2", "sink_bar_1_bar_sinkbasin", "agent1"}
    names = entity_names(entities)
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
    opened = "You open the drawer 2. The drawer 2 is open. In it, you see a mug 1."
    assert world.apply("open drawer 2") == opened
    assert "take mug 1 from drawer 2" in world.admissible()
    assert world.apply("take mug 1 from drawer 2") == "You pick up the mug 1 from the drawer 2."
    assert world.apply("inventory") == "You are carrying: a mug 1."
    assert world.apply("examine drawer 2") == "The drawer 2 is open. In it, you see nothing."
    assert world.apply("go to desk 1") == "On the desk 1, you see a desklamp 1."
    assert "clean mug 1 with sinkbasin 1" in world.admissible()  # it is at the same place
    assert world.apply("put mug 1 in/on desk 1") == "You put the mug 1 in/on the desk 1."
    assert not world.won()  # not clean
    world.apply("take mug 1 from desk 1")
    cleaned = world.apply("clean mug 1 with sinkbasin 1")
    assert cleaned == "You clean the mug 1 using the sinkbasin 1."
    world.apply("put mug 1 in/on desk 1")
    assert world.won()
    with pytest.raises(ValueError, match="not possible"):
        world.apply("open drawer 1")


def test_the_grammar_of_the_newer_version():
    world = toy(commands.MOVE_TO)
    arrived = world.apply("go to desk 1")
    assert arrived == "You arrive at desk 1. On the desk 1, you see a desklamp 1."
    assert "help" in world.admissible()
    plan = expert.walkthrough(world)
    assert "move mug 1 to desk 1" in plan and wins(world, plan)


def test_the_expert():
    world = toy()
    assert expert.walkthrough(world, informed=True) == PLAN and wins(world, PLAN)
    explored = expert.walkthrough(world)
    assert explored == ["go to desk 1", "go to drawer 1", "open drawer 1", *PLAN]
    likely = {("mug", "drawer"): 1.0}
    assert expert.walkthrough(world, likely)[0] == "go to drawer 1"
    assert toy().overview() == world.overview() and world.held is None  # it is unchanged


def test_no_plan_is_an_error():
    with pytest.raises(expert.NoPlan, match="there is no mug"):
        expert.walkthrough(World(pddl.parse(PROBLEM.replace("(pickupable Mug_bar_1)", ""))))
    kitchen = alfworld_toys.kitchen("valid_train", alfworld_toys.HOT_APPLE)
    for name in ("heatable", "MicrowaveType"):
        with pytest.raises(expert.NoPlan, match="there is no (apple|microwave)"):
            expert.walkthrough(World(pddl.parse(kitchen.replace(name, "nothing"))))


@pytest.mark.parametrize("text", ["", "(", ")", "(define)", "(define (:init) )", "()" * 9, "(" * 100, "x"])
def test_what_is_no_problem(text):
    with pytest.raises(ValueError, match=r"expected|brackets"):
        pddl.parse(text)


def test_every_game_is_won_within_fifty_steps(alfworld_dir):
    directory = tasks.find_directory(alfworld_dir)
    games = {split: tasks.load(directory, split) for split in tasks.available(directory)}
    worlds = {split: [game.world() for game in of] for split, of in games.items()}
    likely = expert.likelihood(worlds["valid_train"])
    for world in itertools.chain(*worlds.values()):
        assert 0 < len(expert.walkthrough(world, informed=True)) <= 50
        assert 0 < len(expert.walkthrough(world, likely)) <= 50


# By hand: the held-out games' kitchen.
SHORT_WAYS = {
    "look_at_obj_in_light": "go to microwave 1, open microwave 1, take book 1 from microwave 1, "
    "go to desk 1, use desklamp 1",
    "pick_and_place_simple": "go to microwave 1, open microwave 1, take book 1 from microwave 1, "
    "go to cabinet 1, open cabinet 1, put book 1 in/on cabinet 1",
    "pick_clean_then_place_in_recep": "go to diningtable 1, take plate 1 from diningtable 1, "
    "go to sinkbasin 1, clean plate 1 with sinkbasin 1, go to countertop 1, put plate 1 in/on countertop 1",
    "pick_heat_then_place_in_recep": "go to countertop 1, take apple 1 from countertop 1, "
    "go to microwave 1, heat apple 1 with microwave 1, go to desk 1, put apple 1 in/on desk 1",
    "pick_cool_then_place_in_recep": "go to countertop 1, take apple 1 from countertop 1, "
    "go to fridge 1, cool apple 1 with fridge 1, go to countertop 1, put apple 1 in/on countertop 1",
    "pick_two_obj_and_place": "go to countertop 1, take apple 1 from countertop 1, go to desk 1, "
    "put apple 1 in/on desk 1, go to cabinet 1, open cabinet 1, take apple 2 from cabinet 1, "
    "go to desk 1, put apple 2 in/on desk 1",
}  # fmt: skip


def test_an_informed_expert_takes_the_short_way_in_each_type_of_task(tmp_path):
    directory = alfworld_toys.write(tmp_path)
    for game in tasks.load(directory, "valid_unseen"):
        way = expert.walkthrough(game.world(), informed=True)
        short = SHORT_WAYS[game.task_type].split(", ")
        assert len(way) == len(short)
        assert wins(game.world(), way) and wins(game.world(), short)


def test_what_only_some_games_have(tmp_path):
    """Heating undoes cooling and vice versa; a knife slices; an empty hand holds nothing."""
    world = World(pddl.parse(alfworld_toys.kitchen("valid_unseen", alfworld_toys.HOT_APPLE)))
    assert world.apply("inventory") == "You are not carrying anything."
    for command in ("go to countertop 1", "take apple 1 from countertop 1", "go to microwave 1"):
        world.apply(command)
    assert "examine apple 1" in world.admissible()
    heated = world.apply("heat apple 1 with microwave 1")
    assert heated == "You heat the apple 1 using the microwave 1."
    hot = world.copy()
    hot.apply("go to fridge 1")
    hot.apply("cool apple 1 with fridge 1")
    for each, won in ((world, True), (hot, False)):
        each.apply("go to desk 1")
        each.apply("put apple 1 in/on desk 1")
        assert each.won() is won
    world.apply("go to diningtable 1")
    world.apply("take knife 1 from diningtable 1")
    world.apply("go to desk 1")
    assert "slice apple 1 with knife 1" in world.admissible()
    assert world.apply("slice apple 1 with knife 1") == "You sliced the apple 1 with the knife 1."
    assert world.apply("examine knife 1") == "There's nothing special about knife 1."
    assert world.apply("look") == "You are facing the desk 1. Next to it, you see nothing."
    world.apply("put knife 1 in/on desk 1")
    world.apply("take apple 1 from desk 1")
    assert world.apply("examine apple 1") == "This is a hot sliced apple 1."
    with pytest.raises(ValueError, match="'slice apple 1 with knife 1' is not possible"):
        world.apply("slice apple 1 with knife 1")
    world.apply("go to cabinet 1")
    world.apply("open cabinet 1")
    assert world.apply("close cabinet 1") == "You close the cabinet 1."
    with pytest.raises(ValueError, match="none of ALFWorld's six kinds"):
        World(pddl.parse(alfworld_toys.kitchen("valid_unseen", "(isClean mug)")))
