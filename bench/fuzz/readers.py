"""Where texts of models enter, beside the benchmarks: the readers and comparisons that they are made of."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bench.fuzz.promises import check_rejection, promise
from bench.fuzz.targets import Target
from genenv_jax.benchmarks import headers, safe_parse, wording
from genenv_jax.benchmarks.alfworld import commands, situations
from genenv_jax.benchmarks.api_bank import calls, reward, rouge, scoring, tasks
from genenv_jax.benchmarks.bamboogle import episode, judge
from genenv_jax.benchmarks.bamboogle import scoring as bamboogle_scoring
from genenv_jax.benchmarks.base import GROUNDED, UNDECIDED, Rejection
from genenv_jax.benchmarks.bfcl import ast_checker, backends, java, javascript, source_calls
from genenv_jax.benchmarks.grounding import judge as judge_grounding
from genenv_jax.benchmarks.grounding import leaves
from genenv_jax.benchmarks.travelplanner import names, plans
from genenv_jax.benchmarks.travelplanner.queries import Gazetteer, parse_query
from genenv_jax.scoring import verification

_PYTHON = (
    "[f(a=1, b='x'), g.h(c=[1, 2.5, {'k': (1,)}], d=True)]",
    "[f(1, a=g(b=2), c=x[0], d=-1 + 2)]",
)
_JAVA = (
    'f(a=5, b=10L, c=new ArrayList<>(Arrays.asList("a", "b")), d="text", e=new int[]{1, 2}, g=\'c\')',
    'A.f(a=new HashMap<String, Object>() {{ put("k", 1); put("l", "x"); }}, b=(String) x, c=y -> y + 1);',
)
_JAVASCRIPT = (
    'f(a=5, b=["a", \'b\'], c={"deep": true, k: [1, 2]}, d="text", e=12n, g=(x) => x + 1, h=[[1], [2]])',
    "await a.f({a: 1, b: `t`}, c=new Array(1, 2), d=async function(x) { return x; }); // done",
)
_JSON = (
    '{"a": [1, 2.5, null, true, "x\\u00e9"], "b": {"c": {}}}',
    '[{"name": "f", "parameters": {}}]',
)
_PLAN = (
    '[{"days": 1, "current_city": "from A to B", "transportation": "Flight Number: F1, from A to B", '
    '"breakfast": "-", "attraction": "X, B;Y, B.", "lunch": "-", "dinner": "Z, B", "accommodation": "H, B"}]',
    "```json\n[{'day': 1, 'current_city': 'B', 'transportation': '-', 'lunch': 'Q, B'}, {}]\n```",
)
_API = (
    "API-Request: [Book(name='Ann', list='['a', 'b']', n=3)]",
    "[ToolSearcher(keywords='book a table')]",
)
_APIS = ("{'name': 'Book', 'input_parameters': {'n': {'type': 'int'}}, 'output': [{'name': 'f'}]}",)
_QUERY = (
    "Please plan a 3-day trip for 2 people from Oslo to Rome from March 16th to March 18th, 2022, with a "
    "budget of $1,700. We want no flights, pets, and Italian food in an entire room.",
)
_PROSE = ("What is 1,000.0 times two in Paris on the 3rd of May at 7:30 pm? <b>ÀÉ</b>", *_QUERY)
_GAZETTEER = Gazetteer({"Oslo": "Norway", "Rome": "Italy", "Bern": "Berne", "New York": "New York"})


def _kind_of(found: Any) -> str:
    return check_rejection(found) if isinstance(found, Rejection) else "read"


def _python(_: None, texts: Sequence[str]) -> str:
    (text,) = texts
    order = {"f": ("a", "b"), "g.h": ("c", "d")}
    found = safe_parse.parse_calls(text)
    _kind_of(safe_parse.parse_calls(text, parameter_order=order))
    _kind_of(backends.decode(text))
    _kind_of(safe_parse.parse_literal(text))
    return _kind_of(found)


def _json(_: None, texts: Sequence[str]) -> str:
    (text,) = texts
    found = safe_parse.parse_json(text)
    if not isinstance(found, Rejection):
        json.dumps(found, allow_nan=False).encode()
        json.dumps(found, ensure_ascii=False).encode()
    return _kind_of(found)


def _source(language: str, module: Any) -> Callable[[None, Sequence[str]], str]:
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
                        schema = {
                            "type": declared,
                            "items": {"type": types[len(value) % len(types)]},
                        }
                        # The checker's callers count a ValueError: a number that is too long.
                        with contextlib.suppress(ValueError):
                            ast_checker.convert(value, schema, language)
        return "read"

    return run


def _plan(_: None, texts: Sequence[str]) -> str:
    found = plans.read_plan(texts[0], safe_parse.MAX_CHARS)
    if isinstance(found, list):
        for day in found:
            for value in day.values():
                if isinstance(value, str):
                    (
                        names.route_of(value),
                        names.name_and_city(value),
                        names.before_parenthesis(value),
                    )
    return _kind_of(found)


def _api_call(_: None, texts: Sequence[str]) -> str:
    (text,) = texts
    found = calls.read_call(text, safe_parse.MAX_CHARS)
    if isinstance(found, calls.Call):
        spec = {"name": found.name, "parameters": dict(found.arguments), "types": {}, "target": ""}
        scoring.mismatch(found, spec), reward.mismatch(found, spec)
        again = calls.read_call(calls.write_call(found.name, found.arguments), 1 << 20)
        _kind_of(again)
    return _kind_of(found)


def _apis(_: None, texts: Sequence[str]) -> str:
    found = tasks.described(texts[0])
    known = tasks.known_apis(f"API-Request: [ToolSearcher(keywords='x')]->{texts[0]}", ())
    for parameters in known.values():
        promise(
            all(isinstance(part, str) for pair in parameters.items() for part in pair), f"{known}"
        )
    return "read" if found else "rejected: none"


def _command(_: None, texts: Sequence[str]) -> str:
    (text,) = texts
    situations.command_list(text)
    situations.held_object(text)
    found = commands.parse(text, safe_parse.MAX_CHARS)
    for command in found if isinstance(found, list) else ():
        for grammar in commands.GRAMMARS:
            commands.is_command(commands.translate(command, grammar), grammar)
        commands.entities(command)
    return _kind_of(found)


def _query(_: None, texts: Sequence[str]) -> str:
    try:
        parse_query(texts[0][:2000], _GAZETTEER)  # as long as `TravelPlanner.query_chars`
    except ValueError as error:  # that is its promise
        promise(bool(str(error)), "no reason")
        return "rejected: query"
    return "read"


def _words(_: None, texts: Sequence[str]) -> str:
    (text,) = (texts[0][: safe_parse.MAX_CHARS],)
    halves = text[: len(text) // 2], text[len(text) // 2 :]
    wording.letters(text), wording.fold(text), verification.shingles(text)
    wording.Subsequences(wording.words(halves[0])).common(wording.words(halves[1]))
    requests = verification.Requests(0.8)
    requests.add(halves[0], ("f",))
    requests.matches(halves[1], ("f",))
    bamboogle_scoring.measure(bamboogle_scoring.extract(text), [halves[0], "yes"])
    steps = [{"question": h[:500], "answers": [h[:200]]} for h in halves]
    episode.find(text[:400], steps, set())
    rouge.rouge_l(halves[0][:1024], halves[1])
    return "compared"


def _grounded(_: None, texts: Sequence[str]) -> str:
    (text,) = (texts[0][: safe_parse.MAX_CHARS],)
    found = safe_parse.parse_calls(text)
    made = [] if isinstance(found, Rejection) else [next(iter(c.items())) for c in found if c]
    values = list(leaves([arguments for _, arguments in made]))[:200] or [text[:200]]
    verdict = judge_grounding(made[:128], values, text, text, text[:200])
    promise(verdict in (GROUNDED, UNDECIDED) or isinstance(verdict, Rejection), f"{verdict!r}")
    return _kind_of(verdict) if isinstance(verdict, Rejection) else verdict


def _headers(_: None, texts: Sequence[str]) -> str:
    return _kind_of(headers.parse_headers(texts[0], ("New Tools:", "New Task:", "New Answer:")))


def _verdict(_: None, texts: Sequence[str]) -> str:
    try:
        judge.read_verdict(texts[0])
    except ValueError:  # that is its promise
        return "rejected: verdict"
    finally:
        judge.judge_prompt(texts[0], [texts[0]], texts[0])
    return "read"


def _readers() -> Iterator[tuple[str, Sequence[str], Callable]]:
    yield "read python", _PYTHON, _python
    yield "read java", _JAVA, _source("java", java)
    yield "read javascript", _JAVASCRIPT, _source("javascript", javascript)
    yield "read json", _JSON, _json
    yield "read plan", _PLAN, _plan
    yield "read api call", _API, _api_call
    yield "read apis that were found", _APIS, _apis
    yield (
        "read command",
        ("Action: put mug 1 in/on desk 2", "> look\n<action>go to desk 1"),
        _command,
    )
    yield "read query", _QUERY, _query
    yield "read headers", ("New Tools: same\nNew Task: x\nNew Answer: [f(a=1)]",), _headers
    yield "read verdict", ("correct", "incorrect."), _verdict
    yield "compare words", _PROSE, _words
    yield "compare grounding", (*_PYTHON, *_PROSE), _grounded


def readers() -> Iterator[Target]:
    """All targets of this module."""
    for name, examples, run in _readers():
        yield Target(name, (None,), lambda _, e=examples: e, run)
