"""What is asked about a text that a model wrote, and what stands in where there is no answer.

Nothing here imports JAX: worker processes do not, since the chips of a TPU belong to one process.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from genenv_jax.benchmarks.base import Benchmark, Rejection, Score, Task
from genenv_jax.verification import inspect

Outcome = Score | Task | Rejection

SCORE = "score"  # (task, text) -> Score
VERIFY = "verify"  # (done, seed, task_id, generation, text) -> Task | Rejection

TIMEOUT, CRASH = "timeout", "crash"  # how an answer can fail to come


def answer(benchmark: Benchmark, question: str, arguments: Sequence[Any]) -> Outcome:
    """Answers a question; what the benchmark raises passes through."""
    if question == SCORE:
        task, text = arguments
        return benchmark.score(task, text)
    done, seed, task_id, generation, text = arguments
    return inspect(benchmark, text, done=done, seed=seed, task_id=task_id, generation=generation)


def failure(question: str, how: str, detail: str) -> Outcome:
    """The outcome where no answer came: an invalid score, or a rejection.

    Its reason is "score_timeout", "score_crash", "verify_timeout" or "verify_crash".
    """
    reason = f"{question}_{how}"
    if question == SCORE:
        return Score(0.0, False, False, reason)
    return Rejection(reason, detail)


FAILED_SCORES = tuple(failure(SCORE, how, "").reason for how in (TIMEOUT, CRASH))


def pack(outcomes: Sequence[Outcome]) -> str:
    """Outcomes as JSON text; `unpack` inverts it."""
    return json.dumps([_to_json(outcome) for outcome in outcomes])


def unpack(text: str) -> list[Outcome]:
    """Inverse of `pack`."""
    return [_from_json(kind, value) for kind, value in json.loads(text)]


def _to_json(outcome: Outcome) -> list[Any]:
    if isinstance(outcome, Score):
        verdict = float(outcome.reward), bool(outcome.success), bool(outcome.valid)
        return ["score", (*verdict, outcome.reason, dict(outcome.detail))]
    if isinstance(outcome, Task):
        return ["task", outcome.to_json()]
    return ["rejection", (outcome.reason, outcome.detail)]


def _from_json(kind: str, value: Any) -> Outcome:
    if kind == "task":
        return Task.from_json(value)
    return Score(*value) if kind == "score" else Rejection(*value)
