"""From the questions that a benchmark says to its tasks; a question that is not sound is named."""

from __future__ import annotations

import dataclasses
import typing

from genenv_jax.benchmarks import imported
from genenv_jax.benchmarks.base import Task
from genenv_jax.benchmarks.custom.checkers import CHECKERS, read_reference
from genenv_jax.benchmarks.custom.question import Question, to_task

if typing.TYPE_CHECKING:
    from genenv_jax.benchmarks.custom.benchmark import Custom

# Modules of the package whose errors say where: they need no place of a method.
_OURS = ("genenv_jax.benchmarks.custom.dataset",)


def load(benchmark: Custom, split: str) -> list[Task]:
    """All questions of a split as tasks.

    Raises ValueError for one that is not sound, with its place, and where `questions` raises.
    """
    place = f"{type(benchmark).__name__}.questions({split!r})"
    try:
        asked = list(benchmark.questions(split))
    except Exception as error:
        ours = type(benchmark).questions.__module__ in _OURS
        if ours and isinstance(error, ValueError | OSError):
            raise
        raise ValueError(
            f"{place} raised {type(error).__name__}: {error}{imported.place(error)}"
        ) from error
    made: dict[str, Task] = {}
    for index, question in enumerate(asked):
        if not isinstance(question, Question):
            raise ValueError(f"{place}[{index}] is {question!r:.100}: expected a Question")
        where = question.where or f"{place}[{index}]"
        question = _sound(question, benchmark.checker, where)
        name = question.id or f"{split}-{index}"
        task = to_task(question, benchmark.name, id=name, origin=split)
        if fault := benchmark.verify(task):
            raise ValueError(f"{where}: {fault.reason}: {fault.detail}")
        if task.id in made:
            raise ValueError(f"{where}: id {task.id!r} was used before: expected each once")
        made[task.id] = task
    return list(made.values())


def _sound(question: Question, checker: str, where: str) -> Question:
    """A question with its checker, or the benchmark's, and the reference as that keeps it."""
    checker = question.checker or checker
    if not isinstance(question.prompt, str) or not question.prompt.strip():
        raise ValueError(f"{where}: prompt {question.prompt!r}: expected a text")
    if checker not in CHECKERS:
        raise ValueError(f"{where}: checker {checker!r}: expected one of {', '.join(CHECKERS)}")
    for key, text in (("id", question.id or "x"), ("category", question.category)):
        if not isinstance(text, str) or not 0 < len(text) <= 200 or not text.isprintable():
            raise ValueError(
                f"{where}: {key} = {text!r:.60}: expected a line of 1 to 200 characters"
            )
    try:
        reference = read_reference(checker, question.answer)
    except ValueError as error:
        raise ValueError(f"{where}: answer {question.answer!r:.100}: {error}") from None
    return dataclasses.replace(question, checker=checker, answer=reference)
