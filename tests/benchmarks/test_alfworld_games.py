"""Whole games: attempts at them, in one message or in a growing conversation, and games as seeds."""

import contextlib
import dataclasses

import pytest

from bench.bad_answers.common import HOSTILE
from genenv_jax.benchmarks import base
from genenv_jax.benchmarks.alfworld import engine, episode
from genenv_jax.benchmarks.alfworld.benchmark import ALFWorld
from genenv_jax.benchmarks.alfworld.prompts import LEFT_OUT, PROMPT_CHARS
from genenv_jax.benchmarks.alfworld.world import NOTHING_HAPPENS
from genenv_jax.benchmarks.base import SeedStatistics
from genenv_jax.scoring.worker import Worker
from tests.benchmarks import alfworld_toys
from tests.benchmarks.alfworld_toys import FakeGame


@pytest.fixture(scope="module")
def directory(alfworld_games):
    return alfworld_games.data_dir


@pytest.fixture(scope="module")
def written(alfworld_games) -> base.Task:
    """A game that a simulator wrote."""
    seed = next(t for t in alfworld_games.tasks("seed") if t.category == "pick_and_place_simple")
    text = alfworld_games.simulator_answer(seed).replace("book", "candle")
    task = alfworld_games.parse(text, seed, "new", 3)
    assert alfworld_games.verify(task) is None
    return task


# -- one message with the history -------------------------------------------------------------------------


@pytest.fixture
def toy(tmp_path) -> ALFWorld:
    """Trained on steps; a game is held out."""
    alfworld_toys.write_game(tmp_path, "valid_train", pddl_problem=alfworld_toys.OTHER_PROBLEM)
    alfworld_toys.write_game(tmp_path, "valid_unseen")
    benchmark = ALFWorld(data_dir=tmp_path, max_steps=4, eval_protocol="episode", played_on="rules")
    benchmark.open_game = FakeGame
    return benchmark


def test_held_out_games_beside_seeds_of_steps(toy):
    task = toy.tasks("eval")[0]
    assert toy.is_interactive(task) and {s.answer["kind"] for s in toy.tasks("seed")} == {"step"}
    assert set(task.answer) == {"kind", "game", "split"}
    assert toy.canonical(task) == f"game {task.id}" and toy.difficulty(task) >= 2.0


def test_a_game_that_is_won(toy):
    task = toy.tasks("eval")[0]
    running = toy.episode(task)
    first = running.messages()[1]["content"]
    assert "You see a drawer 1." in first and "\nopen drawer 1\n" in first
    assert running.step("Action: dance 1") is None
    assert [m["role"] for m in running.messages()] == ["system", "user"]
    assert "> dance 1\nNothing happens." in running.messages()[1]["content"]
    score = running.step("I open it.\nAction: open drawer 1")
    assert score == base.Score(1.0, True, True, "", {
        "steps": 2, "inadmissible": 1, "task_type": task.category, "grammar": "put_in_on",
    })  # fmt: skip
    running.close()
    assert running._game.closed


@pytest.mark.parametrize(
    ("answer", "valid", "reason"), [("look", True, base.STEP_LIMIT), ("", False, base.EMPTY)]
)
def test_a_game_that_is_lost(answer, valid, reason, toy):
    running = toy.episode(toy.tasks("eval")[0])
    *before, last = [running.step(answer) for _ in range(4)]
    assert before == [None] * 3
    assert (last.success, last.valid, last.reason) == (False, valid, reason)
    assert last.detail["steps"] == 4


def test_a_long_history_fits_the_prompt(toy):
    toy.max_steps = 10_000
    running = toy.episode(toy.tasks("eval")[0])
    for number in range(500):
        running.step(f"go to place {number}" if number % 2 else "go to drawer 1")
        assert sum(len(m["content"]) for m in running.messages()) <= PROMPT_CHARS
    text = running.messages()[1]["content"]
    assert LEFT_OUT in text
    assert "You see a drawer 1." in text and "> go to place 499\nNothing happens." in text


def test_a_whole_game_as_one_answer(toy):
    task = toy.tasks("eval")[0]
    assert toy.score(task, "Action: look\nAction: open drawer 1").success
    assert toy.score(task, "Action: look").reason == base.STEP_LIMIT
    assert not toy.score(task, "dance").valid
    assert toy.agent_answer(task).startswith("Action: go to desk 1\nAction: go to drawer 1\n")


def test_a_game_in_a_worker_process(toy):
    (task,) = toy.tasks("eval")
    with contextlib.closing(Worker(toy, timeout=20.0)) as worker:
        for answers in ((), ("look",)):
            assert isinstance(worker.ask("episode", ((0, 0), task, answers)), list)
        score = worker.ask("episode", ((0, 0), task, ("look", "open drawer 1")))
        assert score.success and score.detail["steps"] == 2


# -- both forms -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grows", [False, True])
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_answers(bounded, name, grows, toy, alfworld_games):
    benchmark = alfworld_games if grows else toy
    task = benchmark.tasks("eval")[0]
    running = benchmark.episode(task)
    before = running.messages()
    for _ in range(3):
        assert running.step(HOSTILE[name]) is None
    after = running.messages()
    if grows:
        assert after[:2] == before and after[2]["content"] == HOSTILE[name]
        assert len(after[3]["content"]) <= episode.MAX_OBSERVATION
    else:
        assert sum(len(m["content"]) for m in after) <= PROMPT_CHARS
    score = running.stop()
    assert not score.success and not score.valid
    assert not benchmark.score(task, HOSTILE[name]).success


@pytest.mark.parametrize("grows", [False, True])
def test_an_environment_that_breaks_is_no_failure(grows, toy, alfworld_games):
    benchmark = alfworld_games if grows else toy
    running = benchmark.episode(benchmark.tasks("eval")[0])
    running._game.step = lambda command: 1 / 0
    score = running.step("Action: look")
    assert (score.reward, score.valid, score.reason) == (0.0, False, base.ENVIRONMENT_ERROR)


# -- a conversation that grows ----------------------------------------------------------------------------


@pytest.mark.parametrize("origin", ["seed", "generated", "eval"])
def test_a_conversation_grows_until_the_game_is_won(origin, alfworld_games, written):
    task = written if origin == "generated" else alfworld_games.tasks(origin)[0]
    assert task.origin == origin
    running = alfworld_games.episode(task)
    before = running.messages()
    assert [m["role"] for m in before] == ["system", "user"]
    assert before[1]["content"].startswith(task.messages[0]["content"])
    assert "You are in the middle of a room." in before[1]["content"]
    answers = alfworld_games.agent_answers(task)
    for answer in answers[:-1]:
        assert running.step(answer) is None
        after = running.messages()
        assert after[: len(before)] == before
        assert after[len(before)] == {"role": "assistant", "content": answer}
        assert [m["role"] for m in after[len(before) + 1 :]] == ["user"]
        before = after
    score = running.step(answers[-1])
    assert score.success and score.valid and score.detail["inadmissible"] == 0
    assert score.detail["steps"] == len(answers)


def test_what_is_not_possible_costs_a_step(alfworld_games, written):
    running = alfworld_games.episode(written)
    for _ in range(alfworld_games.train_steps - 1):
        assert running.step("Action: fly to the moon") is None
        assert running.messages()[-1]["content"] == NOTHING_HAPPENS
    score = running.step("Action: look")
    assert (score.reward, score.valid, score.reason) == (0.0, True, base.STEP_LIMIT)
    assert score.detail["inadmissible"] == alfworld_games.train_steps - 1


def test_observations_are_cut_and_answers_are_not(alfworld_games, written):
    running = alfworld_games.episode(written)
    running._game.step = lambda command: "long " * 1_000
    running.step("Action: look")
    assert len(running.messages()[-1]["content"]) == episode.MAX_OBSERVATION
    for _ in range(10):
        before = running.messages()
        running.step("x" * 2_000)
        assert running.messages()[: len(before)] == before
    assert sum(len(m["content"]) for m in running.messages()) > 20_000


# -- games as seeds ---------------------------------------------------------------------------------------


def test_seeds_are_games(alfworld_games):
    assert not alfworld_games.isolated
    seeds = alfworld_games.tasks("seed")
    assert [seed.id.split("-")[0] for seed in seeds] == [
        f"valid_train/{kind}" for kind in (
            "look_at_obj_in_light", "pick_and_place_simple", "pick_clean_then_place_in_recep",
            "pick_cool_then_place_in_recep",
        )
    ]  # fmt: skip
    for seed in seeds:
        assert alfworld_games.is_interactive(seed) and alfworld_games.verify(seed) is None
        assert alfworld_games.difficulty(seed) == len(alfworld_games.agent_answers(seed)) >= 4
    assert len({alfworld_games.canonical(seed) for seed in seeds}) == len(seeds)
    assert alfworld_games.signature(seeds[1]) == "put book cabinet"


def test_the_simulator_is_shown_a_room(alfworld_games):
    seed = alfworld_games.tasks("seed")[0]
    system, user = alfworld_games.simulator_messages(seed, SeedStatistics(8, 7))
    assert '{"goal": {"task": TASK, "object": KIND, "place": KIND}, "places"' in system["content"]
    room, record = user["content"].split("\n\n")
    assert room == alfworld_games.simulator_answer(seed) and "write a harder game" in record
    assert "\n" not in room and len(room) < 700
    # A seed's room copies the seed, whatever else its game has.
    copy = alfworld_games.parse(room, seed, "copy", 0)
    assert alfworld_games.canonical(copy) == alfworld_games.canonical(seed)


@pytest.mark.parametrize(
    "change",
    [
        {"plan": ["go to desk 1"]}, {"plan": ["fly away"]}, {"plan": []}, {"plan": ["look"] * 21},
        {"room": {}}, {"room": None}, {"texts": "../x"},
    ],
)  # fmt: skip
def test_a_written_game_whose_plan_does_not_win_is_rejected(change, alfworld_games, written):
    task = dataclasses.replace(written, answer={**written.answer, **change})
    assert alfworld_games.verify(task).reason == base.WRONG_ANSWER
    if "plan" not in change:
        assert not alfworld_games.score(task, "Action: look").valid


def test_what_plays_is_told(alfworld_games, directory, monkeypatch):
    about = alfworld_games.about()
    assert about["engine"] == "none: our rules"
    assert about["protocol"].startswith("whole games by our rules, 50 steps")
    assert about["training"].startswith("whole games of 20 steps")
    assert about["admissible commands"] == "not shown"
    monkeypatch.setattr(engine, "is_installed", lambda: True)
    assert ALFWorld(data_dir=directory, episodes=True).isolated
    assert not ALFWorld(data_dir=directory, episodes=True, played_on="rules").isolated
    assert not ALFWorld(data_dir=directory).isolated
    monkeypatch.setattr(engine, "is_installed", lambda: False)
    assert not ALFWorld(data_dir=directory, episodes=True).isolated
    for options in ({"eval_protocol": "episode"}, {"episodes": True, "played_on": "engine"}):
        with pytest.raises(engine.EngineMissing, match="pip install"):
            ALFWorld(data_dir=directory, **options)
