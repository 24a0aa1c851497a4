"""ALFWorld's games as training episodes: conversations that grow, references, what is left as it was."""

import dataclasses
import pickle
import re

import pytest

from bench.bad_answers.common import HOSTILE
from genenv_jax.benchmarks import base
from genenv_jax.benchmarks.alfworld import engine, episode
from genenv_jax.benchmarks.alfworld.benchmark import ALFWorld
from genenv_jax.benchmarks.base import SeedStatistics
from tests.benchmarks import alfworld_toys
from tests.benchmarks.alfworld_toys import FakeGame


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return alfworld_toys.write(tmp_path_factory.mktemp("games"))


@pytest.fixture(scope="module")
def benchmark(directory) -> ALFWorld:
    return ALFWorld(data_dir=directory, episodes=True, played_on="rules", eval_protocol="episode")


@pytest.fixture(scope="module")
def written(benchmark) -> base.Task:
    """A game that a simulator wrote."""
    seed = next(t for t in benchmark.tasks("seed") if t.category == "pick_and_place_simple")
    text = benchmark.simulator_answer(seed).replace("book", "candle")
    task = benchmark.parse(text, seed, "new", 3)
    assert benchmark.verify(task) is None
    return task


def test_seeds_are_games(benchmark):
    assert not benchmark.isolated
    seeds = benchmark.tasks("seed")
    assert [seed.id.split("-")[0] for seed in seeds] == [
        f"valid_train/{kind}" for kind in (
            "look_at_obj_in_light", "pick_and_place_simple", "pick_clean_then_place_in_recep",
            "pick_cool_then_place_in_recep",
        )
    ]  # fmt: skip
    for seed in seeds:
        assert benchmark.is_interactive(seed) and benchmark.verify(seed) is None
        assert benchmark.difficulty(seed) == len(benchmark.agent_answers(seed)) >= 4
    assert len({benchmark.canonical(seed) for seed in seeds}) == len(seeds)
    assert benchmark.signature(seeds[1]) == "put book cabinet"


@pytest.mark.parametrize("origin", ["seed", "generated", "eval"])
def test_a_conversation_grows_until_the_game_is_won(origin, benchmark, written):
    task = written if origin == "generated" else benchmark.tasks(origin)[0]
    assert task.origin == origin
    running = benchmark.episode(task)
    before = running.messages()
    assert [m["role"] for m in before] == ["system", "user"]
    assert before[1]["content"].startswith(task.messages[0]["content"])
    assert "You are in the middle of a room." in before[1]["content"]
    answers = benchmark.agent_answers(task)
    for number, answer in enumerate(answers, 1):
        score = running.step(answer)
        assert (score is None) == (number < len(answers))
        after = running.messages()
        assert after[: len(before)] == before
        assert after[len(before)] == {"role": "assistant", "content": answer}
        assert [m["role"] for m in after[len(before) + 1 :]] == ["user"]
        before = after
    assert score.success and score.valid and score.detail["inadmissible"] == 0
    assert score.detail["steps"] == len(answers)


def test_what_is_not_possible_costs_a_step(benchmark, written):
    running = benchmark.episode(written)
    for _ in range(benchmark.train_steps - 1):
        assert running.step("Action: fly to the moon") is None
        assert running.messages()[-1]["content"] == engine.NOTHING_HAPPENS
    score = running.step("Action: look")
    assert (score.reward, score.valid, score.reason) == (0.0, True, episode.STEP_LIMIT)
    assert score.detail["inadmissible"] == benchmark.train_steps - 1


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_answers_stay_as_they_were_written(name, benchmark, written):
    running = benchmark.episode(written)
    before = running.messages()
    assert running.step(HOSTILE[name]) is None
    after = running.messages()
    assert after[:2] == before and after[2]["content"] == HOSTILE[name]
    assert len(after[3]["content"]) <= episode.MAX_OBSERVATION
    score = running.stop()
    assert not score.success and not score.valid


def test_long_observations_are_cut(benchmark, written):
    running = benchmark.episode(written)
    running._game.step = lambda command: "long " * 1_000
    running.step("Action: look")
    assert len(running.messages()[-1]["content"]) == episode.MAX_OBSERVATION


def test_nothing_of_a_conversation_is_left_out(benchmark, written):
    for task in (written, benchmark.tasks("eval")[0]):
        running = benchmark.episode(task)
        for _ in range(10):
            before = running.messages()
            running.step("x" * 2_000)
            assert running.messages()[: len(before)] == before
        assert sum(len(m["content"]) for m in running.messages()) > 20_000


def test_an_environment_that_breaks_is_no_failure(benchmark, written):
    running = benchmark.episode(written)
    running._game.step = lambda command: 1 / 0
    score = running.step("Action: look")
    assert (score.reward, score.valid, score.reason) == (0.0, False, base.ENVIRONMENT_ERROR)


def test_the_simulator_is_shown_a_room(benchmark, written):
    seed = benchmark.tasks("seed")[0]
    system, user = benchmark.simulator_messages(seed, SeedStatistics(8, 7))
    assert '{"goal": {"task": TASK, "object": KIND, "place": KIND}, "places"' in system["content"]
    room, record = user["content"].split("\n\n")
    assert room == benchmark.simulator_answer(seed) and "write a harder game" in record
    assert "\n" not in room and len(room) < 700
    # Seeds are copies of themselves, whatever their games have beside the room.
    assert benchmark.canonical(benchmark.parse(room, seed, "copy", 0)) == benchmark.canonical(seed)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"plan": ["go to desk 1"]}, base.WRONG_ANSWER),
        ({"plan": ["fly away"]}, base.WRONG_ANSWER),
        ({"plan": []}, base.WRONG_ANSWER),
        ({"plan": ["look"] * 21}, "too_many_steps"),
        ({"plan": "look"}, base.BAD_ANSWER),
        ({"plan": [["look"]]}, base.BAD_ANSWER),
        ({"room": {}}, base.BAD_ANSWER),
        ({"room": None}, base.BAD_ANSWER),
        ({"texts": "../x"}, base.BAD_ANSWER),
    ],
)
def test_games_that_are_not_what_they_say(change, reason, benchmark, written):
    task = dataclasses.replace(written, answer={**written.answer, **change})
    found = benchmark.verify(task)
    assert found is not None and found.reason == reason
    if "plan" not in change:
        assert not benchmark.score(task, "Action: look").valid
    other = dataclasses.replace(written, messages=({"role": "user", "content": "Do nothing."},))
    assert benchmark.verify(other).reason == base.BAD_ANSWER


def test_it_may_go_to_another_process(benchmark, written):
    other = pickle.loads(pickle.dumps(benchmark))
    assert other.verify(written) is None and other.tasks("seed") == benchmark.tasks("seed")


def test_what_plays_is_told(benchmark, directory, monkeypatch):
    about = benchmark.about()
    assert about["engine"] == "none: our rules" and about["protocol"].startswith(
        "whole games by our"
    )
    assert about["training"].startswith("whole games of 20 steps")
    assert about["admissible commands"] == "not shown"
    monkeypatch.setattr(engine, "is_installed", lambda: True)
    assert ALFWorld(data_dir=directory, episodes=True).isolated
    assert not ALFWorld(data_dir=directory, episodes=True, played_on="rules").isolated
    assert not ALFWorld(data_dir=directory).isolated
    monkeypatch.setattr(engine, "is_installed", lambda: False)
    assert not ALFWorld(data_dir=directory, episodes=True).isolated
    with pytest.raises(engine.EngineMissing, match="pip install"):
        ALFWorld(data_dir=directory, episodes=True, played_on="engine")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"episodes": "yes"}, "episodes = 'yes': expected True or False"),
        ({"played_on": "paper"}, "played_on = 'paper': expected one of auto, engine, rules"),
        ({"train_steps": 0}, "train_steps = 0"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        ALFWorld(**options)


def test_held_out_games_are_shown_as_before_without_episodes(directory):
    """One message with the history, and no more than the game's id as its answer."""
    plain = ALFWorld(data_dir=directory, eval_protocol="episode", played_on="rules")
    plain.open_game = FakeGame
    task = plain.tasks("eval")[0]
    assert set(task.answer) == {"kind", "game", "split"}
    assert plain.canonical(task) == f"game {task.id}" and plain.difficulty(task) >= 2.0
    running = plain.episode(task)
    running.step("Action: look")
    assert [m["role"] for m in running.messages()] == ["system", "user"]
    assert "> look\nlook: done." in running.messages()[1]["content"]
    assert {seed.answer["kind"] for seed in plain.tasks("seed")} == {"step"}
