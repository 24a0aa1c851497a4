"""Requests and reference answers in words."""

import dataclasses
import types

from genenv_jax.benchmarks import registry
from genenv_jax.benchmarks.shown import reference_text, request_text


def test_a_task_that_is_answered_once():
    dial = registry.make_benchmark("dial", num_seeds=1)
    task = dial.tasks("seed")[0]
    assert request_text(dial, task) == task.messages[-1]["content"]
    assert dial.score(task, reference_text(dial, task)).success


def test_an_episode_has_an_answer_a_line():
    turns = registry.make_benchmark("dial_turns", num_seeds=1)
    task = turns.tasks("seed")[0]
    assert request_text(turns, task) == task.messages[-1]["content"]
    answers = reference_text(turns, task).split("\n")
    assert len(answers) > 1 and answers == turns.agent_answers(task)


def test_the_requests_of_all_turns_of_a_conversation():
    then = "{}\nand then this".format
    conversation = types.SimpleNamespace(text=lambda task: then(task.messages[-1]["content"]))
    game = types.SimpleNamespace(text=lambda task: "a wording for comparison")
    (seed,) = registry.make_benchmark("dial", num_seeds=1).tasks("seed")
    task = dataclasses.replace(seed, messages=({"role": "user", "content": "Do that."},))
    assert request_text(conversation, task) == "Do that.\nand then this"
    assert request_text(game, task) == "Do that."
