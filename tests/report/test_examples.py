"""Which tasks are shown, and as what."""

import pytest

from genenv_jax.report.examples import nearest_tasks, shown_epochs, tasks_by_success
from tests.report.synthetic import generation, run_of

TASKS = [generation(1, k, p_hat=k / 10) for k in range(11)]


@pytest.mark.parametrize(
    ("targets", "chosen"),
    [
        ((0.1, 0.5, 0.9), [1, 5, 9]),
        ((0, 0.5, 1), [0, 5, 10]),
        ((0.52, 0.5), [6, 5]),  # no task twice: it goes to the nearer target
    ],
)
def test_the_task_nearest_to_each_success_rate(targets, chosen):
    assert nearest_tasks(TASKS, targets) == [TASKS[k] for k in chosen]


def test_fewer_tasks_than_targets():
    assert nearest_tasks(TASKS[3:4], (0.1, 0.5, 0.3)) == [None, None, TASKS[3]]


@pytest.mark.parametrize(
    ("epochs", "shown"), [(0, []), (1, [1]), (2, [1, 2]), (4, [1, 3, 4]), (5, [1, 3, 5])]
)
def test_first_middle_and_last_epoch(epochs, shown):
    tasks = [generation(epoch, 0, p_hat=0.5) for epoch in range(1, epochs + 1)]
    assert shown_epochs(run_of(*tasks, generation(9, 1, "duplicate"))) == shown


def test_what_is_said_of_a_task():
    given = generation(1, 1, p_hat=0.1, text="short", weight=0.25)
    teachers = generation(1, 2, p_hat=0.9) | {"text": None}
    ((epoch, (first, second, third)),) = tasks_by_success(run_of(given, teachers), (0, 1, 0.5))
    assert epoch == 1 and third is None
    assert first["facts"] == (
        "p̂ = 0.1 (1 of 10) · R_env 0.726 · weight 0.25 · response length 140 · id g1-1 · seed s1"
    )
    assert first["text"] == "short" and second["text"] == ""
    assert second["task"].splitlines() == [
        "[user] Compute (2 + 3) * 2 with the tools (epoch 1).",
        '[tool] {"name": "add"}',
        '[answer] {"value": 10}',
    ]
