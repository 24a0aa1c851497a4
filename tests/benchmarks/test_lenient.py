"""A simulator's tools and reference calls: repaired if they have one meaning, else rejected."""

import json
import pathlib
import re

import pytest

import genenv_jax
from genenv_jax.benchmarks import base
from genenv_jax.benchmarks.api_bank.benchmark import APIBank
from genenv_jax.benchmarks.base import Rejection
from genenv_jax.benchmarks.bfcl import schemas
from genenv_jax.benchmarks.bfcl.benchmark import BFCL
from genenv_jax.benchmarks.headers import is_same
from genenv_jax.benchmarks.lenient import parse_lenient
from tests.benchmarks.bfcl_tasks import BOOK, function, generation, seed_task
from tests.benchmarks.test_api_bank import CALL, TOOL

_TOOLS = {"bfcl": BOOK, "api_bank": TOOL}
_ANSWERS = {"bfcl": "[book(guests=2)]", "api_bank": "[AddReminder(content='run')]"}
both = pytest.mark.parametrize("name", _TOOLS)


def _read(name, tools="same", answer="", seed=None):
    """The task or rejection of a generation with these tools and this answer."""
    benchmark = BFCL(data_dir="nowhere") if name == "bfcl" else APIBank()
    seed = seed or (seed_task() if name == "bfcl" else CALL)
    text = generation(tools, "User: For two, a run.", answer or _ANSWERS[name])
    task = benchmark.parse(text, seed, "g", 0)
    return task if isinstance(task, Rejection) else benchmark.verify(task) or task


# Faulty lists of one tool with one meaning, from the list `t` and the object `o` in it, both as JSON.
_MENDED = {
    "fence": lambda t, o: f"```json\n{t}\n```",
    "fence of Python literals": lambda t, o: f"```python\n{json.loads(t)!r}\n```",
    "comma after the last tool": lambda t, o: f"[{o},]",
    "commas after the last entries": lambda t, o: t.replace("}", ",\n}").replace("{,\n}", "{}"),
    "Python's quotes": lambda t, o: repr(json.loads(t)),
    "Python's quotes with an apostrophe": lambda t, o: (
        repr(json.loads(t)).replace("'name'", "'it\\'s': 'a [', 'name'", 1)
    ),
    "Python's constants": lambda t, o: f'[{o[:-1]}, "strict": True, "x": None}}]',
    "JSON with an escaped apostrophe": lambda t, o: f'[{o[:-1]}, "x": "it\\\'s"}}]',
    "one object": lambda t, o: o,
    "OpenAI's wrapper": lambda t, o: f'[{{"type": "function", "function": {o}}}]',
    "OpenAI's wrapper of one object": lambda t, o: f'{{"type": "function", "function": {o}}}',
    "a list in a list": lambda t, o: f"[{t}]",
    "no bracket at the end": lambda t, o: t[:-1],
    "no brace before the bracket": lambda t, o: f"{t[:-2]}]",
    "a bracket too many": lambda t, o: f"{t}]",
    "a brace too many": lambda t, o: f"{t[:-1]}}}]",
    "a brace for the bracket": lambda t, o: f"{t[:-1]}}}",
}  # fmt: skip


@both
@pytest.mark.parametrize("fault", _MENDED)
def test_tools_with_one_meaning_are_read(name, fault):
    tool = _TOOLS[name]
    listed = _MENDED[fault](json.dumps([tool]), json.dumps(tool))
    task = _read(name, listed)
    assert not isinstance(task, Rejection), task.detail
    assert [{key: found[key] for key in tool} for found in task.tools] == [tool]


@both
@pytest.mark.parametrize("between", ["\n", ",\n", "\n\n", "],\n[", "]\n["])
def test_tools_in_a_row_are_a_list(name, between):
    tool = _TOOLS[name]
    other = tool | {"name": "other"}
    listed = f"{json.dumps(tool)}{between}{json.dumps(other)}"
    task = _read(name, f"[{listed}]" if "]" in between else listed)
    assert task.tools == (tool, other)


@both
@pytest.mark.parametrize(
    "change",
    [
        lambda t: f"such as {t}",
        lambda t: f"{t} and so on",
        lambda t: t.replace(", ", ",, ", 1),
        lambda t: t.replace(", ", " ", 1),
        lambda t: t.replace("{", "{, ", 1),
        lambda t: t.replace('"name"', '"description": "Twice.", "name"'),
        lambda t: repr(json.loads(t)).replace("'name'", "'description': 'Twice.', 'name'"),
        lambda t: t.replace('"name"', '"x": NaN, "name"'),
        lambda t: t.replace('"name"', '"x": "a "word"", "name"'),
        lambda t: t.replace('"name"', '"x": (1, 2), "name"'),
        lambda t: t.replace('"name"', '"x": f"{1}", "name"'),
        lambda t: t.replace('"name"', '"x": [1}, "name"'),
        lambda t: t.rstrip("]}"),  # cut off
        lambda t: t + "]]]",
        lambda t: t.replace('"name"', "name"),
    ],
)
def test_tools_with_several_meanings_are_rejected(name, change):
    rejection = _read(name, change(json.dumps([_TOOLS[name]])))
    assert isinstance(rejection, Rejection) and rejection.reason == base.BAD_TOOLS
    assert rejection.detail


@pytest.mark.parametrize(
    ("language", "written", "meant"),
    [
        ("python", "number", "float"), ("python", "int", "integer"), ("python", "str", "string"),
        ("python", "list", "array"), ("python", "object", "dict"), ("python", "bool", "boolean"),
        ("python", "String", "string"), ("python", "tuple", "tuple"), ("python", "any", "any"),
        ("javascript", "string", "String"), ("javascript", "number", "float"),
        ("java", "string", "String"), ("java", "arraylist", "ArrayList"),
        ("java", "number", None), ("java", "object", None), ("python", "date", None),
        ("python", "null", None),
    ],
)  # fmt: skip
def test_types_get_the_names_of_bfcl(language, written, meant):
    schema = {"type": written, "description": "", "items": {"type": "string"}, "default": {"type": "number"}}
    parameters = {"type": "object", "properties": {"x": schema}, "required": ["x"]}
    tool = {"name": "f", "description": "", "parameters": parameters}
    tools = schemas.with_own_types([tool], language)
    rejection = schemas.check_tools(tools, language)
    if meant is None:
        assert rejection.reason == base.BAD_TOOLS and written in rejection.detail
        return
    assert rejection is None
    found = tools[0]["parameters"]
    assert found["type"] == "dict" and found["properties"]["x"]["type"] == meant
    assert found["properties"]["x"]["default"] == {"type": "number"}


def test_valid_descriptions_stay_as_they_are():
    # A type deeper than the checked levels.
    deep = {"type": "dict", "properties": {"y": {"type": "object"}}}
    tool = function("book", {"guests": {"type": "integer"}, "x": deep}, ["guests"], "Books a table.")
    assert _read("bfcl", json.dumps([tool])).tools == (tool,)


def test_api_bank_reads_json_schema():
    properties = {"far": {"type": "integer", "description": "In km."}, "places": {"type": "list(str)"}}
    schema = {"type": "object", "properties": properties, "required": ["far"]}
    function = {"name": "Run", "description": "Runs.", "parameters": schema}
    listed = json.dumps([{"type": "function", "function": function}])
    task = _read("api_bank", listed, "[Run(far='2')]")
    inputs = {"far": {**properties["far"], "type": "int"}, "places": properties["places"]}
    assert task.tools == ({"name": "Run", "description": "Runs.", "input_parameters": inputs},)
    assert task.answer["types"] == {"far": "int", "places": "list(str)"}


@pytest.mark.parametrize(
    ("name", "answer", "meant"),
    [
        ("bfcl", "```python\n[book(guests=2)]\n```", "[book(guests=2)]"),
        ("bfcl", '{"name": "book", "arguments": {"guests": 2}}', "[book(guests=2)]"),
        ("bfcl", '```json\n[{"name": "book", "parameters": {"guests": 2}}]\n```', "[book(guests=2)]"),
        (
            "bfcl",
            '<tool_call>{"name": "weather_get", "arguments": {"city": "Rome"}}</tool_call>',
            "[weather.get(city='Rome')]",
        ),
        ("bfcl", "`[book(guests=2)]`", "`[book(guests=2)]`"),  # the official decoder reads it
        ("bfcl", "Call [book(guests=2)].", None),
        ("bfcl", '[{"name": "book"}, {"guests": 2}]', None),
        ("bfcl", "[" * 10_000, None),
        ("api_bank", '{"name": "AddReminder", "arguments": {"count": 2}}', {"count": "2"}),
        ("api_bank", "AddReminder(content='run')", {"content": "run"}),
        ("api_bank", "AddReminder(content='run'), AddReminder(content='go')", None),
    ],
)  # fmt: skip
def test_a_reference_in_a_models_own_form_is_read(name, answer, meant):
    task = _read(name, answer=answer)
    if meant is None:
        assert task.reason == base.BAD_ANSWER
    else:
        assert task.answer["reference" if name == "bfcl" else "parameters"] == meant


def test_a_java_reference_is_source_text_and_not_mended():
    answer, seed = '{"name": "book", "arguments": {"guests": 2}}', seed_task("simple", language="java")
    assert _read("bfcl", answer=answer, seed=seed).reason == base.BAD_ANSWER


@pytest.mark.parametrize(
    ("section", "same"),
    [("same", True), ("`same`.", True), ("'Same'", True), ("Same tools", True), ("the same APIs.", True),
     ('["same"]', True), ("same, but with a city", False), ("not the same", False), ("", False)],
)  # fmt: skip
def test_same_has_several_spellings(section, same):
    assert is_same(section) == same


@pytest.mark.parametrize(
    "text",
    [
        "[" * 10**5, "]" * 10**5, "[" + "," * 10**5 + "]", "[" + "1,]" * 10**5, "'" * 10**5, '"' * 10**5,
        "['" + "\\'" * 10**5, "''," * 30_000, "'\\''," * 20_000, "{'a': 1}," * 20_000, "{} " * 30_000,
        '{"a":1,' * 30_000, "[1" + "]" * 10**5, "\\" * 10**5, "`" * 10**5, "'\ud800'", "'\\ud800'", "'\\0',",
    ],
)  # fmt: skip
def test_hostile_text_is_read_in_linear_time(bounded, text):
    value = parse_lenient(text, 10**6)
    assert isinstance(value, list | Rejection) and is_same(text) is False
    if len(text) < 10:
        assert value.reason == base.NOT_TEXT


def test_no_pattern_repeats_a_group_possessively():
    """CPython before 3.11.5 ends such a repetition early (gh-106052), but not `(?>(?:...)*)`."""
    possessive = re.compile(r"\)(?:[*+?]|\{[0-9,]+\})\+[^ ]")
    files = pathlib.Path(genenv_jax.__file__).parent.rglob("*.py")
    assert not [str(file) for file in files if possessive.search(file.read_text(encoding="utf-8"))]
