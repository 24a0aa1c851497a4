"""Which generated tasks to show, and how."""

from __future__ import annotations

import collections
import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from genenv_jax.report.runs import P_HAT, Run, p_hat_of
from genenv_jax.report.untrusted import bounded, number

_TEXT_LIMIT = 2000  # characters of a task beside others


@dataclasses.dataclass(frozen=True)
class Count:
    """How often a value was met, its share of all records, and the first record that had it."""

    value: str
    count: int
    share: float
    first: Mapping[str, Any]


def count_by(
    records: Sequence[Mapping[str, Any]], value_of: Callable[[Mapping[str, Any]], str]
) -> list[Count]:
    """The values that records have, the most frequent first."""
    counts: collections.Counter[str] = collections.Counter()
    first: dict[str, Mapping[str, Any]] = {}
    for record in records:
        value = value_of(record)
        counts[value] += 1
        first.setdefault(value, record)
    return [Count(v, n, n / len(records), first[v]) for v, n in counts.most_common()]


def rejections(run: Run) -> list[Count]:
    """The verdicts of a run's generations but for "accepted", the most frequent first."""
    counts = count_by(run.tasks, lambda task: bounded(task.get("verdict"), 80))
    return [count for count in counts if count.value != "accepted"]


def attempted(run: Run) -> list[Mapping[str, Any]]:
    """The tasks that have a p̂."""
    return [task for task in run.tasks if p_hat_of(task) is not None]


def shown_epochs(run: Run) -> list[int]:
    """The first, the middle and the last of the epochs that have attempted tasks."""
    epochs = sorted({task["epoch"] for task in attempted(run)})
    return sorted({epochs[0], epochs[len(epochs) // 2], epochs[-1]}) if epochs else []


def nearest_tasks(
    tasks: Iterable[Mapping[str, Any]], targets: Sequence[float]
) -> list[Mapping[str, Any] | None]:
    """For each target the task whose p̂ is nearest to it; None where no task is left.

    No task is taken twice: one that suits two targets goes to the nearer.  Of equals, the first is taken.
    """
    left = list(tasks)
    chosen: dict[int, Mapping[str, Any]] = {}
    while left and len(chosen) < len(targets):
        _, index, place = min(
            (abs(p_hat_of(task) - target), index, place)
            for index, target in enumerate(targets)
            if index not in chosen
            for place, task in enumerate(left)
        )
        chosen[index] = left.pop(place)
    return [chosen.get(index) for index in range(len(targets))]


def tasks_by_success(
    run: Run, targets: Sequence[float]
) -> list[tuple[int, list[dict[str, str] | None]]]:
    """(epoch, nearest task to each target as bounded text) of the first, a middle and the last epoch.

    A task has "facts" (p̂, reward, weight, lengths, id), "text" (what the simulator wrote, or "" of a task
    that it did not write) and "task" (what the agent was given).
    """
    return [
        (epoch, [task and _shown(task) for task in nearest_tasks(of_epoch, targets)])
        for epoch in shown_epochs(run)
        for of_epoch in [[task for task in attempted(run) if task["epoch"] == epoch]]
    ]


def _shown(task: Mapping[str, Any]) -> dict[str, str]:
    facts = [f"{P_HAT} = {p_hat_of(task):.3g}"]
    successes, attempts = number(task.get("successes")), number(task.get("attempts"))
    if successes is not None and attempts is not None:
        facts[0] += f" ({successes:.0f} of {attempts:.0f})"
    for key, name in (
        ("r_env", "R_env"),
        ("weight", "weight"),
        ("context_success_rate", "success rate in the prompt"),
        ("response_length_mean", "response length"),
    ):
        if (value := number(task.get(key))) is not None:
            facts.append(f"{name} {value:.3g}")
    facts += [
        f"{name} {bounded(task.get(key), 80)}" for name, key in (("id", "id"), ("seed", "seed_id"))
    ]
    return {
        "facts": " · ".join(facts),
        "text": bounded(task.get("text") or "", _TEXT_LIMIT),
        "task": bounded(_task_text(task.get("task")), _TEXT_LIMIT),
    }


def _task_text(task: Any) -> str:
    """The conversation, the tools and the answer's specification of a task, line by line."""
    if not isinstance(task, Mapping):
        return "not recorded"
    messages, tools = task.get("messages"), task.get("tools")
    lines = [
        f"[{bounded(message.get('role'), 80)}] {bounded(message.get('content'))}"
        for message in (messages if isinstance(messages, list) else ())
        if isinstance(message, Mapping)
    ]
    lines += [f"[tool] {_json(tool)}" for tool in (tools if isinstance(tools, list) else ())]
    return "\n".join([*lines, f"[answer] {_json(task.get('answer'))}"])


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "(nested too deeply)"
