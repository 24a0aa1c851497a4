"""Episodes, with a game that needs no engine; also in a worker process, where one hangs."""

import dataclasses
import time

import pytest

from bench.bad_answers.common import HOSTILE
from genenv_jax.benchmarks import base
from genenv_jax.benchmarks.alfworld import games, steps
from genenv_jax.benchmarks.alfworld import make_steps as command
from genenv_jax.benchmarks.alfworld.benchmark import ALFWorld
from genenv_jax.benchmarks.alfworld.world import World
from genenv_jax.scoring.worker import NoAnswer, Worker
from tests.benchmarks import alfworld_toys
from tests.benchmarks.alfworld_toys import PROBLEM, FakeGame, write_game


@pytest.fixture
def toy(tmp_path) -> ALFWorld:
    other = PROBLEM.replace("Drawer_bar_2", "Shelf_bar_2").replace("DrawerType", "ShelfType")
    write_game(tmp_path, "valid_train", pddl_problem=other)
    write_game(tmp_path, "valid_unseen", trial="trial_1")
    write_game(tmp_path, "valid_unseen", trial="trial_2")
    benchmark = ALFWorld(data_dir=tmp_path, max_steps=4, prompt_chars=6_000)
    benchmark.open_game = FakeGame
    return benchmark


def tasks(toy):
    return games.splits(toy._directory())["valid_unseen"]


def test_a_game_that_is_won(toy):
    task = tasks(toy)[0]
    assert toy.is_interactive(task) and not toy.is_interactive(toy.tasks("seed")[0])
    episode = toy.episode(task)
    first = episode.messages()
    assert (
        "You see a drawer 1." in first[1]["content"] and "\nopen drawer 1\n" in first[1]["content"]
    )
    assert episode.step("Action: dance 1") is None
    assert "> dance 1\nNothing happens." in episode.messages()[1]["content"]
    score = episode.step("I open it.\nAction: open drawer 1")
    assert score == base.Score(1.0, True, True, "", {
        "steps": 2, "inadmissible": 1, "task_type": task.category, "grammar": "put_in_on",
    })  # fmt: skip
    episode.close()
    assert episode._game.closed


def test_a_game_that_is_lost(toy):
    episode = toy.episode(tasks(toy)[0])
    verdicts = [episode.step("look") for _ in range(4)]
    assert verdicts[:3] == [None] * 3
    assert (verdicts[3].success, verdicts[3].valid, verdicts[3].reason) == (
        False,
        True,
        "step_limit",
    )
    assert verdicts[3].detail["steps"] == 4
    episode = toy.episode(tasks(toy)[0])
    verdicts = [episode.step("") for _ in range(4)]
    assert (verdicts[3].valid, verdicts[3].reason) == (False, base.EMPTY)


def test_an_engine_that_fails_ends_the_game(toy):
    episode = toy.episode(tasks(toy)[0])
    episode._game.step = lambda command: 1 / 0
    score = episode.step("look")
    assert (score.success, score.valid, score.reason) == (False, False, "environment_error")


def test_a_long_history_fits_the_prompt(toy):
    toy.max_steps = 10_000
    episode = toy.episode(tasks(toy)[0])
    for number in range(500):
        episode.step(f"go to place {number}" if number % 2 else "go to drawer 1")
        length = sum(len(message["content"]) for message in episode.messages())
        assert length <= toy.prompt_chars
    text = episode.messages()[1]["content"]
    assert "[... earlier steps are left out ...]" in text
    assert "You see a drawer 1." in text and "> go to place 499\nNothing happens." in text


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_answers(name, toy):
    start = time.process_time()
    episode = toy.episode(tasks(toy)[0])
    verdicts = [episode.step(HOSTILE[name]) for _ in range(4)]
    assert verdicts[3] is not None and not verdicts[3].success
    assert sum(len(m["content"]) for m in episode.messages()) <= toy.prompt_chars
    assert not toy.score(tasks(toy)[0], HOSTILE[name]).success
    assert time.process_time() - start < 4.0


def test_a_whole_game_as_one_answer(toy):
    task = tasks(toy)[0]
    assert toy.score(task, "Action: look\nAction: open drawer 1").success
    assert toy.score(task, "Action: look").reason == "step_limit"
    assert not toy.score(task, "dance").valid
    assert toy.agent_answer(task).startswith("Action: go to drawer 2\nAction: open drawer 2\n")


def test_a_hanging_game_does_not_stop_a_run(toy):
    """In a worker process: the game is given up after the time limit, and the next ones are played."""
    worker = Worker(toy, timeout=2.0)
    good, hanging = tasks(toy)
    try:
        worker.start()
        assert isinstance(worker.ask("episode", ((0, 0), good, ())), list)
        start = time.perf_counter()
        with pytest.raises(NoAnswer) as caught:
            worker.ask("episode", ((1, 0), hanging, ("look",)))
        assert caught.value.how == "timeout" and time.perf_counter() - start < 10
        # The other game's process is lost too; it is played again from its answers.
        assert isinstance(worker.ask("episode", ((0, 0), good, ("look",))), list)
        score = worker.ask("episode", ((0, 0), good, ("look", "open drawer 1")))
        assert score.success and score.detail["steps"] == 2
    finally:
        worker.close()


# -- recorded steps ---------------------------------------------------------------------------------------


def recording(toy, game) -> steps.Recording:
    return steps.by_rules(game, World(game.problem()), "explorer", None)


def test_recorded_steps_are_used(toy, tmp_path):
    toy.expert = "planner"
    found = {s: games.load(tmp_path, [s])[s] for s in ("valid_train", "valid_unseen")}
    path = tmp_path / "steps.jsonl"
    kept = ALFWorld(data_dir=tmp_path, expert="planner", steps_file=path)
    with pytest.raises(FileNotFoundError, match="make_steps"):
        kept.tasks("eval")
    planned = list(
        command.plans([*found["valid_train"], *found["valid_unseen"]], "games", "planner", [])
    )
    steps.write(path, [plan for _, plan in planned[:1]])
    with pytest.raises(ValueError, match="lacks 2 of 2 games"):
        kept.tasks("eval")
    steps.write(path, [plan for _, plan in planned[1:]])
    assert kept.tasks("eval") == toy.tasks("eval") and kept.about()["steps"].endswith("steps.jsonl")
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[1][:50]]))
    with pytest.raises(ValueError, match=r"steps.jsonl:2: not a recorded game"):
        ALFWorld(data_dir=tmp_path, expert="planner", steps_file=path).tasks("eval")


def test_the_engine_is_compared_with_the_rules(toy):
    game = toy._game(tasks(toy)[0])
    plan = recording(toy, game)
    played, agrees = command.on_engine(game, plan, FakeGame)
    assert not agrees and not played.won and played.source == steps.ENGINE
    assert [move.action for move in played.moves] == [move.action for move in plan.moves]


def hang_or_die(game, plan):
    if "trial_1" in game.id:
        time.sleep(3600)
    raise ValueError("no such room")


def test_games_that_hang_or_crash_are_recorded_as_lost(toy):
    hanging, crashing = [
        (game, recording(toy, game)) for game in (toy._game(task) for task in tasks(toy))
    ]
    ((lost, _),) = command.play_all([hanging], 1, 1.0, hang_or_die)
    assert (lost.won, lost.reason) == (False, "timeout")
    ((lost, _),) = command.play_all([crashing], 1, 60.0, hang_or_die)
    assert (lost.won, lost.reason) == (False, "crash: ValueError: no such room")


def test_an_unfinished_line_is_dropped(tmp_path):
    path = tmp_path / "steps.jsonl"
    path.write_text('{"a": 1}\n{"b":')
    command._repair(path)
    assert path.read_text() == '{"a": 1}\n'


def test_the_command_records_what_is_not_recorded_yet(tmp_path, monkeypatch, capsys):
    alfworld_toys.write(tmp_path)
    arguments = [f"--data_dir={tmp_path}", f"--out={tmp_path / 'steps.jsonl'}", "--expert=planner"]
    monkeypatch.setattr(command.engine, "is_installed", lambda: False)
    assert command.main(arguments) == 2 and "not installed" in capsys.readouterr().err
    monkeypatch.setattr(command.engine, "is_installed", lambda: True)
    agree = [True]  # what the engine says of the rules

    def play_all(planned, workers, timeout):
        return ((dataclasses.replace(plan, source="engine"), agree[0]) for _, plan in planned)

    monkeypatch.setattr(command, "play_all", play_all)
    assert command.main([*arguments, "--max_games=2"]) == 0
    assert len(steps.read(tmp_path / "steps.jsonl")) == 4
    assert "4 games, 0 recorded already" in capsys.readouterr().out
    agree[0] = False
    assert command.main(arguments) == 1  # it differs from the rules
    out = capsys.readouterr().out
    assert "12 games, 4 recorded already" in out and out.count("trial_1: differs_from_rules") == 8
    assert command.main(arguments) == 0 and "nothing to do" in capsys.readouterr().out
    kept = ALFWorld(data_dir=tmp_path, expert="planner", steps_file=tmp_path / "steps.jsonl")
    assert kept.tasks("eval") == ALFWorld(data_dir=tmp_path, expert="planner").tasks("eval")
    assert command.main([*arguments, "--splits", "valid_seen"]) == 2
    assert "valid_seen does not exist" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        command.main([*arguments, "--workers=0"])
