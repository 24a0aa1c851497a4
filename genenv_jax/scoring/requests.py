"""Questions about a text that a model wrote, and the outcomes that replace missing answers.

Nothing here imports JAX: worker processes must not, since the chips of a TPU belong to one process.
"""

import json
from collections.abc import Sequence
from typing import Any

from genenv_jax.benchmarks.base import ENVIRONMENT_ERROR, Benchmark, Message, Rejection, Score, Task
from genenv_jax.scoring.open_episodes import OpenEpisodes
from genenv_jax.scoring.verification import inspect

Outcome = Score | Task | Rejection | list[Message]

SCORE = "score"  # (task, text) -> Score
VERIFY = "verify"  # (done, seed, task_id, generation, admit, text) -> Task | Rejection
EPISODE = "episode"  # (key, task, answers) -> messages | Score; see `OpenEpisodes`
DROP = "drop"  # (key,) -> no messages: the episode is abandoned

PROMPT_TOO_LONG = "prompt_too_long"  # an episode's conversation outgrew the prompt limit
EPISODE_TOO_LONG = "episode_too_long"  # an episode outgrew its token limit
TIMEOUT, CRASH = "timeout", "crash"  # why there is no answer


def answer(benchmark: Benchmark, episodes: OpenEpisodes, question: str, arguments: Sequence[Any]) -> Outcome:
    """Answers a question; exceptions of the benchmark propagate.

    episodes: those that this process holds open.
    """
    if question == EPISODE:
        return episodes.advance(*arguments)
    if question == DROP:
        episodes.drop(*arguments)
        return []
    if question == SCORE:
        task, text = arguments
        return benchmark.score(task, text)
    done, seed, task_id, generation, admit, text = arguments
    return inspect(benchmark, text, done=done, seed=seed, task_id=task_id, generation=generation, admit=admit)


def failure(question: str, how: str, detail: str) -> Outcome:
    """The outcome if there is no answer: an invalid score, or a rejection.

    Its reason is "score_timeout", "score_crash", "verify_timeout", "verify_crash", "episode_timeout" or
    "episode_crash".
    """
    reason = f"{question}_{how}"
    return Rejection(reason, detail) if question == VERIFY else Score(0.0, False, False, reason)


def _reasons(question: str) -> tuple[str, ...]:
    return tuple(failure(question, how, "").reason for how in (TIMEOUT, CRASH))


# Reasons why an episode has no verdict, and why any answer has none.
BROKEN_EPISODES = (*_reasons(EPISODE), ENVIRONMENT_ERROR)
FAILED_SCORES = (*_reasons(SCORE), *BROKEN_EPISODES)


def pack(outcomes: Sequence[Outcome]) -> str:
    """Outcomes as JSON text; `unpack` inverts it."""
    return json.dumps([to_json(outcome) for outcome in outcomes])


def unpack(text: str) -> list[Outcome]:
    """Inverse of `pack`."""
    return [from_json(kind, value) for kind, value in json.loads(text)]


def to_json(outcome: Outcome) -> list[Any]:
    """An outcome's kind and its plain values.  Raises AttributeError or TypeError for other objects."""
    if isinstance(outcome, Score):
        verdict = float(outcome.reward), bool(outcome.success), bool(outcome.valid)
        return ["score", (*verdict, outcome.reason, dict(outcome.detail))]
    if isinstance(outcome, Task):
        return ["task", outcome.to_json()]
    if isinstance(outcome, list):
        return ["messages", [dict(message) for message in outcome]]
    return ["rejection", (outcome.reason, outcome.detail)]


def from_json(kind: str, value: Any) -> Outcome:
    """Inverse of `to_json`.  Raises ValueError, TypeError or KeyError for malformed values."""
    if kind == "task":
        return Task.from_json(value)
    if kind == "messages":
        return [dict(message) for message in value]
    if kind == "score":
        reward, success, valid, reason, detail = value
        return Score(float(reward), bool(success), bool(valid), str(reason), dict(detail))
    reason, detail = value
    return Rejection(str(reason), str(detail))
