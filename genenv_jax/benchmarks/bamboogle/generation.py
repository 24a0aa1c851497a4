"""The simulator's side of Bamboogle: parses its output into a task and checks the task."""

from typing import Any

from genenv_jax.benchmarks.bamboogle import prompts
from genenv_jax.benchmarks.bamboogle.scoring import normalize
from genenv_jax.benchmarks.bamboogle.tasks import make_task
from genenv_jax.benchmarks.base import BAD_ANSWER, UNPARSABLE, Rejection, Task
from genenv_jax.benchmarks.headers import ANSWER, TASK, parse_headers
from genenv_jax.benchmarks.safe_parse import parse_json
from genenv_jax.benchmarks.wording import fold, readings

BAD_STEPS = "bad_steps"  # sub-questions are missing or malformed
LEAKED = "leaked"  # the question contains its own answer

_MAX_QUESTION = 500
_MAX_ANSWER = 200
_MAX_ANSWERS = 8
_CLOSED = ("yes", "no")
_MAX_DEPTH = 8


def write(task: Task) -> str:
    """The text that `read` inverts."""
    lines = [f"{TASK} {prompts.question(task)}"]
    if task.answer["steps"]:
        lines.append(f"{prompts.STEPS_HEADER} {prompts.write_steps(task)}")
    lines.append(f"{ANSWER} {prompts.SEPARATOR.join(task.answer['answers'])}")
    return "\n".join(lines)


def read(text: str, seed: Task) -> Task | Rejection:
    """Parses a generation into a task with as many hops as the seed; UNPARSABLE or BAD_STEPS.  Total."""
    headers = [TASK, ANSWER]
    two_hops = bool(seed.answer["steps"])
    if two_hops:
        headers.insert(1, prompts.STEPS_HEADER)
    parts = parse_headers(text, headers)
    if isinstance(parts, Rejection):
        return parts
    steps: Any = []
    if two_hops:
        steps = parse_json(parts[1], max_depth=_MAX_DEPTH)
        if isinstance(steps, Rejection):
            return Rejection(BAD_STEPS, f"{steps.reason}: {steps.detail}"[:200])
        if not isinstance(steps, list) or len(steps) != 2 or not all(map(_is_step, steps)):
            return Rejection(BAD_STEPS, "expected two objects with a question and its answers")
    answers = [part.strip() for part in parts[-1].split(prompts.SEPARATOR.strip())]
    return make_task(seed.id, " ".join(parts[0].split()), answers, steps)


def _is_step(value: Any) -> bool:
    """Whether a value is a sub-question with its answers."""
    match value:
        case {"question": str(), "answers": list(answers), **others}:
            return not others and all(isinstance(answer, str) for answer in answers)
    return False


def fault(task: Task) -> Rejection | None:
    """What is wrong with a question, its answers and its sub-questions; None for a sound task.

    Checks sizes; answers that are only articles and punctuation, or both yes and no; a question that contains
    its answer (except yes and no), even encoded or with look-alike or invisible letters; a final answer that
    the second sub-question does not lead to.
    """
    question, answers, steps = prompts.question(task), task.answer["answers"], task.answer["steps"]
    pairs = [(question, answers), *((step["question"], step["answers"]) for step in steps)]
    for asked, given in pairs:
        if not asked.strip() or len(asked) > _MAX_QUESTION or "\n" in asked:
            return Rejection(UNPARSABLE, f"expected a question of 1 to {_MAX_QUESTION} characters")
        if not 0 < len(given) <= _MAX_ANSWERS:
            return Rejection(BAD_ANSWER, f"expected 1 to {_MAX_ANSWERS} answers")
        if any(not normalize(answer) or len(answer) > _MAX_ANSWER for answer in given):
            return Rejection(BAD_ANSWER, "an answer is empty or too long")
    normal = [normalize(answer) for answer in answers]
    if all(answer in normal for answer in _CLOSED):
        return Rejection(BAD_ANSWER, "yes and no are both right")
    said = [f" {normalize(fold(text))} " for text in readings(question)]
    sought = [normalize(fold(answer)) for answer in answers]
    told = [answer for answer in sought if any(f" {answer} " in text for text in said)]
    if any(answer and answer not in _CLOSED for answer in told):
        return Rejection(LEAKED, "the question contains its answer")
    if steps:
        last = [normalize(answer) for answer in steps[-1]["answers"]]
        if not any(_agree(a, b) for a in normal for b in last):
            return Rejection(BAD_STEPS, "the steps lead to another answer")
    return None


def _agree(left: str, right: str) -> bool:
    """Whether one normalised answer contains the other, or both have the same words or letters."""
    if left in right or right in left or left.replace(" ", "") == right.replace(" ", ""):
        return True
    return sorted(left.split()) == sorted(right.split())
