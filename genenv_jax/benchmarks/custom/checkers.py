"""The checkers that compare an answer with a reference; a benchmark selects one by name.

exact     the same text apart from case, white space and surrounding quotes; any of several references
f1        word F1 after SQuAD's normalisation, like Bamboogle's reward
numeric   one number, which `numerals` reads; a whole one must be exact, others match up to rounding
last_number  the same, or else for the last number in the answer, as GSM8K is often scored
call      function calls, in any order, by the rules of BFCL's checker

The answer is the last `<answer>...</answer>` of a text, else its last `\\boxed{...}`, else the whole text.
For calls, see the module `calls`.
"""

import decimal
import math
import re
from typing import Any

from genenv_jax.benchmarks.bamboogle import scoring
from genenv_jax.benchmarks.base import Rejection
from genenv_jax.benchmarks.calls import read_calls
from genenv_jax.benchmarks.custom import calls, numerals
from genenv_jax.benchmarks.safe_parse import check_text
from genenv_jax.benchmarks.task import Tools
from genenv_jax.benchmarks.wording import readings, words

EXACT, F1, NUMERIC, LAST, CALL = "exact", "f1", "numeric", "last_number", "call"
CHECKERS = (EXACT, F1, NUMERIC, LAST, CALL)
MAX_ANSWER = 2_000  # characters of a reference
_MAX_ANSWERS = 16
_MAX_NUMBER = 1e100
_MAX_DIGITS = 64  # of an integer
_AS = "End with the answer alone, as <answer>your answer</answer>."
INSTRUCTIONS = {  # for the agent
    EXACT: _AS,
    F1: _AS,
    NUMERIC: "End with the answer, a number without its unit, as <answer>your answer</answer>.",
    LAST: "End with the answer, a number, as <answer>your answer</answer>.",
    CALL: "Reply with the function calls alone, as [name(argument=value), ...].",
}
IN_TEMPLATE = "Call functions to do what is asked; make all the calls that it needs in one answer."
FORMS = {  # how the simulator's prompt describes the JSON of an answer
    EXACT: "a text, as short as it can be",
    F1: "a text of a few words",
    NUMERIC: "a number",
    LAST: "a number",
    CALL: 'the call, {"name": ..., "arguments": {...}}, or a list of calls',
}
_NUMBERS = re.compile(r"(?<![0-9])-?[0-9](?:[0-9,.]*[0-9])?")
_SUCCESS_F1 = 0.5  # least F1 that counts as a success
_BOXED = "\\boxed{"
_QUOTES = "`\"'\u201c\u201d\u2018\u2019"


def read_reference(checker: str, value: Any) -> Any:
    """Converts a reference to its stored form: a string, a list of strings, a number, or calls.

    `value` is JSON from a file, from a user's class or from the simulator.  Raises ValueError that says what
    was expected.
    """
    if checker == CALL:
        return calls.read_reference(value)
    if checker in (NUMERIC, LAST):
        number = _as_number(value.rpartition("####")[2] if isinstance(value, str) else value)
        if number is None:
            raise ValueError("expected a number, or a text that is one, of at most 1e100")
        return number
    several = isinstance(value, list)
    texts = list(map(_as_text, value if several else [value]))
    if not 0 < len(texts) <= _MAX_ANSWERS:
        raise ValueError(f"expected 1 to {_MAX_ANSWERS} texts")
    for text in texts:
        if fault := check_text(text, MAX_ANSWER):
            found = f"; it is {fault.reason}" if isinstance(text, str) else ""
            raise ValueError(
                f"expected a text of 1 to {MAX_ANSWER} characters, a number, or a list of these{found}"
            )
    return [text.strip() for text in texts] if several else texts[0].strip()


def unreadable(checker: str, text: str) -> str:
    """Why a text cannot be an answer, as one word; "" if it can."""
    if checker == CALL:
        found = read_calls(text)
        return found.reason if isinstance(found, Rejection) else ""
    if not text:
        return "no_answer"
    numeric = checker in (NUMERIC, LAST)
    return "not_a_number" if numeric and _number(checker, text) is None else ""


def grade(checker: str, reference: Any, text: str, tools: Tools = ()) -> float:
    """The reward of an answer, in [0, 1], given a reference as `read_reference` returns it.

    `text`: what `extract` found, or for calls the agent's whole text; `tools`: see `calls.read_tools`.
    """
    if checker == CALL:
        return float(calls.agree(reference, text, tools))
    if checker in (NUMERIC, LAST):
        number, wanted = _number(checker, text), decimal.Decimal(str(reference))
        if number is None or wanted == wanted.to_integral_value():
            return float(number == wanted)
        return float(math.isclose(number, wanted, rel_tol=1e-6))
    if checker == F1:
        found = scoring.measure(text, golds(reference))["f1"]
        return found / scoring.choices(text, golds(reference))
    return float(_normal(text) in map(_normal, golds(reference)))


def _number(checker: str, text: str) -> decimal.Decimal | None:
    """The number that an answer is; for LAST, failing that, its last number."""
    number, found = numerals.read(text), _NUMBERS.findall(text) if checker == LAST else ()
    return numerals.read(found[-1]) if number is None and found else number


def golds(reference: Any) -> list[Any]:
    """All references; an answer may match any of them."""
    return reference if isinstance(reference, list) else [reference]


def succeeds(checker: str, reward: float) -> bool:
    """Whether a reward counts as a success."""
    return reward >= (_SUCCESS_F1 if checker == F1 else 1.0)


def extract(text: str) -> str:
    """The answer in a text, stripped; see the module's docstring."""
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
    return calls.write(reference) if checker == CALL else f"<answer>{golds(reference)[0]}</answer>"


def holds(prompt: str, checker: str, reference: Any) -> bool:
    """Whether a prompt has its reference, encoded or not; False for calls, which `grounding` judges."""
    if checker == CALL:
        return False
    said = [f" {' '.join(words(text))} " for text in readings(prompt)]
    sought = (" ".join(words(str(gold))) for gold in golds(reference))
    return any(f" {gold} " in text for gold in sought if gold for text in said)


def _as_number(value: Any) -> float | None:
    """A number, or the number in a text, as an integer if it is a whole one; None if there is none."""
    if type(value) not in (int, float):
        value = None if check_text(value) else numerals.read(value)
    if value is None or not abs(value) <= _MAX_NUMBER:  # true for NaN too
        return None
    exact = 2**53 if type(value) is float else 10**_MAX_DIGITS
    return int(value) if value == int(value) and abs(value) < exact else float(value)


def _as_text(value: Any) -> Any:
    """A number as a text, 71.0 as "71": integers in a column with a gap become floats.  Else the value."""
    number = _as_number(value) if type(value) in (int, float) else None
    return value if number is None else str(number)


def _normal(text: str) -> str:
    text = " ".join(text.split()).strip(_QUOTES)
    return text.removesuffix(".").strip(_QUOTES).casefold()
