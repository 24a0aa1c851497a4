"""Readers that texts of the small files do not reach: formats of calls, other languages, a judge's words."""

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence

from bench.fuzz.promises import check_rejection, promise
from bench.fuzz.targets import Target
from genenv_jax.benchmarks import calls, judge
from genenv_jax.benchmarks.base import Rejection
from genenv_jax.benchmarks.bfcl import ast_checker, source_calls
from genenv_jax.benchmarks.safe_parse import parse_calls
from genenv_jax.benchmarks.thoughts import after_thoughts
from genenv_jax.benchmarks.tools import as_python, read_tool_calls, rewritten

_JAVA = (
    'f(a=5, b=10L, c=new ArrayList<>(Arrays.asList("a", "b")), d="text", e=new int[]{1, 2}, g=\'c\')',
    'A.f(a=new HashMap<String, Object>() {{ put("k", 1); put("l", "x"); }}, b=(String) x, c=y -> y + 1);',
)
_JAVASCRIPT = (
    'f(a=5, b=["a", \'b\'], c={"deep": true, k: [1, 2]}, d="text", e=12n, g=(x) => x + 1, h=[[1], [2]])',
    "await a.f({a: 1, b: `t`}, c=new Array(1, 2), d=async function(x) { return x; }); // done",
)

_EXACT = (calls.HERMES, calls.LLAMA, calls.MISTRAL, calls.DEEPSEEK)
_FORMS = (*_EXACT, calls.LLAMA_TAGS, calls.QWEN3_CODER)
_MADE = [
    {"m.f": {"a": 1, "b": "x; </think> <tool_call>", "c": [1.5, None, {"d": True}]}},
    {"g_h": {"b": "[TOOL_CALLS] \"'\\ é中🙂\n```"}},
]
_TOOLS = [
    {
        "name": "m.f",
        "parameters": {"properties": {"a": {"type": "integer"}, "b": {"type": "string"}}},
    },
    {"name": "g.h", "parameters": {"properties": {"b": {"type": "string"}}}},
]
_F, _G = '{"name": "m.f", "arguments": {"a": 1}}', '{"name": "g_h", "parameters": "{}"}'
_CALLS = (
    *(calls.write_calls(_MADE[:n], form) for form in _FORMS for n in (1, 2)),
    f"<think>{_F}</think>\n<tool_call>{_F}</tool_call> and <tool_call>\n{_G}\n</tool_call>",
    f"<|tool_call|>[{_F}, {_G}]<|/tool_call|>", f"<function_call> {_F} <function_call> {_G}",
    "<|tool_call_start|>\n```python\nm.f(a=1)\ng.h(b='x')\n```\n<|tool_call_end|>",
    f"<|python_tag|>{_F}; {_G}", "<|python_tag|>m.f.call(a=1)", '[TOOL_CALLS]m.f[ARGS]{"a": 1}',
    "```tool_code\nprint(m.f(a=1))\n```", f"So:\n```json\n{_F}\n```\nand\n```\n[{_G}]\n```",
    f"{_F}\n{_G}", f"[{_F}, {_G}]", "{'name': 'm.f', 'arguments': {'a': True}}", 'm.f\n{"a": 1}',
    "[m.f(a=1), g.h(b='x')]", '{"name": "m.f", "name": "g", "arguments": {"a": NaN, "a": 1}}',
    "[" + ", ".join([_F] * 10_000) + "]", f"<tool_call>{_F}</tool_call>" * 300, "[" * 100_000,
)  # fmt: skip


def _family(_: None, texts: Sequence[str]) -> str:
    """Calls in the format of any family; written calls are read back unchanged."""
    said = after_thoughts(texts[0])
    if isinstance(said, Rejection):
        return check_rejection(said)
    found, written = read_tool_calls(said, _TOOLS), as_python(said, _TOOLS)
    if isinstance(found, Rejection):
        promise(written == said, "no call, but written as Python")
        return check_rejection(found)
    promise(len(found) <= calls.MAX_CALLS, "too many calls")
    try:
        plain = json.loads(json.dumps(found, allow_nan=False))
    except (TypeError, ValueError):  # Python has values that JSON lacks
        return "read"
    again = parse_calls(written)
    promise(written == said or again == found or isinstance(again, Rejection), written)
    for form in _FORMS:
        text = rewritten("", found, form)
        again = calls.read_calls(text)
        promise(form not in _EXACT or again == plain or isinstance(again, Rejection), text)
    return "read"


def _source(language: str) -> Callable[[None, Sequence[str]], str]:
    """Calls in a language, and their values under every type that a function may declare."""
    types = ast_checker.CONVERTED_TYPES[language]

    def run(_: None, texts: Sequence[str]) -> str:
        (text,) = texts
        found = source_calls.decode_source_calls(text, language)
        if isinstance(found, Rejection):
            return check_rejection(found)
        for call in found:
            for arguments in call.values():
                for value in arguments.values():
                    for declared in types:
                        items = {"type": types[len(value) % len(types)]}
                        # The checker's callers count a ValueError: a number that is too long.
                        with contextlib.suppress(ValueError):
                            schema = {"type": declared, "items": items}
                            ast_checker.convert(value, schema, language)
        return "read"

    return run


def _verdict(_: None, texts: Sequence[str]) -> str:
    judge.judge_prompt(texts[0], [texts[0]], texts[0])
    try:
        judge.read_verdict(texts[0])
    except ValueError:  # that is its promise
        return "rejected: verdict"
    return "read"


def readers() -> Iterator[Target]:
    """All targets of this module."""
    for name, examples, run in (
        ("read calls", _CALLS, _family),
        ("read java", _JAVA, _source("java")),
        ("read javascript", _JAVASCRIPT, _source("javascript")),
        ("read verdict", ("correct", "incorrect."), _verdict),
    ):
        yield Target(name, (None,), lambda _, e=examples: e, run)
