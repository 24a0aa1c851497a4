"""A few rows of the models' texts, for the tables of experiment trackers."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from genenv_jax.benchmarks.base import Task
from genenv_jax.system.keys import visible

T = TypeVar("T")


def spread(items: Sequence[T], most: int) -> list[T]:
    """At most `most` items, evenly spaced: the same ones whenever a run is repeated."""
    count = min(most, len(items))
    return [items[i * len(items) // count] for i in range(count)]


def generation_row(record: Mapping[str, Any]) -> dict[str, Any]:
    """A generation and its verdict.

    record: from tasks.jsonl.  If the simulator did not write the task, the text is the task's request.
    """
    text, task = record["text"], record["task"]
    return {
        "epoch": record["epoch"],
        "text": visible(text if text or not task else _request(task["messages"])),
        "verdict": record["verdict"],
        **{name: record[name] for name in ("p_hat", "r_env", "weight")},
    }


def answer_row(epoch: int, task: Task, record: Mapping[str, Any]) -> dict[str, Any]:
    """An answer to a task, or an episode's answers, with the verdict: "success", or why it failed.

    record: from d_train.jsonl or predictions.jsonl.
    """
    return {
        "epoch": epoch,
        "task": visible(_request(task.messages)),
        "answer": visible("\n".join(record.get("answers") or [record["answer"]])),
        "reward": record["reward"],
        "verdict": "success" if record["success"] else record.get("reason") or "failure",
    }


def _request(messages: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join(str(message["content"]) for message in messages)
