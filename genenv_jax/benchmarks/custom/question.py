"""A question with its reference answer, and the task that it becomes."""

from __future__ import annotations

import dataclasses
from typing import Any

from genenv_jax.benchmarks.base import Message, Task
from genenv_jax.benchmarks.custom import checkers


@dataclasses.dataclass(frozen=True)
class Question:
    """What the agent is asked, and what is right.

    Attributes:
      prompt: the last message of the user.
      answer: the reference, as the checker takes it (`checkers.read_reference`).
      id: unique in the benchmark; "": made of its place.
      category: stratum of the metrics.
      checker: one of `checkers.CHECKERS`; "": the benchmark's.
      context: messages before the prompt (a system message, what was said before).  Variations keep them.
      where: its place for messages of errors, such as "train.jsonl:3".
    """

    prompt: str
    answer: Any
    id: str = ""
    category: str = "all"
    checker: str = ""
    context: tuple[Message, ...] = ()
    where: str = ""


def to_task(question: Question, benchmark: str, **fields: Any) -> Task:
    """The task of a question whose checker and reference are sound.

    `Task.answer` is {"reference", "checker", "listed"}; listed: the prompt names the answer, among others
    perhaps, as a multiple choice does.

    Args:
      fields: of the task: id, origin, and those that have defaults; "listed" of the seed of a generated one.
    """
    listed = fields.pop("listed", None)
    if listed is None:
        listed = checkers.holds(question.prompt, question.checker, question.answer)
    answer = {"reference": question.answer, "checker": question.checker, "listed": listed}
    user = {"role": "user", "content": question.prompt}
    return Task(
        benchmark=benchmark,
        category=question.category,
        messages=(*question.context, user),
        answer=answer,
        **fields,
    )


def of_task(task: Task) -> Question:
    """Inverse of `to_task`.  Raises KeyError, TypeError or IndexError for a task that it has not made."""
    *context, last = task.messages
    return Question(
        prompt=last["content"],
        answer=task.answer["reference"],
        id=task.id,
        category=task.category,
        checker=task.answer["checker"],
        context=tuple(context),
        where=task.id,
    )
