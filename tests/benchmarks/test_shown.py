"""Requests and reference answers in words."""

import dataclasses
import types

import pytest

from genenv_jax.benchmarks import registry
from genenv_jax.benchmarks.shown import reference_text, request_text


@pytest.mark.parametrize("name", ["dial", "dial_turns"])
def test_a_task_that_is_answered_once_or_in_an_episode(name):
    """With one answer per line."""
    benchmark = registry.make_benchmark(name, num_seeds=1)
    (task,) = benchmark.tasks("seed")
    assert request_text(benchmark, task) == task.messages[-1]["content"]
    answer = reference_text(benchmark, task)
    assert answer == "\n".join(benchmark.agent_answers(task)) and benchmark.score(task, answer).success


def test_the_requests_of_all_turns_of_a_conversation():
    then = "{}\nand then this".format
    conversation = types.SimpleNamespace(text=lambda task: then(task.messages[-1]["content"]))
    game = types.SimpleNamespace(text=lambda task: "a wording for comparison")
    (seed,) = registry.make_benchmark("dial", num_seeds=1).tasks("seed")
    task = dataclasses.replace(seed, messages=({"role": "user", "content": "Do that."},))
    assert request_text(conversation, task) == "Do that.\nand then this"
    assert request_text(game, task) == "Do that."
