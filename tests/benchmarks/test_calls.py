"""Calls in the formats of model families."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genenv_jax.benchmarks import calls
from genenv_jax.benchmarks.calls import form_of, read_calls, write_calls
from genenv_jax.benchmarks.task import EMPTY, NOT_TEXT, TOO_DEEP, TOO_LONG, UNPARSABLE, Rejection
from genenv_jax.benchmarks.tools import as_python, json_schema, read_tool_calls, rewritten, tools_message

F = '{"name": "f", "arguments": {"x": 1}}'
G = '{"name": "g", "parameters": {"s": "a; b"}}'
ONE, TWO = [{"f": {"x": 1}}], [{"f": {"x": 1}}, {"g": {"s": "a; b"}}]
TYPES = {"f": {"x": "integer"}, "g": {"s": "string"}}
FENCE, SINGLE, DOUBLE = "```", "'", '"'


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (f"<tool_call>\n{F}\n</tool_call>", ONE),
        (f"I call.\n<tool_call>{F}</tool_call>\n<tool_call>\n{G}\n</tool_call> Done.", TWO),
        (f"<tool_call>\n{F}\n{G}\n</tool_call>", TWO),
        (f"<tool_call>{F}<tool_call>{G}", TWO),
        (
            "<tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>\n"
            "<tool_call>\n<function=g>\n<parameter=s>\na; b\n</parameter>\n</function>\n</tool_call>",
            TWO,
        ),
        ('<function=f>{"x": 1}</function>', ONE),
        ('<function=f>{"x": 1}</function><function=g>{"s": "a; b"}</function>', TWO),
        ("<function=f></function>", [{"f": {}}]),
        (f"<|python_tag|>{F}", ONE),
        (f"<|python_tag|>{F}; {G}", TWO),
        ("<|python_tag|>f.call(x=1)", ONE),
        (f"[TOOL_CALLS][{F}, {G}]", TWO),
        ('[TOOL_CALLS]f[ARGS]{"x": 1}[TOOL_CALLS]g[ARGS]{"s": "a; b"}', TWO),
        ('[TOOL_CALLS]f{"x": 1}</s>', ONE),
        (f"{FENCE}tool_code\nprint(f(x=1))\ng(s='a; b')\n{FENCE}", TWO),
        (
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n"
            f'{FENCE}json\n{{"x": 1}}\n{FENCE}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
            ONE,
        ),
        ('<｜tool▁call▁begin｜>f<｜tool▁sep｜>{"x": 1}<｜tool▁call▁end｜>', ONE),
        (f"Here it is:\n{FENCE}json\n{F}\n{FENCE}\nand\n{FENCE}\n[{G}]\n{FENCE}", TWO),
        (f"{FENCE}python\n[f(x=1)]\n{FENCE}", ONE),
        (f"{FENCE}[{F}]{FENCE}", ONE),
        (f"<tool_call>\n{FENCE}json\n[{F}]\n{FENCE}\n</tool_call>", ONE),
        (f"<|tool_call|>[{F}, {G}]<|/tool_call|>", TWO),
        (f"<function_call> {F} <function_call> {G}", TWO),
        ("<|tool_call_start|>[f(x=1), g(s='a; b')]<|tool_call_end|>", TWO),
        (f"<|tool_call_start|>\n{FENCE}python\nf(x=1)\ng(\n  s='a; b'\n)\n{FENCE}\n<|tool_call_end|>", TWO),
        ('f\n{"x": 1}', ONE),
        (f"<|python_tag|>[{F.replace(DOUBLE, SINGLE)}]", ONE),
        ('{"name": "f", "arguments": {"x": 1,}}', ONE),
        (F, ONE),
        (f"[{F}, {G}]", TWO),
        (f"{F}\n{G}", TWO),
        (f"{F}; {G}", TWO),
        ('{"name": "f", "arguments": "{\\"x\\": 1}"}', ONE),
        ('{"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}', ONE),
        ('{"name": "f"}', [{"f": {}}]),
        ("[f(x=1), g(s='a; b')]", TWO),
        ("f(x=1)", ONE),
        ("[]", []),
    ],
)
def test_forms(text, want):
    assert read_calls(text, TYPES) == want


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", EMPTY),
        ("I cannot do that.", UNPARSABLE),
        ('["f", "x=1"]', UNPARSABLE),
        ("<function=f>{</function>", UNPARSABLE),
        ('<function=f(>{"x": 1}</function>', UNPARSABLE),
        ("[TOOL_CALLS]f", UNPARSABLE),
        ("[TOOL_CALLS]f{", UNPARSABLE),
        ("<｜tool▁call▁begin｜>f", UNPARSABLE),
        ("<｜tool▁call▁begin｜>f<｜tool▁sep｜>{", UNPARSABLE),
        ("[" + ", ".join([F] * 129) + "]", TOO_LONG),
        (f'<tool_call>{F}</tool_call><tool_call>{{"name": 1}}</tool_call>', UNPARSABLE),
        (f"<tool_call>{F[:-1]}</tool_call>", UNPARSABLE),
        ('<tool_call>{"name": "f", "arguments": [1]}</tool_call>', UNPARSABLE),
        ('<tool_call>{"name": "f", "arguments": {"x": NaN}}</tool_call>', UNPARSABLE),
        ('<tool_call>{"name": "f", "arguments": {"x": 1, "x": 2}}</tool_call>', UNPARSABLE),
        ("<function=f><parameter=x>1</parameter><parameter=x>2</parameter></function>", UNPARSABLE),
        ('{"name": "f(); import os", "arguments": {}}', UNPARSABLE),
        ("{'name': 'f', 'arguments': {1: 2}}", UNPARSABLE),
        ('{"name": "f", "arguments": {"x": 1e999}}', UNPARSABLE),
        ("<function=>", UNPARSABLE),
        ("<tool_call></tool_call>", UNPARSABLE),
        (f"<tool_call>{'[' * 10_000}</tool_call>", TOO_DEEP),
        ("\n".join([f"<tool_call>{F}</tool_call>"] * 300), TOO_LONG),
        ('<function=f>{"x":1}</function>' * 300, TOO_LONG),
        ("x" * 20_000, TOO_LONG),
        (F + "\x00", NOT_TEXT),
        ('<tool_call>{"name": "f", "arguments": {"x": "\\ud800"}}</tool_call>', NOT_TEXT),
    ],
)
def test_texts_that_are_no_calls(text, reason):
    found = read_calls(text)
    assert isinstance(found, Rejection) and found.reason == reason


TAGGED = '<tool_call>f</tool_call> [TOOL_CALLS] <function=f> 5" ```'


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "f", "arguments": {"x": STRING}}</tool_call>',
        'A 5" nail: <tool_call>{"name": "f", "arguments": {"x": STRING}}',
        '[TOOL_CALLS][{"name": "f", "arguments": {"x": STRING}}]',
        '<|python_tag|>{"name": "f", "parameters": {"x": STRING}}',
        '[{"name": "f", "arguments": {"x": STRING}}]',
        'f\n{"x": STRING}',
        "[f(x=STRING)]",
        f"{FENCE}python\n[f(x=STRING)]\n{FENCE}",
    ],
)
def test_tags_in_strings_are_text(text):
    assert read_calls(text.replace("STRING", json.dumps(TAGGED))) == [{"f": {"x": TAGGED}}]


FORMS = [calls.HERMES, calls.QWEN3_CODER, calls.LLAMA, calls.LLAMA_TAGS, calls.MISTRAL, calls.DEEPSEEK]


def in_form(benchmark, form):
    """A benchmark for a model whose chat template takes tools and has this form of calls."""
    benchmark.use_template(write_calls(ONE, form))
    assert benchmark.call_form == form
    return benchmark


@pytest.mark.parametrize("form", FORMS)
def test_what_is_written_is_read(form):
    assert read_calls(write_calls(TWO, form), TYPES) == TWO
    assert form_of(write_calls(ONE, form)) == form
    assert form_of("f(x=1)") == calls.HERMES


_TEXT = st.text("ab\"\\<>{}[]:,'é", max_size=9)
_KEY = st.text("kx", max_size=3)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEY, inner, max_size=3),
    max_leaves=8,
)


_NAME = st.from_regex(r"[a-z_][a-z0-9_.]{0,8}", fullmatch=True)
_CALL = st.tuples(_NAME, st.dictionaries(st.text("kx", min_size=1, max_size=3), JSON, max_size=3))


@given(st.lists(_CALL, min_size=1, max_size=4), st.sampled_from([calls.HERMES, calls.LLAMA, calls.MISTRAL]))
def test_any_arguments_are_read_as_written(pairs, form):
    written = [{name: of} for name, of in pairs]
    assert read_calls(write_calls(written, form)) == written


_PIECES = st.sampled_from(
    ["<tool_call>", "</tool_call>", "<function=f>", "<parameter=x>", "</parameter>", "[TOOL_CALLS]", "[ARGS]",
     "<|python_tag|>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "```", "```json\n", "```tool_code\n",
     F, G, "{", "}",
     "[", "]", '"', "\\", "f(x=1)", ";", ",", "\n", "print(", ")", "</think>", "<think>", "\ud800", "\x00"]
)  # fmt: skip


@given(st.lists(_PIECES, max_size=40).map("".join))
def test_any_text_has_a_verdict(text):
    found = read_calls(text, TYPES)
    assert isinstance(found, Rejection) or len(found) <= calls.MAX_CALLS


def test_descriptions_become_json_schema():
    """As in BFCL's evaluator, for models that take tools."""
    given = {
        "at": {"type": "tuple", "items": {"type": "float"}},
        "any": {"type": "any", "description": "d"},
        "in": {"type": "dict", "properties": {"n": {"type": "Long"}}},
        "odd": "text",
    }
    meant = {
        "at": {"type": "array", "items": {"type": "number"}},
        "any": {"type": "string", "description": "d"},
        "in": {"type": "object", "properties": {"n": {"type": "integer"}}},
        "odd": {"type": "string"},
    }
    bfcl = {"type": "dict", "properties": given, "required": ["at"]}
    assert json_schema(bfcl) == {"type": "object", "properties": meant, "required": ["at"]}
    message = tools_message([{"name": "m.f", "description": "d", "parameters": bfcl}])
    (tool,) = json.loads(message["content"])
    assert message["role"] == "tools" and tool["function"]["name"] == "m.f"


def test_calls_that_python_cannot_write_stay_as_they_are():
    odd = '{"name": "f", "arguments": {"class": 1}}'
    assert as_python(odd, []) == odd
    assert as_python('{"name": "m.f", "arguments": {"x": null}}', []) == "[m.f(x=None)]"
    digits = f"<|tool_call_start|>[f(x=0x{'f' * 4000})]"
    for text in ("no call", "[f(1)]", digits):
        assert as_python(text, []) == text
    for text in ("no call", "[f(x={1})]", digits):
        assert rewritten(text, read_calls(text), calls.HERMES) == text


def test_names_and_types_of_the_tools_that_were_shown():
    tools = [
        {"name": "m.f", "parameters": {"type": "dict", "properties": {"x": {"type": "String"}}}},
        {"name": "m.g"},
        {"name": "m_g"},
    ]
    coder = "<tool_call><function=m.f><parameter=x>12</parameter></function></tool_call>"
    assert read_tool_calls(coder, tools) == [{"m.f": {"x": "12"}}]
    assert read_tool_calls('{"name": "m_f"}', tools) == [{"m.f": {}}]
    assert read_tool_calls('{"name": "m_g"}', tools) == [{"m_g": {}}]  # its own name
