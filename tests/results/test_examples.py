import pytest

from genenv_jax.benchmarks.base import Benchmark, SeedStatistics, Task
from genenv_jax.results.examples import generated, generations, nearest_tasks
from genenv_jax.tasks.generation import Generation
from tests.results.synthetic import append, generation, run_of


class Worded(Benchmark):
    """A benchmark that writes reference answers."""

    load = verdict = None

    def agent_answer(self, task):
        return f"it is {task.answer}"


TASKS = [generation(1, k, p_hat=k / 10) for k in range(11)]


@pytest.mark.parametrize(
    ("targets", "chosen"),
    [
        ((0.1, 0.5, 0.9), [1, 5, 9]),
        ((0, 0.5, 1), [0, 5, 10]),
        ((0.5, 0.5), [5, 4]),  # no task twice
    ],
)
def test_the_task_nearest_to_each_success_rate(targets, chosen):
    assert nearest_tasks(run_of(*TASKS), targets) == [TASKS[k] for k in chosen]


def test_fewer_tasks_than_targets():
    assert nearest_tasks(run_of(TASKS[3]), (0.1, 0.5, 0.3)) == [TASKS[3]]


@pytest.mark.parametrize(
    ("epochs", "shown"), [(0, []), (1, [1]), (2, [1, 2]), (4, [1, 3, 4]), (5, [1, 3, 5])]
)
def test_first_middle_and_last_epoch(epochs, shown):
    tasks = [generation(epoch, 0, p_hat=0.5) for epoch in range(1, epochs + 1)]
    found = nearest_tasks(run_of(*tasks, generation(9, 1, "duplicate")), (0.5,))
    assert [task["epoch"] for task in found] == shown


def test_what_is_said_of_a_task():
    given = generation(1, 1, p_hat=0.1, text="short", weight=0.25)
    first, second = generated(run_of(), [given, generation(1, 2, p_hat=0.9) | {"text": None}])
    assert first["epoch"] == 1 and first["p_hat"] == "p̂ = 0.1 (1 of 10)"
    assert first["facts"] == (
        "epoch 1 · R_env 0.726 · weight 0.25 · responses 140.0 tokens on average · id g1-1 · seed s1"
    )
    assert first["text"] == "short" and second["text"] == ""
    assert second["messages"] == [("user", "Compute (2 + 3) * 2 with the tools (epoch 1).")]
    assert (second["tools"], second["descriptions"]) == (["add"], '{\n  "name": "add"\n}')
    assert second["answer"] == '{\n  "value": 10\n}'


def test_lengths_of_a_record():
    task = Task("t", "toy", "all", ({"role": "user", "content": "blue"},), answer="odd")
    generation = Generation(0, 0, task, SeedStatistics(), "blue", task, attempts=4, successes=1)
    generation.prompt_tokens, generation.response_tokens, generation.r_env = 1834, 50, 0.5
    record = generation.record(0, Worded())
    (shown,) = generated(run_of(), [record])
    assert "prompt 1,834 tokens · responses 12.5 tokens on average" in shown["facts"]
    assert record["reference"] == shown["answer"] == "it is odd"


def test_generations_are_taken_evenly_of_epochs_and_verdicts():
    tasks = [generation(e, i, v) for e in (1, 2) for i, v in enumerate(["empty"] * 9 + ["accepted"])]
    shown = generations(run_of(*tasks), 6)
    found = [(task["epoch"], task["verdict"]) for task in shown]
    assert found == [*[(1, "empty")] * 2, (1, "accepted"), *[(2, "empty")] * 2, (2, "accepted")]
    assert shown[0]["success_rate"] is None and shown[0]["p_hat"] == "" == shown[0]["answer"]


def test_attempts_at_a_task_that_an_epoch_has_twice(tmp_path):
    twice = [generation(1, i, p_hat=0.5) for i in range(2)]
    twice[1]["task"]["id"] = twice[0]["task"]["id"]
    append(tmp_path, "d_train", *[{"epoch": 1, "task_id": "g1-0", "answer": "a"}] * 17)
    shown = generated(run_of(*twice, workdir=tmp_path), twice)
    assert [task["rollouts"]["invalid"] for task in shown] == [3, 3]
