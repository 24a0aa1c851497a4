"""Parsing of hostile text: bounded, total, and right on harmless text."""

import math

import pytest

from bench.bad_answers.common import HOSTILE
from genenv_jax.benchmarks import base
from genenv_jax.benchmarks.base import Rejection
from genenv_jax.benchmarks.safe_parse import check_text, parse_calls, parse_json, parse_literal, unfenced

REASONS = {base.EMPTY, base.NOT_TEXT, base.TOO_LONG, base.TOO_DEEP, base.UNPARSABLE, base.NOT_EVALUATED}


@pytest.mark.parametrize("parser", [parse_calls, parse_json, parse_literal, check_text])
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_gives_a_value_in_bounded_time(bounded, name, parser):
    result = parser(HOSTILE[name])
    if isinstance(result, Rejection):
        assert result.reason in REASONS and len(result.detail) < 400


@pytest.mark.parametrize(
    ("name", "parser", "reason"),
    [
        ("empty", parse_calls, base.EMPTY),
        ("white space", parse_json, base.EMPTY),
        ("ten megabytes", parse_calls, base.TOO_LONG),
        ("ten megabytes of brackets", parse_json, base.TOO_LONG),
        ("brackets", parse_literal, base.TOO_LONG),
        ("parentheses", parse_calls, base.TOO_DEEP),
        ("braces", parse_json, base.TOO_DEEP),
        ("attributes", parse_calls, base.TOO_DEEP),
        ("unary", parse_literal, base.TOO_DEEP),
        ("sums", parse_calls, base.TOO_DEEP),
        ("huge float", parse_json, base.UNPARSABLE),
        ("powers", parse_calls, base.TOO_LONG),
        ("shift", parse_calls, base.TOO_LONG),
        ("repetition", parse_calls, base.TOO_LONG),
        ("padding", parse_calls, base.NOT_EVALUATED),
        ("nested repetition", parse_calls, base.TOO_LONG),
        ("nul", parse_calls, base.NOT_TEXT),
        ("surrogate", parse_calls, base.NOT_TEXT),
        ("escaped surrogate", parse_json, base.NOT_TEXT),
        ("escape code", parse_calls, base.NOT_TEXT),
        ("import in a call", parse_calls, base.NOT_EVALUATED),
        ("format string", parse_calls, base.NOT_EVALUATED),
        ("import", parse_literal, base.UNPARSABLE),
        ("unclosed", parse_calls, base.UNPARSABLE),
    ],
)
def test_hostile_text_is_rejected_for_its_reason(name, parser, reason):
    result = parser(HOSTILE[name])
    assert isinstance(result, Rejection) and result.reason == reason


@pytest.mark.parametrize("text", ["f(a=[7] * 8191)", "f(a={'b': [7] * 4096, 'c': [7] * 4096})"])
def test_repeats_are_bounded_together(text):
    """In one call or in several, nested or not."""
    nine = ", ".join([text] * 9)
    assert not isinstance(parse_calls(text), Rejection)
    assert parse_calls(nine).reason == parse_calls(f"f(a=[{nine}])").reason == base.TOO_LONG


def test_what_is_text_and_how_long():
    """Strings, including the replacement character; length is in characters."""
    assert check_text(b"f()").reason == check_text(None).reason == base.NOT_TEXT
    assert check_text("\ufffd") is None and parse_json('"\ufffd"') == "\ufffd"
    assert check_text("é" * 10, max_chars=10) is None
    assert check_text("é" * 11, max_chars=10).reason == base.TOO_LONG


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("[f(a=1)]", [{"f": {"a": 1}}]),
        ("f(a=1), g.h(b='x')", [{"f": {"a": 1}}, {"g.h": {"b": "x"}}]),
        ("```\n[f(a=1)]\n```", [{"f": {"a": 1}}]),
        ("[]", []),
        ("[f(1, 2, c=3)]", [{"f": {"c": 3}}]),
        ("[f(a=-1.5, b=True, c=None)]", [{"f": {"a": -1.5, "b": True, "c": None}}]),
        ("[f(a=[1, (2, 'x')], b={'k': [1]})]", [{"f": {"a": [1, (2, "x")], "b": {"k": [1]}}}]),
        ("[f(a=name, b=x[0], c=g(1))]", [{"f": {"a": "name", "b": "x[0]", "c": "g(1)"}}]),
        ("[f(a=g(b=1))]", [{"f": {"a": {"g": {"b": 1}}}}]),
        ("[f(a=2*3+1, b='x'*3, c=2**10)]", [{"f": {"a": 7, "b": "xxx", "c": 1024}}]),
        ("[f(a='x' + 'y')]", [{"f": {"a": "xy"}}]),
        ("[f(a=+5, b=not True)]", [{"f": {"a": -5, "b": -1}}]),  # as the official decoder does
        ("[f(a='\\d')]", [{"f": {"a": "\\d"}}]),
        ("[f(a='((((')]", [{"f": {"a": "(((("}}]),
        ("[f(a=1, # it's a comment (\n b=2)]", [{"f": {"a": 1, "b": 2}}]),
        ("[f(a=...)]", [{"f": {"a": "..."}}]),
        ("[f(**x)]", [{"f": {"**": "x"}}]),
    ],
)
def test_calls_are_decoded_by_the_official_rules(text, calls):
    assert parse_calls(text) == calls


@pytest.mark.parametrize(
    "text",
    ["I would rather not.", "[1, 2]", "[f]", "[f(a=1) for x in y]", "[f(a=x.y)]", "[f(a={1})]",
     "[f(a=1]", "[f(a='x\ny')]", "[f(a=x if y else z)]", "[f(a=lambda: 1)]", "[[f(a=1)]]"],
)  # fmt: skip
def test_what_is_not_a_list_of_calls_is_unparsable(text):
    assert parse_calls(text).reason == base.UNPARSABLE


def test_brackets_in_strings_are_not_nesting():
    text = "[f(a='" + "[" * 500 + '\', b="""' + "(" * 500 + '""")]'
    assert parse_calls(text) == [{"f": {"a": "[" * 500, "b": "(" * 500}}]
    assert parse_json('["' + "[" * 500 + '\\""]') == ["[" * 500 + '"']


@pytest.mark.parametrize("parser", [parse_literal, parse_json])
def test_depth_limit_is_exact(parser):
    assert parser("[" * 5 + "]" * 5, max_depth=5) == [[[[[]]]]]
    assert parser("[" * 6 + "]" * 6, max_depth=5).reason == base.TOO_DEEP


def test_wide_text_is_not_deep():
    numbers = list(range(2_000))
    assert parse_calls(f"[f(a={numbers})]") == [{"f": {"a": numbers}}]
    assert parse_literal(str([-n for n in numbers])) == [-n for n in numbers]


def test_positional_arguments_are_bound_by_the_order_of_parameters():
    order = {"f": ("a", "b")}
    assert parse_calls("[f(1, b=2)]", parameter_order=order) == [{"f": {"a": 1, "b": 2}}]
    for text in ("[f(1, 2, 3)]", "[f(1, a=2)]", "[g(1)]", "[f(*x)]"):
        assert parse_calls(text, parameter_order=order).reason == base.UNPARSABLE


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', "[NaN]", "[Infinity]", "[1e999]", "{'a': 1}"])
def test_json_is_strict(text):
    assert parse_json(text).reason == base.UNPARSABLE


def test_json_values_come_through():
    text = '{"a": [1, -2.5, true, null, "\\u00e9\\ud83d\\ude00"]}'
    assert parse_json(text) == {"a": [1, -2.5, True, None, "é😀"]}
    assert parse_json("null") is None
    assert math.isclose(parse_json("1e10"), 1e10)


def test_literals_come_through():
    value = {"a": (1, -2.5, True, None, b"x")}
    assert parse_literal(f" {value} ") == value
    assert parse_literal("name").reason == base.UNPARSABLE


@pytest.mark.parametrize("digits", ["9" * 4301, "0x1" + "0" * 3600, "[{'a': -0o1" + "0" * 5000 + "}]"])
def test_a_literal_can_be_written_out_again(digits):
    assert parse_literal(digits).reason == base.UNPARSABLE
    assert parse_literal(digits.replace("00", "").replace("99", "")) is not None


def test_nothing_is_executed(monkeypatch):
    import os

    def forbidden(*args):
        raise AssertionError("executed")

    monkeypatch.setattr(os, "system", forbidden)
    for name in ("import", "import in a call", "comprehension", "format string"):
        for parser in (parse_calls, parse_json, parse_literal):
            parser(HOSTILE[name])


@pytest.mark.parametrize("escape", [r"\u0000", r"\u001b", r"\u0080", r"\ud800"])
@pytest.mark.parametrize("around", ['"x{}"', '{{"x{}": 1}}', '[[{{"a": ["x{}"]}}]]'])
def test_an_escape_may_not_stand_for_what_is_no_text(escape, around):
    found = parse_json(around.format(escape))
    assert isinstance(found, Rejection) and found.reason == base.NOT_TEXT
    assert not isinstance(parse_json(around.format(r"\u00e9\n\\u0000")), Rejection)


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("```json\n{}\n```", "{}"),
        (" \n``` \n{\n}\n  ```\n", "{\n}"),
        ("```\n```", "```\n```"),
        ("```python\n{}\n```", "{}"),
        ("```not one word\n{}\n```", "```not one word\n{}\n```"),
        ("x\n```\n{}\n```", "x\n```\n{}\n```"),
        ("{}", "{}"),
    ],
)
def test_a_fence_around_all_of_a_text_is_taken_off(text, inside):
    assert unfenced(text) == inside


def test_a_fence_that_never_closes_costs_nothing(bounded):
    unfenced("```" + "\n" * 16_000)
