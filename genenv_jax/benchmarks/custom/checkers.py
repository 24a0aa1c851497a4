"""The checkers that compare an answer with a reference; a benchmark selects one by name.

exact     the same text apart from case, white space and surrounding quotes; any of several references
f1        word F1 after SQuAD's normalisation, like Bamboogle's reward
numeric   one number, equal up to rounding
call      function calls, in any order, by the rules of BFCL's checker

The answer is the last `<answer>...</answer>` of a text, else its last `\\boxed{...}`, else the whole text.
For calls, see the module `calls`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks.bamboogle import scoring
from genenv_jax.benchmarks.base import Rejection
from genenv_jax.benchmarks.calls import read_calls
from genenv_jax.benchmarks.custom import calls
from genenv_jax.benchmarks.safe_parse import check_text
from genenv_jax.benchmarks.thoughts import after_thoughts
from genenv_jax.benchmarks.wording import words

EXACT, F1, NUMERIC, CALL = "exact", "f1", "numeric", "call"
CHECKERS = (EXACT, F1, NUMERIC, CALL)
MAX_ANSWER = 2_000  # characters of a reference
_MAX_ANSWERS = 16
_MAX_NUMBER = 1e100
_AS = "End with the answer alone, as <answer>your answer</answer>."
INSTRUCTIONS = {  # for the agent
    EXACT: _AS,
    F1: _AS,
    NUMERIC: "End with the answer, a number without its unit, as <answer>your answer</answer>.",
    CALL: "Reply with the function calls alone, as [name(argument=value), ...].",
}
IN_TEMPLATE = "Call functions to do what is asked; make all the calls that it needs in one answer."
FORMS = {  # how the simulator's prompt describes the JSON of an answer
    EXACT: "a text, as short as it can be",
    F1: "a text of a few words",
    NUMERIC: "a number",
    CALL: 'the call, {"name": ..., "arguments": {...}}, or a list of calls',
}
_SUCCESS_F1 = 0.5  # least F1 that counts as a success
_NUMBER = re.compile(
    r"(?<![\w.])[-+]?(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?|\.[0-9]+)"
    r"(?:[eE][-+]?[0-9]{1,3})?"
)
_BOXED = "\\boxed{"
_QUOTES = "`\"'\u201c\u201d\u2018\u2019"


def read_reference(checker: str, value: Any) -> Any:
    """Converts a reference to its stored form: a string, a list of strings, a number, or calls.

    Args:
      checker: one of CHECKERS.
      value: JSON from a file, from a user's class or from the simulator.
    Raises:
      ValueError: says what was expected.
    """
    if checker == CALL:
        return calls.read_reference(value)
    if checker == NUMERIC:
        number = value if type(value) in (int, float) else _number(value)
        if number is None or not abs(number) <= _MAX_NUMBER:
            raise ValueError("expected a number, or a text that is one, of at most 1e100")
        return number
    several = isinstance(value, list)
    texts = [str(v) if type(v) in (int, float) else v for v in (value if several else [value])]
    if not 0 < len(texts) <= _MAX_ANSWERS:
        raise ValueError(f"expected 1 to {_MAX_ANSWERS} texts")
    for text in texts:
        if fault := check_text(text, MAX_ANSWER):
            found = f"; it is {fault.reason}" if isinstance(text, str) else ""
            raise ValueError(
                f"expected a text of 1 to {MAX_ANSWER} characters, a number, or a list of such{found}"
            )
    return [text.strip() for text in texts] if several else texts[0].strip()


def to_json(checker: str, reference: Any) -> Any:
    """Inverse of `read_reference`."""
    return calls.to_json(reference) if checker == CALL else reference


def unreadable(checker: str, text: str) -> str:
    """Why a text cannot be an answer, as one word; "" if it can."""
    if checker == CALL:
        found = read_calls(text)
        return found.reason if isinstance(found, Rejection) else ""
    if not text:
        return "no_answer"
    return "not_a_number" if checker == NUMERIC and _number(text) is None else ""


def grade(
    checker: str, reference: Any, text: str, tools: Sequence[Mapping[str, Any]] = ()
) -> float:
    """The reward of an answer, in [0, 1].

    Args:
      reference: see `read_reference`.
      text: what `extract` found; for calls, the agent's whole text.
      tools: see `calls.read_tools`.
    """
    if checker == CALL:
        return float(calls.agree(reference, text, tools))
    if checker == NUMERIC:
        number = _number(text)
        # For a whole number every digit counts.
        near = 1e-9 if reference == int(reference) else 1e-6
        return float(number is not None and math.isclose(number, reference, rel_tol=near))
    if checker == F1:
        return scoring.measure(text, golds(reference))["f1"]
    return float(_normal(text) in map(_normal, golds(reference)))


def golds(reference: Any) -> list[Any]:
    """All references; an answer may match any of them."""
    return reference if isinstance(reference, list) else [reference]


def succeeds(checker: str, reward: float) -> bool:
    """Whether a reward counts as a success."""
    return reward >= (_SUCCESS_F1 if checker == F1 else 1.0)


def extract(text: str) -> str:
    """The answer in a text, stripped; see the module's docstring."""
    text = after_thoughts(text)
    if isinstance(text, Rejection):
        return ""
    if "<answer>" in text:
        return scoring.extract(text)
    begin = text.rfind(_BOXED)
    if begin < 0:
        return text.strip()
    begin += len(_BOXED)
    depth = 1
    for place in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if not depth:
            return text[begin:place].strip()
    return ""


def write(checker: str, reference: Any) -> str:
    """A reference as an agent writes it; the first of several."""
    if checker == CALL:
        return calls.write(reference)
    return f"<answer>{golds(reference)[0]}</answer>"


def holds(prompt: str, checker: str, reference: Any) -> bool:
    """Whether a prompt contains its reference word for word; False for calls, which `grounding` judges."""
    if checker == CALL:
        return False
    said = f" {' '.join(words(prompt))} "
    sought = (" ".join(words(str(gold))) for gold in golds(reference))
    return any(f" {gold} " in said for gold in sought if gold)


def _number(text: Any) -> float | None:
    """The number in a text, ignoring units and currencies; None if there is not exactly one."""
    if check_text(text):
        return None
    found = [match.group() for match in _NUMBER.finditer(text.replace("\u2212", "-"))]
    if len(found) != 1 or len(found[0]) > 400:
        return None
    value = float(found[0].replace(",", ""))
    if not math.isfinite(value):
        return None
    return int(value) if value == int(value) and abs(value) < 2**53 else value


def _normal(text: str) -> str:
    text = " ".join(text.split()).strip(_QUOTES)
    return text.removesuffix(".").strip(_QUOTES).casefold()
