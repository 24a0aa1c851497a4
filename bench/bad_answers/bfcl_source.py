"""Answers to BFCL's tasks in Java and JavaScript, and to those that want no call, by kind."""

import random
from collections.abc import Callable, Iterator, Mapping

from genenv_jax.benchmarks.base import Task
from genenv_jax.benchmarks.bfcl.schemas import render_calls

# What is put around the right call; LANGUAGE is the language's name.
FORMS = {
    "fence": ("```\n[CALL]\n```", "```CALL```", "`CALL;`", "```\nCALL;\n```"),
    "fence of a language": (
        "```LANGUAGE\n[CALL]\n```", "```LANGUAGE\nCALL;\n```", "```js\nCALL\n```", "```python\n[CALL]\n```",
        "```LANGUAGE CALL```", "```\nLANGUAGE\nCALL\n```", "```ts\nCALL;\n```", "```LANGUAGE\n\nCALL\n```",
    ),
    "line comment": (
        "// Call it.\nCALL;", "CALL; // done", "[CALL // done\n]", "[// f(x)\nCALL]", "CALL // a) ]\n;",
        "// a\n// b\nCALL", "CALL;\n// done", "//\nCALL", "# Call it.\nCALL",
    ),
    "block comment": (
        "/* Call it. */ CALL", "CALL; /* done */", "[/* a\nb */ CALL]", "/** Doc. */\nCALL;",
            "CALL /* f(1) */;",
        "/* unclosed\nCALL", "CALL; /**/", "/* a */ /* b */ CALL /* c */",
    ),
    "return or assignment": (
        "return CALL;", "[return CALL]", "return (CALL);", "x = CALL;", "this.x = CALL;", "var x = CALL;",
            "let x = CALL;",
        "const {a, b} = CALL;", "const [a] = CALL;", "Object x = CALL;", "Map<String, Integer> x = CALL;",
            "x += CALL;",
        "final int x = CALL;", "String[] x = CALL;", "x[0] = CALL;", "int x = 1, y = CALL;",
            "return await CALL;",
    ),
    "around the call": (
        "(CALL)", "[(CALL);]", "!CALL", "-CALL;", "CALL + 1", "CALL.toString()", "CALL[0]", "await CALL",
            "new CALL", "(int) CALL",
        "console.log(CALL)", "System.out.println(CALL);", "CALL?.a", "CALL ? 1 : 2", "x -> CALL",
            "() => CALL", "CALL.then(r => r)",
        "typeof CALL", "void CALL;", "[...CALL]", "'[CALL]'", '"CALL"', "CALL++", "CALL as any", "Api.CALL",
            "this.CALL", "x.y.CALL",
    ),
    "in a block": (
        "{ CALL; }", "if (x) { CALL; }", "if (x) CALL;", "try { CALL; } catch (Exception e) {}",
            "for (;;) { CALL; }",
        "function f() { return CALL; }", "class A { void f() { CALL; } }", "do { CALL; } while (x);",
            "import a.b;\nCALL;",
        "public static void main(String[] args) { CALL; }", "(async () => { await CALL; })();",
            "switch (x) { case 1: CALL; }",
        "import x from 'y';\nCALL;", "package a;\nCALL;", "synchronized (x) { CALL; }", "label: CALL;",
            "'use strict';\nCALL;",
    ),
    "several statements": (
        "CALL; CALL;", "CALL\nCALL", "[CALL, CALL]", "[CALL; CALL]", "f();\nCALL;", "CALL;\nf();",
            "int x = 1;\nCALL;",
        "CALL f()", ";;CALL;;", "CALL,", "x;\nCALL", "CALL;\nx", "let x;\nCALL;", "[f(), CALL]", "1; CALL",
            "throw CALL;",
    ),
    "prose": (
        "Sure: CALL", "CALL\nDone.", "The call is CALL.", "Answer: [CALL]", "1. CALL", "- CALL",
            "CALL is right", "Call:\nCALL;",
    ),
    "white space or sign": (
        "  [CALL]\n", "\t[CALL]\t", "[ CALL ]", "[\nCALL\n]", "CALL;", "[CALL;]", "[CALL].", "[CALL",
            "CALL]", "[CALL]]", "[[CALL]",
        "\u00a0CALL", "\ufeff[CALL]", "[CALL]\r\n", "CALL!", "@CALL", "[CALL)", "(CALL", "CALL\u200b",
            "[CALL]\x00",
    ),
}  # fmt: skip
# Texts for tasks that want no call; NAME is a function of the task, KEY one of its parameters.
NO_CALL = {
    "empty list": ("[]", " [] ", "```\n[]\n```", "```python\n[]\n```", "[ ]", "[\n]", "()", "`[]`", "[],",
        "[];", "'[]'"),
    "nothing": ("", " ", "\n\n", "```", "``````", "\t", "'", "[", "]", ".", "...", "[...]", "None", "null",
        "[None]"),
    "refusal": (
        "None of the functions can do this.", "I'm sorry, I cannot help with that.", "No function fits.",
            "N/A",
        "The request lacks a value for KEY.", "I would need `NAME` for this, but KEY is missing.",
            "Which KEY do you mean?",
        "NAME(KEY) does not fit.", "I cannot call NAME().", "No.", "[No function fits.]", "- none", "(none)",
    ),
    "rubbish": ("x", "(((", "]]][[[", "42", "[1]", "{}", "[{}]", "[[]]", "'a'", "x = 1", "lambda: 0",
        "[x for x in y]", "\x00", "f(", "🙂"),
    "call without arguments": ("[NAME()]", "NAME()", "```\n[NAME()]\n```", "[NAME(), NAME()]", "[unknown()]",
        "[NAME().x()]", "(NAME(),)"),
    "call": (
        "[NAME(KEY='x')]", "NAME(KEY=1)", "[unknown(a=1)]", "[NAME(KEY=[1, {'a': None}])]",
            "[NAME(KEY=KEY)]", "[NAME(1)]",
        "[NAME(**{'KEY': 1})]", "NAME(KEY=NAME(KEY=1))", "'[NAME(KEY=1)]'", "[NAME(KEY=1)] # x",
            "[f.g.NAME(KEY=1),]",
        "[f[0](KEY=1)]", "[f()(KEY=1)]", "['NAME'(KEY=1)]", "NAME(KEY=...)", "[NAME(KEY=a[0])]",
    ),
    "call with arithmetic": (
        "[NAME(KEY=10**100)]", "[NAME(KEY=1 + 1)]", "[NAME(KEY=10**400)]", "[NAME(KEY=len('a') + 1)]",
            "[NAME(KEY='a' * 3)]",
        "[NAME(KEY=1/0)]", "[NAME(KEY=x + 1)]", "[NAME(KEY='%s' % 'a')]", "[NAME(KEY=[1][0] + 1)]",
            "[NAME(KEY='a' * 20000)]",
        "[NAME(KEY=-'a')]", "[NAME(KEY=-x)]", "[NAME(KEY=not True)]", "[NAME(KEY=1 < 2)]",
            "[NAME(KEY={1} | {2})]",
    ),
    "broken call": (
        "[NAME(KEY=)]", "[NAME(KEY='x')", "NAME(KEY", "[NAME(KEY=1 2)]", "[NAME(KEY='x]", "NAME KEY=1",
            "[NAME(KEY=1)}",
        "[NAME(KEY: 1)]", "[NAME(KEY=f'{x}')]", "[NAME(KEY=b'x' + b'y')]", "[NAME(KEY=x if y else z)]",
            "[NAME(KEY=1, KEY=2)]",
    ),
    "call and words": (
        "I call [NAME(KEY=1)].", "[NAME(KEY=1)] is the call.", "```python\n[NAME(KEY=1)]\n```",
            "No function fits. [NAME(KEY=1)]",
        "return [NAME(KEY=1)]", "x = NAME(KEY=1)", "<tool_call>[NAME(KEY=1)]</tool_call>",
            "[NAME(KEY=1), 'no']", "NAME(KEY=1); NAME()",
    ),
    "other notation": (
        '[{"name": "NAME", "arguments": {"KEY": 1}}]', '{"NAME": {"KEY": 1}}', "NAME", "[NAME]", "['NAME']",
            "[NAME.KEY]", "[NAME[0]]",
        "<tool_call>{}</tool_call>", "[lambda: NAME()]", "[not NAME()]", "[-NAME()]", "[NAME() + NAME()]",
            "[await NAME()]", "[*NAME()]",
    ),
    "beyond limits": (
        "[NAME()]" + " " * 17_000, "no " * 6_000, "[NAME(KEY=" + "[" * 70 + "]" * 70 + ")]",
            "[NAME(KEY=" + "-" * 300 + "1)]", "[" * 300,
    ),
}  # fmt: skip


def source_answers(task: Task, rng: random.Random, count: int) -> Iterator[tuple[str, str]]:
    """(kind, text): the reference answer and `count` - 1 others to a task in Java or JavaScript."""
    language = task.answer["language"]
    call = render_calls(task.answer["ground_truth"], task.tools, language)[1:-1]
    yield "reference", f"[{call}]"
    kinds = [*FORMS, *_CHANGES]
    for index in range(count - 1):
        if index % len(kinds) == 0:
            rng.shuffle(kinds)
        kind = kinds[index % len(kinds)]
        if kind in FORMS:
            form = rng.choice(FORMS[kind])
            yield kind, form.replace("LANGUAGE", language).replace("CALL", call)
        else:
            changed = _CHANGES[kind](task, rng)
            yield (
                kind,
                rng.choice(("[{}]", "[{}]", "{}", "{};", "```\n[{}]\n```")).replace("{}", changed),
            )


def no_call_answers(task: Task, rng: random.Random, count: int) -> Iterator[tuple[str, str]]:
    """(kind, text): `count` answers of different kinds to a task that asks for no call, or for any."""
    functions = [(tool["name"], tool["parameters"]["properties"]) for tool in task.tools]
    name, parameters = rng.choice(functions or [("search", {})])
    key = rng.choice([*parameters, "value"])
    for kind in rng.sample(list(NO_CALL), min(count, len(NO_CALL))):
        yield kind, rng.choice(NO_CALL[kind]).replace("NAME", name).replace("KEY", key)


def _parts(task: Task) -> tuple[str, dict[str, str]]:
    """Name and arguments of the right call, as source text."""
    ((name, options),) = task.answer["ground_truth"][0].items()
    parts = {}
    for key, each in options.items():
        written = render_calls([{name: {key: each}}], task.tools, task.answer["language"])[1:-2]
        if "=" in written:  # one may be left out
            name, _, value = written.partition(f"({key}=")
            parts[key] = value
    return name, parts


def _joined(name: str, parts: Mapping[str, str], between: str = ", ") -> str:
    return f"{name}({between.join(f'{key}={value}' for key, value in parts.items())})"


def _order(task: Task, rng: random.Random) -> str:
    name, parts = _parts(task)
    return _joined(name, dict(rng.sample(list(parts.items()), len(parts))))


def _arguments(task: Task, rng: random.Random) -> str:
    name, parts = _parts(task)
    if parts and rng.random() < 0.5:
        del parts[rng.choice(sorted(parts))]
    else:
        parts[rng.choice(("extra", "a.b", "new", "x y", "this"))] = rng.choice(
            ("1", '"x"', "null", "{}", "[]", "x")
        )
    return _joined(name, parts)


def _names(task: Task, rng: random.Random) -> str:
    name, parts = _parts(task)
    forms = (name.upper(), name.replace(".", "_"), f"x.{name}", name.split(".")[-1], f"{name}<T>",
        f"{name}?.", f"new {name}",
             name + "_", rng.choice(task.tools)["name"], f"{name} ", f"{name}.call", name.replace(".",
                 " . "), f"${name}")  # fmt: skip
    return _joined(rng.choice(forms), parts)


def _layout(task: Task, rng: random.Random) -> str:
    name, parts = _parts(task)
    form = rng.choice(
        (
            "{}={}",
            "{} = {}",
            "{}:{}",
            "{}: {}",
            "{}\n=\n{}",
            "{}={},",
            "({}={})",
            "{}==\n{}",
            "/* a */{}={}",
            "{}={}/* b */",
        )
    )
    between = rng.choice((", ", ",", " , ", ",\n  ", "; ", " ", ", // next\n", ", /* next */ "))
    return f"{name}({between.join(form.format(key, value) for key, value in parts.items())})"


def _positional(task: Task, rng: random.Random) -> str:
    name, parts = _parts(task)
    values = ", ".join(parts.values())
    objects = ", ".join(f"{key}: {value}" for key, value in parts.items())
    return rng.choice(
        (
            f"{name}({values})",
            f"{name}({{{objects}}})",
            f"{name}({', '.join(parts)})",
            f"{name}(...{values})",
            f"{name}()",
        )
    )


def _values(task: Task, rng: random.Random) -> str:
    """One argument's source replaced."""
    name, parts = _parts(task)
    if not parts:
        return _joined(name, parts)
    key = rng.choice(sorted(parts))
    value = parts[key]
    bare = value.strip("\"'`")
    forms = (
        f'"{bare}"', f"'{bare}'", f"`{bare}`", bare, f"({value})", f"{value}L", f"{value}f", f"{value}d",
            f"{value}n", f"+{value}",
        f"-{value}", f"{value} + 0", f'{value} + ""', f"new String({value})", f"String.valueOf({value})",
            f"(Object) {value}",
        f"[{value}]", f"{{{value}}}", f"new Object[]{{{value}}}", f"Arrays.asList({value})",
            f"List.of({value})", f"{value}.trim()",
        value.upper(), value.lower(), value.title(), value.replace(" ", ""), value.replace(",", ", "),
            value.replace(", ", ","),
        value.replace("true", "True").replace("false", "False"), value.replace("null", "None"),
            value.replace('"', "'"),
        value.replace("new ", ""), value.replace("<>", "<String>"), value.replace("[]", "[3]"),
            value.replace("1", "2"),
        value.replace("put", "add"), value.replace("0", "0.0"), value.replace("a", "\\u0061"),
            value.replace("e", "е"),
        f"{value} /* x */", f"x -> {value}", f"() => {value}", f"x ? {value} : 1", "null", "undefined",
            "this", "true", "0x10", "1e3",
        "1_000", '"x"', "[]", "{}", "new ArrayList<>()", "new HashMap<>()", "x", "x.y", "x[0]", "f()",
            "f(a=1)", "function(a) { return a; }",
        "async (a) => a", "/x/g", "`a${1}b`", "new Date()", "new int[2]", "String.class", "x::y", "'a'",
            "\"a\\\"b\"", "...x", "a=1", "",
    )  # fmt: skip
    parts[key] = rng.choice(forms)
    return _joined(name, parts)


def _character(task: Task, rng: random.Random) -> str:
    """Up to three characters of the call removed, replaced or inserted."""
    text = _joined(*_parts(task))
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(len(text))
        new = rng.choice(("", "", *"()[]{}'\"`,;:=.<>/*+-!?@#$\\ \n0a", text[at] * 2))
        text = text[:at] + new + text[at + rng.choice((0, 1)) :]
    return text or "x"


def _python(task: Task, rng: random.Random) -> str:
    """Values as Python writes them."""
    return render_calls(task.answer["ground_truth"], task.tools)[1:-1]


_CHANGES: Mapping[str, Callable[[Task, random.Random], str]] = {
    "arguments in another order": _order,
    "argument dropped or added": _arguments,
    "other function": _names,
    "layout of the arguments": _layout,
    "by position": _positional,
    "value": _values,
    "another value": _values,
    "characters wrong": _character,
    "other characters wrong": _character,
    "Python's notation": _python,
}
