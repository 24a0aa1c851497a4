"""BFCL's single turns in the call formats of model families, as their official handlers read them.

An answer is right calls, perhaps with another value, written in a family's format and then perhaps changed.
The official handler of the family decodes it, and the official checker judges the calls.
"""

import importlib
import importlib.util
import json
import pathlib
import random
import re
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from bench.agreement import bfcl
from bench.agreement.tally import Case, Judge
from genenv_jax.benchmarks.base import Task
from genenv_jax.benchmarks.bfcl import categories, tasks
from genenv_jax.benchmarks.bfcl.benchmark import BFCL
from genenv_jax.benchmarks.bfcl.source_calls import decode_source_calls
from genenv_jax.benchmarks.bfcl.turns import agent_answer
from genenv_jax.benchmarks.safe_parse import parse_calls

Calls = list[tuple[str, dict[str, Any]]]
_PER_FAMILY = 3  # answers to a task


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _objects(calls: Calls, key: str = "arguments") -> list[str]:
    return [_dump({"name": name, key: of}) for name, of in calls]


def _list(calls: Calls) -> str:
    return f"[{', '.join(_objects(calls))}]"


def _hermes(calls: Calls) -> str:
    return "\n".join(f"<tool_call>\n{each}\n</tool_call>" for each in _objects(calls))


def _python(calls: Calls, between: str = ", ") -> str:
    written = (f"{name}({', '.join(f'{k}={v!r}' for k, v in of.items())})" for name, of in calls)
    return between.join(written)


# Family -> (module and class of the official handler, how the family writes calls).  The handlers of Granite
# 4, Nanbeige and Pelican read as Qwen's does, those of Gemma, Llama 3.2 to 4 and others as "prompt".
# FunctionGemma's format is not read here.
FAMILIES: dict[str, tuple[str, str, Callable[[Calls], str]]] = {
    "qwen": ("qwen_fc", "QwenFCHandler", _hermes),
    "arch": ("arch", "ArchHandler", _hermes),
    "falcon": ("falcon_fc", "Falcon3FCHandler", lambda calls: f"<tool_call>\n{_list(calls)}\n</tool_call>"),
    "llama 3.1": ("llama_3_1", "LlamaHandler_3_1",
                  lambda calls: f"<|python_tag|>{'; '.join(_objects(calls, 'parameters'))}"),
    "mistral": ("mistral_fc", "MistralFCHandler", lambda calls: f"[TOOL_CALLS]{_list(calls)}"),
    "granite 3": ("granite_3", "Granite3FCHandler", lambda calls: f"<|tool_call|>{_list(calls)}"),
    "granite 20b": ("granite", "GraniteFunctionCallingHandler",
                    lambda calls: " ".join(f"<function_call> {each}" for each in _objects(calls))),
    "phi 4 mini": ("phi_fc", "PhiFCHandler", lambda calls: f"<|tool_call|>{_list(calls)}<|/tool_call|>"),
    "hammer": ("hammer", "HammerHandler", lambda calls: f"```\n{_list(calls)}\n```"),
    "xlam": ("salesforce_llama", "SalesforceLlamaHandler", _list),
    "bitagent": ("bitagent", "BitAgentHandler", _list),
    "glm": ("glm", "GLMHandler",
            lambda calls: "\n".join(f"{name}\n{_dump(arguments)}" for name, arguments in calls)),
    "minicpm": ("minicpm_fc", "MiniCPMFCHandler",
                lambda calls: "<|tool_call_start|>\n```python\n" + _python(calls, "\n")
                + "\n```\n<|tool_call_end|>"),
    "thinkagent": ("think_agent", "ThinkAgentHandler", lambda calls: f"<think>x</think>{_list(calls)}"),
    "prompt": ("llama", "LlamaHandler", lambda calls: f"[{_python(calls)}]"),
    "phi, prompt": ("phi", "PhiHandler", lambda calls: f"```python\n[{_python(calls)}]\n```"),
    "deepseek, prompt": ("deepseek_reasoning", "DeepseekReasoningHandler",
                         lambda calls: f"<think>\nx\n</think>\n\n[{_python(calls)}]"),
}  # fmt: skip


# -- answers ----------------------------------------------------------------------------------------------


def _place(calls: Calls, rng: random.Random) -> tuple[dict[str, Any], str] | None:
    places = [(of, key) for _, of in calls for key in of]
    return rng.choice(places) if places else None


def _with_value(change: Callable[[Any], Any]) -> Callable[[Calls, random.Random], Calls]:
    def make(calls: Calls, rng: random.Random) -> Calls:
        if place := _place(calls, rng):
            place[0][place[1]] = change(place[0][place[1]])
        return calls

    return make


def _renamed(calls: Calls, rng: random.Random) -> Calls:
    at = rng.randrange(len(calls))
    name, of = calls[at]
    calls[at] = (rng.choice((name.replace(".", "_"), name + "_", "get-it", "f(x", "")), of)
    return calls


def _dropped(calls: Calls, rng: random.Random) -> Calls:
    if place := _place(calls, rng):
        del place[0][place[1]]
    return calls


def _added(calls: Calls, rng: random.Random) -> Calls:
    rng.choice(calls)[1][rng.choice(("extra", "class", "a b", "1"))] = 1
    return calls


# Changes to the calls, before they are written.
_CALLS: dict[str, Callable[[Calls, random.Random], Calls]] = {
    "right": lambda calls, rng: calls,
    "another name": _renamed,
    "argument dropped": _dropped,
    "argument added": _added,
    "value as a string": _with_value(str),
    "value as a list": _with_value(lambda value: [value]),
    "null": _with_value(lambda value: None),
    "special text": _with_value(lambda value: "</tool_call> é中🙂\n\"'\\ ; [f(x=1)] {\"name\": \"f\"}"),
    "call in a string": _with_value(lambda value: _hermes([("f", {"x": 1})])),
    "call twice": lambda calls, rng: [*calls, calls[-1]],
    "one call": lambda calls, rng: calls[:1],
    "no call": lambda calls, rng: [],
    "reversed calls": lambda calls, rng: calls[::-1],
}  # fmt: skip


def _cut(text: str, rng: random.Random) -> str:
    return text[: rng.randrange(len(text))]


def _broken(text: str, rng: random.Random) -> str:
    at = [i for i, character in enumerate(text) if character in "[]{}()\"',:<>"]
    i = rng.choice(at or [0])
    return text[:i] + text[i + 1 :]


# Changes to the text.
_TEXTS: dict[str, Callable[[str, random.Random], str]] = {
    "words before": lambda text, rng: f"I will call it.\n{text}",
    "words after": lambda text, rng: f"{text}\nThat is all.",
    "cut": _cut,
    "character missing": _broken,
    "single quotes": lambda text, rng: text.replace('"', "'"),
    "fence": lambda text, rng: f"```{rng.choice(('', 'json', 'python', 'xml'))}\n{text}\n```",
    "thought": lambda text, rng: f"<think>\nI call {text}\n</think>\n\n{text}",
    "call in a thought": lambda text, rng: f"<think>\n{text}\n</think>\n\nNone of them can do that.",
    "no end of thought": lambda text, rng: f"<think>\n{text}",
    "one line": lambda text, rng: text.replace("\n", ""),
    "more lines": lambda text, rng: text.replace(", ", ",\n  "),
    "another key": lambda text, rng: text.replace('"arguments"', '"parameters"')
    if '"arguments"' in text else text.replace('"parameters"', '"arguments"'),
    "arguments as text": lambda text, rng: re.sub(
        r'("arguments"|"parameters"): (\{[^{}]*\})', lambda found: f"{found[1]}: {_dump(found[2])}", text
    ),
    "id": lambda text, rng: text.replace('{"name"', '{"id": "call_1", "name"'),
    "repeated key": lambda text, rng: text.replace('{"name"', '{"name": "f", "name"'),
    "NaN": lambda text, rng: text.replace('{"name"', '{"score": NaN, "name"'),
    "comma too many": lambda text, rng: text.replace("}", ",}", 1),
    "Python's constant": lambda text, rng: text.replace('{"name"', '{"sure": True, "name"'),
    "broken call after": lambda text, rng: f"{text}\n<tool_call>\n{{\"name\": \"f\", \"arg",
    "no tags": lambda text, rng: text.replace("<tool_call>", "").replace("</tool_call>", ""),
    "empty": lambda text, rng: "",
    "prose": lambda text, rng: rng.choice(("None of the functions can do that.", "Which city?", "[]")),
}  # fmt: skip
_OTHER = "another family's format"


def _wanted(task: Task) -> Calls:
    """The right calls; some call if any counts."""
    text, language = agent_answer(task), task.answer["language"]
    if task.answer["kind"] == "irrelevance":
        text = "[search(query='x')]" if not task.tools else f"[{task.tools[0]['name']}(x='1')]"
    source = language != "python" and task.answer["kind"] not in ("irrelevance", "relevance")
    found = decode_source_calls(text, language) if source else parse_calls(text)
    pairs = [(name, arguments) for call in found for name, arguments in call.items()]
    return json.loads(_dump(pairs))  # tuples become lists


def _answer(family: str, kind: str, calls: Calls, rng: random.Random) -> str:
    *_, write = FAMILIES[family]
    if kind in _CALLS:
        return write(_CALLS[kind](calls, rng))
    if kind == _OTHER:
        *_, write = FAMILIES[rng.choice([other for other in FAMILIES if other != family])]
        return write(calls)
    return _TEXTS[kind](write(calls), rng)


def cases(data_dir: pathlib.Path | None, seed: int, share: float) -> Iterator[Case]:
    """Every single-turn task, or `share` of them, with answers in the formats of all families."""
    names = [c for c in categories.names(bfcl.VERSION) if c not in categories.MULTI_TURN]
    kinds = [*_CALLS, *_TEXTS, _OTHER]
    for task in tasks.load(bfcl.VERSION, names, data_dir, "eval"):
        rng = random.Random(f"handlers {seed} {task.id}")
        if rng.random() >= share:
            continue
        for family in FAMILIES:
            right = _answer(family, "right", _wanted(task), rng)
            yield Case(f"{family}, right", task, right, family)
            for kind in rng.sample(kinds[1:], _PER_FAMILY - 1):
                text = _answer(family, kind, _wanted(task), rng)
                if text != right:
                    yield Case(f"{family}, {kind}", task, text, family)


# -- verdicts ---------------------------------------------------------------------------------------------


def ours(data_dir: pathlib.Path | None) -> Judge:
    """Our verdicts when the template shows the tools."""
    benchmark = BFCL(data_dir=data_dir)
    benchmark.use_template("<tool_call>")

    return bfcl.judge_of(benchmark)


def official(data_dir: pathlib.Path | None, clones: pathlib.Path) -> Judge:
    """The verdicts of the installed bfcl-eval's handlers and checker."""
    bfcl.install_stub()
    _install_stubs()
    from bfcl_eval.constants.enums import ReturnFormat

    handlers = {family: _handler(*of[:2]) for family, of in FAMILIES.items()}

    def decode(case: Case) -> Any:
        handler = handlers[case.given]
        # A server leaves this special token out of the text.
        said = case.text.replace("[TOOL_CALLS]", "") if case.given == "mistral" else case.text
        usage = types.SimpleNamespace(prompt_tokens=0, completion_tokens=0)
        choices = [types.SimpleNamespace(text=said)]
        response = types.SimpleNamespace(choices=choices, usage=usage)
        found = handler._parse_query_response_prompting(response)["model_responses"]
        return handler.decode_ast(found, ReturnFormat.PYTHON, False)

    return bfcl.official_judge(decode)


def _handler(module: str, name: str) -> Any:
    """A handler that has neither a model nor a server."""
    found = getattr(importlib.import_module(f"bfcl_eval.model_handler.local_inference.{module}"), name)
    return found.__new__(found)


def _install_stubs() -> None:
    """Replaces packages from which the handlers' modules need only decorators and base classes."""

    def unchanged(function: Any) -> Any:
        return function

    generator = ("", ".model", ".parser", ".parser.jsonschema")
    parts = [f"datamodel_code_generator{part}" for part in generator]
    names = ("overrides", "tenacity", "openai", *parts)
    for name in [name for name in names if not _installed(name)]:
        sys.modules[name] = mock.MagicMock(
            override=unchanged,
            final=unchanged,
            EnforceOverrides=object,
            retry=lambda **_: unchanged,
        )


def _installed(name: str) -> bool:
    return importlib.util.find_spec(name.partition(".")[0]) is not None
