"""Single turns, and conversation turns taken on their own: generations, faults, verdicts.

It has the same functions as `conversations`, for tasks that are answered once.
"""

import dataclasses
import keyword
import re
from collections.abc import Mapping
from typing import Any

from genenv_jax.benchmarks import base
from genenv_jax.benchmarks.base import Message, Rejection, Score, SeedStatistics, Task
from genenv_jax.benchmarks.bfcl import ast_checker, backends, categories, multi_turn, prompts, schemas
from genenv_jax.benchmarks.bfcl.categories import AST, NO_CALL, STATIC_MATCH, TURN_STATE, varies
from genenv_jax.benchmarks.bfcl.pairs import PAIRED
from genenv_jax.benchmarks.bfcl.source_calls import decode_source_calls
from genenv_jax.benchmarks.calls import Found
from genenv_jax.benchmarks.grounding import judge, leaves
from genenv_jax.benchmarks.headers import read_tools, read_with_tools, write_with_tools
from genenv_jax.benchmarks.safe_parse import parse_calls, repeats_argument, unfenced
from genenv_jax.benchmarks.task import Tools
from genenv_jax.benchmarks.tools import as_python, meaning_of, read_tool_calls, rewritten
from genenv_jax.benchmarks.wording import fold

_NOTHING_TO_CALL = "None of the functions can do that."
NO_REFUSAL = "no_refusal"  # officially no call, but no refusal in words either
_MAX_REQUEST = 12_288
# A line that a model writes which does not stop after the request; two of BFCL's 6,178 requests have one.
_RUNS_ON = re.compile(
    r"\n[^\w\n]*(?:user|assistant|system|note|explanation|answer|output|example|new \w+)[^\w\n]*:",
    re.IGNORECASE,
)
_NEXT_LIST = re.compile(r"\)\s{0,9}\]\s{0,9},?\s{0,9}\[(?=[\w.]{1,99}\()")  # `[f(x=1)] [g(y=2)]`
_MAX_CALLS = 64  # of a generated reference
# Calls or their fragments: they begin with a bracket or `name(`, or contain `name(argument=`, the keys of a
# call as JSON, or the tag that some models put around a call.
_FENCE = re.compile(r"\s*`*(?:(?<=```)\w+\n)?[\s`'\"]*")
_CALL_FIRST = re.compile(r"[\[({<](?!\s*[^\W\d_]+,? [^\W\d_]+[ .,])|[\w.$]+\((?!\))")
_CALL_INSIDE = re.compile(r"\w\s*\(\s*\w+\s*=|[\"'](?:name|arguments)[\"']\s*:|<tool_call>")
_UNQUOTED = re.compile("[^'\"#]*")
_NO_KEYWORD = rf"(?!(?:{'|'.join(keyword.kwlist)})\b)[^\W\d]"
_TWO_WORDS = re.compile(rf"\b{_NO_KEYWORD}\w*\s+{_NO_KEYWORD}")
_EXAMPLES = {"integer": 1, "float": 1.0, "boolean": True, "array": [], "tuple": [], "dict": {}}


def text(task: Task) -> str:
    """The latest request."""
    return task.messages[-1]["content"]


def requests(task: Task) -> list[tuple[str, list[str]]]:
    """The latest request with the names of its calls."""
    calls = schemas.reference_calls(task.answer["ground_truth"], task.tools)
    return [(text(task), sorted(name for name, _ in calls))]


def meanings(task: Task) -> list[str]:
    """The calls with required arguments; none for a conversation's turns, which calls do not tell apart."""
    required = {tool["name"]: tool["parameters"]["required"] for tool in task.tools}
    calls = schemas.reference_calls(task.answer["ground_truth"], task.tools)
    calls = [(name, {k: of[k] for k in of if k in required[name]} or of) for name, of in calls]
    return meaning_of((), calls if task.answer["rule"] == AST else [])  # whatever else could be called


def agent_answer(task: Task) -> str:
    """The reference calls as an agent writes them; a generated task's reference verbatim."""
    spec = task.answer
    if "reference" in spec:
        return spec["reference"]
    if spec["rule"] == TURN_STATE:
        made = backends.Backends(spec["scenario"])
        return backends.written(backends.reference(spec["calls"], made.parameter_order()))
    if spec["kind"] == "irrelevance":
        return "[]"
    if spec["kind"] == "relevance":
        return _any_call(task.tools)
    return schemas.render_calls(spec["ground_truth"], task.tools, spec["language"])


def _any_call(tools: Tools) -> str:
    """A well-formed call of the first tool, which is all that relevance requires."""
    parameters = tools[0]["parameters"]
    arguments = (
        f"{name}={_EXAMPLES.get(parameters['properties'][name].get('type'), 'value')!r}"
        for name in parameters["required"]
    )
    return f"[{tools[0]['name']}({', '.join(arguments)})]"


def grounding(task: Task) -> Rejection | str:
    """See `Benchmark.grounding`.

    A value need not be stated if it may be left out, is a default, or is in a required parameter's schema
    (but without other values, one such value must be), or in a conversation's turn, whose state may hold it.
    """
    spec = task.answer
    calls = list(schemas.reference_calls(spec["ground_truth"], task.tools))
    pairs = [pair for call in spec["ground_truth"] for pair in call.items()]
    required = [{name: {k: o for k, o in of.items() if "" not in o}} for name, of in pairs]
    asked = list(schemas.reference_calls(required, task.tools))
    values = [schemas.values_to_state([call], task.tools) for call in asked if spec["rule"] == AST]
    context = "\n".join(message["content"] for message in task.messages)
    called = {name for name, _ in calls}
    described = " ".join(map(str, leaves([tool for tool in task.tools if tool["name"] in called])))
    if spec["rule"] == AST and not any(values):  # the answer must not be a mere guess among listed values
        listed = [leaf for leaf in leaves([of for _, of in asked]) if isinstance(leaf, str)]
        described = " ".join(listed) or described
    return judge(calls, values, text(task), context, described)


def simulator_messages(seed: Task, statistics: SeedStatistics) -> list[Message]:
    """Asks for one variation of `seed`."""
    return prompts.simulator_messages(seed, agent_answer(seed), statistics)


def write(task: Task, same_tools: bool) -> str:
    """The inverse of `read`; writes the word `same` for the seed's tools."""
    tools = None if same_tools else task.tools
    return write_with_tools(tools, text(task), agent_answer(task), answer_first=True)


def read(generated: str, seed: Task) -> Task | Rejection:
    """Reads a task from a generation.  Total.

    Rejections: UNPARSABLE (sections, text after the request), TOO_LONG or NOT_TEXT (the request), BAD_TOOLS,
    BAD_ANSWER, and NOT_EXECUTABLE for new functions under the rule "turn_state".
    """
    sections = read_with_tools(generated, "request", _MAX_REQUEST)
    if isinstance(sections, Rejection):
        return sections
    listed, request, reference = sections
    if found := _RUNS_ON.search(request):
        return Rejection(base.UNPARSABLE, f"the request runs on: {found[0].strip()}")
    spec = seed.answer
    tools: Any = seed.tools
    if listed is not None:
        if spec["rule"] == TURN_STATE:
            return Rejection(base.NOT_EXECUTABLE, "it has functions of its own")
        if PAIRED in spec:
            return Rejection(base.BAD_TOOLS, "expected the seed's functions")
        tools = read_tools(listed)
        if isinstance(tools, Rejection):
            return tools
        if schemas.check_tools(tools, spec["language"]):
            tools = schemas.with_own_types(tools, spec["language"])
        if rejection := schemas.check_tools(tools, spec["language"]):
            return rejection
    reference = _in_own_form(reference, tools, spec)
    truth = _ground_truth(reference, tools, spec)
    if isinstance(truth, Rejection):
        return truth
    answer = {
        "kind": spec["kind"], "language": spec["language"], "rule": spec["rule"],
        "ground_truth": truth, "same_tools": listed is None, "reference": reference,
        **({PAIRED: spec[PAIRED]} if PAIRED in spec else {}),
    }  # fmt: skip
    category = seed.category
    if varies(spec):
        answer["kind"], category = categories.kind_and_category(category, len(truth), len(tools))
    if spec["rule"] == TURN_STATE:
        calls = reference.strip("`\n ").removeprefix("[").removesuffix("]")
        answer |= {"scenario": spec["scenario"], "history": spec["history"], "calls": [calls]}
    messages = (*seed.messages[:-1], {"role": "user", "content": request})
    changes = {"category": category, "messages": messages, "answer": answer}
    return dataclasses.replace(seed, tools=tuple(tools), **changes)


def fault(task: Task) -> Rejection | None:
    """NOT_EXECUTABLE if a reference call of a generated task fails; `read` has checked all else."""
    spec = task.answer
    if spec["rule"] != TURN_STATE or "reference" not in spec:
        return None
    results = multi_turn.reference_results(spec["scenario"], [*spec["history"], spec["calls"]])[-1]
    failed = next(filter(backends.is_error, results), None)
    return Rejection(base.NOT_EXECUTABLE, failed[:200]) if failed is not None else None


def _ground_truth(reference: str, tools: Tools, spec: Mapping[str, Any]) -> list[Any] | Rejection:
    """Ground truth of a reference answer's text, or a BAD_ANSWER rejection."""
    calls = _decode(reference, tools, spec)
    if isinstance(calls, Rejection):
        return Rejection(base.BAD_ANSWER, f"{calls.reason}: {calls.detail}"[:200])
    if len(calls) > _MAX_CALLS:
        return Rejection(base.BAD_ANSWER, f"more than {_MAX_CALLS} calls")
    if spec["language"] == "python" and repeats_argument(reference):
        return Rejection(base.BAD_ANSWER, "an argument is given twice")
    if (len(calls) == 0) != (spec["kind"] == "irrelevance"):
        return Rejection(base.BAD_ANSWER, f"{len(calls)} calls in a {spec['kind']} task")
    truth = schemas.ground_truth_of(calls, tools, spec["language"], spec["language"] == "python")
    if isinstance(truth, Rejection):
        return truth
    if spec["rule"] == AST and _repeats_call(truth):
        return Rejection(base.BAD_ANSWER, "the same call twice")
    return [] if spec["kind"] in NO_CALL else truth


def _repeats_call(truth: ast_checker.Truth) -> bool:
    """Whether two calls of a ground truth are the same, with defaults written or left out."""
    calls = [
        (name, {key: [option for option in options if option != ""] for key, options in of.items()})
        for call in truth
        for name, of in call.items()
    ]
    return any(call in calls[:i] for i, call in enumerate(calls))


def _in_own_form(reference: str, tools: Tools, spec: Mapping[str, Any]) -> str:
    """A reference as `[f(x=1)]` that has a code fence, a model family's form or a list for each call.

    Any other is returned unchanged.
    """
    if not isinstance(_decode(reference, tools, spec), Rejection):
        return reference
    joined = _NEXT_LIST.sub("), ", reference)
    if joined != reference and not isinstance(_decode(joined, tools, spec), Rejection):
        return joined
    inside = unfenced(reference)
    return as_python(inside, tools) if spec["language"] == "python" else inside


def in_form(task: Task, answer: str, form: str) -> str:
    """A reference answer from `agent_answer` in a format of `calls.write_calls`."""
    spec = task.answer
    if spec["kind"] == "irrelevance":
        return _NOTHING_TO_CALL
    return rewritten(answer, _decode(answer, task.tools, spec), form)


def _decode(answer: str, tools: Tools, spec: Mapping[str, Any]) -> Found:
    """Calls in a text.  The official decoder reads (ir)relevance answers as Python."""
    if spec["language"] != "python" and spec["kind"] not in NO_CALL:
        return decode_source_calls(answer, spec["language"])
    order = None if spec["rule"] == AST else schemas.parameter_order(tools)
    return parse_calls(answer, parameter_order=order)


def score(task: Task, answer: str, in_template: bool = False, graded: bool = False) -> Score:
    """Success means that the category's rule accepts the answer; the reward is then 1, else 0, except:

      * for irrelevance, an answer that does not decode and is no refusal in words (`refuses`) earns nothing
        and is not valid (NO_REFUSAL), but is still a success in held-out tasks, as officially;
      * under "turn_state", unneeded calls cost reward (`multi_turn.score_turn`);
      * `graded`: wrong calls that are compared, not executed, earn part of it (`ast_checker.grade`).

    `reason` is the official error type in snake case.  An answer that does not decode is not valid,
    except for irrelevance.  Answers that are too long, not text, or have arithmetic out of bounds
    (`safe_parse.parse_calls`) are wrong in every category; so are answers that are nested too deeply
    or contain what is not evaluated here, unless they refuse in words.

    `in_template`: the chat template showed the tools; Java and JavaScript values are then strings.
    """
    spec = task.answer
    if spec["rule"] == TURN_STATE:
        return multi_turn.score_turn(task, answer)
    if in_template:  # with the names and types that the chat template showed
        shown = [prompts.described(tool, spec["language"]) for tool in task.tools]
        calls = read_tool_calls(answer, shown)
    else:
        calls = _decode(answer, task.tools, spec)
    rejected = isinstance(calls, Rejection)
    if rejected and calls.reason in (base.NOT_TEXT, base.TOO_LONG):
        return Score(0.0, False, False, calls.reason)
    if spec["kind"] == "irrelevance":
        if not rejected and (calls or "[]" in "".join(answer.split())):
            return Score(float(not calls), not calls, True, "decoder_success" if calls else "")
        if rejected and calls.reason != base.EMPTY and refuses(answer, task.tools):
            return Score(1.0, True, True)
        # The official decoder may find a call in what was not read here, but not in prose.
        unread = rejected and calls.reason in (base.TOO_DEEP, base.NOT_EVALUATED)
        no_call = not unread or _is_prose(answer)
        return Score(0.0, no_call and task.origin == "eval", False, NO_REFUSAL)
    if rejected:
        return Score(0.0, False, False, base.EMPTY if calls.reason == base.EMPTY else "decoder_failed")
    tools, truth = list(task.tools), spec["ground_truth"]
    if spec["kind"] == "relevance":
        if not calls:
            return Score(0.0, False, False, "decoder_failed")
        made = schemas.ground_truth_of(calls, tools, "python", False)
        fits = not isinstance(made, Rejection)
        success = fits or task.origin == "eval"
        return Score(float(fits), success, True, "" if success else "no_such_call")
    in_order, language = spec["rule"] == STATIC_MATCH, spec["language"]
    if in_order:
        error = ast_checker.check_in_order(tools, calls, truth)
    else:
        error = ast_checker.check(tools, calls, truth, spec["kind"], language)
    reward = float(not error)
    if error and graded:
        reward = ast_checker.grade(tools, calls, truth, language, in_order)
    return Score(reward, not error, True, reason_word(error))


def _is_prose(text: str) -> bool:
    """Whether a text is not Python: an operator in front or two words before the first quote show it."""
    said = _UNQUOTED.match(text.strip("[`\n "))[0]
    return said[:1] in tuple("<>=%/,;:!?|&^@") or _TWO_WORDS.search(said) is not None


def reason_word(error: str) -> str:
    """An official `error_type` as a snake_case word."""
    checker, _, word = error.partition(":")
    if checker in ("type_error", "value_error"):
        word = f"{checker}_{word}"
    return (word or checker).replace("/", "_")


def refuses(answer: str, tools: Tools) -> bool:
    """Whether an answer that does not decode is a refusal in words; total.

    A refusal has at least two words and does not look like a failed call (`_CALL_FIRST`, `_CALL_INSIDE`, or a
    listed function's name before a parenthesis), even with look-alike and invisible letters.  The meaning of
    the words is not judged.
    """
    answer = fold(answer)
    said = answer[_FENCE.match(answer).end() :]
    if _CALL_FIRST.match(said) or _CALL_INSIDE.search(said):
        return False
    names = "|".join(re.escape(fold(tool["name"].rpartition(".")[2])) for tool in tools)
    if names and re.search(rf"(?<!\w)(?:{names})\((?!\))", said):
        return False
    # For scripts without spaces, each non-ASCII letter counts as a word.
    words = sum(any(map(str.isalpha, word)) for word in said.split())
    return max(words, sum(c.isalpha() and not c.isascii() for c in said)) >= 2
