"""Which generated tasks to show, and how a reader wants to see them."""

from __future__ import annotations

import collections
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from genenv_jax.reporting.runs import P_HAT, Run, p_hat_of
from genenv_jax.reporting.untrusted import number


def select_examples(run: Run) -> list[tuple[str, Mapping[str, Any]]]:
    """Up to nine accepted tasks, none twice: the lowest p̂, the one nearest to α and the highest p̂
    of the first, the middle and the last of the epochs, as (label, record of tasks.jsonl).

    α is 0.5 where the configuration does not say.  Of equals, the first in the file is taken.
    """
    by_epoch = collections.defaultdict(list)
    for task in run.tasks:
        if task.get("verdict") == "accepted" and p_hat_of(task) is not None:
            by_epoch[task["epoch"]].append(task)
    epochs = sorted(by_epoch)
    alpha = number(run.setting("curriculum.alpha"))
    alpha = 0.5 if alpha is None else alpha
    criteria: dict[str, Callable[[Mapping[str, Any]], float]] = {
        f"low {P_HAT}": _known_p_hat,
        f"{P_HAT} near α": lambda task: abs(_known_p_hat(task) - alpha),
        f"high {P_HAT}": lambda task: -_known_p_hat(task),
    }
    chosen = dict.fromkeys([epochs[0], epochs[len(epochs) // 2], epochs[-1]]) if epochs else {}
    examples = []
    for epoch in chosen:
        left = list(by_epoch[epoch])
        for label, criterion in criteria.items():
            if left:
                task = min(left, key=criterion)
                left = [other for other in left if other is not task]
                examples.append((f"epoch {epoch}, {label}", task))
    return examples


def task_text(record: Mapping[str, Any]) -> str:
    """The task as a reader wants it: the conversation, the tools and the answer's specification."""
    task = record.get("task")
    if not isinstance(task, Mapping):
        return str(record.get("text"))
    lines = []
    messages = task.get("messages")
    for message in messages if isinstance(messages, Sequence) else ():
        if isinstance(message, Mapping):
            lines.append(f"[{message.get('role')}] {message.get('content')}")
    tools = task.get("tools")
    for tool in tools if isinstance(tools, Sequence) else ():
        lines.append(f"[tool] {_json(tool)}")
    lines.append(f"[answer] {_json(task.get('answer'))}")
    return "\n".join(lines)


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "(nested too deeply)"


def _known_p_hat(task: Mapping[str, Any]) -> float:
    return float(task["p_hat"])
