"""What predictions.jsonl of `genenv_jax.evaluate` holds, and two models' answers side by side."""

from __future__ import annotations

import collections
import itertools
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from genenv_jax.report.untrusted import bounded
from genenv_jax.run.jsonl import iter_jsonl

_ANSWERS = 60  # of one episode that are shown
# (solved before, solved after) to what became of a task, in the order shown.
_CHANGES = {
    (False, True): "learnt",
    (True, False): "lost",
    (False, False): "never solved",
    (True, True): "always solved",
}


def read_answers(
    workdir: str | os.PathLike[str], mode: str = "greedy"
) -> dict[str, Mapping[str, Any]]:
    """Task id to its first line of predictions.jsonl in that mode, of a workdir of `genenv_jax.evaluate`.

    Raises:
      FileNotFoundError: no predictions.jsonl.
      ValueError: a damaged line; or no answer of that mode.
    """
    path = pathlib.Path(workdir) / "predictions.jsonl"
    answers: dict[str, Mapping[str, Any]] = {}
    for record in iter_jsonl(path):
        if record.get("mode") == mode:
            answers.setdefault(bounded(record.get("task_id"), 200), record)
    if not answers:
        raise ValueError(f"{path}: no answer of mode {mode!r}: expected some")
    return answers


def verdict_of(record: Mapping[str, Any]) -> str:
    """Why an answer failed, or "success"."""
    return (
        "success"
        if record.get("success") is True
        else bounded(record.get("reason") or "failure", 80)
    )


def answer_text(record: Mapping[str, Any], limit: int) -> str:
    """An answer, or an episode turn by turn, each text bounded by `limit` characters.

    What came back after an answer, where the record has it, is marked by an arrow.
    """
    answers, replies = record.get("answers"), record.get("replies")
    texts = answers if isinstance(answers, list) else [record.get("answer")]
    parts = [bounded(text, limit) for text in texts[:_ANSWERS]]
    if isinstance(replies, list) and replies:
        back = [f"\n→ {bounded(reply, limit)}" for reply in replies[: len(parts)]]
        parts = [a + b for a, b in itertools.zip_longest(parts, back, fillvalue="")]
    more = [f"({len(texts) - _ANSWERS} more)"] if len(texts) > _ANSWERS else []
    return bounded(("\n" if replies else "\n---\n").join([*parts, *more]), 4 * limit)


def changes(
    before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]]
) -> dict[str, list[str]]:
    """Ids of the tasks that were learnt, lost, never or always solved, by category.

    Args:
      before, after: from `read_answers`; what both have is compared.
    """
    found = collections.defaultdict(list)
    for task_id in sorted(
        before.keys() & after.keys(), key=lambda i: (bounded(before[i].get("category"), 80), i)
    ):
        solved = (before[task_id].get("success") is True, after[task_id].get("success") is True)
        found[_CHANGES[solved]].append(task_id)
    return {change: found[change] for change in _CHANGES.values()}
