"""A model is evaluated as the simulator: what it writes is verified and counted as in a run's first epoch."""

import collections
import importlib
import json

import pytest

from genenv_jax.benchmarks.base import SeedStatistics
from genenv_jax.config import validate
from genenv_jax.evaluate.simulator import evaluate_simulator
from genenv_jax.players.build import make_benchmark
from genenv_jax.run.progress import Progress
from genenv_jax.sampling.sampler import Completion
from tests.evaluate.fake_server import completion, serve
from tests.runs import lines, toy_config

command = importlib.import_module("genenv_jax.evaluate.__main__")


class Saying:
    """A `ChatModel` that writes `texts` for every seed, in reverse, the last text cut off."""

    def __init__(self, texts):
        self.texts, self.samples, self.asked = texts, len(texts), []

    def answer(self, conversations, on_completion):
        self.asked = conversations
        for i in reversed(range(len(conversations))):
            for j, text in enumerate(self.texts):
                on_completion(Completion(i, j, text, j < self.samples - 1))

    def text(self, completion):
        return completion


def test_generations_are_counted_by_reason(cache, tmp_path):
    config = validate(toy_config(cache))
    benchmark = make_benchmark(config)
    seeds = benchmark.tasks("seed")[:3]
    held_out = benchmark.simulator_answer(benchmark.tasks("eval")[0])
    fresh, unreadable = "a task without copy", "sevenths" * 7  # the toy cannot parse lengths of 7 n
    said = Saying([benchmark.simulator_answer(seeds[0]), held_out, fresh, "", unreadable, fresh])
    found = evaluate_simulator(config, benchmark, seeds, said, Progress(0, silent=True), tmp_path)
    # As in a first epoch, the seeds have no statistics.
    assert said.asked == [benchmark.simulator_messages(s, SeedStatistics()) for s in seeds]
    tasks = lines(tmp_path, "tasks.jsonl")
    verdicts = collections.Counter(task["verdict"] for task in tasks)
    # The second and third seeds' fresh texts are copies of the first's.
    assert verdicts == {
        "duplicate": 3 + 2, "contaminated": 3, "accepted": 1, "empty": 3, "unparsable": 3, "truncated": 3,
    }  # fmt: skip
    assert [task["id"] for task in tasks if task["verdict"] == "accepted"] == ["generated-1-0-2"]
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert metrics == {name: of["value"] for name, of in found.items()}
    assert metrics["generated/count"] == 18 and metrics["generated/valid_share"] == 1 / 18
    rejected = {k: v for k, v in metrics.items() if k.startswith("generated/rejected/")}
    del verdicts["accepted"]
    assert rejected == {f"generated/rejected/{k}": v for k, v in verdicts.items()}


def test_as_in_a_first_epoch_prompts_ask_for_a_success_rate(cache, tmp_path):
    changes = {"simulator.method": "hindsight", "simulator.random_rates": 0.5, "curriculum.alpha": 0.3}
    config = validate(toy_config(cache, changes))
    benchmark = make_benchmark(config)
    (seed, *_), said = benchmark.tasks("seed"), Saying(["one text"])
    evaluate_simulator(config, benchmark, [seed] * 40, said, Progress(0, silent=True), tmp_path)
    known = [benchmark.simulator_messages(seed, SeedStatistics.asked(k / 10)) for k in range(11)]
    rates = [known.index(messages) for messages in said.asked]
    assert rates.count(3) >= 20 and len(set(rates)) > 3


def test_a_model_varies_every_seed(cache, tmp_path):
    given = toy_config(cache, {"simulator.variations": 8})
    found = command.run(given, "", str(tmp_path), role="simulator")
    tasks = lines(tmp_path, "tasks.jsonl")
    seeds = make_benchmark(validate(given)).tasks("seed")
    assert len(tasks) == found["generated/count"]["value"] == 8 * len(seeds)
    assert [task["seed_id"] for task in tasks[::8]] == [seed.id for seed in seeds]
    ended = [task for task in tasks if task["verdict"] not in ("truncated", "empty")]
    unreadable = [len(task["text"]) % 7 == 0 for task in ended]
    assert [task["verdict"] == "unparsable" for task in ended] == unreadable and any(unreadable)
    accepted = [task["text"] for task in ended if task["verdict"] == "accepted"]
    assert len(set(accepted)) == len(accepted) > 8
    assert found["generated/valid_share"]["value"] == len(accepted) / len(tasks)
    assert {path.name for path in tmp_path.iterdir()} == {"tasks.jsonl", "metrics.json"}


def test_a_server_is_asked_for_as_many_and_as_long_texts(cache, tmp_path):
    given = toy_config(cache, {"simulator.variations": 2, "evaluation.max_tasks": 3, "warm_start.steps": 0})
    reply = lambda request: (200, completion("nonsense", "length"))  # noqa: E731
    with serve(reply) as (url, requests):
        found = command.run(given, "", str(tmp_path), url, "m", role="simulator")
    assert {name: of["value"] for name, of in found.items()} == {
        "generated/count": 6, "generated/valid_share": 0, "generated/grown_share": 0,
        "generated/rejected/truncated": 6,
    }  # fmt: skip
    assert [request["max_tokens"] for request in requests] == [24] * 6
    assert {request["temperature"] for request in requests} == {1.0}


@pytest.mark.parametrize("role", ["agent", "simulator"])
def test_a_benchmark_without_such_tasks_is_refused(cache, tmp_path, role):
    split, kind = {"agent": ("num_eval", "held-out"), "simulator": ("num_seeds", "seed")}[role]
    given = toy_config(cache, {f"benchmark.{split}": 0})
    with (
        serve(lambda request: (200, completion("nonsense"))) as (url, _),
        pytest.raises(ValueError, match=f"has no {kind} tasks: expected"),
    ):
        command.run(given, "", str(tmp_path), url, "m", role=role)
