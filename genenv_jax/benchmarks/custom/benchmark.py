"""The base class for your own benchmark of questions whose answers are compared with a reference.

    class Units(Custom):
        name = "units"
        checker = "numeric"

        def questions(self, split): ...     # Question("How many metres are 3 km?", 3000), ...

Set `config.benchmark.name = "my_module:Units"` to use it in a run.  docs/your_benchmark.md has a worked
example.
"""

import abc
import dataclasses
import json
import re
from collections.abc import Iterable
from typing import Any, ClassVar

from absl import logging

from genenv_jax.benchmarks import base
from genenv_jax.benchmarks.base import Message, Rejection, Score, Task
from genenv_jax.benchmarks.bfcl.schemas import values_to_state
from genenv_jax.benchmarks.calls import write_calls
from genenv_jax.benchmarks.custom import calls, checkers
from genenv_jax.benchmarks.custom.checkers import CALL, CHECKERS, EXACT, F1
from genenv_jax.benchmarks.grounding import judge
from genenv_jax.benchmarks.judge import EndpointJudge
from genenv_jax.benchmarks.places import place
from genenv_jax.benchmarks.safe_parse import check_text
from genenv_jax.benchmarks.task import Tools
from genenv_jax.benchmarks.tools import ToolBenchmark, as_python, meaning_of, tools_message
from genenv_jax.benchmarks.wording import fold, letters, words
from genenv_jax.system.keys import as_line

_MAX_ANSWER = 8_192  # characters of an agent's answer that are read
# The characters that distinguish tasks: letters, digits and arithmetic signs.
_TELLING = re.compile(r"[^\W_]+|[+*/^=<>%×÷−±·√≤≥∪∩$€£]|(?<=[0-9])\.(?=[0-9])|-(?=\s*[0-9(])")
_DIGITS = re.compile(r"[0-9]+")


@dataclasses.dataclass(frozen=True)
class Question:
    """A question for the agent, with its reference answer.

    Attributes:
      prompt: the last user message.
      answer: the reference, in the checker's form (`checkers.read_reference`).
      id: unique in the benchmark; "": made from the question's position.
      category: stratum of the metrics.
      checker: one of `checkers.CHECKERS`; "": the benchmark's.
      context: messages before the prompt (a system message, earlier turns).  Variations keep them.
      tools: descriptions of the functions that calls may use (`calls.read_tools`).  Variations keep them.
      where: the question's place in error messages, such as "train.jsonl:3".
    """

    prompt: str
    answer: Any
    id: str = ""
    category: str = "all"
    checker: str = ""
    context: tuple[Message, ...] = ()
    tools: Tools = ()
    where: str = ""


class Custom(ToolBenchmark):
    """Questions with reference answers.  A subclass defines `questions`.

    Attributes:
      checker: how answers are compared, one of `checkers.CHECKERS`; a question may override it.
      instruction: the agent's system message; None: the checker's, which says how to answer.
      judge: decides whether an answer without full reward from the checker `exact` or `f1` means the same as
        the reference; None: no judge.
      isolated: True, since your own methods may hang or crash on model output; set it to False if none of
        them can.
    """

    name: ClassVar[str] = "custom"
    isolated: ClassVar[bool] = True
    checker: str = EXACT
    instruction: str | None = None
    judge: ClassVar[EndpointJudge | None] = None

    @abc.abstractmethod
    def questions(self, split: str) -> Iterable[Question]:
        """The questions of "seed" (for training) or "eval" (held out), the same ones on every call.

        Seeds that ask the same as a held-out question are dropped.
        """

    def grade(self, question: Question, answer: str) -> float:
        """The reward of an answer, in [0, 1].  Default: the question's checker decides.

        answer: what `checkers.extract` finds in the agent's text; for calls, the whole text.
        """
        return checkers.grade(question.checker, question.answer, answer, question.tools)

    def check(self, question: Question) -> str:
        """Why a question of the simulator is unsound, such as "another wording"; "" (default): it is sound.

        `solve` is for questions whose answer can be computed.
        """
        return ""

    # -- derived from the above -----------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        """Keeps the tasks only if worked examples need them: a worker does not read any tasks itself."""
        return dict(vars(self)) if self.shots else super().__getstate__()

    def load(self, split: str) -> list[Task]:
        """See `Benchmark.load`; an error about an unsound question names its place."""
        held_out = self._made("eval")
        if split == "eval":
            return held_out
        asked = {self.canonical(task) for task in held_out}
        ids = {task.id for task in held_out}
        seeds: dict[str, Task] = {}
        made = self._made("seed")
        for task in made:
            if task.id in ids:
                raise ValueError(f"{self.name}: id {task.id!r} is used by a seed and by a held-out task")
            seeds.setdefault(self.canonical(task), task)
        if repeated := len(made) - len(seeds):
            logging.warning("%s: %d seeds dropped: they ask what other seeds ask", self.name, repeated)
        if dropped := sum(self.canonical(task) in asked for task in made):
            logging.warning("%s: %d seeds dropped: they ask held-out questions", self.name, dropped)
        return [task for key, task in seeds.items() if key not in asked]

    def _made(self, split: str) -> list[Task]:
        """All questions of a split as tasks."""
        where = f"{type(self).__name__}.questions({split!r})"
        try:
            asked = list(self.questions(split))
        except Exception as error:
            mine = place(error)
            if not mine and isinstance(error, ValueError | OSError):
                raise  # from the package's own readers, whose messages name the file
            raise ValueError(f"{where} raised {type(error).__name__}: {error}{mine}") from error
        made: dict[str, Task] = {}
        for index, question in enumerate(asked):
            if not isinstance(question, Question):
                raise ValueError(f"{where}[{index}] is {question!r:.100}: expected a Question")
            here = question.where or f"{where}[{index}]"
            question = _sound(question, self.checker, here)
            task = self._task(question, question.id or f"{split}-{index}", split)
            if fault := self.verify(task):
                raise ValueError(f"{here}: {fault.reason}: {fault.detail}")
            if task.id in made:
                raise ValueError(f"{here}: id {task.id!r} was used before: expected each once")
            made[task.id] = task
        return list(made.values())

    def _task(self, question: Question, task_id: str, origin: str) -> Task:
        """Makes a task from a sound question.

        `Task.answer` is {"reference", "checker", "listed"}; listed: the prompt contains the answer, perhaps
        among others, as in multiple choice.
        """
        listed = checkers.holds(question.prompt, question.checker, question.answer)
        return Task(
            id=task_id,
            benchmark=self.name,
            category=question.category,
            messages=(*question.context, {"role": "user", "content": question.prompt}),
            tools=tuple(question.tools),
            answer={"reference": question.answer, "checker": question.checker, "listed": listed},
            origin=origin,
        )

    def prompt(self, task: Task) -> list[Message]:
        """The task's messages; tools and instruction end the system message, or become one."""
        messages, said = super().prompt(task), self.instruction
        in_template = task.tools and self.call_form
        if said is None:
            said = checkers.IN_TEMPLATE if in_template else checkers.INSTRUCTIONS[task.answer["checker"]]
        if task.tools and not in_template:
            listed = "\n".join(json.dumps(dict(tool), ensure_ascii=False) for tool in task.tools)
            said = f"You can call these functions:\n{listed}\n\n{said}".strip()
        if said and len(messages) > 1 and messages[0]["role"] == "system":
            messages[0] = {"role": "system", "content": f"{messages[0]['content']}\n\n{said}"}
        elif said:
            messages.insert(0, {"role": "system", "content": said})
        return [tools_message(task.tools), *messages] if in_template else messages

    def own_form(self, task: Task, answer: str) -> str:
        """See `Benchmark.own_form`: calls of the task's tools as `[f(x=1)]`."""
        return as_python(answer, task.tools) if task.tools else answer

    def agent_answer(self, task: Task) -> str:
        if task.tools and self.call_form:
            return write_calls(task.answer["reference"], self.call_form)
        return checkers.write(task.answer["checker"], task.answer["reference"])

    def answer_form(self, seed: Task) -> str:
        return checkers.FORMS[seed.answer["checker"]]

    def write_answer(self, task: Task) -> Any:
        """See `Benchmark.write_answer`; uses the first of several references."""
        checker, reference = task.answer["checker"], task.answer["reference"]
        return calls.to_json(reference) if checker == CALL else checkers.golds(reference)[0]

    def read_answer(self, value: Any, seed: Task) -> dict[str, Any]:
        """See `Benchmark.read_answer`.

        A generated task has one answer: otherwise the simulator could make a task trivial by listing many
        accepted answers.
        """
        checker = seed.answer["checker"]
        if isinstance(value, list) and checker != CALL:
            raise ValueError("expected one answer, not a list")
        return {**seed.answer, "reference": checkers.read_reference(checker, value)}

    def fault(self, task: Task) -> Rejection | None:
        """See `Benchmark.fault`: UNPARSABLE, BAD_ANSWER, GIVEN_AWAY or WRONG_ANSWER.

        A generated task must not contain its answer, unless its seed does.
        """
        question = _question(task)
        if not letters(question.prompt):
            return Rejection(base.UNPARSABLE, "a prompt without letters or digits")
        if question.tools and (problem := calls.misfit(question.answer, question.tools)):
            return Rejection(base.BAD_ANSWER, problem)
        given = checkers.holds(question.prompt, question.checker, question.answer)
        if given and not task.answer["listed"]:
            return Rejection(base.GIVEN_AWAY, "the prompt contains its answer")
        if fault := self.check(question):
            return Rejection(base.WRONG_ANSWER, str(fault)[:200])
        score = self.verdict(task, self.own_form(task, self.agent_answer(task)))
        if score.reward == 1:
            return None
        return Rejection(base.WRONG_ANSWER, f"the reference answer is graded {score.reward}: {score.reason}")

    def verdict(self, task: Task, answer: str) -> Score:
        """See `Benchmark.verdict`: `grade` of the answer found in the text."""
        if rejection := check_text(answer, _MAX_ANSWER):
            return Score(0.0, False, False, rejection.reason)
        question = _question(task)
        found = answer if question.checker == CALL else checkers.extract(answer)
        if reason := checkers.unreadable(question.checker, found):
            return Score(0.0, False, False, reason)
        reward = float(self.grade(question, found))
        if reward < 1 and self.judge and question.checker in (EXACT, F1):
            try:
                same = self.judge(question.prompt, checkers.golds(question.answer), found)
            except Exception as error:  # a network or a server can fail in any way
                detail = {"judge_error": as_line(f"{type(error).__name__}: {error}")[:200]}
                return Score(0.0, False, False, base.ENVIRONMENT_ERROR, detail)
            reward = 1.0 if same else reward
        if not 0 <= reward <= 1:
            raise ValueError(f"grade returned {reward}: expected a number in [0, 1]")
        success = checkers.succeeds(question.checker, reward)
        return Score(reward, success, True, "" if success else "wrong_answer")

    def canonical(self, task: Task) -> str:
        """See `Benchmark.canonical`; arithmetic signs and tools also distinguish questions."""
        said = (fold(message["content"]) for message in task.messages)
        names = sorted(tool["name"] for tool in task.tools)
        told = ["".join(_TELLING.findall(text)) for text in said]
        return json.dumps([*told, *names], ensure_ascii=False)

    def requests(self, task: Task) -> list[tuple[str, list[str]]]:
        """See `Benchmark.requests`: the prompt with each of its references, or for calls the functions."""
        reference = task.answer["reference"]
        if task.answer["checker"] == CALL:
            return [(self.text(task), [name for name, _ in calls.pairs(reference)])]
        return [(self.text(task), words(str(gold))) for gold in checkers.golds(reference)]

    def meanings(self, task: Task) -> list[str]:
        """See `Benchmark.meanings`: the calls, or each reference with the prompt's numbers, at least two."""
        reference = task.answer["reference"]
        if task.answer["checker"] == CALL:
            return meaning_of(task.tools, calls.pairs(reference))
        numbers = sorted(word for word in words(self.text(task)) if word[0].isdigit())
        golds = checkers.golds(reference) if len(numbers) > 1 else []
        return [json.dumps([numbers, words(str(gold))]) for gold in golds]

    def grounding(self, task: Task) -> Rejection | str:
        """See `Benchmark.grounding`: GROUNDED if `check` is overridden; calls are judged by their values."""
        if type(self).check is not Custom.check:
            return base.GROUNDED
        if task.answer["checker"] != CALL:
            return base.UNDECIDED
        said = "\n".join(message["content"] for message in task.messages)
        made = calls.pairs(task.answer["reference"])
        values = [arguments for _, arguments in made]
        if task.tools:
            values = [values_to_state([call], task.tools) for call in made]
        return judge(made, values, self.text(task), said, "")

    def signature(self, task: Task) -> str:
        """See `Benchmark.signature`: the category, and the prompt without its numbers and names."""
        kept = (word for word in _DIGITS.sub("#", self.text(task)).split() if not word[0].isupper())
        return f"{task.category}: {' '.join(kept)}"

    def difficulty(self, task: Task) -> float:
        """See `Benchmark.difficulty`: the number of words in the prompt."""
        return float(len(words(self.text(task))))

    def facts(self) -> dict[str, str]:
        kind = type(self)
        own = kind.grade is not Custom.grade
        checker = "grade of the class" if own else self.checker
        return {"data": f"{kind.__module__}:{kind.__qualname__}", "checker": checker}

    def about(self) -> dict[str, str]:
        """See `Benchmark.about`; without "tools" if no task has any."""
        about = super().about()
        if not any(task.tools for split in ("seed", "eval") for task in self.tasks(split)):
            del about["tools"]
        return about


def _question(task: Task) -> Question:
    """The question that a task was made from.  Raises if the task was not made from a question."""
    *context, last = task.messages
    return Question(
        prompt=last["content"],
        answer=task.answer["reference"],
        id=task.id,
        category=task.category,
        checker=task.answer["checker"],
        context=tuple(context),
        tools=task.tools,
        where=task.id,
    )


def _sound(question: Question, checker: str, where: str) -> Question:
    """The question with its checker filled in (default: the benchmark's) and its reference parsed."""
    checker = question.checker or checker
    if not isinstance(question.prompt, str) or not question.prompt.strip():
        raise ValueError(f"{where}: prompt {question.prompt!r}: expected a text")
    if checker not in CHECKERS:
        raise ValueError(f"{where}: checker {checker!r}: expected one of {', '.join(CHECKERS)}")
    for key, text in (("id", question.id or "x"), ("category", question.category)):
        if not isinstance(text, str) or not 0 < len(text) <= 200 or not text.isprintable():
            raise ValueError(f"{where}: {key} = {text!r:.60}: expected a line of 1 to 200 characters")
    try:
        reference = checkers.read_reference(checker, question.answer)
    except ValueError as error:
        raise ValueError(f"{where}: answer {question.answer!r:.100}: {error}") from None
    try:
        tools = calls.read_tools(question.tools) if question.tools else ()
    except ValueError as error:
        raise ValueError(f"{where}: tools: {error}") from None
    if tools and checker != CALL:
        raise ValueError(f"{where}: tools with the checker {checker!r}: expected {CALL!r}")
    return dataclasses.replace(question, checker=checker, answer=reference, tools=tools)
