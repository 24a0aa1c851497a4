"""Readers that texts of the benchmarks' small files do not reach: other languages, a judge's words."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bench.fuzz.promises import check_rejection
from bench.fuzz.targets import Target
from genenv_jax.benchmarks.bamboogle import judge
from genenv_jax.benchmarks.base import Rejection
from genenv_jax.benchmarks.bfcl import ast_checker, java, javascript, source_calls

_JAVA = (
    'f(a=5, b=10L, c=new ArrayList<>(Arrays.asList("a", "b")), d="text", e=new int[]{1, 2}, g=\'c\')',
    'A.f(a=new HashMap<String, Object>() {{ put("k", 1); put("l", "x"); }}, b=(String) x, c=y -> y + 1);',
)
_JAVASCRIPT = (
    'f(a=5, b=["a", \'b\'], c={"deep": true, k: [1, 2]}, d="text", e=12n, g=(x) => x + 1, h=[[1], [2]])',
    "await a.f({a: 1, b: `t`}, c=new Array(1, 2), d=async function(x) { return x; }); // done",
)


def _source(language: str, module: Any) -> Callable[[None, Sequence[str]], str]:
    """Calls in a language, and their values under every type that a function may declare."""
    unsupported = getattr(module, "UNSUPPORTED_TYPES", ())
    types = [name for name in module.TYPES if name not in unsupported]

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
        ("read java", _JAVA, _source("java", java)),
        ("read javascript", _JAVASCRIPT, _source("javascript", javascript)),
        ("read verdict", ("correct", "incorrect."), _verdict),
    ):
        yield Target(name, (None,), lambda _, e=examples: e, run)
