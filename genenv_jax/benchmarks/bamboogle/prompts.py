"""The prompts of Bamboogle's two players, the agent and the simulator."""

import json

from genenv_jax.benchmarks.base import Message, SeedStatistics, Task, chat
from genenv_jax.benchmarks.headers import ANSWER, TASK
from genenv_jax.benchmarks.success_record import success_record

STEPS_HEADER = "New Steps:"
SEPARATOR = " | "  # between alternative answers

_CLOSED_BOOK = """\
Answer the question from what you know. Think step by step if you like: find the fact that the question \
only describes, then answer about it. End with the answer alone, a name, a number, a date or a few words, \
as <answer>your answer</answer>."""
_SEARCH = """\
Answer the question. You may search up to {searches} times: write <search>your query</search> and stop; \
what was found comes back between <information> and </information>. A query should ask for one fact. \
When you know enough, end with the answer alone, a name, a number, a date or a few words, as \
<answer>your answer</answer>."""

_SIMULATOR_RULES = """\
You write training questions for an agent. You are shown one question and how well the agent does on \
questions like it. Write one new question: a variation, not a copy, about other facts. {kind} The answer \
must be a fact that does not change, short, and not be contained in the question.

Reply with exactly these sections, each header at the start of a line, and nothing else:
{task_header} the question
{steps}{answer_header} the answer; several right wordings are separated by "{separator}\""""
_TWO_HOPS = (
    "It must need two facts, which are hardly ever stated together: the first is only described in the "
    "question, and the second is about it."
)
_ONE_HOP = "It must need one fact."
_STEPS_LINE = "{header} the two questions that lead to the answer, as JSON: {example}\n"
_STEPS_EXAMPLE = [
    {"question": "the first question", "answers": ["its answer"]},
    {"question": "the second question, which names that answer", "answers": ["its answer"]},
]

# The last line of the prompt, because small models overlook the system message.
_CUE = "\n\nEnd with <answer>your answer</answer>."


def question(task: Task) -> str:
    """The question of a task."""
    return task.messages[-1]["content"] if task.messages else ""


def write_steps(task: Task) -> str:
    """The sub-questions as a simulator writes them."""
    return json.dumps(task.answer["steps"], ensure_ascii=False)


def agent_messages(task: Task, searches: int) -> list[Message]:
    """Instructions and the question; `searches` 0 means closed book."""
    system = _SEARCH.format(searches=searches) if searches else _CLOSED_BOOK
    cue = "" if searches else _CUE
    return chat(system, f"Question: {question(task)}{cue}")


def simulator_messages(seed: Task, statistics: SeedStatistics) -> list[Message]:
    """Asks for one variation of `seed`, given its answers and the agent's record."""
    two_hops = bool(seed.answer["steps"])
    steps = _STEPS_LINE.format(header=STEPS_HEADER, example=json.dumps(_STEPS_EXAMPLE))
    system = _SIMULATOR_RULES.format(
        kind=_TWO_HOPS if two_hops else _ONE_HOP,
        task_header=TASK,
        steps=steps if two_hops else "",
        answer_header=ANSWER,
        separator=SEPARATOR,
    )
    parts = [f"Question:\n{question(seed)}"]
    if two_hops:
        parts.append(f"Steps:\n{write_steps(seed)}")
    parts.append(f"Answer:\n{SEPARATOR.join(seed.answer['answers'])}")
    parts.append(success_record(statistics, who="assistant", what="question"))
    return chat(system, *parts)
