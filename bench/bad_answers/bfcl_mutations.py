"""Wrong and nearly right answers, made from reference answers by seeded changes.

`mutations(task)` gives the same texts on every machine, so that the official checker's verdicts on
them can be kept without keeping the texts (which hold benchmark data).
"""

from __future__ import annotations

import random
from typing import Any

from genenv_jax.benchmarks.base import Task
from genenv_jax.benchmarks.bfcl.schemas import reference_calls, render_calls

COUNT = 10
FIXED = 5
# What Java and JavaScript answers are wrapped in; CALL is the right call, LANGUAGE the language's name.
FORMS = (
    # code fences
    "```LANGUAGE\n[CALL]\n```", "```LANGUAGE\nCALL\n```", "```LANGUAGE\nCALL;\n```", "```json\n[CALL]\n```",
    # comments
    "[// The call.\nCALL]", "// The call.\nCALL", "CALL // The call.", "CALL;\n// The call.",
    "[CALL /* The call. */]", "/* The\ncall. */\nCALL;", "# The call.\nCALL", "[CALL] // The call.",
    # statements around the call
    "[return CALL]", "return CALL;", "[result = CALL]", "result.value = CALL;", "var result = CALL;",
    "const result = CALL;", "String result = CALL;", "List<String> result = CALL;", "int[] result = CALL;",
    "[;CALL]", "int count = 1;\nCALL;", "const count = 1;\nCALL;", "await CALL;", "throw CALL;",
    # several calls, and words
    "[CALL; CALL]", "CALL;\nCALL;", "[CALL\nCALL]", "[CALL, CALL]", "CALL\nDone.", "CALL;\nThis does it.",
    "The call is CALL;",
    # what is found officially and refused here (`source_calls`)
    "[(CALL)]", "[!CALL]", "[CALL[0]]", "[CALL + 1]", "[flag ? CALL : null]", "{ CALL; }",
    "if (flag) { CALL; }", "try { CALL; } catch (Error e) {}", "import a.b;\nCALL;", "[() -> CALL]",
)  # fmt: skip


def mutations(task: Task, count: int = COUNT) -> list[str]:
    """Answers to a task of an AST category: `count` changed ones, and `FIXED` that are always the same.

    The latter are nothing, an empty list, the request itself, all calls twice and all but the last.  After
    them come the `FORMS` of a right answer in Java and JavaScript.
    """
    changed = [_mutate(task, random.Random(f"{task.id}/{index}")) for index in range(count)]
    truth, language = task.answer["ground_truth"], task.answer["language"]
    fixed = ["", "[]", task.messages[-1]["content"]]
    fixed += [render_calls(calls, task.tools, language) for calls in (truth + truth, truth[:-1])]
    forms = () if language == "python" else FORMS
    call = render_calls(truth, task.tools, language)[1:-1]
    wrapped = [form.replace("LANGUAGE", language).replace("CALL", call) for form in forms]
    return changed + fixed + wrapped


def _mutate(task: Task, rng: random.Random) -> str:
    spec = task.answer
    if spec["language"] != "python":
        return _mutate_source(render_calls(spec["ground_truth"], task.tools, spec["language"]), rng)
    calls = [(name, dict(a)) for name, a in reference_calls(spec["ground_truth"], task.tools)]
    for _ in range(rng.choice((1, 1, 1, 2))):
        calls = rng.choice(_CALL_CHANGES)(calls, task, rng)
    text = ", ".join(
        f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"
        for name, arguments in calls
    )
    return rng.choice(_WRAPPERS).format(text)


_WRAPPERS = ("[{}]",) * 8 + (
    "{}",
    "```\n[{}]\n```",
    "[{}",
    "'[{}]'",
    "[{}];",
    "Calls: [{}]",
    "({})",
)


def _value_change(calls: list, task: Task, rng: random.Random) -> list:
    places = [(i, key) for i, (_, arguments) in enumerate(calls) for key in arguments]
    if places:
        index, key = rng.choice(places)
        calls[index][1][key] = changed_value(calls[index][1][key], rng)
    return calls


def _option_change(calls: list, task: Task, rng: random.Random) -> list:
    index = rng.randrange(len(calls)) if calls else 0
    if index >= min(len(calls), len(task.answer["ground_truth"])):
        return calls
    options_of = next(iter(task.answer["ground_truth"][index].values()))
    for key, options in options_of.items():
        if options and rng.random() < 0.5:
            calls[index][1][key] = rng.choice(options)
    return calls


def _drop(calls: list, task: Task, rng: random.Random) -> list:
    if calls and (arguments := rng.choice(calls)[1]):
        del arguments[rng.choice(sorted(arguments))]
    return calls


def _add(calls: list, task: Task, rng: random.Random) -> list:
    if calls:
        tool = rng.choice(task.tools)
        unused = [*sorted(tool["parameters"]["properties"]), "extra"]
        rng.choice(calls)[1][rng.choice(unused)] = rng.choice(("", 0, None, "x", True, [], {}))
    return calls


def _rename(calls: list, task: Task, rng: random.Random) -> list:
    if calls:
        index = rng.randrange(len(calls))
        name, arguments = calls[index]
        other = rng.choice(task.tools)["name"]
        changes = (name.upper(), name.replace(".", "_"), name.split(".")[-1], name + "_", other)
        calls[index] = (rng.choice(changes), arguments)
    return calls


def _reorder(calls: list, task: Task, rng: random.Random) -> list:
    calls = [(name, dict(rng.sample(list(a.items()), len(a)))) for name, a in calls]
    rng.shuffle(calls)
    return calls


def _resize(calls: list, task: Task, rng: random.Random) -> list:
    if calls and rng.random() < 0.5:
        return calls[:-1]
    return calls + [(name, dict(arguments)) for name, arguments in calls[:1]]


def _swap_arguments(calls: list, task: Task, rng: random.Random) -> list:
    if len(calls) > 1:
        (first, a), (second, b) = calls[0], calls[-1]
        calls[0], calls[-1] = (first, b), (second, a)
    return calls


_CALL_CHANGES = (
    (_value_change,) * 8
    + (_option_change,) * 2
    + (_drop, _add, _rename, _reorder, _reorder, _resize, _swap_arguments)
)


def changed_value(value: Any, rng: random.Random) -> Any:
    """`value` with its type, its case, its punctuation or a part changed."""
    match value:
        case bool():
            return rng.choice((not value, int(value), str(value), str(value).lower(), None))
        case int():
            return rng.choice((value + 1, -value, float(value), str(value), value == 1, [value]))
        case float():
            return rng.choice((value + 0.1, int(value), str(value), -value, value * 10, (value,)))
        case str():
            changes = (
                value.upper(),
                value.lower(),
                value.title(),
                value + " ",
                value.replace(" ", ""),
                value.replace(",", ""),
                value.replace(" ", "_"),
                value.replace("'", '"'),
                value.replace("-", "/"),
                value + "!",
                value[:-1],
                value + "s",
                "",
                [value],
                value.replace(".", ","),
                f"{value} ({value})",
                {"value": value},
                "x" + value,
            )
            return rng.choice(changes)
        case list() | tuple():
            items = list(value)
            if items and rng.random() < 0.5:
                index = rng.randrange(len(items))
                items[index] = changed_value(items[index], rng)
                return items
            changes = (items[::-1], items[:-1], items + items[:1], tuple(items), str(items), [])
            return rng.choice((*changes, items[0] if items else None, [items]))
        case dict():
            entries = dict(value)
            if entries and rng.random() < 0.6:
                key = rng.choice(sorted(entries, key=str))
                entries[key] = changed_value(entries[key], rng)
                return entries
            without = dict(list(entries.items())[1:])
            reordered = dict(reversed(entries.items()))
            upper = {str(key).upper(): entry for key, entry in entries.items()}
            added = {**entries, "extra": 1}
            return rng.choice((without, reordered, upper, added, [entries], {}, str(entries)))
    return rng.choice(("", 0, "None"))


_SOURCE_CHANGES = (
    ("true", "True"), ("true", "false"), ("false", "true"), ("false", '"false"'), ('"', "'"),
    ('"', ""), ("=", " = "), (", ", ","), (",", ";"), ("new ", ""), ("[]{", "[] { "), ("{", "{ "),
    ("(", "( "), ("Arrays.asList", "List.of"), ("L)", ")"), (".", "_"), (".", " "), ("a", "A"),
    (" ", ""), ("=", ":"), ('="', '=" '), ("1", "1.0"), ("0", "0L"), ("put(", "add("), ("}}", "}"),
    ("<>", "<String>"), ("int", "Integer"), ("[", "{"), ("=", "=new "), ("))", ")"), ("[", "[["),
)  # fmt: skip


def _mutate_source(text: str, rng: random.Random) -> str:
    """A change of Java or JavaScript source; about one in six leaves a correct answer correct."""
    inside = text[1:-1]
    for _ in range(rng.choice((1, 1, 2))):
        found = [pair for pair in _SOURCE_CHANGES if pair[0] in inside]
        kind = rng.random()
        if kind < 0.75 and found:
            old, new = rng.choice(found)
            limit = rng.choice((1, -1))
            inside = inside.replace(old, new, limit)
        elif kind < 0.9:
            position = rng.randrange(len(inside))
            inside = inside[:position] + inside[position + 1 :]
        else:
            inside = inside.replace("(", "(extra=1, ", 1)
    return rng.choice(
        (f"[{inside}]", f"[{inside}]", inside, f"```\n[{inside}]\n```", f"[{inside};]")
    )
