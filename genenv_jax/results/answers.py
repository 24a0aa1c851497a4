"""Recorded answers: why each one failed, their text, and two models' answers side by side."""

import collections
import itertools
import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

from genenv_jax.benchmarks.task import LIMITS
from genenv_jax.results.untrusted import bounded
from genenv_jax.run.jsonl import iter_jsonl
from genenv_jax.scoring.requests import EPISODE_TOO_LONG, FAILED_SCORES, PROMPT_TOO_LONG

_ANSWERS = 60  # shown per episode
# (solved before, solved after) to a task's outcome, in the order shown.
_CHANGES = {
    (False, True): "learnt",
    (True, False): "lost",
    (False, False): "never solved",
    (True, True): "always solved",
}


def read_answers(workdir: str | os.PathLike[str], mode: str = "greedy") -> dict[str, Mapping[str, Any]]:
    """Task id to its first answer in that mode, from a `genenv_jax.evaluate` workdir's predictions.jsonl.

    Raises FileNotFoundError without that file, ValueError for a damaged line or without answers of that mode.
    """
    path = pathlib.Path(workdir) / "predictions.jsonl"
    answers = _first_answers(record for record in iter_jsonl(path) if record.get("mode") == mode)
    if not answers:
        raise ValueError(f"{path}: no answer of mode {mode!r}: expected some")
    return answers


def read_held_out(
    workdir: str | os.PathLike[str],
) -> tuple[dict[str, Mapping[str, Any]], dict[str, Mapping[str, Any]]]:
    """(before, after): task id to the agent's answer before training and at the latest evaluation of a run.

    Both are empty if the run lacks one of them.  Raises ValueError for a damaged line.
    """
    paths = [pathlib.Path(workdir) / "held_out" / f"{name}.jsonl" for name in ("before", "after")]
    if not all(path.is_file() for path in paths):
        return {}, {}
    before, after = (_first_answers(iter_jsonl(path)) for path in paths)
    return before, after


def _first_answers(records: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    answers: dict[str, Mapping[str, Any]] = {}
    for record in records:
        answers.setdefault(bounded(record.get("task_id"), 200), record)
    return answers


# Groups of verdicts, in the order shown.
CORRECT, WRONG, UNFINISHED = "correct", "wrong answer", "unfinished"
FORM, UNSCORED = "form", "not scored"
GROUPS = {
    CORRECT: "solved",
    WRONG: "parsed and checked, but not what was asked for",
    UNFINISHED: "ended by a limit on turns, calls or length",
    FORM: "could not be read as an answer: none given, cut off, or not in the form asked for",
    UNSCORED: "a time limit, a crash or a broken environment; says nothing about the answer",
}
_LIMITS = (*LIMITS, PROMPT_TOO_LONG, EPISODE_TOO_LONG)


def verdict_group(reason: str, valid: bool = True) -> str:
    """The group in `GROUPS` of a reason of failure; valid: whether the answer was well formed."""
    if reason in FAILED_SCORES:
        return UNSCORED
    if reason in _LIMITS:
        return UNFINISHED
    return WRONG if valid else FORM


def verdict(record: Mapping[str, Any]) -> tuple[str, str]:
    """An answer's group and its reason, with a note if the token limit cut the answer off."""
    found = verdict_of(record)
    if record.get("success") is True:
        return CORRECT, found
    group = verdict_group(found, record.get("valid") is not False)
    return group, f"{found}, cut off" if group == FORM and record.get("ended") is False else found


def verdict_of(record: Mapping[str, Any]) -> str:
    """Why an answer failed, or "success"."""
    return "success" if record.get("success") is True else bounded(record.get("reason") or "failure", 80)


def answer_text(record: Mapping[str, Any], limit: int) -> str:
    """An answer, or an episode turn by turn, with each text cut to `limit` characters.

    The reply to an answer, if recorded, is marked by an arrow.
    """
    answers, replies = record.get("answers"), record.get("replies")
    texts = answers if isinstance(answers, list) else [record.get("answer")]
    parts = [bounded(text, limit) for text in texts[:_ANSWERS]]
    if isinstance(replies, list) and replies:
        back = [f"\n→ {bounded(reply, limit)}" for reply in replies[: len(parts)]]
        parts = [a + b for a, b in itertools.zip_longest(parts, back, fillvalue="")]
    more = [f"({len(texts) - _ANSWERS} more)"] if len(texts) > _ANSWERS else []
    return bounded(("\n" if replies else "\n---\n").join([*parts, *more]), 4 * limit)


def detail_text(record: Mapping[str, Any]) -> str:
    """The scorer's details besides the reason, in one bounded line."""
    detail = record.get("detail")
    if not isinstance(detail, Mapping):
        return ""
    facts = (f"{name} {value}" for name, value in detail.items() if not isinstance(value, (Mapping, list)))
    return bounded(" · ".join(itertools.islice(facts, 12)).replace("\n", " "), 300)


def changes(
    before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]]
) -> dict[str, list[str]]:
    """Ids of the tasks that were learnt, lost, never or always solved, each list sorted by category.

    before, after: from `read_answers`; tasks in both are compared.
    """
    found = collections.defaultdict(list)
    for task_id in sorted(
        before.keys() & after.keys(), key=lambda i: (bounded(before[i].get("category"), 80), i)
    ):
        solved = (before[task_id].get("success") is True, after[task_id].get("success") is True)
        found[_CHANGES[solved]].append(task_id)
    return {change: found[change] for change in _CHANGES.values()}
