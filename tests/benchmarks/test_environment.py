"""Users' own environments: what their tasks are, what is scored, and what breaks."""

import contextlib

import pytest

from genenv_jax.benchmarks import base, registry
from genenv_jax.benchmarks.base import Rejection, Score, Task
from genenv_jax.benchmarks.demonstrations import reference
from genenv_jax.scoring.verification import PARSED, VerificationConfig, Verifier, inspect
from genenv_jax.scoring.worker import NoAnswer, Worker

HERE = "tests.benchmarks.text_environments"


def make(name, **options):
    options = {"held_out_tasks": 8, "train_tasks": 24, **options}
    return registry.make_benchmark("gymnasium", env=f"{HERE}:{name}", **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "config.benchmark.env is missing: gymnasium has no default for it"),
        ({"env": 3}, "config.benchmark.env = 3: expected module:name of a class or function that"),
        ({"env": f"{HERE}:Door"}, "has no function Door; did you mean Doors"),
        ({"env": f"{HERE}:Doors", "max_turns": 0}, "benchmark.max_turns = 0: expected an integer"),
        ({"env": f"{HERE}:Doors", "rules": 2}, "config.benchmark.rules = 2: expected a text"),
        ({"env": f"{HERE}:Unsolved"}, r"reset\(seed=0\): wrong_answer: not_solved"),
        ({"env": f"{HERE}:Drifting"}, "bad_answer: malformed task: .* expected the same as before"),
        ({"env": f"{HERE}:Several"}, "solution in info: .* expected lines"),
        ({"env": f"{HERE}:Listed"}, r"options in info: \[1\]: expected an object"),
        ({"env": f"{HERE}:Infinite"}, r"reset\(seed=0\).*Out of range float values are not JSON compliant"),
        ({"env": f"{HERE}:Number"}, "the observation is not_text .* expected a text of at most"),
        ({"env": f"{HERE}:Old"}, r"reset returned .*: expected \(text, info\)"),
        ({"env": f"{HERE}:Broken"}, r"RuntimeError: no engine \(text_environments.py:\d+ in __init__"),
        ({"env": f"{HERE}:Doors", "max_turns": 1}, "wrong_answer: step_limit"),
    ],
)  # fmt: skip
def test_what_is_not_right_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        registry.make_benchmark("gymnasium", **options).tasks("seed")


def test_rewards_are_added_up():
    doors = make("Doors", instruction="Doors.")
    task = next(task for task in doors.tasks("seed") if len(task.answer["solution"]) == 3)
    solution = doors.agent_answers(task)
    assert doors.agent_messages(task)[0] == {"role": "system", "content": "Doors."}
    assert doors.score(task, "\n".join(solution)) == Score(1.0, True, True)
    assert doors.score(task, solution[0]) == Score(0.333333, False, True, base.STEP_LIMIT)
    assert doors.score(task, f"{solution[0]}\nopen 9") == Score(0.333333, False, True, "not_solved")
    raised = doors.score(task, "open the door")
    assert (raised.valid, raised.reason) == (False, "malformed_task_valueerror")
    assert "(text_environments.py:" in raised.detail["error"]
    assert doors.score(task, "a" * 9_000).reason == base.TOO_LONG
    guess = make("Guess")
    task = guess.tasks("eval")[0]
    assert guess.score(task, "give up") == Score(0.0, False, True, base.STEP_LIMIT)
    assert guess.score(task, "nothing").reason == "malformed_task_valueerror"
    assert guess.score(task, "\n".join("123456789")).success


def test_seeds_alone_are_tasks_that_nothing_proves():
    guess = make("Guess")
    seeds, held_out = guess.tasks("seed"), guess.tasks("eval")
    assert [guess.simulator_answer(task) for task in held_out[:2]] == ['{"seed": 0}', '{"seed": 1}']
    keys = {"done": True, "seed": seeds[0], "task_id": "new", "generation": 0}
    assert inspect(guess, '{"seed": 99}', **keys).reason == base.WRONG_ANSWER
    made = inspect(guess, '{"seed": 99}', admit=PARSED, **keys)
    assert isinstance(made, Task) and made.origin == "generated"
    verifier = Verifier(guess, seeds, held_out, VerificationConfig())
    assert verifier.decide(made) == made
    for text, reason in (('{"seed": 3}', base.CONTAMINATED), ('{"seed": 9}', base.DUPLICATE)):
        assert verifier.decide(inspect(guess, text, admit=PARSED, **keys)).reason == reason
    for text in ('{"seed": -1}', '{"seed": 4294967296}', '{"seed": true}', "[3]", "3"):
        assert inspect(guess, text, **keys).reason == base.UNPARSABLE
    with pytest.raises(ValueError, match="has no reference answers"):
        reference(guess, seeds[0])


def test_a_worker_process_plays_it():
    """If a step hangs or ends the process, only that episode loses its verdict."""
    doors = make("Doors")
    task, seed = doors.tasks("eval")[0], doors.tasks("seed")[0]
    with contextlib.closing(Worker(doors, timeout=1.0)) as worker:
        assert worker.ask("episode", (1, task, ()))[-1]["content"].startswith("Open ")
        assert worker.ask("episode", (1, task, doors.agent_answers(task))).success
        for text, how in (("open 7", "timeout"), ("open 8", "crash")):
            with pytest.raises(NoAnswer) as raised:
                worker.ask("episode", (2, task, (text,)))
            assert raised.value.how == how
        written = '{"options": {"doors": "12345"}}'
        found = worker.ask("verify", (True, seed, "new", 0, "proven", written))
        assert isinstance(found, Rejection) and found.reason == base.NOT_EXECUTABLE
