"""What every outcome must look like; any other is a find, like an exception."""

import json
import math
import re
from typing import Any

from genenv_jax.benchmarks.base import Benchmark, Rejection, Score, Task
from genenv_jax.scoring import requests

_REASON = re.compile(r"[a-z][a-z0-9_]{0,59}")
_MASKED = "malformed_task_"  # an exception that a text caused, in place of a verdict


class BrokenPromiseError(AssertionError):
    """A typed outcome that is not what its type promises."""


def promise(kept: bool, what: str) -> None:
    """Raises BrokenPromiseError unless it is kept."""
    if not kept:
        raise BrokenPromiseError(what[:500])


def check_rejection(rejection: Rejection) -> str:
    """Checks a rejection; returns it as an outcome."""
    promise(bool(_REASON.fullmatch(rejection.reason)), f"reason {rejection.reason!r}")
    promise(isinstance(rejection.detail, str), f"detail {type(rejection.detail)}")
    promise(len(rejection.detail) <= 1000, f"a detail of {len(rejection.detail)} characters")
    _check_packed(rejection)
    return f"rejected: {rejection.reason}"


def check_score(score: Score) -> str:
    """Checks a verdict on an answer to a sound task; returns it as an outcome."""
    reward = score.reward
    promise(isinstance(score, Score), f"a {type(score).__name__}")
    promise(type(reward) is float and 0 <= reward <= 1, f"reward {reward!r}")
    promise(type(score.success) is bool and type(score.valid) is bool, f"{score}")
    promise(not score.reason or bool(_REASON.fullmatch(score.reason)), f"reason {score.reason!r}")
    promise(not score.reason.startswith(_MASKED), f"an exception in score: {score.reason}")
    _check_packed(score)
    return "success" if score.success else f"{'failure' if score.valid else 'invalid'}: {score.reason}"


def check_messages(messages: Any) -> None:
    """Checks a conversation."""
    promise(isinstance(messages, list) and bool(messages), "no list of messages")
    for message in messages:
        kept = isinstance(message["role"], str) and isinstance(message["content"], str)
        promise(kept, f"message {message!r}")


def check_task(benchmark: Benchmark, task: Task) -> None:
    """Checks a parsed task: it can be kept, compared, shown and answered, even if `verify` rejects it."""
    _check_packed(task)
    promise(isinstance(benchmark.canonical(task), str), "canonical is no text")
    promise(isinstance(benchmark.text(task), str), "text is no text")
    check_messages(benchmark.agent_messages(task))
    promise(isinstance(benchmark.agent_answer(task), str), "agent_answer is no text")
    promise(isinstance(benchmark.simulator_answer(task), str), "simulator_answer is no text")
    for wording, asked in benchmark.requests(task):
        promise(isinstance(wording, str) and all(isinstance(a, str) for a in asked), f"{asked!r}")
    found = benchmark.grounding(task)
    promise(found is None or isinstance(found, str | Rejection), f"grounding {found!r}")
    promise(isinstance(benchmark.signature(task), str), "signature is no text")
    promise(math.isfinite(benchmark.difficulty(task) or 0), "difficulty is no number")


def _check_packed(outcome: requests.Outcome) -> None:
    """Records and processes carry outcomes as JSON, in which every number is finite."""
    packed = requests.pack([outcome])
    json.loads(packed, parse_constant=_no_constant)
    promise(requests.pack(requests.unpack(packed)) == packed, "JSON changes the outcome")


def _no_constant(name: str) -> None:
    raise BrokenPromiseError(f"{name} in a record")
