"""Rooms that a simulator writes: the gate, the expert, and the resulting games."""

import collections
import json
import pathlib
import random
import re

import pytest

from bench.bad_answers.common import HOSTILE
from genenv_jax.benchmarks import base
from genenv_jax.benchmarks.alfworld import expert, games, kinds, pddl, rooms, tasks
from genenv_jax.benchmarks.alfworld.benchmark import ALFWorld
from genenv_jax.benchmarks.alfworld.chores import CHORES
from genenv_jax.benchmarks.alfworld.world import World
from genenv_jax.benchmarks.base import Rejection, Task
from tests.benchmarks.alfworld_rooms import SPOILED, draw, drawn, spoiled

ROOM = {
    "goal": {"task": "clean", "object": "mug", "place": "desk"},
    "places": {
        "desk 1": ["book 1"], "cabinet 4": ["mug 7"], "cabinet 2": [], "sinkbasin 1": [], "fridge 1": [],
    },
    "closed": ["cabinet 4"],
}  # fmt: skip


@pytest.fixture(scope="module")
def benchmark(alfworld_games) -> ALFWorld:
    return alfworld_games


def world_of(room: rooms.Room) -> World:
    return World(pddl.parse(room.problem()))


def test_a_room_becomes_a_game():
    room = rooms.read(ROOM)
    assert room.to_json()["places"] == {
        "cabinet 1": [], "cabinet 2": ["mug 1"], "desk 1": ["book 1"], "fridge 1": [], "sinkbasin 1": [],
    }  # fmt: skip
    assert room.to_json()["closed"] == ["cabinet 2", "fridge 1"]
    assert rooms.read(room.to_json()) == room
    world = world_of(room)
    seen = "you see a cabinet 2, a cabinet 1, a desk 1, a fridge 1, and a sinkbasin 1."
    assert world.overview().endswith(seen)
    assert room.sentence() == "put a clean mug in desk"
    assert expert.walkthrough(world, informed=True) == [
        "go to cabinet 2", "open cabinet 2", "take mug 1 from cabinet 2", "go to sinkbasin 1",
        "clean mug 1 with sinkbasin 1", "go to desk 1", "put mug 1 in/on desk 1",
    ]  # fmt: skip
    assert not world.won()


def test_the_documented_room_is_one(benchmark):
    text = (pathlib.Path(__file__).parents[2] / "docs" / "benchmarks.md").read_text()
    examples = re.findall(r"```json\n(.*?)\n```", text, re.DOTALL)
    (example,) = (found for found in examples if '"places"' in found)
    task = benchmark.parse(example, benchmark.tasks("seed")[0], "d", 0)
    assert isinstance(task, Task) and benchmark.verify(task) is None
    reasons = {reason for _, reason in SPOILED.values()}
    assert all(f"`{reason}`" in text for reason in reasons - {base.NOT_TEXT})


def test_random_rooms(benchmark):
    """An accepted room's stored plan wins, and its written form reads back the same."""
    rng = random.Random(1)
    reasons = collections.Counter()
    for room, task in drawn(benchmark, 60, rng):
        if isinstance(task, Rejection):
            reasons[task.reason] += 1
            continue
        reasons["accepted"] += 1
        assert benchmark.score(task, benchmark.agent_answer(task)).success
        written = benchmark.simulator_answer(task)
        seed = next(s for s in benchmark.tasks("seed") if s.id == task.seed_id)
        assert benchmark.parse(written, seed, task.id, 0) == task
        assert rooms.read(room).to_json() == json.loads(written)
        assert benchmark.difficulty(task) >= 3
        goal = room["goal"]
        assert benchmark.signature(task) == f"{goal['task']} {goal['object']} {goal['place']}"
        assert task.category == CHORES[goal["task"]].task_type
    assert set(reasons) <= {"accepted", rooms.SOLVED, games.UNSOLVABLE}
    assert reasons["accepted"] >= 40 and len(reasons) == 3


def test_spoiled_rooms_are_turned_away_for_the_right_reason(benchmark):
    rng = random.Random(2)
    found = [room for room, task in drawn(benchmark, 30, rng) if isinstance(task, Task)]
    seed = benchmark.tasks("seed")[0]
    wrong = []
    for name, text, reason in spoiled(found, 4 * len(SPOILED), rng):
        outcome = benchmark.parse(text, seed, "s", 0)
        if not isinstance(outcome, Rejection) or outcome.reason != reason:
            wrong.append((name, outcome))
    assert wrong == []


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_rooms(name, benchmark):
    seed = benchmark.tasks("seed")[0]
    for text in (HOSTILE[name], json.dumps({**ROOM, "goal": HOSTILE[name]}), json.dumps(
            {**ROOM, "places": {HOSTILE[name]: [HOSTILE[name]]}})):  # fmt: skip
        assert isinstance(benchmark.parse(text, seed, "h", 0), Rejection)


@pytest.mark.parametrize(
    "value",
    [
        None, [], {}, {"goal": {}, "places": {}}, {**ROOM, "goal": "put a mug in desk"},
        {**ROOM, "places": {}}, {**ROOM, "places": {"desk 1": "mug 1"}}, {**ROOM, "closed": {}},
        {**ROOM, "goal": {**ROOM["goal"], "object": ["mug"]}}, {**ROOM, "closed": [1]},
    ],
)  # fmt: skip
def test_what_is_no_room(value):
    assert rooms.read(value).reason == base.UNPARSABLE


def test_rooms_that_are_alike():
    """Other numbers or another order do not make a different room; another place does."""
    room = rooms.read(ROOM)
    places = dict(reversed(ROOM["places"].items()))
    places["cabinet 9"] = places.pop("cabinet 2")
    assert rooms.read({**ROOM, "places": places}).description() == room.description()
    places["desk 1"], places["cabinet 9"] = [], ["book 1"]
    assert rooms.read({**ROOM, "places": places}).description() != room.description()


# -- the expert -------------------------------------------------------------------------------------------


def _breadth_first(world: World, most: int) -> int | None:
    """Length of a shortest plan, by exhaustive search; 0: none exists; None: unknown after `most` states."""

    def key(w: World):
        return (w.here, w.held, frozenset(w.opened), frozenset(w.inside),
                *(frozenset(members) for members in w.states.values()))  # fmt: skip

    idle = ("look", "inventory", "examine", "examine_object", "close", "slice")
    level, known, length = [world], {key(world)}, 0
    while level and len(known) < most:
        if any(state.won() for state in level):
            return length
        following = []
        for state in level:
            for action in state.admissible().values():
                if action[0] in idle:
                    continue
                after = state.copy()
                after.act(action)
                if key(after) not in known:
                    known.add(key(after))
                    following.append(after)
        level, length = following, length + 1
    return None if level else 0


def test_the_expert_wins_what_can_be_won():
    """Compared with exhaustive search in small rooms; informed, it takes at most two more steps."""
    rng = random.Random(3)
    compared = collections.Counter()
    while min(compared[True], compared[False]) < 6:
        value = draw(rng)
        if len(value["places"]) > 5 or sum(map(len, value["places"].values())) > 4:
            continue
        world = world_of(rooms.read(value))
        length = _breadth_first(world, 3_000)
        if world.won() or length is None:
            continue
        compared[length > 0] += 1
        if length:
            assert length <= len(expert.walkthrough(world, informed=True)) <= length + 2, value
            expert.walkthrough(world)
        for informed in () if length else (True, False):
            with pytest.raises(expert.NoPlan):
                expert.walkthrough(world, informed=informed)


def test_a_game_that_takes_too_long_is_turned_away(benchmark):
    options = {"episodes": True, "played_on": "rules", "train_steps": 6}
    short = ALFWorld(data_dir=benchmark.data_dir, **options)
    found = short.parse(json.dumps(ROOM), short.tasks("seed")[0], "u", 0)
    assert found.reason == games.TOO_MANY_STEPS and found.detail.endswith("an episode has 6")


# -- published games as rooms -------------------------------------------------------------------------------


@pytest.mark.data
def test_published_games_are_rooms(data_dir):
    """Every game, with its own chore."""
    directory = tasks.find_directory(data_dir)
    for split in tasks.available(directory):
        for game in tasks.load(directory, split):
            room = games.compact(game.world())
            assert CHORES[room.task].task_type == game.task_type
            assert len(json.dumps(room.to_json())) < 800


@pytest.mark.data
def test_the_kinds_are_those_of_the_published_games(data_dir):
    for game in tasks.load(tasks.find_directory(data_dir), "valid_train"):
        world = game.world()
        for place, thing in world.can_contain:
            assert thing in kinds.HOLDS[place]
        for flag, those in kinds.FLAGS.items():
            for thing in world.flags["pickupable"]:
                kind = world.object_kind[thing]
                if kind in kinds.OBJECTS:
                    assert (thing in world.flags[flag]) == (kind in those), (flag, kind)
        openable = {world.receptacle_kind[r] for r in world.flags["openable"]}
        assert openable <= kinds.CLOSED | kinds.CLOSABLE
