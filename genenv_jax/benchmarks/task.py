"""The data that benchmarks exchange with the rest of the package: tasks, rejections, scores, statistics."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

# {"role": "system" | "user" | "assistant" | "tool", "content": text}.  In a message with role `TOOLS` the
# content is a JSON list of tools in OpenAI's format, passed to the chat template or the server as tools.
Message = Mapping[str, str]
TOOLS = "tools"
Tools = Sequence[Mapping[str, Any]]  # JSON descriptions of functions, as in `Task.tools`


def chat(system: str, *parts: str) -> list[Message]:
    """A system message and a user message, whose parts become paragraphs."""
    return [{"role": "system", "content": system}, {"role": "user", "content": "\n\n".join(parts)}]


def mean(values: Collection[float]) -> float:
    """The mean of one or more values."""
    return sum(values) / len(values)


# Reasons for rejecting a generation.  A benchmark may add its own; reasons are short snake_case words
# because they become metric names.
EMPTY = "empty"  # nothing but white space
TRUNCATED = "truncated"  # the token limit came before an end token
UNFINISHED_THOUGHT = "unfinished_thought"  # the thought before the answer never ends
NOT_TEXT = "not_text"  # bytes that are not UTF-8, or control characters
TOO_LONG = "too_long"  # more characters than the benchmark reads
TOO_DEEP = "too_deep"  # nested beyond the benchmark's limit
NOT_EVALUATED = "not_evaluated"  # an expression that only an interpreter could evaluate
UNPARSABLE = "unparsable"  # not in the format that the prompt asks for
BAD_TOOLS = "bad_tools"  # tools are missing or malformed
BAD_ANSWER = "bad_answer"  # the reference answer is missing or malformed
WRONG_ANSWER = "wrong_answer"  # the reference answer fails the task's own checker
NOT_EXECUTABLE = "not_executable"  # the benchmark can execute answers, but this one does not run
NOT_ASKED = "not_asked"  # the reference answer does not follow from the request
GIVEN_AWAY = "given_away"  # the request contains its reference answer
DUPLICATE = "duplicate"  # same canonical form as a seed, a pool task or another task of the batch
NEAR_DUPLICATE = "near_duplicate"  # almost the same text as one of those
CONTAMINATED = "contaminated"  # matches a held-out evaluation task

# Why an episode has no verdict: its environment broke, and no answer was to blame.
ENVIRONMENT_ERROR = "environment_error"
# Why an episode was cut off; reports call it unfinished.
STEP_LIMIT = "step_limit"  # all turns were used up
FORCE_TERMINATED = "force_terminated"  # the same, under the name in BFCL's official evaluator
TOO_MANY_CALLS = "too_many_calls"  # in one answer or in total
LIMITS = (STEP_LIMIT, FORCE_TERMINATED, TOO_MANY_CALLS)

# Results of `Benchmark.grounding` for a task that it does not reject.
GROUNDED, UNDECIDED = "grounded", "undecided"


@dataclasses.dataclass(frozen=True)
class Task:
    """One task: what the agent reads and how its answer is checked."""

    id: str  # unique within a run
    benchmark: str  # name of the benchmark that made the task and scores it
    category: str  # stratum for aggregation (a BFCL category, a depth, ...)
    messages: tuple[Message, ...]  # states the problem, without the benchmark's own instructions
    tools: tuple[Mapping[str, Any], ...] = ()  # JSON descriptions of the tools that may be called
    answer: Any = None  # JSON specification for the checker (reference calls, gold answers, ...)
    seed_id: str = ""  # id of the task that the simulator was conditioned on; "" for data set tasks
    origin: str = "seed"  # "seed" (training data), "generated" (simulator) or "eval" (held out)
    generation: int = -1  # epoch in which the simulator wrote the task; -1 for data set tasks

    def to_json(self) -> dict[str, Any]:
        """The task as a dict of plain JSON values; `from_json` inverts it."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)} | {
            "messages": [dict(m) for m in self.messages],
            "tools": [dict(t) for t in self.tools],
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Task:
        """Inverse of `to_json`; raises TypeError if a field is missing or unknown."""
        parts = {key: tuple(record[key]) for key in ("messages", "tools")}
        return cls(**{**record, **parts})


@dataclasses.dataclass(frozen=True)
class Rejection:
    """Why a generation did not become a task: a `reason`, which is counted, and a `detail` for people."""

    reason: str
    detail: str = ""


@dataclasses.dataclass(frozen=True)
class Score:
    """The verdict on one answer."""

    reward: float  # R_agent of Eq. 1, in [0, 1]
    success: bool  # whether the answer counts as a success in p̂ = k / n (Eq. 2)
    valid: bool  # whether it was well formed and evaluated; only valid traces enter D_train
    reason: str = ""  # why it failed or was invalid, in snake_case; "" for a valid success
    # Further JSON values for `aggregate` (F1, the verdict on each constraint, number of steps, ...).
    detail: Mapping[str, Any] = dataclasses.field(default_factory=dict)
