"""ALFWorld's published games: counts, and the rules against the official engine's recorded answers."""

import json

import pytest

from bench.agreement.alfworld_walkthroughs import WALKTHROUGHS
from genenv_jax.benchmarks.alfworld import commands, tasks
from genenv_jax.benchmarks.alfworld.benchmark import ALFWorld
from genenv_jax.benchmarks.alfworld.chores import TASK_TYPES

pytestmark = pytest.mark.data

# By type, in the order of `TASK_TYPES`; valid_seen is not in every copy.
COUNTS = {
    "valid_unseen": (24, 18, 31, 23, 21, 17),
    "valid_seen": (35, 13, 27, 16, 25, 24),
    "valid_train": (46, 19, 37, 25, 28, 45),
}


@pytest.mark.parametrize("split", COUNTS)
def test_games_of_a_split(split, data_dir):
    directory = tasks.find_directory(data_dir)
    if split not in tasks.available(directory):
        pytest.skip(f"{directory} has no {split}")
    found = tasks.load(directory, split)
    kinds = [game.task_type for game in found]
    assert tuple(kinds.count(kind) for kind in TASK_TYPES) == COUNTS[split]
    assert len(found) == tasks.OFFICIAL_COUNTS.get(split, 200)
    assert len({game.id for game in found}) == len(found)


def test_steps_of_the_published_files(data_dir):
    benchmark = ALFWorld(data_dir=data_dir, verify_files=True)
    held_out = benchmark.tasks("eval")
    assert len(held_out) == 1075 and len({task.answer["game"] for task in held_out}) == 134
    assert len(benchmark.tasks("seed")) == 1548  # of 200 games


@pytest.fixture(scope="module")
def official_games(data_dir):
    directory = tasks.find_directory(data_dir)
    return directory, {game.id: game for game in tasks.load(directory, "valid_unseen")}


def test_the_official_expert_wins_and_loses_the_same_games(official_games):
    """134 games, 4,067 commands: `won` after the last command equals the official engine's."""
    _, found = official_games
    recorded = json.loads(WALKTHROUGHS.read_text())["games"]
    assert set(recorded) == set(found) and len(found) == 134
    wrong = []
    for name, record in recorded.items():
        world = found[name].world(commands.MOVE_TO)
        wins = []
        for command in record["commands"].split(", "):
            assert command in world.admissible(), (name, command)
            action = world.admissible()[command][0]
            if command not in ("look", "help") and action != "examine_object":
                world.apply(command)
            wins.append(world.won())
        if any(wins[:-1]) or wins[-1] != record["won"]:
            wrong.append(name)
    assert wrong == []
    won = [len(r["commands"].split(", ")) for r in recorded.values() if r["won"]]
    assert len(won) == 124 and sum(steps <= 50 for steps in won) == 119


def test_the_rules_say_what_the_engine_said(official_games):
    """Every engine answer in 120 recorded games (grammar 0.4) that the rules determine."""
    directory, found = official_games
    path = directory / "DERIVED" / "handcoded_expert_valid_unseen_partial.jsonl"
    if not path.is_file():
        pytest.skip(f"no recorded answers at {path}")
    compared = 0
    for line in path.read_text().splitlines():
        record = json.loads(line)
        world = found[record["rel"]].world(commands.MOVE_TO)
        for command, observation in zip(record["actions"], record["observations"], strict=True):
            action = world.admissible()[command]
            if action[0] in ("look", "help", "examine_object"):
                continue
            assert world.apply(command) == observation
            compared += 1
    assert compared > 1500
