"""Selects the generated tasks to show, and prepares them for display."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from genenv_jax.results.answers import answer_text, changes, verdict, verdict_of
from genenv_jax.results.browse import spread
from genenv_jax.results.runs import P_HAT, Run, p_hat_of
from genenv_jax.results.untrusted import bounded, readable
from genenv_jax.run.jsonl import iter_jsonl
from genenv_jax.run.metrics import number

_MESSAGES = 8  # shown per conversation
_ANSWERS = 8  # distinct answers shown per task
_EPISODE = 1000  # characters per turn


@dataclasses.dataclass(frozen=True)
class Count:
    """How often a value occurred, its share of all records, and the first record with it."""

    value: str
    count: int
    share: float
    first: Mapping[str, Any]


def count_by(
    records: Sequence[Mapping[str, Any]], value_of: Callable[[Mapping[str, Any]], str]
) -> list[Count]:
    """The counts of the records' values, most frequent first."""
    counts: collections.Counter[str] = collections.Counter()
    first: dict[str, Mapping[str, Any]] = {}
    for record in records:
        value = value_of(record)
        counts[value] += 1
        first.setdefault(value, record)
    return [Count(v, n, n / len(records), first[v]) for v, n in counts.most_common()]


def rejections(run: Run) -> list[Count]:
    """The verdicts of a run's generations except "accepted", most frequent first."""
    counts = count_by(run.tasks, lambda task: bounded(task.get("verdict"), 80))
    return [
        dataclasses.replace(count, first=run.whole(count.first))
        for count in counts
        if count.value != "accepted"
    ]


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
    """For each target in turn, the unused task whose p̂ is nearest to it; None if no task is left."""
    left = list(tasks)
    nearest = lambda target: left.index(min(left, key=lambda t: abs(p_hat_of(t) - target)))  # noqa: E731
    return [left.pop(nearest(target)) if left else None for target in targets]


def tasks_by_success(run: Run, targets: Sequence[float]) -> list[tuple[int, list[dict[str, Any]]]]:
    """(epoch, nearest task to each target) for the first, a middle and the last epoch.

    A task has "epoch", "verdict", "detail", "origin", "success_rate" (None if it was not attempted),
    "p_hat" (the same in words), "facts" (reward, weight, lengths in tokens, ids), "messages" (role and
    content), "tools" (their names), "descriptions" (of the tools), "answer" (the reference), "text" (what the
    simulator wrote, or "" if it did not write the task) and "rollouts" (see `_rollouts`, or None).
    Templates truncate the texts.
    """
    chosen = []
    for epoch in shown_epochs(run):
        of_epoch = [task for task in attempted(run) if task["epoch"] == epoch]
        chosen.append((epoch, [task for task in nearest_tasks(of_epoch, targets) if task]))
    rollouts = _rollouts(run, [task for _, tasks in chosen for task in tasks])
    return [
        (
            epoch,
            [_shown(run.whole(task)) | {"rollouts": rollouts.get(_key(task))} for task in tasks],
        )
        for epoch, tasks in chosen
    ]


def generations(run: Run, most: int) -> list[dict[str, Any]]:
    """At most `most` of a run's generations, evenly over epochs and verdicts, as in `tasks_by_success`."""
    order = spread(run.tasks, lambda task: (task["epoch"], bounded(task.get("verdict"), 80)))
    chosen = [run.tasks[index] for index in sorted(order[:most])]
    rollouts = _rollouts(run, [task for task in chosen if p_hat_of(task) is not None])
    return [_shown(run.whole(task)) | {"rollouts": rollouts.get(_key(task))} for task in chosen]


def compared(
    before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]], limit: int
) -> list[dict[str, Any]]:
    """The tasks in both, grouped by outcome, as the macro "compared_task" shows them.

    Args:
      before, after: from `read_answers` or `read_held_out`.
      limit: characters of an answer.
    """
    return [
        {
            "change": change,
            "category": bounded(after[task_id].get("category"), 80),
            "request": _text(after[task_id].get("request") or task_id),
            "reference": readable(after[task_id].get("reference") or ""),
            "sides": [
                (side, answer_text(of[task_id], limit), verdict(of[task_id])[1])
                for side, of in (("before", before), ("after", after))
            ],
        }
        for change, ids in changes(before, after).items()
        for task_id in ids
    ]


def _rollouts(
    run: Run, tasks: Iterable[Mapping[str, Any]]
) -> dict[tuple[float | None, str], dict[str, Any]]:
    """Outcomes of the attempts at these tasks, by epoch and task id; {} if D_train cannot be read.

    "answers" are ((text, reward, verdict), count) of the valid attempts, most frequent first; the verdict is
    "success" or the reason of failure.  "others" counts the valid attempts that are not among them, "invalid"
    the attempts that D_train lacks.
    """
    valid: dict[Any, collections.Counter] = {_key(task): collections.Counter() for task in tasks}
    try:
        for trace in iter_jsonl(run.workdir / "d_train.jsonl") if valid else ():
            key = (number(trace.get("epoch")), bounded(trace.get("task_id"), 200))
            if key in valid:
                reward, verdict = number(trace.get("reward")), verdict_of(trace)
                text = (
                    answer_text(trace, _EPISODE)
                    if trace.get("answers")
                    else _text(trace.get("answer"))
                )
                valid[key][text, reward, verdict] += 1
    except (OSError, ValueError):
        return {}
    attempts: collections.Counter = collections.Counter()
    for task in attempted(run):  # an epoch may contain the same task several times
        if (key := _key(task)) in valid:
            attempts[key] += int(number(task.get("attempts")) or 0)
    found = {}
    for key, counts in valid.items():
        answers = counts.most_common(_ANSWERS)
        found[key] = {
            "answers": answers,
            "others": counts.total() - sum(count for _, count in answers),
            "invalid": max(0, attempts[key] - counts.total()),
        }
    return found


def _key(task: Mapping[str, Any]) -> tuple[float | None, str]:
    """Epoch and id of the task that a generation became, as in D_train."""
    return task["epoch"], bounded(_mapping(task.get("task")).get("id"), 200)


def _shown(task: Mapping[str, Any]) -> dict[str, Any]:
    rate, p_hat, facts = p_hat_of(task), "", []
    successes, attempts = number(task.get("successes")), number(task.get("attempts"))
    if rate is not None:
        p_hat = f"{P_HAT} = {rate:.3g}"
        if successes is not None and attempts is not None:
            p_hat += f" ({successes:.0f} of {attempts:.0f})"
    for key, form in (
        ("r_env", "R_env {:.3g}"),
        ("weight", "weight {:.3g}"),
        ("context_success_rate", "success rate in the prompt {:.3g}"),
        ("prompt_length", "prompt {:,.0f} tokens"),
        ("response_length_mean", "responses {:,.1f} tokens on average"),
    ):
        if (value := number(task.get(key))) is not None:
            facts.append(form.format(value))
    facts += [
        f"{name} {bounded(task.get(key), 80)}" for name, key in (("id", "id"), ("seed", "seed_id"))
    ]
    given = _mapping(task.get("task"))
    messages, tools = (_list(given.get(key)) for key in ("messages", "tools"))
    reference = task.get("reference")  # in words; records of earlier versions have none
    detail = task.get("detail")
    return {
        "epoch": task["epoch"],
        "verdict": bounded(task.get("verdict"), 80),
        "detail": bounded(detail, 300) if detail else "",
        "origin": _origin(task),
        "success_rate": rate,
        "p_hat": p_hat,
        "facts": " · ".join(facts),
        "messages": [
            (bounded(message.get("role"), 80), _text(message.get("content")))
            for message in map(_mapping, messages[:_MESSAGES])
        ],
        "more_messages": max(0, len(messages) - _MESSAGES),
        "tools": [bounded(_mapping(tool).get("name"), 80) for tool in tools],
        "descriptions": "\n\n".join(map(readable, tools)),
        "answer": readable(reference or given.get("answer")) if given else "",
        "text": _text(task.get("text") or ""),
    }


def _origin(task: Mapping[str, Any]) -> str:
    return bounded(_mapping(task.get("task")).get("origin") or "generated", 40)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else bounded(value)
