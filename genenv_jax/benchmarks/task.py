"""What a benchmark and the rest of the package say to each other: tasks, rejections, scores, statistics."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

# {"role": "system" | "user" | "assistant" | "tool", "content": text}; the content of a message of the role
# `TOOLS` is a JSON list of tools in OpenAI's form, which a chat template or a server takes as such.
Message = Mapping[str, str]
TOOLS = "tools"


def chat(system: str, *parts: str) -> list[Message]:
    """A system message and one of the user, whose parts stand in paragraphs."""
    return [
        {"role": "system", "content": system},
        {"role": "user", "content": "\n\n".join(parts)},
    ]


def mean(values: Collection[float]) -> float:
    """Of one value at least."""
    return sum(values) / len(values)


# Reasons for which a generation is rejected.  A benchmark may add reasons of its own; they are short
# snake_case words, because they become metric names.
EMPTY = "empty"  # nothing but white space
TRUNCATED = "truncated"  # the token limit came before an end token
UNFINISHED_THOUGHT = "unfinished_thought"  # a thought before the answer that does not end
NOT_TEXT = "not_text"  # bytes that are not UTF-8, or control characters
TOO_LONG = "too_long"  # more characters than the benchmark reads
TOO_DEEP = "too_deep"  # nested beyond the benchmark's limit
NOT_EVALUATED = "not_evaluated"  # an expression that only an interpreter could work out
UNPARSABLE = "unparsable"  # does not follow the format that the prompt asks for
BAD_TOOLS = "bad_tools"  # tools that are missing or not well formed
BAD_ANSWER = "bad_answer"  # a reference answer that is missing or not well formed
WRONG_ANSWER = "wrong_answer"  # the reference answer fails under the task's own checker
NOT_EXECUTABLE = "not_executable"  # the benchmark can execute answers and this one does not run
NOT_ASKED = "not_asked"  # the reference answer does not follow from the request
GIVEN_AWAY = "given_away"  # the request holds its reference answer
DUPLICATE = "duplicate"  # same canonical form as a seed, a pool task or a batch-mate
NEAR_DUPLICATE = "near_duplicate"  # almost the same text as one of those
CONTAMINATED = "contaminated"  # matches a held-out evaluation task

# Why an episode has no verdict: its environment broke, through no fault of an answer.
ENVIRONMENT_ERROR = "environment_error"
# Why an episode ended before its time; reports call it unfinished.
STEP_LIMIT = "step_limit"  # its turns were used up
FORCE_TERMINATED = "force_terminated"  # the same, in the words of BFCL's official evaluator
TOO_MANY_CALLS = "too_many_calls"  # in one answer, or in all
LIMITS = (STEP_LIMIT, FORCE_TERMINATED, TOO_MANY_CALLS)

# What `Benchmark.grounding` says of a task that it does not reject.
GROUNDED, UNDECIDED = "grounded", "undecided"


@dataclasses.dataclass(frozen=True)
class Task:
    """One task: what the agent is shown and how its answer is checked.

    Attributes:
      id: unique within a run.
      benchmark: name of the benchmark that made it and scores it.
      category: stratum for aggregation (a BFCL category, a depth, ...).
      messages: the conversation that states the problem, without the benchmark's own instructions.
      tools: JSON descriptions of the tools that the agent may call.
      answer: JSON specification that the checker needs (reference calls, gold answers, ...).
      seed_id: id of the task that the simulator was conditioned on; "" for tasks of the data set.
      origin: "seed" (training data), "generated" (by the simulator) or "eval" (held out).
      generation: epoch in which the simulator wrote it; -1 for tasks of the data set.
    """

    id: str
    benchmark: str
    category: str
    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    answer: Any = None
    seed_id: str = ""
    origin: str = "seed"
    generation: int = -1

    def to_json(self) -> dict[str, Any]:
        """A dict of plain JSON values; `from_json` inverts it."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)} | {
            "messages": [dict(m) for m in self.messages],
            "tools": [dict(t) for t in self.tools],
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Task:
        """Inverse of `to_json`; raises TypeError where a field is missing or unknown."""
        return cls(
            **{**record, "messages": tuple(record["messages"]), "tools": tuple(record["tools"])}
        )


@dataclasses.dataclass(frozen=True)
class Rejection:
    """Why a generation did not become a task: a counted `reason` and a `detail` for the reader."""

    reason: str
    detail: str = ""


@dataclasses.dataclass(frozen=True)
class Score:
    """Verdict on one answer.

    Attributes:
      reward: R_agent of Eq. 1, in [0, 1].
      success: whether the answer counts as a success in p̂ = k / n (Eq. 2).
      valid: whether the answer was well formed and could be evaluated (only valid traces enter D_train).
      reason: why it failed or was invalid, as a short snake_case word; "" for a valid success.
      detail: JSON values that `aggregate` needs beside these (F1, each constraint's verdict, steps of an
        episode, ...).
    """

    reward: float
    success: bool
    valid: bool
    reason: str = ""
    detail: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class SeedStatistics:
    """How the agent has fared on what was generated from one seed (the simulator's context)."""

    attempts: int = 0
    successes: int = 0

    @property
    def success_rate(self) -> float | None:
        """Share of attempts that succeeded, or None where there were none."""
        return self.successes / self.attempts if self.attempts else None
