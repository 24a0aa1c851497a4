"""The base class of a benchmark of one's own: questions, and what is special about them.

    class Units(Custom):
        name = "units"
        checker = "numeric"

        def questions(self, split): ...     # Question("How many metres are 3 km?", 3000), ...

`config.benchmark.name = "my_module:Units"` makes it a run's benchmark.  What a subclass may replace stands
first, and everything of `genenv_jax.benchmarks.base` can be replaced as well.  docs/your_benchmark.md has a
worked example.
"""

from __future__ import annotations

import abc
import dataclasses
import json
import re
import typing
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from genenv_jax.benchmarks import imported
from genenv_jax.benchmarks.base import (
    BAD_ANSWER,
    GIVEN_AWAY,
    GROUNDED,
    UNDECIDED,
    UNPARSABLE,
    WRONG_ANSWER,
    Message,
    Rejection,
    Score,
    SeedStatistics,
    Task,
)
from genenv_jax.benchmarks.custom import calls, checkers, prompts
from genenv_jax.benchmarks.custom import generation as generations
from genenv_jax.benchmarks.custom.checkers import CALL, CHECKERS, EXACT
from genenv_jax.benchmarks.custom.loading import load
from genenv_jax.benchmarks.custom.question import Question, of_task, to_task
from genenv_jax.benchmarks.grounding import judge, leaves
from genenv_jax.benchmarks.options import check_choice, check_integers
from genenv_jax.benchmarks.recorded import Loaded
from genenv_jax.benchmarks.safe_parse import check_text
from genenv_jax.benchmarks.wording import fold, letters, words

# What tells tasks apart: letters, digits, and the signs of arithmetic.
_TELLING = re.compile(r"[^\W_]+|[+*/^=<>%]|(?<=[0-9])\.(?=[0-9])|-(?=\s*[0-9(])")
_DIGITS = re.compile(r"[0-9]+")


@typing.dataclass_transform(kw_only_default=True)
@dataclasses.dataclass(kw_only=True, eq=False)
class Custom(Loaded):
    """A `Benchmark`, `Worded`, `Shaped`, `Grounded` and `Described` of questions with reference answers.

    A subclass is a dataclass by itself: an annotated attribute with a default is an option, and a plain one
    replaces the default of an option that it has inherited.

    Attributes:
      name: for results and messages.
      rules: what the simulator is told of tasks beside what holds for all.
      isolated: texts are parsed, verified and scored in worker processes, since a method of one's own may
        hang or fail on what a model wrote; False where none does.

    Args, beside those of `Loaded`:
      checker: how answers are compared, `checkers.CHECKERS`; a question may have its own.
      instruction: the agent's system message; None: the checker's, which says how to answer.
      answer_chars: longest answer that is read.
      generation_chars: longest generation of the simulator that is read.
    """

    name: typing.ClassVar[str] = "custom"
    rules: typing.ClassVar[str] = ""
    isolated: typing.ClassVar[bool] = True

    checker: str = EXACT
    instruction: str | None = None
    answer_chars: int = 8_192
    generation_chars: int = 8_192

    def __init_subclass__(cls, **arguments):
        super().__init_subclass__(**arguments)
        if "__init__" in vars(cls):
            raise TypeError(
                f"{cls.__name__} has an __init__: expected annotated attributes as options, and "
                "__post_init__ for checks"
            )
        options = {field.name: field for field in dataclasses.fields(cls)}
        for name in options.keys() & vars(cls).keys() - cls.__annotations__.keys():
            cls.__annotations__[name] = options[name].type
        dataclasses.dataclass(kw_only=True, eq=False)(cls)

    def __post_init__(self):
        super().__post_init__()
        check_choice("checker", self.checker, CHECKERS)
        if self.instruction is not None and not isinstance(self.instruction, str):
            raise ValueError(f"instruction = {self.instruction!r}: expected a text or None")
        check_integers(1, 16_384, answer_chars=self.answer_chars)
        check_integers(1, 16_384, generation_chars=self.generation_chars)

    def tasks(self, split: str) -> Sequence[Task]:
        """See `Benchmark.tasks`."""
        if "_tasks" not in vars(self):
            raise ValueError(
                f"{type(self).__name__}.__post_init__ does not call super().__post_init__()"
            )
        return super().tasks(split)

    def __getstate__(self) -> dict[str, Any]:
        """With the tasks only where worked examples are taken from them: a worker reads none itself."""
        return self.__dict__ | ({} if self.shots else {"_tasks": {}, "_in_order": None})

    # -- what a benchmark of one's own says -----------------------------------------------------------------

    @abc.abstractmethod
    def questions(self, split: str) -> Iterable[Question]:
        """The questions of "seed" (to train on) or "eval" (held out), the same ones at every call.

        Seeds that ask what a held-out question asks are left out.
        """

    def grade(self, question: Question, answer: str) -> float:
        """The reward of an answer, in [0, 1].  Default: as the question's checker says.

        answer: what `checkers.extract` finds in the agent's text, at most `answer_chars`; of calls all of it.
        """
        return checkers.grade(question.checker, question.answer, answer)

    def check(self, question: Question) -> str:
        """Why a question is unsound, such as "the answer is 3000"; "" if it is not.

        The place to work the answer out where that is possible: what the simulator wrote comes through here
        before it becomes a task.  Default: nothing is known.
        """
        return ""

    # -- what follows from it -------------------------------------------------------------------------------

    def _all(self, split: str) -> list[Task]:
        held_out = load(self, "eval")
        if split == "eval":
            return held_out
        asked = {self.canonical(task) for task in held_out}
        ids = {task.id for task in held_out}
        seeds: dict[str, Task] = {}
        for task in load(self, "seed"):
            if task.id in ids:
                raise ValueError(f"{self.name}: id {task.id!r} is of a seed and of a held-out task")
            if self.canonical(task) not in asked:
                seeds.setdefault(self.canonical(task), task)
        return list(seeds.values())

    def _prompt(self, task: Task) -> list[Message]:
        question, said = of_task(task), self.instruction
        return prompts.agent_messages(
            question, prompts.INSTRUCTIONS[question.checker] if said is None else said
        )

    def simulator_messages(self, seed: Task, statistics: SeedStatistics) -> list[Message]:
        """See `Benchmark.simulator_messages`."""
        written = self.simulator_answer(seed)
        return prompts.simulator_messages(of_task(seed), written, statistics, self.rules)

    def simulator_answer(self, task: Task, seed: Task | None = None) -> str:
        """See `Benchmark.simulator_answer`."""
        question = of_task(task)
        return generations.write(question.prompt, question.checker, question.answer)

    def agent_answer(self, task: Task) -> str:
        """See `Benchmark.agent_answer`."""
        return checkers.write(task.answer["checker"], task.answer["reference"])

    def parse(self, text: str, seed: Task, task_id: str, generation: int) -> Task | Rejection:
        """See `Benchmark.parse`; reasons are those of `generations.read`."""
        read = generations.read(text, seed.answer["checker"], self.generation_chars)
        if isinstance(read, Rejection):
            return read
        prompt, reference = read
        varied = dataclasses.replace(of_task(seed), prompt=prompt, answer=reference)
        return to_task(
            varied,
            self.name,
            id=task_id,
            seed_id=seed.id,
            origin="generated",
            generation=generation,
            listed=seed.answer["listed"],
        )

    def verify(self, task: Task) -> Rejection | None:
        """See `Benchmark.verify`: BAD_ANSWER for a malformed task, and where a method of one's own raises."""
        try:
            return self._fault(task)
        except Exception as error:  # of code that has promised nothing
            said = f"{type(error).__name__}: {error}"[:200]
            return Rejection(BAD_ANSWER, said + imported.place(error))

    def _fault(self, task: Task) -> Rejection | None:
        """UNPARSABLE, GIVEN_AWAY, WRONG_ANSWER.

        A generated task must not name its answer, unless its seed does.
        """
        question = of_task(task)
        if not letters(question.prompt):
            return Rejection(UNPARSABLE, "a prompt without letters and digits")
        written = checkers.to_json(question.checker, question.answer)
        checkers.read_reference(question.checker, written)
        given = checkers.holds(question.prompt, question.checker, question.answer)
        if given and not task.answer["listed"]:
            return Rejection(GIVEN_AWAY, "the prompt has its answer")
        if fault := self.check(question):
            return Rejection(WRONG_ANSWER, str(fault)[:200])
        score = self._score(task, self.agent_answer(task))
        if score.reward == 1:
            return None
        return Rejection(
            WRONG_ANSWER, f"the reference answer is graded {score.reward}: {score.reason}"
        )

    def score(self, task: Task, answer: str) -> Score:
        """See `Benchmark.score`; not valid for a malformed task, and where a method of one's own raises."""
        try:
            return self._score(task, answer)
        except Exception as error:
            return Score(0.0, False, False, f"score_raised_{type(error).__name__.lower()}")

    def _score(self, task: Task, answer: str) -> Score:
        rejection = check_text(answer, self.answer_chars)
        if rejection:
            return Score(0.0, False, False, rejection.reason)
        question = of_task(task)
        found = answer if question.checker == CALL else checkers.extract(answer)
        if reason := checkers.unreadable(question.checker, found):
            return Score(0.0, False, False, reason)
        reward = float(self.grade(question, found))
        if not 0 <= reward <= 1:
            raise ValueError(f"grade returned {reward}: expected a number in [0, 1]")
        success = checkers.succeeds(question.checker, reward)
        return Score(reward, success, True, "" if success else "wrong_answer")

    def canonical(self, task: Task) -> str:
        """See `Benchmark.canonical`: the conversation without case, white space and punctuation."""
        said = (fold(message["content"]) for message in task.messages)
        return json.dumps(["".join(_TELLING.findall(text)) for text in said], ensure_ascii=False)

    def text(self, task: Task) -> str:
        """See `Benchmark.text`: the prompt."""
        return task.messages[-1]["content"]

    def requests(self, task: Task) -> list[tuple[str, list[str]]]:
        """See `Worded.requests`: the prompt with each of its references; of calls, the functions."""
        reference = task.answer["reference"]
        if task.answer["checker"] == CALL:
            return [(self.text(task), [name for name, _ in calls.pairs(reference)])]
        golds = reference if isinstance(reference, list) else [reference]
        return [(self.text(task), words(str(gold))) for gold in golds]

    def grounding(self, task: Task) -> Rejection | str:
        """See `Grounded.grounding`: certain where `check` is one's own; calls by their values."""
        if type(self).check is not Custom.check:
            return GROUNDED
        if task.answer["checker"] != CALL:
            return UNDECIDED
        said = "\n".join(message["content"] for message in task.messages)
        made = calls.pairs(task.answer["reference"])
        values = [value for _, arguments in made for value in leaves(arguments)]
        return judge(made, values, self.text(task), said, "")

    def signature(self, task: Task) -> str:
        """See `Shaped.signature`: the category, and the prompt without its numbers and names."""
        kept = (word for word in _DIGITS.sub("#", self.text(task)).split() if not word[0].isupper())
        return f"{task.category}: {' '.join(kept)}"

    def difficulty(self, task: Task) -> float:
        """See `Shaped.difficulty`: the words of the prompt."""
        return float(len(words(self.text(task))))

    def _facts(self) -> dict[str, str]:
        kind = type(self)
        facts = {"data": f"{kind.__module__}:{kind.__qualname__}", "checker": self.checker}
        if kind.grade is not Custom.grade:
            facts["checker"] = "grade of the class"
        return facts

    def aggregate(self, results: Sequence[tuple[Task, Score]]) -> dict[str, float]:
        """See `Benchmark.aggregate`: shares of successes, in all and by category, and the mean reward."""
        if not results:
            return {"accuracy": 0.0}
        metrics = {
            "accuracy": sum(score.success for _, score in results) / len(results),
            "reward": sum(score.reward for _, score in results) / len(results),
        }
        counts = Counter(task.category for task, _ in results)
        solved = Counter(task.category for task, score in results if score.success)
        if len(counts) > 1:
            # What stands before a slash would be taken for a split.
            metrics |= {
                f"accuracy_{c.replace('/', '-')}": solved[c] / counts[c] for c in sorted(counts)
            }
        return metrics
