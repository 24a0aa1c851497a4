"""The base class for benchmarks.

A benchmark is a small object that knows nothing about models.  It loads tasks, writes the prompts of both
players, parses the simulator's output into a `Task` or a `Rejection`, and scores the agent's answers.
Model output is hostile input: it is parsed, never evaluated.  Every method that receives it is total: it
returns a `Rejection` or an invalid `Score`, and never raises.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import itertools
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from genenv_jax.benchmarks.episode import Episode
from genenv_jax.benchmarks.lenient import parse_lenient
from genenv_jax.benchmarks.options import check_integers
from genenv_jax.benchmarks.places import place
from genenv_jax.benchmarks.safe_parse import check_text
from genenv_jax.benchmarks.subsets import stable_position, stable_subset
from genenv_jax.benchmarks.success_record import SeedStatistics, success_record
from genenv_jax.benchmarks.task import (  # noqa: F401  a benchmark needs this module alone
    BAD_ANSWER,
    BAD_TOOLS,
    CONTAMINATED,
    DUPLICATE,
    EMPTY,
    ENVIRONMENT_ERROR,
    GIVEN_AWAY,
    GROUNDED,
    NEAR_DUPLICATE,
    NOT_ASKED,
    NOT_EVALUATED,
    NOT_EXECUTABLE,
    NOT_TEXT,
    STEP_LIMIT,
    TOO_DEEP,
    TOO_LONG,
    TOOLS,
    TRUNCATED,
    UNDECIDED,
    UNPARSABLE,
    WRONG_ANSWER,
    Message,
    Rejection,
    Score,
    Task,
    chat,
    mean,
)
from genenv_jax.benchmarks.thoughts import after_thoughts
from genenv_jax.benchmarks.wording import letters

# Exceptions raised when a task's fields are not those its benchmark expects.
MALFORMED = (KeyError, TypeError, ValueError, AttributeError, IndexError)
MAX_GENERATION = 8_192
_MAX_DEPTH = 8  # nesting of the JSON in a generation
_RULES = """\
You write training tasks for an agent. You are shown one task{given}, and how well the agent does \
on tasks like it. Write one new task: a variation, not a copy. It must have one right answer, which follows \
from it and is not given away in it.{rules}

Reply with one JSON object and nothing else: {{"prompt": the task{answer}}}"""


@dataclasses.dataclass(kw_only=True, eq=False)
class Benchmark(abc.ABC):
    """A benchmark.  A subclass defines `name`, `load` and `verdict`; everything else has a default.

    The dataclass fields are the options, set as keys of `config.benchmark`.  All methods are deterministic,
    free of side effects, and called from several threads.

    Attributes:
      name: the benchmark's name in results and messages.
      episodes: True if seeds and generated tasks are played as episodes and agents train on those.
      difficulties: names of the difficulties that `draw` accepts, from easy to hard; empty if it draws none.
      isolated: True if some model output can make `parse`, `verify` or `score` slow, hang or crash (an
        external engine).  They then run in worker processes with a time limit: the benchmark must be
        picklable, and its modules must not import JAX.
      has_tools: True if the agent calls tools that a chat template can show, see `tools.ToolBenchmark`.
      worker_needs: what a worker process needs besides computing and reading files: some of "network" and
        "files", see `genenv_jax.scoring.isolation`.
      max_generation: longest generation that is read, in characters; a longer one is rejected.
      rules: what the default simulator prompt asks of a task, besides the rules common to all benchmarks.

    Args:
      max_seeds: maximum number of seeds, chosen by a hash used for nothing else; 0: all.
      max_eval: maximum number of held-out tasks, chosen the same way; 0: all.
      shots: worked examples in the agent's prompts, as user and assistant turns before the task.  They
        are seeds chosen by a hash, from the task's category as far as possible.  Episodes have none.
    Raises:
      ValueError: an option is out of range; names the option, its value and what was expected.
    """

    name: ClassVar[str] = ""
    episodes: ClassVar[bool] = False
    difficulties: ClassVar[Sequence[str]] = ()
    isolated: ClassVar[bool] = False
    has_tools: ClassVar[bool] = False
    worker_needs: ClassVar[Collection[str]] = ()
    max_generation: ClassVar[int] = MAX_GENERATION
    rules: ClassVar[str] = ""

    max_seeds: int = 0
    max_eval: int = 0
    shots: int = 0

    def __post_init__(self):
        check_integers(0, max_seeds=self.max_seeds, max_eval=self.max_eval)
        check_integers(0, 8, shots=self.shots)

    # -- what every benchmark defines -----------------------------------------------------------------------

    @abc.abstractmethod
    def load(self, split: str) -> Sequence[Task]:
        """All tasks of `split`: "seed" (training data, which the simulator varies) or "eval" (held out).

        Raises ValueError or FileNotFoundError, naming the file and line of a missing or malformed record.
        """

    @abc.abstractmethod
    def verdict(self, task: Task, answer: str) -> Score:
        """Scores an answer to a well-formed task; may raise for a malformed task."""

    # -- tasks ----------------------------------------------------------------------------------------------

    def tasks(self, split: str) -> Sequence[Task]:
        """`load`, limited to `max_seeds` or `max_eval`; cached after the first call."""
        if split not in ("seed", "eval"):
            raise ValueError(f"split {split!r}: expected 'seed' or 'eval'")
        loaded: dict[str, tuple[Task, ...]] = vars(self).setdefault("_loaded", {})
        if split not in loaded:
            most = self.max_seeds if split == "seed" else self.max_eval
            loaded[split] = tuple(stable_subset(self.load(split), most))
        return loaded[split]

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out the tasks and other cached data; a worker rereads what it needs."""
        own = type(self)
        cached = functools.cached_property
        read = {key for key in vars(self) if isinstance(getattr(own, key, None), cached)}
        return {k: v for k, v in vars(self).items() if k not in read | {"_loaded", "_examples"}}

    def sound(self, candidates: Iterable[Task], held_out: Iterable[Task]) -> list[Task]:
        """The candidates that pass `verify` and share no held-out task's `canonical` form or `meanings`."""

        def keys(task: Task) -> set[str]:
            return {self.canonical(task), *self.meanings(task)}

        taken = {key for task in held_out for key in keys(task)}
        own = (task for task in candidates if taken.isdisjoint(keys(task)))
        return [task for task in own if self.verify(task) is None]

    def draw(self, rng: np.random.Generator, difficulty: str, task_id: str) -> Task:
        """A random task of the given difficulty that passes `verify` and is not held out."""
        raise NotImplementedError(f"{self.name} draws no tasks")

    def demonstrations(self, rng: np.random.Generator) -> Iterator[tuple[list[Message], Any]] | None:
        """Endless (messages, completion) pairs for a warm start; None: they are made from the seed tasks."""
        return None

    # -- properties of a task -------------------------------------------------------------------------------

    def text(self, task: Task) -> str:
        """The text that near-duplicate detection compares.  Default: the last message."""
        return task.messages[-1]["content"]

    def canonical(self, task: Task) -> str:
        """A key that is equal for tasks asking the same thing.  Default: the messages as `letters`."""
        said = [letters(message["content"]) for message in task.messages]
        return json.dumps(said, ensure_ascii=False)

    def meanings(self, task: Task) -> Collection[str]:
        """Keys of what a task asks for, default none; sharing one with a held-out task means repeating it."""
        return ()

    def source(self, task: Task) -> str:
        """The record a data set task was made from; all tasks made from one record stay in the same split."""
        return task.id

    def requests(self, task: Task) -> Sequence[tuple[str, Sequence[str]]]:
        """(wording, target) of each free-text request in a task; decontamination compares them.

        The target does not depend on the wording: the names of the functions that the reference calls, or
        the reference itself if it calls none.  Default: no requests, since `canonical` is enough.
        """
        return ()

    def grounding(self, task: Task) -> Rejection | str | None:
        """Whether the reference follows from the request, if `verify` does not prove it.

        Returns GROUNDED, UNDECIDED, or a rejection (NOT_ASKED, GIVEN_AWAY); None: `verify` proves it.  The
        check applies to generated tasks, not to data set tasks.  A task for which it raises is rejected.
        """
        return None

    def signature(self, task: Task) -> str:
        """A key that is equal for tasks needing the same skills in the same way.  Default: the category."""
        return task.category

    def skills(self, task: Task) -> Collection[str]:
        """What the agent must be able to do, such as each call it must make.  Default: the signature."""
        return [self.signature(task)]

    def difficulty(self, task: Task) -> float | None:
        """A number that grows with difficulty, such as the number of steps; None if unknown."""
        return None

    def askable(self, seed: Task) -> Sequence[int]:
        """Difficulties that the prompt for a variation of `seed` can ask for: whole numbers, easy to hard.

        If there are any, `simulator_messages` asks for `statistics.difficulty` where that is set.  Empty (the
        default): prompts state the agent's success instead.
        """
        return ()

    def joined(self, one: Task, other: Task) -> Task | None:
        """A task with the requests of two seeds with the same tools; None (the default) if there is none.

        It demonstrates difficulties that no seed has, where prompts can ask for one.
        """
        return None

    # -- the agent ------------------------------------------------------------------------------------------

    def use_template(self, written_call: str, made: bool = False) -> None:  # noqa: B027
        """Receives the tool support of the model's chat template, before any prompt is made.

        Args:
          written_call: a call as the template writes it; "" if the template takes no tools.
          made: whether the model is made here and learns what prompts mean from demonstrations alone.
        Raises:
          ValueError: the benchmark must show its tools in the template, but the template takes none.
        """

    def own_form(self, task: Task, answer: str) -> str:
        """Converts an answer from the chat template's form to the form that `verdict` reads.  Total."""
        return answer

    def prompt(self, task: Task) -> list[Message]:
        """The agent's prompt for a task, system messages first.  Default: the task's messages."""
        return [dict(message) for message in task.messages]

    def agent_messages(self, task: Task) -> list[Message]:
        """The conversation in which the agent answers `task`: `shots` worked examples, then `prompt`."""
        own, examples = self.prompt(task), self.examples(task)
        if not examples:
            return own
        system = list(itertools.takewhile(lambda m: m["role"] in ("system", TOOLS), own))
        turns = []
        for example in examples:
            shown, answer = self.worked(example)
            turns.append({"role": "user", "content": _one_turn(shown, system)})
            turns.append({"role": "assistant", "content": answer})
        return [*system, *turns, *own[len(system) :]]

    def examples(self, task: Task) -> list[Task]:
        """The seeds that are worked examples for `task`; none shares a source record with it or its seed."""
        if not self.shots or self.is_interactive(task):
            return []
        if "_examples" not in vars(self):
            seeds = self.tasks("seed")
            if not seeds:
                expected = "expected seeds that can be worked examples"
                raise ValueError(f"shots = {self.shots}: {expected}")
            self._examples = sorted(seeds, key=lambda seed: stable_position(f"shot:{seed.id}"))
        made_of = {self.source(seed) for seed in self._examples if seed.id == task.seed_id}
        made_of.add(self.source(task))
        others = [seed for seed in self._examples if self.source(seed) not in made_of]
        return sorted(others, key=lambda seed: seed.category != task.category)[: self.shots]

    def worked(self, seed: Task) -> tuple[list[Message], str]:
        """The prompt and the answer of a worked example."""
        return self.prompt(seed), self.agent_answer(seed)

    def agent_answer(self, task: Task) -> str:
        """The reference as the agent would write it.  Default: `Task.answer` if a text, else its JSON."""
        if isinstance(task.answer, str):
            return task.answer
        return json.dumps(task.answer, ensure_ascii=False)

    def score(self, task: Task, answer: str) -> Score:
        """The `verdict` on what the agent wrote after its thoughts; invalid if `verdict` raises.  Total."""
        try:
            said = after_thoughts(answer)
            if isinstance(said, Rejection):
                return Score(0.0, False, False, said.reason)
            return self.verdict(task, self.own_form(task, said))
        except Exception as error:
            return Score(0.0, False, False, f"malformed_task_{type(error).__name__.lower()}")

    # -- episodes -------------------------------------------------------------------------------------------

    def is_interactive(self, task: Task) -> bool:
        """Whether `task` is played with `episode` rather than answered once."""
        return self.episodes

    def episode(self, task: Task) -> Episode:
        """A fresh attempt at `task`.  May take seconds; raises if the engine cannot open the task."""
        raise NotImplementedError(f"{self.name} has no episodes")

    def agent_answers(self, task: Task) -> list[str]:
        """The reference answers in order; an episode that is given them ends in success."""
        return [self.agent_answer(task)]

    # -- the simulator --------------------------------------------------------------------------------------

    def simulator_messages(self, seed: Task, statistics: SeedStatistics) -> list[Message]:
        """The simulator's prompt for one variation of `seed`, with `rules` and the agent's success."""
        given, answer = " with its answer", f', "answer": {self.answer_form(seed)}'
        if self._solves:
            given = answer = ""
        rules = self.rules and f" {self.rules}"
        system = _RULES.format(rules=rules, given=given, answer=answer)
        parts = [f"Task:\n{self.simulator_answer(seed)}", success_record(statistics)]
        if len(seed.messages) > 1:
            earlier = seed.messages[:-1]
            said = "\n".join(f"{m['role'].capitalize()}: {m['content']}" for m in earlier)
            parts.insert(0, f"What comes before the prompt, and stays as it is:\n{said}")
        if seed.tools:
            shown = "\n".join(json.dumps(dict(tool), ensure_ascii=False) for tool in seed.tools)
            parts.insert(0, f"Functions that can be called, and stay as they are:\n{shown}")
        return chat(system, *parts)

    def simulator_answer(self, task: Task, seed: Task | None = None) -> str:
        """The text that the simulator would write for `task`; `parse` inverts it.

        `seed`: the seed that it varies; None: the one that `task` was made from.
        """
        written = {"prompt": task.messages[-1]["content"]}
        if not self._solves:
            written["answer"] = self.write_answer(task)
        return json.dumps(written, ensure_ascii=False)

    def solve(self, prompt: str) -> Any:
        """Computes the answer to a prompt, as `read_answer` reads it; the simulator then writes none.

        Defined only where that is possible.  Raises ValueError that says why a prompt has no answer; the
        generation is then a BAD_ANSWER.
        """
        raise NotImplementedError

    @property
    def _solves(self) -> bool:
        return type(self).solve is not Benchmark.solve

    def answer_form(self, seed: Task) -> str:
        """How the default simulator prompt describes the JSON of an answer."""
        return "the answer"

    def write_answer(self, task: Task) -> Any:
        """The reference as the JSON value that the simulator writes.  Default: `Task.answer`."""
        return task.answer

    def read_answer(self, value: Any, seed: Task) -> Any:
        """Makes `Task.answer` from the simulator's JSON.  Raises ValueError that says what was expected."""
        return value

    def parse(self, text: str, seed: Task, task_id: str, generation: int) -> Task | Rejection:
        """Parses one generation of the simulator: `read`, within `max_generation`.  Total."""
        if rejection := check_text(text, self.max_generation):
            return rejection
        read = self.read(text, seed)
        if isinstance(read, Rejection):
            return read
        new = {"id": task_id, "seed_id": seed.id, "origin": "generated", "generation": generation}
        return dataclasses.replace(read, **new)

    def read(self, text: str, seed: Task) -> Task | Rejection:
        """Reads a generation as a task like its seed; `parse` then fills in the ids and the origin.  Total.

        Default: a JSON object (`parse_lenient`) with prompt and answer, or the prompt alone (`solve`); the
        tools and the messages before the prompt come from the seed.
        """
        value = parse_lenient(text, self.max_generation, _MAX_DEPTH)
        if isinstance(value, Rejection):
            return value
        keys = ["prompt"] if self._solves else ["prompt", "answer"]
        if not isinstance(value, dict) or set(value) != set(keys):
            expected = f"expected an object with {' and '.join(keys)}, and nothing else"
            return Rejection(UNPARSABLE, expected)
        prompt = value["prompt"]
        if not isinstance(prompt, str) or not prompt.strip():
            return Rejection(UNPARSABLE, "prompt: expected a text")
        try:
            written = self.solve(prompt.strip()) if self._solves else value["answer"]
            answer = self.read_answer(written, seed)
        except ValueError as error:
            return Rejection(BAD_ANSWER, str(error)[:200])
        message = {"role": "user", "content": prompt.strip()}
        return dataclasses.replace(seed, messages=(*seed.messages[:-1], message), answer=answer)

    def verify(self, task: Task) -> Rejection | None:
        """Why a parsed task is unsound, or None: `fault`, or BAD_ANSWER if `fault` raises.  Total."""
        try:
            return self.fault(task)
        except Exception as error:
            said = f"malformed task: {type(error).__name__}: {error}"[:200]
            return Rejection(BAD_ANSWER, said + place(error))

    def fault(self, task: Task) -> Rejection | None:
        """Why a task is rejected, or None; may raise for a malformed task.

        Default: WRONG_ANSWER unless its own reference answer earns full reward.
        """
        score = self.score(task, self.agent_answer(task))
        return None if score.reward == 1.0 else Rejection(WRONG_ANSWER, score.reason)

    # -- results --------------------------------------------------------------------------------------------

    def aggregate(self, results: Sequence[tuple[Task, Score]]) -> dict[str, float]:
        """Metrics of any multiset of results, under the official evaluator's names.

        The headline number is "accuracy", or "<split>/accuracy" if there are several held-out splits, the
        main one first.  Default: success rates, overall and by category, and the mean reward.
        """
        if not results:
            return {"accuracy": 0.0}
        metrics = {
            "accuracy": mean([score.success for _, score in results]),
            "reward": mean([score.reward for _, score in results]),
        }
        counts = Counter(task.category for task, _ in results)
        solved = Counter(task.category for task, score in results if score.success)
        if len(counts) > 1:
            # The part before a slash would be taken for a split.  URL escapes keep the names distinct.
            metrics |= {
                f"accuracy_{c.replace('%', '%25').replace('/', '%2F')}": solved[c] / counts[c]
                for c in sorted(counts)
            }
        return metrics

    def official_row(  # noqa: B027
        self, task: Task, answers: Sequence[str]
    ) -> tuple[str, dict[str, Any]] | None:
        """An attempt as the official evaluator reads it: the file's relative path, and its line's object.

        None (the default): it reads no answer files, or none for this task.
        """

    def read_official(self, row: Mapping[str, Any], tasks: Mapping[str, Task]) -> tuple[str, str] | None:
        """Inverse of `official_row`: the task's id, and an answer that `score` reads; None for other tasks.

        tasks: by id.  Raises ValueError that says what was expected in the row.
        """
        raise ValueError(f"benchmark {self.name!r} has no official files of answers")

    def facts(self) -> dict[str, str]:
        """What a reader of the metrics must know besides their names: versions, rules, data sources."""
        return {}

    def about(self) -> dict[str, str]:
        """`facts` and the worked examples used; stored with every result."""
        facts = dict(self.facts())
        if self.shots:
            used = {seed.id for task in self.tasks("eval") for seed in self.examples(task)}
            facts["shots"] = f"{self.shots} worked examples, of the seeds {', '.join(sorted(used))}"
        return facts


def skills(benchmark: Benchmark, task: Task) -> list[str]:
    """The skills that a task needs, at least one; sorted, so that sums over them are bit-identical."""
    return sorted(benchmark.skills(task)) or [benchmark.signature(task)]


def asking_for(benchmark: Benchmark, task: Task, seed: Task) -> SeedStatistics:
    """What a prompt for a variation of `seed` shows if `task` is to be a right answer, before any attempt."""
    if benchmark.askable(seed):
        return SeedStatistics(difficulty=int(benchmark.difficulty(task)))
    return SeedStatistics()


def _one_turn(messages: Sequence[Message], system: Sequence[Message]) -> str:
    """A prompt as one message, without system messages that are also in the task's own prompt."""
    rest = [message for message in messages if message not in system]
    spoken = sum(message["role"] != "system" for message in rest)
    return "\n\n".join(
        message["content"]
        if spoken == 1 or message["role"] == "system"
        else f"{message['role'].capitalize()}: {message['content']}"
        for message in rest
    )
