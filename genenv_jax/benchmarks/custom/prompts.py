"""What the two players of a custom benchmark read."""

from __future__ import annotations

from genenv_jax.benchmarks.base import Message, SeedStatistics
from genenv_jax.benchmarks.custom.checkers import CALL, EXACT, F1, NUMERIC
from genenv_jax.benchmarks.custom.question import Question
from genenv_jax.benchmarks.success_record import success_record

_AS = "End with the answer alone, as <answer>your answer</answer>."
INSTRUCTIONS = {
    EXACT: _AS,
    F1: _AS,
    NUMERIC: "End with the answer, a number without its unit, as <answer>your answer</answer>.",
    CALL: "Reply with the function calls alone, as [name(argument=value), ...].",
}
_ANSWERS = {
    EXACT: "a text, as short as it can be",
    F1: "a text of a few words",
    NUMERIC: "a number",
    CALL: 'the call, {"name": ..., "arguments": {...}}, or a list of calls',
}
_RULES = """\
You write training tasks for an agent. You are shown one task with its answer, and how well the agent does \
on tasks like it. Write one new task: a variation, not a copy. It must have one right answer, which follows \
from it and is not given away in it.{rules}

Reply with one JSON object and nothing else: {{"prompt": the task, "answer": {answer}}}"""


def agent_messages(question: Question, instruction: str) -> list[Message]:
    """The context, the prompt, and the instruction as system message or at the end of the one there is."""
    context = list(question.context)
    if instruction and context and context[0]["role"] == "system":
        said = f"{context[0]['content']}\n\n{instruction}"
        context[0] = {"role": "system", "content": said}
    elif instruction:
        context.insert(0, {"role": "system", "content": instruction})
    return [*context, {"role": "user", "content": question.prompt}]


def simulator_messages(
    question: Question, written: str, statistics: SeedStatistics, rules: str
) -> list[Message]:
    """Asks for one variation of a question.

    Args:
      written: the question as a simulator writes it.
      rules: what the benchmark asks of a task beside what all do; "" for nothing.
    """
    system = _RULES.format(rules=rules and f" {rules}", answer=_ANSWERS[question.checker])
    parts = [f"Task:\n{written}"]
    if question.context:
        said = "\n".join(f"{m['role'].capitalize()}: {m['content']}" for m in question.context)
        parts.insert(0, f"What comes before the prompt, and stays as it is:\n{said}")
    parts.append(success_record(statistics))
    return [
        {"role": "system", "content": system},
        {"role": "user", "content": "\n\n".join(parts)},
    ]
