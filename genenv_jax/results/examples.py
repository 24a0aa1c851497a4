"""Selects the tasks and answers to show, and prepares them for display."""

import collections
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from genenv_jax.results.answers import answer_text, changes, detail_text, verdict, verdict_of
from genenv_jax.results.browse import spread
from genenv_jax.results.runs import P_HAT, Run, p_hat_of
from genenv_jax.results.untrusted import bounded, readable
from genenv_jax.run.jsonl import iter_jsonl
from genenv_jax.run.metrics import number

_MESSAGES = 8  # shown per conversation
_ANSWERS = 8  # distinct answers shown per task
_EPISODE = 1000  # characters per turn
_EVALUATED = 40  # distinct answers shown per evaluated task
_TURN = 1500  # characters per answer in an evaluated episode
_PROMPT = 40  # messages shown per prompt

_Answer = collections.namedtuple("_Answer", "mode group verdict reward detail text")


def verdicts(run: Run) -> dict[str, list[Mapping[str, Any]]]:
    """A run's generations by verdict, the most frequent one first."""
    found: dict[str, list[Mapping[str, Any]]] = collections.defaultdict(list)
    for task in run.tasks:
        found[bounded(task.get("verdict"), 80)].append(task)
    return dict(sorted(found.items(), key=lambda item: -len(item[1])))


def shares(groups: Mapping[str, Sequence[Any]]) -> list[tuple[str, str, str]]:
    """(name, size, share) of the whole, unless it is empty, and of each group."""
    sizes = [(name, len(of)) for name, of in groups.items()]
    total = sum(size for _, size in sizes)
    rows = [("all", total), *sizes] if total else sizes
    return [(name, f"{size:,}", f"{size / max(1, total):.3f}") for name, size in rows]


def nearest_tasks(run: Run, targets: Sequence[float]) -> list[Mapping[str, Any]]:
    """For the first, a middle and the last epoch, the task whose p̂ is nearest to each target; none twice."""
    attempted: dict[int, list[Mapping[str, Any]]] = collections.defaultdict(list)
    for task in run.tasks:
        if p_hat_of(task) is not None:
            attempted[task["epoch"]].append(task)
    epochs, chosen = sorted(attempted), []
    for epoch in sorted({epochs[0], epochs[len(epochs) // 2], epochs[-1]}) if epochs else ():
        left = attempted[epoch]
        for target in targets[: len(left)]:
            nearest = min(range(len(left)), key=lambda i: abs(p_hat_of(left[i]) - target))
            chosen.append(left.pop(nearest))
    return chosen


def generations(run: Run, most: int) -> list[dict[str, Any]]:
    """At most `most` of a run's generations, evenly over epochs and verdicts, as `generated` has them."""
    order = spread(run.tasks, lambda task: (task["epoch"], bounded(task.get("verdict"), 80)))
    return generated(run, [run.tasks[index] for index in sorted(order[:most])])


def generated(run: Run, tasks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Some of a run's generations as the macro "generated_task" shows them.

    Each has "epoch", "verdict", "detail", "origin", "success_rate" (None if it was not attempted), "p_hat"
    (the same in words), "facts" (epoch, reward, weight, lengths in tokens, ids), "messages" (role and
    content), "tools" (their names), "descriptions" (of the tools), "answer" (the reference), "text" (what the
    simulator wrote, or "" if it did not write the task) and "rollouts" (see `_rollouts`, or None).
    Templates truncate the texts.
    """
    rollouts = _rollouts(run, [task for task in tasks if p_hat_of(task) is not None])
    return [_shown(run.whole(task)) | {"rollouts": rollouts.get(_key(task))} for task in tasks]


def compared(
    before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]], limit: int
) -> list[dict[str, Any]]:
    """The tasks in both, grouped by outcome, as the macro "compared_task" shows them.

    before, after: from `read_answers` or `read_held_out`.  limit: characters of an answer.
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


def evaluated(predictions: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The tasks as the macro "evaluated_task" shows them; equal answers to a task are merged and counted."""
    tasks: dict[tuple[str, str], dict[str, Any]] = {}
    for record in predictions:
        key = bounded(record.get("category"), 80), bounded(record.get("task_id"), 200)
        task = tasks.get(key)
        if task is None:
            task = tasks[key] = _asked(*key, record)
        said = bounded(record.get("mode"), 40), *verdict(record)
        task["verdicts"].append(said)
        reward, text = number(record.get("reward")), answer_text(record, _TURN)
        task["counts"][_Answer(*said, reward, detail_text(record), text)] += 1
    for task in tasks.values():
        counts = task.pop("counts")
        task["answers"] = list(counts.items())[:_EVALUATED]
        task["more_answers"] = counts.total() - sum(n for _, n in task["answers"])
    return list(tasks.values())


def _asked(category: str, task_id: str, record: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "category": category,
        "id": task_id,
        "request": bounded(record.get("request") or ""),
        "reference": bounded(readable(record.get("reference") or "")),
        "prompt": [
            (bounded(message.get("role"), 40), bounded(message.get("content"), 20_000))
            for message in _list(record.get("prompt"))[:_PROMPT]
            if isinstance(message, Mapping)
        ],
        "prompt_tokens": number(record.get("prompt_tokens")),
        "counts": collections.Counter(),
        "verdicts": [],  # (mode, group, reason) of every answer
    }


def _rollouts(run: Run, tasks: Iterable[Mapping[str, Any]]) -> dict[tuple[float | None, str], dict[str, Any]]:
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
                text = answer_text(trace, _EPISODE) if trace.get("answers") else _text(trace.get("answer"))
                valid[key][text, reward, verdict] += 1
    except (OSError, ValueError):
        return {}
    attempts: collections.Counter = collections.Counter()
    for task in run.tasks:  # an epoch may contain the same task several times
        if p_hat_of(task) is not None and (key := _key(task)) in valid:
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
    rate, p_hat, facts = p_hat_of(task), "", [f"epoch {task['epoch']}"]
    successes, attempts = number(task.get("successes")), number(task.get("attempts"))
    if rate is not None:
        p_hat = f"{P_HAT} = {rate:.3g}"
        if successes is not None and attempts is not None:
            p_hat += f" ({successes:.0f} of {attempts:.0f})"
    for key, form in (
        ("r_env", "R_env {:.3g}"),
        ("weight", "weight {:.3g}"),
        ("context_success_rate", "success rate in the prompt {:.3g}"),
        ("context_difficulty", "difficulty asked for {:.3g}"),
        ("prompt_length", "prompt {:,.0f} tokens"),
        ("response_length_mean", "responses {:,.1f} tokens on average"),
    ):
        if (value := number(task.get(key))) is not None:
            facts.append(form.format(value))
    facts += [f"{name} {bounded(task.get(key), 80)}" for name, key in (("id", "id"), ("seed", "seed_id"))]
    given = _mapping(task.get("task"))
    messages, tools = (_list(given.get(key)) for key in ("messages", "tools"))
    detail = task.get("detail")
    return {
        "epoch": task["epoch"],
        "verdict": bounded(task.get("verdict"), 80),
        "detail": bounded(detail, 300) if detail else "",
        "origin": bounded(given.get("origin") or "generated", 40),
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
        "answer": readable(task.get("reference") or given.get("answer")) if given else "",
        "text": _text(task.get("text") or ""),
    }


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else bounded(value)
