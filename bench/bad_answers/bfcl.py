"""Answers to BFCL's tasks in Python's form: of seeded kinds, and of fixed kinds."""

import json
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bench.bad_answers import bfcl_conversations, bfcl_source, values
from genenv_jax.benchmarks.base import Benchmark, Task
from genenv_jax.benchmarks.bfcl.categories import AST, CONVERSATION
from genenv_jax.benchmarks.bfcl.schemas import reference_calls
from genenv_jax.benchmarks.safe_parse import parse_calls

Calls = list[tuple[str, dict[str, Any]]]
# What is put around the right calls.
FORMS = {
    "fence": ("```\n[CALL]\n```", "```CALL```", "`[CALL]`"),
    "fence of a language": (
        "```python\n[CALL]\n```", "```json\n[CALL]\n```", "```tool_code\nCALL\n```", "```py\nCALL\n```",
        "```Python\n[CALL]\n```", "```python [CALL]```", "~~~\n[CALL]\n~~~", "```\n\n[CALL]\n\n```\n",
    ),
    "comment": (
        "# The call.\n[CALL]", "[CALL] # The call.", "[CALL, # one\n]", "[# The call.\nCALL]",
        "CALL  # [done]", "[CALL # one\n]", '"""The call."""\n[CALL]', "[CALL] // The call.",
    ),
    "return": ("return [CALL]", "return CALL", "[return CALL]", "yield CALL"),
    "assignment": ("result = CALL", "result = [CALL]", "[result := CALL]", "x: list = [CALL]"),
    "wrapped": (
        "print(CALL)", "(CALL)", "([CALL])", "{CALL}", "[[CALL]]", "[(CALL)]", "[CALL,]", "list([CALL])",
        "await CALL", "[await CALL]", "lambda: CALL", "[*[CALL]]", "'[CALL]'", '"[CALL]"', "''[CALL]''",
        "[None or CALL]", "[CALL][0]", "[CALL] + []", "[CALL if True else None]", "[CALL.value]", "[CALL()]",
    ),
    "prose": (
        "Sure! [CALL]", "[CALL] That is all.", "The answer is:\nCALL", "CALL\nDone.", "Answer: [CALL]",
        "<think>easy</think>[CALL]", "1. [CALL]", "- CALL", "I call CALL now.", "[CALL]\n\n(one call)",
    ),
    "white space": (
        "  [CALL]\n\n", "\t[CALL]", "[ CALL ]", "[\nCALL\n]", "\n\nCALL\n", "\u00a0[CALL]", "\ufeff[CALL]",
        "[CALL]\r\n", "\n [CALL]", "[\n  CALL\n]\t", "[\f CALL]", "\u3000CALL", "[CALL]\u200b",
    ),
    "bracket or sign": (
        "[CALL];", "CALL;", "[CALL].", "CALL,", "[CALL]]", "[CALL", "CALL]", "[CALL))", "[[CALL]", "(CALL",
        "[,CALL]", "[CALL,,]", "{CALL", "<CALL>", "-CALL", "[-CALL]", "[not CALL]", "@CALL", "CALL!",
            "[CALL)",
    ),
    "several calls": (
        "[CALL, CALL]", "CALL\nCALL", "[CALL]\n[CALL]", "CALL; CALL", "[CALL, nothing()]", "[CALL, 1]",
        "[nothing(), CALL]", "[CALL, None]", "[CALL, ...]", "[CALL and CALL]", "CALL, CALL",
    ),
    "tokens of a template": (
        "<tool_call>CALL</tool_call>", "[CALL]<|im_end|>", "<|python_tag|>CALL", "[TOOL_CALLS][CALL]",
        "<tool_call>\n[CALL]\n</tool_call>", "<function>CALL</function>", "<TOOLCALL>[CALL]</TOOLCALL>",
    ),
    "not text": ("[CALL]\x00", "\x07[CALL]", "[CALL]\ud800", "\x1b[0m[CALL]", "\x7fCALL"),
}  # fmt: skip


def answers(task: Task, rng: random.Random, count: int) -> Iterator[tuple[str, str]]:
    """(kind, text): the reference answer and up to `count` - 1 of other kinds, each kind once.

    Args:
      task: of a category that the AST checker scores, its calls in Python.
      rng: decides which kinds, and what they are.
      count: answers to make.
    """
    reference = _reference(task)
    yield "reference", _written(reference)
    kinds = [*FORMS, *CHANGES, *OF_REFERENCE]
    rng.shuffle(kinds)
    for kind in kinds:
        if count <= 1:
            return
        if kind in FORMS:
            text: str | None = rng.choice(FORMS[kind]).replace("CALL", _written(reference)[1:-1])
        elif kind in CHANGES:
            text = CHANGES[kind](_reference(task), task, rng)
        else:
            other = OF_REFERENCE[kind](_reference(task))
            text = None if other == reference else _written(other)
        if text is not None:
            count -= 1
            yield kind, text


def _reference(task: Task) -> Calls:
    calls = json.loads(json.dumps(list(reference_calls(task.answer["ground_truth"], task.tools))))
    return [(name, arguments) for name, arguments in calls]


def _call(name: str, arguments: Mapping[str, Any]) -> str:
    """A call; arguments whose names begin with "*" are positional."""
    parts = [repr(v) if k.startswith("*") else f"{k}={v!r}" for k, v in arguments.items()]
    return f"{name}({', '.join(parts)})"


def _written(calls: Calls) -> str:
    return f"[{', '.join(_call(*call) for call in calls)}]"


def _place(calls: Calls, rng: random.Random, kind: type | tuple = object) -> tuple[dict, str] | None:
    """Arguments of a call and one of their names, whose value is of a type."""
    found = [(a, k) for _, a in calls for k, v in a.items() if type(v) is kind or kind is object]
    return rng.choice(found) if found else None


def _changing(kind: type, change: Callable[[Any, random.Random], Any]) -> Callable[..., str | None]:
    """A kind of answer in which one value of type `kind` is changed."""

    def make(calls: Calls, task: Task, rng: random.Random) -> str | None:
        place = _place(calls, rng, kind)
        if place is None:
            return None
        before = place[0][place[1]]
        after = place[0][place[1]] = change(before, rng)
        return None if repr(after) == repr(before) else _written(calls)

    return make


def _alternatives(calls: Calls, task: Task, rng: random.Random) -> str | None:
    """Other acceptable values, or none where that is acceptable."""
    before = _written(calls)
    for (_, arguments), entry in zip(calls, task.answer["ground_truth"], strict=True):
        for name, options in next(iter(entry.values())).items():
            value = rng.choice(options) if options else ""
            if value == "":
                arguments.pop(name, None)
            elif not isinstance(value, dict | list):
                arguments[name] = value
    after = _written(calls)
    return None if after == before else after


def _argument_order(calls: Calls, task: Task, rng: random.Random) -> str | None:
    shuffled = [(name, dict(rng.sample(list(a.items()), len(a)))) for name, a in calls]
    return None if _written(shuffled) == _written(calls) else _written(shuffled)


def _call_order(calls: Calls, task: Task, rng: random.Random) -> str | None:
    return _written(rng.sample(calls, len(calls))) if len(calls) > 1 else None


def _drop(calls: Calls, task: Task, rng: random.Random) -> str | None:
    if place := _place(calls, rng):
        del place[0][place[1]]
        return _written(calls)
    return None


def _unknown(calls: Calls, task: Task, rng: random.Random) -> str | None:
    if calls:
        value = rng.choice((None, 1, "x", [], {}, ""))
        rng.choice(calls)[1][rng.choice(("extra", "class_", "ключ", "_", "kwargs"))] = value
    return _written(calls)


def _optional(calls: Calls, task: Task, rng: random.Random, default: bool = False) -> str | None:
    """One more declared argument, at its default or another value."""
    found = []
    for name, arguments in calls:
        for tool in task.tools:
            for key, schema in tool["parameters"]["properties"].items():
                if tool["name"] == name and key not in arguments and ("default" in schema or not default):
                    found.append((arguments, key, schema))
    if not found:
        return None
    arguments, key, schema = rng.choice(found)
    by_type = {"string": "x", "integer": 1, "float": 1.5, "boolean": True, "array": [], "dict": {}}
    arguments[key] = schema["default"] if default else by_type.get(schema.get("type"), "")
    return _written(calls)


def _default(calls: Calls, task: Task, rng: random.Random) -> str | None:
    return _optional(calls, task, rng, default=True)


def _function(calls: Calls, task: Task, rng: random.Random) -> str | None:
    if not calls:
        return None
    at = rng.randrange(len(calls))
    name = calls[at][0]
    forms = (name.upper(), name.replace(".", "_"), name.replace("_", "."), name.split(".")[-1], name + "_",
        f"api.{name}",
             f"functions.{name}", name.title(), rng.choice(task.tools)["name"], f"get().{name}",
                 f"x[0].{name}",
             f"'{name}'", f"{name} ", f"{name}.__call__", name.replace("e", "е"))  # fmt: skip
    calls[at] = (rng.choice(forms), calls[at][1])
    return _written(calls)


def _positional(calls: Calls, task: Task, rng: random.Random) -> str | None:
    if not any(arguments for _, arguments in calls):
        return None
    forms = [(name, {f"*{k}": v for k, v in a.items()}) for name, a in calls]
    first = [(n, {f"*{k}" if i == 0 else k: v for i, (k, v) in enumerate(a.items())}) for n, a in calls]
    mapping = [(n, {"*": values.Source(f"**{a!r}")}) for n, a in calls]
    beside = [(n, {"*": values.Source("*[1]"), **a}) for n, a in calls]
    return _written(rng.choice((forms, first, mapping, beside)))


def _repeated(calls: Calls, task: Task, rng: random.Random) -> str | None:
    place = _place(calls, rng)
    if place is None:
        return None
    arguments, key = place
    return _written(calls).replace(
        f"{key}={arguments[key]!r}", f"{key}={arguments[key]!r}, {key}={arguments[key]!r}", 1
    )


def _nested(calls: Calls, task: Task, rng: random.Random) -> str | None:
    """A call in the place of a value."""
    place = _place(calls, rng)
    if place is None:
        return None
    arguments, key = place
    value, other = arguments[key], rng.choice(task.tools)["name"]
    forms = (f"{other}()", f"{other}({key}={value!r})", f"{other}({value!r})", f"[{other}()]",
        f"{{'a': {other}()}}",
             f"{other}", f"{other}.{key}", f"{other}()['result']", f"{other}()[0].name",
                 f"result[{value!r}]")  # fmt: skip
    arguments[key] = values.Source(rng.choice(forms))
    return _written(calls)


def _json(calls: Calls, task: Task, rng: random.Random) -> str:
    """The calls in other notations."""
    objects = [{"name": name, "arguments": arguments} for name, arguments in calls]
    short = [{name: arguments} for name, arguments in calls]
    tagged = "".join(f"<tool_call>{json.dumps(each)}</tool_call>" for each in objects)
    spaced = " ".join(f"{name}({', '.join(f'{k}: {v!r}' for k, v in a.items())})" for name, a in calls)
    forms = (json.dumps(objects), json.dumps(short), repr(short), json.dumps(objects[:1])[1:-1], tagged,
        spaced,
             json.dumps({"tool_calls": objects}), " ".join(name for name, _ in calls),
                 f"[{spaced}]")  # fmt: skip
    return rng.choice(forms)


def _count(calls: Calls, task: Task, rng: random.Random) -> str:
    less, more = calls[:-1], calls + calls[:1]
    other = (rng.choice(task.tools)["name"], {})
    return _written(rng.choice((less, more, [*calls, other], [], [other, *calls], calls[:1])))


def _swapped(calls: Calls, task: Task, rng: random.Random) -> str | None:
    """The values of two arguments swapped."""
    places = [(a, k) for _, a in calls for k in a]
    if len(places) < 2:
        return None
    (a, j), (b, k) = rng.sample(places, 2)
    a[j], b[k] = b[k], a[j]
    return _written(calls)


def _cut(calls: Calls, task: Task, rng: random.Random) -> str:
    text = _written(calls)
    return text[: rng.randrange(len(text) + 1)]


def _typo(calls: Calls, task: Task, rng: random.Random) -> str:
    """One character of the text removed, inserted, doubled or swapped with the next."""
    text = _written(calls)
    at = rng.randrange(len(text))
    before, here, after = text[:at], text[at], text[at + 1 :]
    return rng.choice((before + after, before + here + here + after,
        before + rng.choice("()[]{}'\",=:.#\\ \n0a-+*") + here + after,
                       before + after[:1] + here + after[1:]))  # fmt: skip


def _long(calls: Calls, task: Task, rng: random.Random) -> str | None:
    """Beyond the limits of length or depth."""
    text = _written(calls)
    deep = values.Source("[" * 70 + "]" * 70)
    if (place := _place(calls, rng)) is None:
        return None
    place[0][place[1]] = rng.choice(
        (deep, "x" * 17_000, values.Source("-" * 300 + "1"), values.Source("1" + " + 1" * 300))
    )
    return rng.choice(
        (
            text + " " * 17_000,
            text + "\n" * 17_000,
            f"{text[:-1]}, {'f(), ' * 3_400}]",
            _written(calls),
        )
    )


CHANGES: Mapping[str, Callable[[Calls, Task, random.Random], str | None]] = {
    "arguments in another order": _argument_order,
    "calls in another order": _call_order,
    "other acceptable values": _alternatives,
    "argument dropped": _drop,
    "unknown argument added": _unknown,
    "declared argument added": _optional,
    "default given": _default,
    "other function": _function,
    "by position or mapping": _positional,
    "argument repeated": _repeated,
    "nested call": _nested,
    "other notation": _json,
    "calls dropped or added": _count,
    "values exchanged": _swapped,
    "cut short": _cut,
    "one character wrong": _typo,
    "beyond limits": _long,
    "text: case": _changing(str, values.case),
    "text: punctuation and spaces": _changing(str, values.punctuation),
    "text: Unicode": _changing(str, values.unicode),
    "text: other words": _changing(str, values.other_text),
    "text: other spelling in source": _changing(str, values.text_form),
    "number: other value": _changing(int, values.number),
    "number: other value of a float": _changing(float, values.number),
    "number: arithmetic of the same value": _changing(int, values.arithmetic),
    "number: arithmetic of the same float": _changing(float, values.arithmetic),
    "number: arithmetic beyond numbers": _changing(int, values.beyond),
    "number: other spelling in source": _changing(int, values.number_form),
    "boolean: other spelling in source": _changing(bool, values.bool_form),
    "list: other value": _changing(list, values.list_of),
    "list: other spelling in source": _changing(list, values.list_form),
    "dict: other value": _changing(dict, values.dict_of),
    "dict: other spelling in source": _changing(dict, values.dict_form),
    "wrong type of a text": _changing(str, values.type_of),
    "wrong type of a number": _changing(int, values.type_of),
    "wrong type of a float": _changing(float, values.type_of),
    "wrong type of a boolean": _changing(bool, values.type_of),
    "wrong type of a list": _changing(list, values.type_of),
}


# -- kinds that are the same every time --------------------------------------------------------------------

_GUESSES = {"integer": 1, "float": 1.0, "boolean": True, "array": [], "tuple": (), "dict": {}}


def write(calls: Calls) -> str:
    """Calls as an agent writes them."""
    return _written(calls)


def parsed_reference(benchmark: Benchmark, task: Task) -> Calls | None:
    """The reference calls, read from the reference answer; None where they are not written in Python."""
    found = parse_calls(benchmark.agent_answer(task), 100_000, 60)
    if not isinstance(found, list) or task.answer["language"] != "python":
        return None
    return [(name, dict(arguments)) for call in found for name, arguments in call.items()]


def guess(tool: Mapping[str, Any], text: str = "value") -> tuple[str, dict[str, Any]]:
    """A call with something for each required parameter."""
    properties = tool["parameters"].get("properties", {})
    return tool["name"], {
        name: _GUESSES.get(properties[name].get("type"), text)
        for name in tool["parameters"].get("required", ())
        if name in properties
    }


def free(task: Task) -> Calls:
    """A call of every function that needs no argument."""
    return [(tool["name"], {}) for tool in task.tools if not tool["parameters"].get("required")]


def shotgun(task: Task, text: str = "value") -> str:
    """A call of every function."""
    return write([guess(tool, text) for tool in task.tools])


def _values(change: Callable[[Any], Any]) -> Callable[[Calls], Calls]:
    """All values changed."""
    return lambda calls: [(n, {k: change(v) for k, v in a.items()}) for n, a in calls]


def _texts(change: Callable[[str], str]) -> Callable[[Calls], Calls]:
    """All values that are texts changed."""
    return _values(lambda value: change(value) if isinstance(value, str) else value)


def _names(change: Callable[[str], str]) -> Callable[[Calls], Calls]:
    return lambda calls: [(change(name), arguments) for name, arguments in calls]


def _look_alike(text: str) -> str:
    return text.replace("e", "\u0435").replace("o", "\u043e")


def _near(value: Any) -> Any:
    return value + 1 if type(value) is int else value * 1.01 + 0.01 if type(value) is float else value


# Changes of the right calls.
OF_REFERENCE: Mapping[str, Callable[[Calls], Calls]] = {
    "names alone": lambda calls: [(name, {}) for name, _ in calls],
    "the first of several calls": lambda calls: calls[:1],
    "all calls but the first": lambda calls: calls[1:],
    "the reference twice": lambda calls: calls * 2,
    "the reference ten times": lambda calls: calls * 10,
    "the reference, and a call that fails": lambda calls: [*calls, ("nothing", {})],
    "the reference, and ten calls that fail": lambda calls: [*calls, *10 * [("nothing", {})]],
    "calls in reversed order": lambda calls: calls[::-1],
    "an argument too many": lambda calls: [(n, {**a, "note": 1}) for n, a in calls],
    "a look-alike letter in the name": _names(_look_alike),
    "another class's name before the function": _names(lambda name: f"files.{name}"),
    "several values for one": _values(lambda value: [value, value]),
    "numbers as texts": _values(lambda value: str(value) if type(value) is int else value),
    "numbers that are nearly right": _values(_near),
    "texts in capitals": _texts(str.upper),
    "texts in small letters": _texts(str.lower),
    "texts without punctuation": _texts(lambda text: "".join(c for c in text if c.isalnum())),
    "texts with points between the letters": _texts(".".join),
    "texts with a space behind": _texts(lambda text: f"{text} "),
    "texts with look-alike letters": _texts(_look_alike),
    "texts with an invisible letter": _texts(lambda text: f"{text}\u200b"),
    "a text with more behind it": _texts(lambda text: f"{text} and anything else"),
    "a text with alternatives": _texts(lambda text: f"{text}|other"),
}


def _changed(change: Callable[[Calls], Calls]) -> Callable[[Benchmark, Task], str | None]:
    """The right answer with a change, if that makes a difference."""

    def make(benchmark: Benchmark, task: Task) -> str | None:
        calls = parsed_reference(benchmark, task)
        other = change([(name, dict(a)) for name, a in calls]) if calls else calls
        return None if other == calls else write(other)

    return make


def _beside(more: Callable[[Task], Calls]) -> Callable[[Benchmark, Task], str | None]:
    """The right calls and others."""

    def make(benchmark: Benchmark, task: Task) -> str | None:
        calls = parsed_reference(benchmark, task)
        return None if calls is None else write([*calls, *more(task)])

    return make


# Answers to a task, those of OF_REFERENCE among them; None where one cannot be made.
ANSWERS: Mapping[str, Callable[[Benchmark, Task], str | None]] = {
    **{name: _changed(change) for name, change in OF_REFERENCE.items()},
    "no call": lambda benchmark, task: "[]",
    "a call of every function": lambda benchmark, task: shotgun(task),
    "every function, with the request as argument": lambda benchmark, task: shotgun(
        task, benchmark.text(task)
    ),
    "every function that needs no argument": lambda benchmark, task: write(free(task)),
    "every function that needs no argument, ten times": lambda benchmark, task: write(10 * free(task)),
    "the reference, and every function that needs no argument": _beside(free),
    "the reference, and a call of every function": _beside(lambda task: [guess(tool) for tool in task.tools]),
    "a choice of two answers": lambda benchmark, task: f"{benchmark.agent_answer(task)} or []",
}


def of_task(benchmark: Benchmark, task: Task, rng: random.Random) -> Iterator[tuple[str, str]]:
    """See `bad_answers`."""
    kind, language = task.answer["kind"], task.answer["language"]
    if kind in ("irrelevance", "relevance"):
        yield from bfcl_source.no_call_answers(task, rng, 12)
    elif kind == CONVERSATION:
        for name, play in bfcl_conversations.plays(task, rng, 6):
            yield name, json.dumps(play)
    elif language != "python":
        yield from bfcl_source.source_answers(task, rng, 40)
    else:
        for name, make in ANSWERS.items():
            if (text := make(benchmark, task)) is not None:
                yield name, text
        if task.answer["rule"] == AST:
            yield from answers(task, rng, 40)
