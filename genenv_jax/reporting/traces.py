"""The same held-out tasks answered by two models, side by side: what training changed."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping
from typing import Any

from genenv_jax.metrics import iter_jsonl
from genenv_jax.reporting.html import html_table
from genenv_jax.reporting.untrusted import bounded, escape

_TEXT_LIMIT = 1200  # characters of an answer beside others
# (solved before, solved after) to what became of a task, the most telling first.
_CHANGES = {
    (False, True): "learnt",
    (True, False): "lost",
    (False, False): "never solved",
    (True, True): "always solved",
}
_CSS = (
    "<style>.traces{border-collapse:collapse;table-layout:fixed;width:100%}"
    ".traces th,.traces td{border:1px solid #bbb;padding:.35rem .5rem;text-align:left!important;"
    "vertical-align:top;overflow-wrap:anywhere}.traces pre{margin:.2rem 0 0;white-space:pre-wrap;"
    "overflow-wrap:anywhere;unicode-bidi:isolate;max-height:18rem;overflow:auto}</style>"
)


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


def compare_answers(
    before: Mapping[str, Mapping[str, Any]],
    after: Mapping[str, Mapping[str, Any]],
    prompts: Mapping[str, str],
    shown: int = 2,
) -> str:
    """HTML: how many tasks were learnt, lost, always or never solved, and some of each.

    Text of the models is escaped and bounded.

    Args:
      before, after: from `read_answers`; what both have is compared.
      prompts: task id to the task in words, where known.
      shown: tasks of each kind that are shown, spread over their categories.
    """
    kinds: dict[str, list[str]] = {kind: [] for kind in _CHANGES.values()}
    for task_id in before:
        if task_id in after:
            solved = (before[task_id].get("success") is True, after[task_id].get("success") is True)
            kinds[_CHANGES[solved]].append(task_id)
    total = sum(map(len, kinds.values()))
    counts = [
        (kind, f"{len(ids):,}", f"{len(ids) / max(total, 1):.3f}") for kind, ids in kinds.items()
    ]
    rows = []
    for kind, ids in kinds.items():
        ids = sorted(ids, key=lambda task_id: bounded(before[task_id].get("category"), 80))
        step = max(1, len(ids) // max(shown, 1))
        for task_id in ids[step // 2 :: step][:shown]:
            about = f"{kind} · {bounded(before[task_id].get('category'), 80)}"
            texts = [
                prompts.get(task_id, task_id),
                _answer(before[task_id]),
                _answer(after[task_id]),
            ]
            cells = "".join(f"<td><pre>{escape(bounded(t, _TEXT_LIMIT))}</pre></td>" for t in texts)
            rows.append(f"<tr><th>{escape(about)}</th>{cells}</tr>")
    head = "".join(f"<th>{name}</th>" for name in ("", "task", "before", "after"))
    return (
        f"{_CSS}{html_table(('task', 'how many', 'share'), counts)}"
        f'<table class=traces><col style="width:10rem"><col><col><col>'
        f"<tr>{head}</tr>{''.join(rows)}</table>"
    )


def _answer(record: Mapping[str, Any]) -> str:
    answers = record.get("answers")
    texts = answers if isinstance(answers, list) else [record.get("answer")]
    text = "\n---\n".join(bounded(part, _TEXT_LIMIT) for part in texts[:20])
    if record.get("success") is True:
        return f"{text}\n✓"
    return f"{text}\n✗ {bounded(record.get('reason') or '', 80)}".rstrip()
