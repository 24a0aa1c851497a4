"""The simulator's side: a task as one JSON object, {"prompt": ..., "answer": ...}."""

from __future__ import annotations

import json
from typing import Any

from genenv_jax.benchmarks.base import BAD_ANSWER, UNPARSABLE, Rejection
from genenv_jax.benchmarks.custom import checkers
from genenv_jax.benchmarks.safe_parse import check_text, parse_json, unfenced

_MAX_DEPTH = 8


def write(prompt: str, checker: str, reference: Any) -> str:
    """The text that `read` inverts; of several references the first."""
    answer = checkers.to_json(checker, reference)
    if isinstance(answer, list) and checker != checkers.CALL:
        answer = answer[0]
    return json.dumps({"prompt": prompt, "answer": answer}, ensure_ascii=False)


def read(text: Any, checker: str, max_chars: int) -> tuple[str, Any] | Rejection:
    """(prompt, reference) of a generation, perhaps in a code fence; total.

    A generated task has one answer: with a list of many any of which counts, it could be made to be solved.

    Returns:
      or a `Rejection`: EMPTY, NOT_TEXT, TOO_LONG, TOO_DEEP, UNPARSABLE, BAD_ANSWER.
    """
    rejection = check_text(text, max_chars)
    if rejection:
        return rejection
    value = parse_json(unfenced(text), max_chars, _MAX_DEPTH)
    if isinstance(value, Rejection):
        return value
    if not isinstance(value, dict) or set(value) != {"prompt", "answer"}:
        return Rejection(UNPARSABLE, "expected an object with prompt and answer, and nothing else")
    prompt, answer = value["prompt"], value["answer"]
    if not isinstance(prompt, str) or not prompt.strip():
        return Rejection(UNPARSABLE, "prompt: expected a text")
    if isinstance(answer, list) and checker != checkers.CALL:
        return Rejection(BAD_ANSWER, "expected one answer, not a list")
    try:
        return prompt.strip(), checkers.read_reference(checker, answer)
    except ValueError as error:
        return Rejection(BAD_ANSWER, str(error)[:200])
