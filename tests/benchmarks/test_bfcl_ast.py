"""The AST checker's rules, one by one, on made-up functions."""

import pytest

from genenv_jax.benchmarks.base import Rejection
from genenv_jax.benchmarks.bfcl import ast_checker, java, javascript, schemas, source_calls
from genenv_jax.benchmarks.bfcl.benchmark import BFCL
from genenv_jax.benchmarks.bfcl.source_calls import decode_source_calls
from tests.benchmarks.bfcl_tasks import function


def _tool(name="f", required=("a",), **types):
    properties = {}
    for key, declared in types.items():
        outer, _, inner = declared.partition(" of ")
        properties[key] = {"type": outer} | ({"items": {"type": inner}} if inner else {})
    return function(name, properties, required)


# Type, acceptable values, value, the official error and, where strings are compared as they are, another one.
_VALUES = [
    ("string", ["New York, NY"], "new york ny", "", "value_error:string"),
    ("string", ["2024-04-01"], "2024/04/01", "", "value_error:string"),
    ("string", ["it's"], 'it"s', "", "value_error:string"),
    ("string", ["cats"], "cat", "value_error:string"),
    ("string", ["a;b"], "a:b", "value_error:string"),
    ("string", ["1"], 1, "type_error:simple"),
    ("integer", [5], 5, ""),
    ("integer", [5], 6, "value_error:others"),
    ("integer", [5], 5.0, "type_error:simple"),
    ("integer", [1], True, "type_error:simple"),
    ("integer", ["n"], "n", ""),  # a variable stands for the number
    ("integer", ["n"], "N", "value_error:others"),  # and its case matters
    ("float", [5.0], 5, ""),
    ("float", [5], 5.0, ""),
    ("float", [0.5], 0.49, "value_error:others"),
    ("boolean", [True], True, ""),
    ("boolean", [True], 1, "type_error:simple"),
    ("boolean", [True], "True", "type_error:simple"),
    ("boolean", [True], False, "value_error:others"),
    ("any", ["x"], "X", "", "value_error:string"),
    ("array of string", [["A", "b c"]], ["a", "bc"], "", "value_error:list/tuple"),
    ("array of string", [["A", "B"]], ["b", "a"], "value_error:list/tuple"),
    ("array of string", [["A"], ["B"]], ["b"], "", "value_error:list/tuple"),
    ("array of integer", [[1, 2]], [1, 2.0], "type_error:nested"),
    ("array of integer", [[1, 2]], (1, 2), "type_error:simple"),
    ("array of float", [[1.0]], [1], "type_error:nested"),
    ("array of float", [[1]], [1], ""),  # elements take the type of the options
    ("array of string", [["x"], ""], [], "", "value_error:list/tuple"),  # "" is compared as an empty list
    ("array of string", [["x"], ""], ["y"], "value_error:list/tuple"),
    ("tuple of float", [[1.0, 2.0]], (1.0, 2.0), ""),
    ("tuple of float", [[1.0, 2.0]], [1.0, 2.0], ""),
    ("dict", [{"k": ["v", "w"]}], {"k": "W"}, "", "value_error:dict_value"),
    ("dict", [{"k": ["v"]}], {"k": "x"}, "value_error:dict_value"),
    ("dict", [{"k": ["v"]}], {"K": "v"}, "value_error:dict_key"),
    ("dict", [{"k": ["v"], "l": [1, ""]}], {"k": "v"}, ""),
    ("dict", [{"k": ["v"], "l": [1]}], {"k": "v"}, "value_error:dict_key"),
    ("dict", [{"k": ["v"]}], [("k", "v")], "type_error:simple"),
    ("dict", [""], {}, "dict_checker:unclear"),
    ("array of dict", [[{"k": [1]}, {"k": [2]}]], [{"k": 1}, {"k": 2}], ""),
    ("array of dict", [[{"k": [1]}, {"k": [2]}]], [{"k": 2}, {"k": 1}], "value_error:dict_value"),
    ("array of dict", [[{"k": [1]}]], [{"k": 1}, {"k": 1}], "value_error:list_dict_count"),
    ("number", [1], 1, ast_checker.CHECKER_ERROR),  # not a BFCL type
    ("float", [1.0], 10**400, ast_checker.CHECKER_ERROR),  # no float can hold it
    ("string", ["New York"], "New York", ""),
    ("string", [".", ""], ".", ""),
    ("string", [".", ""], "", "", "value_error:string"),  # "" means that it may be omitted
    ("string", [""], "", ""),
    ("string", ["", ""], "", ""),
    ("array of string", [["A", "b"]], ["A", "b"], ""),
    ("dict", [{"k": ["V"]}], {"k": "V"}, ""),
    ("array of dict", [[{"k": ["V"]}]], [{"k": "v"}], "", "value_error:dict_value"),
]


@pytest.mark.parametrize(
    ("declared", "options", "value", "error", "in_order"), [(*case, case[3])[:5] for case in _VALUES]
)
def test_values_and_types(declared, options, value, error, in_order):
    tools, truth, calls = [_tool(a=declared)], [{"f": {"a": options}}], [{"f": {"a": value}}]
    assert ast_checker.check(tools, calls, truth, "simple") == error
    assert ast_checker.check_in_order(tools, calls, truth) == in_order


def _f(**arguments):
    return {"f": arguments}


def _g(**arguments):
    return {"g": arguments}


_CALL, _ORDER = "simple_function_checker", "parallel_function_checker_no_order"
_ONE, _NEEDED = [_f(a=[1], b=[2, ""])], [_f(a=[1], b=[2])]
_THREE, _TWICE = [_f(a=[1]), _f(a=[2]), _g(a=[1])], [_f(a=[1]), _g(a=[1]), _f(a=[1])]
_GREEDY = [_f(a=[1, 2]), _f(a=[1])]


@pytest.mark.parametrize(
    ("kind", "truth", "calls", "error"),
    [
        ("simple", _ONE, [_f(a=1)], ""),
        ("simple", _ONE, [_f(b=2, a=1)], ""),
        ("simple", _ONE, [], f"{_CALL}:wrong_count"),
        ("simple", _ONE, [_f(a=1), _f(a=1)], f"{_CALL}:wrong_count"),
        ("simple", _ONE, [{"F": {"a": 1}}], f"{_CALL}:wrong_func_name"),
        ("simple", _ONE, [_f(b=2)], f"{_CALL}:missing_required"),
        ("simple", _ONE, [_f(a=1, c=3)], f"{_CALL}:unexpected_param"),
        ("simple", _NEEDED, [_f(a=1)], f"{_CALL}:missing_optional"),
        # The function that the answer names.
        ("multiple", [_g(a=[1])], [_g(a=1)], ""),
        ("multiple", [_g(a=[1])], [_f(a=1)], f"{_CALL}:wrong_func_name"),
        ("multiple", [_g(a=[1])], [_g(a=1), _g(a=1)], "multiple_function_checker:wrong_count"),
        # In any order, once each.
        ("parallel", _THREE, [_g(a=1), _f(a=2), _f(a=1)], ""),
        ("parallel", _THREE, [_g(a=1), _f(a=1), _f(a=1)], f"{_ORDER}:cannot_find_match"),
        ("parallel", _THREE, [_g(a=1), _f(a=2)], f"{_ORDER}:wrong_count"),
        ("parallel", _TWICE, [_g(a=1), _f(a=1), _f(a=1)], ""),
        # The first reference takes the only call that the second would accept: officially, no search.
        ("parallel", _GREEDY, [_f(a=1), _f(a=2)], f"{_ORDER}:cannot_find_match"),
        ("parallel", _GREEDY, [_f(a=2), _f(a=1)], ""),
        ("in_order", _TWICE, [_f(a=1), _g(a=1), _f(a=1)], ""),
        ("in_order", _TWICE, [_g(a=1), _f(a=1), _f(a=1)], f"{_CALL}:wrong_func_name"),
        ("in_order", _TWICE, [_f(a=1), _g(a=1)], f"{_ORDER}:wrong_count"),
        ("in_order", [], [], ""),
    ],
)
def test_which_calls_are_compared(kind, truth, calls, error):
    tools = [_tool("f", a="integer", b="integer"), _tool("g", a="integer")]
    if kind == "in_order":
        assert ast_checker.check_in_order(tools, calls, truth) == error
    else:
        assert ast_checker.check(tools, calls, truth, kind) == error


@pytest.mark.parametrize(
    ("text", "declared", "nested", "value"),
    [
        ("5", "integer", None, 5),
        ("5.0", "integer", None, "5.0"),
        ("5L", "long", None, 5),
        ("5", "long", None, "5"),
        ("1.5f", "float", None, 1.5),
        ("1.5", "float", None, "1.5"),
        ("1e3", "double", None, 1000.0),
        ("true", "boolean", None, True),
        ("True", "boolean", None, "True"),
        ("'a'", "char", None, "'a'"),
        ("anything", "any", None, "anything"),
        ("new int[]{1, 2}", "Array", "integer", [1, 2]),
        ("new String[] { a, b }", "Array", "String", ["a", "b"]),
        ("{1, 2}", "Array", "integer", "{1, 2}"),
        ('new ArrayList<>(Arrays.asList("a", "b"))', "ArrayList", "String", ["a", "b"]),
        ("new ArrayList<Long>(Arrays.asList(1L, 2L))", "ArrayList", "long", [1, 2]),
        ("new ArrayList<>() {{ add(1); add(2); }}", "ArrayList", "integer", [1, 2]),
        ("new ArrayList<>()", "ArrayList", "String", []),
        ('new HashMap<>() {{ put("k", "v"); put("n", 1); }}', "HashMap", None, {"k": "v", "n": 1}),
        ("new HashMap<String, Integer>()", "HashMap", None, {}),
        (
            'new HashMap<>() {{ put("n", 5L); put("x", 1.5f); put("y", 2.5); put("z", a); put("t", true); }}',
            "HashMap", None, {"n": 5, "x": 1.5, "y": 2.5, "z": "a", "t": True},
        ),
        ("Map.of()", "HashMap", None, "Map.of()"),
        ("new HashMap<>", "HashMap", None, "new HashMap<>"),
    ],
)  # fmt: skip
def test_java_source_becomes_values(text, declared, nested, value):
    assert java.convert(text, declared, nested) == value


@pytest.mark.parametrize(
    ("text", "declared", "nested", "value"),
    [
        ("'a'", "String", None, "a"),
        ("a", "String", None, "a"),
        ("5", "integer", None, 5),
        ("5", "float", None, 5.0),
        ("5n", "Bigint", None, 5),
        ("false", "Boolean", None, False),
        ("[1, 2]", "array", "integer", [1, 2]),
        ("new Array(1, 2)", "array", "integer", [1, 2]),
        ('["a", "b"]', "array", "String", ["a", "b"]),
        ("[[1, 2], [3]]", "array", None, [[1, 2], [3]]),
        ("[]", "array", None, []),
        ("list", "array", "String", "list"),
        ('{"a": 1, b: [1, "x"], "c": true}', "dict", None, {"a": 1, "b": [1, "x"], "c": True}),
        ('{"a": 1.5, b: x}', "dict", None, {"a": 1.5, "b": "x"}),
        ("{}", "dict", None, {}),
        ("{\n}", "dict", None, "{\n}"),
        ("f()", "any", None, "f()"),
    ],
)
def test_javascript_source_becomes_values(text, declared, nested, value):
    assert javascript.convert(text, declared, nested) == value


def test_unknown_source_types_raise():
    for convert in (java.convert, javascript.convert):
        with pytest.raises(KeyError):
            convert("1", "number")
    with pytest.raises(NotImplementedError):
        java.convert("new HashSet<>()", "Set")


@pytest.mark.parametrize(
    ("language", "text", "arguments"),
    [
        ("java", '[A.f(x=1, y="q", z=\'ab\')]', {"x": "1", "y": "q", "z": "ab"}),
        ("java", "A.f(x=new int[]{1, 2})", {"x": "new int[]{1,2}"}),
        ("java", "A.f(x=new ArrayList<>(Arrays.asList(1,2)))", {"x": "new ArrayList<>(Arrays.asList(1,2))"}),
        ("java", "A.f(x=new T() {{ put(1); }}, y=a.b(c, d))", {"x": "new T()", "y": "a.b(c, d)"}),
        ("java", "A.f(x=(int) y, z=a ? b : c);", {"x": "(int)y", "z": "a?b:c"}),
        ("java", "A.f(x=y -> y + 1, z=A::b)", {"x": "y->y+1", "z": "A::b"}),
        ("javascript", "A.f(x=[1, 2], y={'a': 1, b})", {"x": "[1, 2]", "y": "{'a': 1, b}"}),
        ("javascript", "A.f(x=(a) => a + 1, y=function () { return 1 })",
         {"x": "(a) => a + 1", "y": "function () { return 1 }"}),
        ("javascript", "A.f(x=`t`, y=/r[/]x/.test(z), z=-1,)",
         {"x": "`t`", "y": "/r[/]x/.test(z)", "z": "-1"}),
        ("javascript", "A.f(true, x=1)\nB.g(y=2)", {"*": "true", "x": "1"}),
        ("javascript", "A.f(x=/a[/]b/gi, y={a, [k]: 1, ...r, m(q) { return q }, 'b': 2})",
         {"x": "/a[/]b/gi", "y": "{a, [k]: 1, ...r, m(q) { return q }, 'b': 2}"}),
        ("javascript", "A.f(x=new (g), y=[1, , 2], z=(a, b))",
         {"x": "new (g)", "y": "[1, , 2]", "z": "(a, b)"}),
        ("javascript", "A.f(x=async (a) => { a }, y=function* g(a) { a }, z=new X)",
         {"x": "async (a) => { a }", "y": "function* g(a) { a }", "z": "new X"}),
        ("java", "A.f(x=new int[][]{{1}, {2}}, y=new a.B<C>(1), z=0xFL)",
         {"x": "new int[]{{1},{2}}", "y": "new a.B<C>(1)", "z": "0xFL"}),
    ],
)  # fmt: skip
def test_source_calls_are_decoded(language, text, arguments):
    assert decode_source_calls(text, language) == [{"A.f": arguments}]


_BOTH = ("java", "javascript")


@pytest.mark.parametrize(
    ("text", "languages"),
    [
        ("// The call.\nA.f(x=1)", _BOTH),
        ("/* The\ncall. */ A.f(/* one */ x=1 /* it is */); // done", _BOTH),
        ("A.f( // one\nx=1)", _BOTH),
        ("A.f(x=1); B.g(y=2)", _BOTH),
        (";A.f(x=1);;", _BOTH),
        ("count; A.f(x=1)", _BOTH),
        ("return\nA.f(x=1)", _BOTH),
        ("```javascript\nA.f(x=1)\n```", ("javascript",)),
        ("const n = g(1)\nlet m\nA.f(x=1)", ("javascript",)),
        ("A.f(x=1)\nBbbbbbbbbb.g(y=2)", ("javascript",)),
        *((text, ("java",)) for text in (
            "return A.f(x=1)", "a.r += A.f(x=1);", "final Map<String, List<B>> r = A.f(x=1);",
            "B b = new B(1); A.f(x=1);", "flag ? !(A.f(x=1)[0] + 1) : B.g(y=2)", "B b = new B(A.f(x=1));",
            "() -> A.f(x=1)", "if (a) { A.f(x=1); }", "new B() { }; A.f(x=1)", "A /* c */ .f(x=1)",
        )),
        # Invalid in every language.
        *((text, ()) for text in (
            "```json\n[A.f(x=1)]\n```", "# Call.\nA.f(x=1)", "A.f(x=1), B.g(y=2)", "A.f(x=1) B.g(y=2)",
            "await A.f(x=1) now", "A.f(x=1);\nThis does it.", "The call is A.f(x=1);", "A.f(x=1).get()",
            "A.f(x=1);)", "A.f(x=1) /* not\nended", "// A.f(x=1)", "A.f(x=/* one */ 1)",
        )),
    ],
)  # fmt: skip
def test_the_call_that_counts_among_statements_and_comments(text, languages):
    for language in _BOTH:
        found = decode_source_calls(text, language)
        assert (found == [{"A.f": {"x": "1"}}]) == (language in languages)


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        # Refused, since tree-sitter would drop the call rather than repair it.
        ("[A.f(x=1)]", True), ("A.f(x=1) // done", True), ('A.f(x="é", y=2);', True), ("A.f(x=1", False),
        ("(A.f(x=1)", False), ("A.f(x=1)[0]", False),
    ],
)  # fmt: skip
def test_a_call_in_java_may_lack_its_semicolon_and_is_read_as_written(text, reads):
    found = decode_source_calls(text, "java")
    assert isinstance(found, Rejection) != reads
    if "é" in text:
        assert found == [{"A.f": {"x": "é", "y": "2"}}]


@pytest.mark.parametrize("language", _BOTH)
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"), ("\0", "not_text"), ("f(" + "a" * 5_000, "too_long"),
        ("f(a=" + "!" * 3_000 + "1)", "too_deep"), ("f(a=" + "f(" * 300 + "1" + ")" * 301, "too_deep"),
        *((text, "unparsable") for text in (
            "no call here", "f(a=1", "f(a=1))", 'f(a="x)', "f(a:1)", "f(a=1, a=2)", "f(a=1 2)", "f(a='x\ny')",
            "f(a=12px)", "f(a=b c)", "f(a=" + "(" * 3_000, "f(a=" + "[" * 3_000, "f(a=" + "{" * 3_000,
            "f(a='" + "\\" * 3_000, "/*" * 2_000, "A.f(x=1) /" * 400, "'" * 4_001,
        )),
    ],
)  # fmt: skip
def test_malformed_source_calls_are_rejected(language, text, reason):
    found = decode_source_calls(text, language)
    assert isinstance(found, Rejection)
    # Deep and broken text may be either.
    assert found.reason == reason or {found.reason, reason} == {"too_deep", "unparsable"}


@pytest.mark.parametrize(
    ("value", "languages"),
    [
        ("{'b': 1}", ("javascript",)), ("{'b'}", ()), ("5L", ("java",)), ("5n", ("javascript",)),
        ("function b", ()), ("new 5", ("javascript",)), ("new X", ("javascript",)),
        ("new int[2]", ("javascript",)), ("`t`", ("javascript",)), ("''", ("javascript",)),
        ("[1]", ("javascript",)), ("a?.b", ("javascript",)), ("\u00a01", ("javascript",)),
    ],
)  # fmt: skip
def test_what_one_language_does_not_have(value, languages):
    for language in _BOTH:
        found = decode_source_calls(f"f(a={value})", language)
        assert isinstance(found, list) == (language in languages)


def test_the_grammars_are_asked_for_where_they_are_needed(monkeypatch):
    categories = {"seed_categories": (), "eval_categories": ("simple_java", "multiple")}
    assert BFCL(**categories).isolated
    monkeypatch.setattr(source_calls.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"need the package tree_sitter: pip install .*\[bfcl\]"):
        BFCL(**categories)
    assert not BFCL(seed_categories=(), eval_categories=("multiple",)).isolated


@pytest.mark.parametrize(
    ("language", "declared", "value", "text"),
    [
        ("java", "boolean", True, "true"),
        ("java", "long", 5, "5L"),
        ("java", "float", 1.5, "1.5f"),
        ("java", "integer", -5, "-5"),
        ("java", "String", 'say "x"', "'say \"x\"'"),
        ("java", "Array of integer", [1, 2], "new integer[]{1, 2}"),
        ("java", "Array of any", [], "new Object[]{}"),
        ("java", "Array of String", ["a", "b"], '"new String[]{a, b}"'),
        ("java", "ArrayList of String", ["a"], 'new ArrayList<>(Arrays.asList("a"))'),
        ("java", "ArrayList of long", [], "new ArrayList<>()"),
        ("java", "HashMap", {"k": "v", "n": 1, "b": False},
         """'new HashMap<String, Object>() {{ put("k", "v"); put("n", 1); put("b", false); }}'"""),
        ("javascript", "Boolean", False, "false"),
        ("javascript", "Bigint", 5, "5n"),
        ("javascript", "array of integer", [1, 2], "[1, 2]"),
        ("javascript", "array of String", ["a", "b"], '["a", "b"]'),
        ("javascript", "dict", {"a": [1, "x"], "b": True}, '{"a": [1, "x"], "b": true}'),
    ],
)  # fmt: skip
def test_values_are_written_in_their_language_and_read_again(language, declared, value, text):
    tool = _tool("A.f", a=declared)
    options = {key: [entry] for key, entry in value.items()} if isinstance(value, dict) else value
    truth = [{"A.f": {"a": [options]}}]
    written = schemas.render_calls(truth, [tool], language)
    assert written == f"[A.f(a={text})]"
    calls = decode_source_calls(written, language)
    assert not ast_checker.check([tool], calls, truth, "simple", language)


def test_reference_calls_take_the_first_option_of_each_part():
    tool = _tool(required=("b",), a="array of dict", b="dict", c="integer", d="string")
    lists, dicts = [[{"k": [1, 2], "l": [""]}, "x"]], ["", {"n": ["", 2], "o": 5}]
    truth = [{"f": {"a": lists, "b": dicts, "c": ["", 1], "d": []}}]
    expected = {"a": [{"k": 1}, "x"], "b": {"n": 2, "o": 5}}
    assert list(schemas.reference_calls(truth, [tool])) == [("f", expected)]
    # A task's only function is called, whatever name its answer has; a required parameter gets a value.
    assert list(schemas.reference_calls([{"g": {"b": [""]}}], [tool])) == [("f", {"b": ""})]
