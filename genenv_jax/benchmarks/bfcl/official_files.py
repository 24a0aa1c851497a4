"""The result files of BFCL's evaluator: one JSON line per task, {"id", "result"}, one file per category.

A result is the text of a single turn; with function calling it is a list of {name: arguments as JSON}.  For a
conversation it is a list of turns, each the list of its answers.  `bfcl evaluate` finds the files under
result/MODEL/ and scores those of "prompting" models by the Python calls in the text.
"""

import json
from collections.abc import Sequence
from typing import Any

from genenv_jax.benchmarks.base import Rejection, Task
from genenv_jax.benchmarks.bfcl import categories
from genenv_jax.benchmarks.bfcl.backends import decode
from genenv_jax.benchmarks.bfcl.multi_turn import MAX_STEPS
from genenv_jax.benchmarks.bfcl.source_calls import decode_source_calls
from genenv_jax.benchmarks.safe_parse import parse_json
from genenv_jax.benchmarks.task import Tools
from genenv_jax.benchmarks.tools import as_python, read_tool_calls


def file_of(version: str, category: str) -> str:
    """The place of a category's file under result/MODEL/."""
    name = f"BFCL_{version}_{category}_result.json"
    if version == "v3":
        return name
    for group in ("live", "multi_turn"):
        if category.startswith(f"{group}_"):
            return f"{group}/{name}"
    return f"non_live/{name}"


def result_of(task: Task, answers: Sequence[str], in_template: bool) -> str | list[list[str]]:
    """The result of one attempt: its answer, or a conversation's answers by turn.

    in_template: the chat template showed the tools; calls in its form are written as Python, which the
      official decoder reads.
    """
    tools, spec = task.tools, task.answer
    if spec["rule"] != categories.CONVERSATION:
        answer = answers[-1] if answers else ""
        return _plain(answer, tools, spec["language"]) if in_template else answer
    turns: list[list[str]] = [[]]
    for answer in answers:
        said = as_python(answer, tools) if in_template else answer
        turns[-1].append(said)
        calls = decode(said)
        # As in the evaluator's own loop, a turn ends without a call, or after too many answers with some.
        if isinstance(calls, Rejection) or not calls or len(turns[-1]) > MAX_STEPS:
            turns.append([])
    return turns if turns[-1] else turns[:-1]


def answer_of(task: Task, result: Any) -> str:
    """An answer that `BFCL.verdict` scores as the evaluator scores the result.

    Raises ValueError that says what was expected.
    """
    tools, spec = task.tools, task.answer
    if spec["rule"] != categories.CONVERSATION:
        return _text(result, tools, spec["language"])
    if not isinstance(result, list) or not all(isinstance(steps, list) for steps in result):
        raise ValueError("result: expected a list of turns, each a list of answers")
    return json.dumps([[_text(step, tools, spec["language"]) for step in turn] for turn in result])


def _text(result: Any, tools: Tools, language: str) -> str:
    """A text as it is; calls as source text, with the dots that APIs replace in names.

    Arguments that are not a JSON object are the model's mistake: its calls then stay unreadable.
    """
    if isinstance(result, str):
        return result
    if not isinstance(result, list) or not all(isinstance(call, dict) for call in result):
        raise ValueError("result: expected a text, or a list of {name: arguments as JSON}")
    calls = [
        {"name": name, "arguments": parse_json(of) if isinstance(of, str) else of}
        for call in result
        for name, of in call.items()
    ]
    if not all(isinstance(call["arguments"], dict) for call in calls):
        return json.dumps(result)
    return _plain(json.dumps(calls), tools, language)


def _plain(answer: str, tools: Tools, language: str) -> str:
    """An answer with its calls as the source text of Python, Java or JavaScript, if it can be read."""
    if language == "python":
        return as_python(answer, tools)
    calls = read_tool_calls(answer, tools)
    if isinstance(calls, Rejection):
        return answer
    written = (
        f"{name}({', '.join(f'{key}={_source(value, language)}' for key, value in of.items())})"
        for call in calls
        for name, of in call.items()
    )
    return ", ".join(written)


def _source(value: Any, language: str) -> str:
    """Source text that the official decoder reads as the value: as it stands, or in quotes.

    Some Java collections (strings beside numbers) have no such text and stay as they are.
    """
    quoted = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, str):
        return quoted
    for text in (value, quoted):
        found = decode_source_calls(f"f(x={text})", language)
        if not isinstance(found, Rejection) and found == [{"f": {"x": value}}]:
            return text
    return value
