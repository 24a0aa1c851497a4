"""The interfaces of benchmarks.

A benchmark is a small object that knows nothing of models.  It loads tasks, writes the messages that
each player reads, turns what the simulator wrote into a `Task` or a `Rejection`, and scores what the
agent answered.  Text from a model is hostile input: it is parsed, never evaluated, and every method
here that receives such text is total: it returns a `Rejection` or an invalid `Score`, never raises.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

Message = Mapping[str, str]  # {"role": "system" | "user" | "assistant", "content": text}

# Reasons for which a generation is rejected.  A benchmark may add reasons of its own; they are short
# snake_case words, because they become metric names.
EMPTY = "empty"  # nothing but white space
TRUNCATED = "truncated"  # the token limit came before an end token
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

# What `Grounded.grounding` says of a task that it does not reject.
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


@runtime_checkable
class Benchmark(Protocol):
    """What every benchmark implements.  All methods are deterministic and free of side effects.

    Methods are called from several threads.  A benchmark whose `score`, `parse` or `verify` may be slow,
    or may hang or crash because of what a text says (an external engine), sets the attribute
    `isolated = True`: they are then called in worker processes, with a time limit.  It must be
    picklable for that, and its modules must not import JAX.  Such a process can compute and read files,
    from an empty working directory; what else it needs is said by the attribute `worker_needs`, some of
    "network" and "files", see `genenv_jax.scoring.isolation`.
    """

    name: str

    def tasks(self, split: str) -> Sequence[Task]:
        """Tasks of `split`: "seed" (training data, what the simulator varies) or "eval" (held out).

        Raises ValueError or FileNotFoundError naming the file and line of a missing or malformed record.
        """

    def agent_messages(self, task: Task) -> list[Message]:
        """The conversation from which the agent answers `task`, instructions included."""

    def simulator_messages(self, seed: Task, statistics: SeedStatistics) -> list[Message]:
        """The conversation from which the simulator writes one variation of `seed`."""

    def simulator_answer(self, task: Task, seed: Task | None = None) -> str:
        """The text that the simulator would write for `task`; `parse` inverts it.

        seed: what the simulator varies to write it; None: what the task itself was made from.
        """

    def agent_answer(self, task: Task) -> str:
        """The task's own reference answer as the agent would write it; scores full reward."""

    def parse(self, text: str, seed: Task, task_id: str, generation: int) -> Task | Rejection:
        """Reads one generation of the simulator.  Total: any text gives a Task or a Rejection."""

    def verify(self, task: Task) -> Rejection | None:
        """Benchmark-specific checks of a parsed task (tools well formed, answer executes)."""

    def canonical(self, task: Task) -> str:
        """Equal for two tasks that ask the same thing; used for duplicates and decontamination."""

    def text(self, task: Task) -> str:
        """The wording that near-duplicate detection compares."""

    def score(self, task: Task, answer: str) -> Score:
        """Scores what the agent wrote.  Total: any text gives a Score, in bounded time."""

    def aggregate(self, results: Sequence[tuple[Task, Score]]) -> dict[str, float]:
        """Metrics under the official evaluator's names.

        The headline number is "accuracy", or "<split>/accuracy" where there are several held-out
        splits, the main one first.  `results` may hold several answers of a task, and any subset or
        multiset of the tasks (for bootstrap intervals).
        """


class Episode(Protocol):
    """One attempt at a task that takes several answers: a game, a conversation, a search.

    Where `messages` after a step are those before it, the answer as one message of the assistant, and then
    further messages of others, an agent reads only these; otherwise it reads the conversation anew.  Agents
    are trained on episodes of the first kind only.

    Not used by two threads at a time.  It is deterministic: the same answers lead to the same end, so
    that an episode whose process was lost is played again from its answers.
    """

    def messages(self) -> list[Message]:
        """The conversation that the agent answers next, short enough for the agent's prompt."""

    def step(self, answer: str) -> Score | None:
        """Takes one answer.  The score where it ended the episode, else None.  Total."""

    def close(self) -> None:
        """Frees what the episode holds."""


@runtime_checkable
class Interactive(Protocol):
    """What a benchmark has beside `Benchmark` if some of its tasks are played in episodes."""

    def is_interactive(self, task: Task) -> bool:
        """Whether `task` is played with `episode`, rather than answered once and scored."""

    def episode(self, task: Task) -> Episode:
        """A fresh attempt at `task`.  May take seconds; raises where the engine cannot open the task."""


@runtime_checkable
class Solved(Protocol):
    """What an interactive benchmark has if agents can be trained on its episodes.

    Attributes:
      episodes: whether its seeds and the tasks that are written are episodes.
    """

    episodes: bool

    def agent_answers(self, task: Task) -> list[str]:
        """The reference's answers in their order: an episode that is given them ends in a success."""


def is_interactive(benchmark: Benchmark, task: Task) -> bool:
    """Whether `task` is played in an episode."""
    return isinstance(benchmark, Interactive) and benchmark.is_interactive(task)


def trains_episodes(benchmark: Benchmark) -> bool:
    """Whether agents are trained on episodes of the benchmark."""
    return isinstance(benchmark, Solved) and benchmark.episodes


@runtime_checkable
class Grouped(Protocol):
    """What a benchmark has if it makes several tasks of one record, which may give each other away."""

    def source(self, task: Task) -> str:
        """The record that a task of the data set was made of: its conversation, its game, ..."""


def source_of(benchmark: Benchmark, task: Task) -> str:
    """What `Grouped.source` says, or the task's id."""
    return benchmark.source(task) if isinstance(benchmark, Grouped) else task.id


@runtime_checkable
class Worded(Protocol):
    """What a benchmark has if its requests are told in free words, so that one may be told in others."""

    def requests(self, task: Task) -> Sequence[tuple[str, Sequence[str]]]:
        """Each request of a task: its wording, and what it asks for whatever the wording.

        That is the names of the functions that its reference calls, or a reference that calls none.
        """


@runtime_checkable
class Grounded(Protocol):
    """What a benchmark has if `verify` does not prove that the reference answer follows from the request."""

    def grounding(self, task: Task) -> Rejection | str:
        """What can be said of that: GROUNDED, UNDECIDED, or a rejection (NOT_ASKED, GIVEN_AWAY).  Total.

        Generated tasks are held to it, those of the data set are not.
        """


@runtime_checkable
class Generative(Protocol):
    """What a benchmark has beside `Benchmark` if it can draw tasks itself, of a difficulty asked for.

    Attributes:
      difficulties: names, from easy to hard; the categories of the tasks that are drawn.
    """

    difficulties: Sequence[str]

    def draw(self, rng: np.random.Generator, difficulty: str, task_id: str) -> Task:
        """A random task that passes `verify` and is not held out; origin "generated"."""

    def canonical(self, task: Task) -> str:
        """See `Benchmark.canonical`."""


@runtime_checkable
class Shaped(Protocol):
    """What a benchmark has if it can say what kind of task a task is, apart from its details."""

    def signature(self, task: Task) -> str:
        """Equal for two tasks that ask for the same skills in the same way (constants left out)."""

    def difficulty(self, task: Task) -> float:
        """A number that grows with difficulty, such as the number of steps."""


@runtime_checkable
class Skilled(Protocol):
    """What a `Shaped` benchmark has beside it where a task asks for several skills at once."""

    def skills(self, task: Task) -> Collection[str]:
        """What the agent must be able to do, such as each of the calls to make; none of it twice."""


def skills(benchmark: Shaped, task: Task) -> list[str]:
    """The skills that a task asks for, at least one: its signature where the benchmark tells no parts.

    In one order for all processes, which a set of strings is not: sums over them are the same to the bit.
    """
    found = benchmark.skills(task) if isinstance(benchmark, Skilled) else ()
    return sorted(found) or [benchmark.signature(task)]


@runtime_checkable
class Described(Protocol):
    """What a benchmark has if a reader of its numbers must know more than their names."""

    def about(self) -> dict[str, str]:
        """Facts that are written beside every result: versions, grammar, rules, sources of the data."""
