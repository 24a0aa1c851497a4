"""ALFWorld as a benchmark: counts, prompts, the simulator's side, scoring, broken data."""

import dataclasses
import json

import pytest

from genenv_jax.benchmarks import base, data_files
from genenv_jax.benchmarks.alfworld import prompts, tasks
from genenv_jax.benchmarks.alfworld.benchmark import ALFWorld
from genenv_jax.benchmarks.alfworld.chores import TASK_TYPES
from genenv_jax.benchmarks.alfworld.commands import NO_COMMAND
from genenv_jax.benchmarks.alfworld.scoring import INADMISSIBLE, OTHER_ACTION
from genenv_jax.benchmarks.base import Rejection, Score, SeedStatistics
from tests.benchmarks.alfworld_toys import OTHER_PROBLEM, PLAN, PROBLEM, write_game


@pytest.fixture(scope="module")
def loaded(alfworld_dir) -> ALFWorld:
    """ALFWorld with made-up and with real games."""
    return ALFWorld(data_dir=alfworld_dir)


@pytest.fixture
def toy(tmp_path) -> ALFWorld:
    write_game(tmp_path, "valid_train", trial="trial_1")
    write_game(tmp_path, "valid_unseen", pddl_problem=OTHER_PROBLEM)
    return ALFWorld(data_dir=tmp_path)


def test_held_out_steps_and_seeds_are_of_other_games(loaded):
    held_out, seeds = loaded.tasks("eval"), loaded.tasks("seed")
    assert not {t.answer["game"] for t in held_out} & {t.answer["game"] for t in seeds}
    for task in (*held_out, *seeds):
        assert task.answer["action"] in task.answer["admissible"]
        assert sum(len(m["content"]) for m in loaded.agent_messages(task)) <= prompts.PROMPT_CHARS
    numbers = loaded.aggregate([(t, loaded.score(t, loaded.agent_answer(t))) for t in held_out])
    assert numbers["valid_unseen/mean_over_types"] == 1.0
    assert all(numbers[f"valid_unseen/{kind}"] == 1.0 for kind in TASK_TYPES)


def test_both_grammars_have_the_same_steps(loaded, alfworld_dir):
    moved = ALFWorld(data_dir=alfworld_dir, grammar="move_to")
    ours = [task.answer["action"] for task in moved.tasks("eval")]
    assert sum(action.startswith("move ") for action in ours) == sum(
        task.answer["action"].startswith("put ") for task in loaded.tasks("eval")
    )
    assert "'move X to Y'" in moved.about()["grammar"]
    assert "'put X in/on Y'" in loaded.about()["grammar"]
    assert all("help" in task.answer["admissible"] for task in moved.tasks("eval"))
    seed = moved.tasks("seed")[0]
    assert ", help" in moved.simulator_messages(seed, SeedStatistics())[0]["content"]


def test_the_steps_of_a_game(toy):
    assert toy.about()["games"].startswith("json_2.1.1: 1 of valid_unseen (officially 134)")
    seeds = toy.tasks("seed")
    commands = ["go to desk 1", "go to drawer 1", "open drawer 1", *PLAN]
    # The likelihood comes from this game alone, with the mug in a drawer.
    assert [task.answer["action"] for task in seeds] == commands[1:]
    last = toy.text(seeds[-1])
    assert last.startswith("Your task is to: put a clean mug in desk.\n\nYou are in the middle")
    cleaned = "> clean mug 1 with sinkbasin 1\nYou clean the mug 1 using the sinkbasin 1."
    assert last.endswith(cleaned)
    system, user = toy.agent_messages(seeds[-1])
    assert "put OBJECT in/on PLACE" in system["content"] and "move OBJECT" not in system["content"]
    assert "\nput mug 1 in/on desk 1\n" in user["content"]
    hidden = ALFWorld(data_dir=toy.data_dir, show_admissible=False)
    assert "put mug 1 in/on desk 1" not in hidden.agent_messages(seeds[-1])[1]["content"]


@pytest.mark.parametrize(
    ("answer", "success", "valid", "reason"),
    [
        ("take mug 1 from drawer 2", True, True, ""),
        ("It is there.\nAction: Take mug 1 from drawer 2.", True, True, ""),
        ("Action: look\nAction: take mug 1 from drawer 2", False, True, OTHER_ACTION),
        ("Action: look", False, True, OTHER_ACTION),
        ("Action: take mug 2 from drawer 2", False, True, INADMISSIBLE),
        ("I would take the mug.", False, False, NO_COMMAND),
        ("", False, False, base.EMPTY),
        ("\x1b[0m", False, False, base.NOT_TEXT),
        ("a" * 20_000, False, False, base.TOO_LONG),
    ],
)
def test_scores_of_a_step(answer, success, valid, reason, toy):
    task = next(t for t in toy.tasks("seed") if t.answer["action"].startswith("take"))
    score = toy.score(task, answer)
    assert (score.reward, score.success, score.valid, score.reason) == (
        float(success), success, valid, reason
    )  # fmt: skip


def test_numbers(toy):
    one = toy.tasks("eval")[0]
    won = dataclasses.replace(one, answer={"kind": "episode", "game": "g", "split": "valid_seen"})
    results = [
        (one, Score(1.0, True, True, "", {"steps": 1, "inadmissible": 0})),
        (one, Score(0.0, False, False, "empty", {"steps": 1, "inadmissible": 1})),
        (won, Score(1.0, True, True, "", {"steps": 9, "inadmissible": 3})),
        (won, Score(0.0, False, True, "step_limit", {"steps": 50, "inadmissible": 0})),
        (won, Score(0.0, False, False, "episode_timeout")),
    ]
    numbers = toy.aggregate(results)
    assert list(numbers)[:2] == ["valid_unseen/accuracy", "valid_seen/accuracy"]
    assert numbers["valid_unseen/accuracy"] == numbers["valid_unseen/step_accuracy"] == 0.5
    assert numbers["valid_seen/success_rate"] == pytest.approx(1 / 3)
    assert numbers["valid_seen/steps"] == 9 and numbers["valid_seen/inadmissible"] == 3 / 59
    assert numbers["valid_seen/pick_clean_then_place_in_recep"] == pytest.approx(1 / 3)
    assert toy.aggregate([]) == {"accuracy": 0.0}


# -- the simulator's side ---------------------------------------------------------------------------------

SEEN = "You see a desk 1, a drawer 1, and a drawer 2.\n> go to desk 1\nOn the desk 1, you see a mug 1."


def sections(
    task="put some mug in drawer", state=SEEN, commands="go to drawer 1\ntake mug 1 from desk 1\nlook",
    action="take mug 1 from desk 1",
):  # fmt: skip
    return prompts.sections_text(task, state, commands, action)


def outcome(benchmark, text):
    seed = benchmark.tasks("seed")[0]
    task = benchmark.parse(text, seed, "new", 3)
    return task if isinstance(task, Rejection) else (benchmark.verify(task) or task)


def test_a_situation_of_the_simulator(toy):
    task = outcome(toy, sections())
    assert isinstance(task, base.Task), task
    assert (task.origin, task.generation, task.seed_id) == ("generated", 3, toy.tasks("seed")[0].id)
    assert toy.score(task, toy.agent_answer(task)).success
    assert toy.aggregate([(task, Score(1.0, True, True))])["generated/accuracy"] == 1.0
    same = outcome(toy, sections("put a clean mug in desk", "same", "`same`", "go to drawer 1"))
    assert isinstance(same, base.Task)
    assert same.messages == toy.tasks("seed")[0].messages


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"action": "take mug 2 from desk 1"}, base.BAD_ANSWER),
        ({"action": "look"}, base.BAD_ANSWER),
        ({"action": "look\nlook"}, base.BAD_ANSWER),
        ({"task": "put some plate in drawer"}, base.BAD_ANSWER),
        ({"task": "one\ntwo"}, base.UNPARSABLE),
        ({"task": "mug " * 100}, base.UNPARSABLE),
        ({"commands": "take mug 1 from desk 1\nfly away"}, base.BAD_TOOLS),
        ({"commands": "take mug 1 from desk 1\nput cup 1 in/on desk 1"}, base.BAD_TOOLS),
        ({"commands": "take mug 1 from desk 1"}, base.BAD_TOOLS),
        ({"state": "You see a desk 1."}, base.NOT_EXECUTABLE),
        ({"commands": "go to desk 1\ntake mug 1 from desk 1"}, base.NOT_EXECUTABLE),
        (
            {"state": SEEN + "\n> take mug 2 from desk 1\nYou pick up the mug 2 from the desk 1."},
            base.NOT_EXECUTABLE,
        ),
        (
            {"commands": "look\nput mug 1 in/on drawer 1", "action": "put mug 1 in/on drawer 1"},
            base.NOT_EXECUTABLE,
        ),
        ({"state": SEEN + "\nNew Action: look"}, base.UNPARSABLE),
        ({"state": ""}, base.UNPARSABLE),
        ({"state": SEEN * 110}, base.BAD_TOOLS),  # a prompt that is too long
    ],
)
def test_situations_that_do_not_fit_together(change, reason, toy):
    found = outcome(toy, sections(**change))
    assert isinstance(found, Rejection) and found.reason == reason, found


# -- files, whole and broken ------------------------------------------------------------------------------


def test_the_official_directory_is_found(tmp_path, monkeypatch):
    write_game(tmp_path, "train")
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path))
    assert tasks.find_directory() == tmp_path
    assert tasks.available(tmp_path) == ["train"]


def test_games_that_do_not_count(tmp_path):
    write_game(tmp_path, "valid_unseen")
    write_game(tmp_path, "valid_unseen", trial="trial_2", solvable=False)
    write_game(tmp_path, "valid_unseen", "pick_two_obj_and_place-MugSliced-None-Desk-1")
    write_game(tmp_path, "valid_unseen", "pick_and_place_with_movable_recep-Mug-Cup-Desk-1")
    (only,) = tasks.splits(tmp_path)["valid_unseen"]
    assert only.id == "valid_unseen/pick_clean_then_place_in_recep-Mug-None-Desk-1/trial_1"


def test_games_that_the_expert_does_not_win_are_left_out(toy):
    problem = PROBLEM.replace("pickup", "")
    write_game(toy.data_dir, "valid_train", trial="trial_9", pddl_problem=problem)
    assert len(toy.games("seed")) == 2
    assert {task.answer["game"][-1] for task in toy.tasks("seed")} == {"1"}


def _with(text: str, **changes: object) -> str:
    return json.dumps(json.loads(text) | changes)


def test_broken_data(tmp_path):
    with pytest.raises(FileNotFoundError, match="genenv datasets"):
        ALFWorld(data_dir=tmp_path).tasks("eval")
    path = write_game(tmp_path, "valid_unseen")
    with pytest.raises(FileNotFoundError, match="no training games"):
        ALFWorld(data_dir=tmp_path).tasks("seed")
    write_game(tmp_path, "valid_train")
    whole = path.read_text()
    for text, message in (
        (whole[: len(whole) // 2], "not JSON"),
        (_with(whole, grammar=""), "the sentence of the task"),
        (_with(whole, pddl_problem="(define"), "pddl_problem: brackets"),
        (_with(whole, pddl_problem=3), "'pddl_problem' is missing or not a str"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=message) as caught:
            ALFWorld(data_dir=tmp_path).tasks("eval")
        assert str(path) in str(caught.value)
    message = "valid_seen does not exist; there are valid_train, valid_unseen"
    with pytest.raises(FileNotFoundError, match=message):
        ALFWorld(data_dir=tmp_path, eval_splits=("valid_seen",)).tasks("eval")


def test_the_table_of_files_names_all_games():
    table = data_files.sources("alfworld")
    assert len(table) == 334
    assert all(s.url.endswith("/data/alfworld/" + s.path) and len(s.sha256) == 64 for s in table)
