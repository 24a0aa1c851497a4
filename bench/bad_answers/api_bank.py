"""API-Bank's calls written differently, changed in one place or left out, and changed replies to users."""

import json
import random
from collections.abc import Callable, Iterator, Mapping

from genenv_jax.benchmarks.api_bank.calls import write_call
from genenv_jax.benchmarks.api_bank.tasks import CALL
from genenv_jax.benchmarks.base import Benchmark, Task

# What is put around the gold call CALL, with and without what stands inside its brackets.
FORMS: Mapping[str, tuple[str, ...]] = {
    "gold": ("API-Request: [CALL]",),
    "prose": ("Sure.\nAPI-Request: [CALL]", "[CALL] is it.", "I see [1]. [CALL]", "(see [a])\n[CALL]",
        "API-Request: [CALL]\nAPI-Request: [CALL]", "[x](y) [CALL]"),
    "fence or quotes": ("```\n[CALL]\n```", "```json\n[CALL]\n```", "`[CALL]`", '"[CALL]"', "**[CALL]**",
        "<api>[CALL]</api>", "[[CALL]]", "'[CALL]'"),
    "brackets": ("CALL", "[CALL", "CALL]", "(CALL)", "{CALL}", "[ CALL ]", "[CALL )]", "[CALL;]", "[CALL.]",
        "[CALL)]", "[(CALL)]", "[CALL],"),
    "two calls": ("[CALL][CALL]", "[CALL, CALL]", "[CALL]\n[GetToday()]", "[GetToday()]\n[CALL]",
        "[CALL] [GetToday()]", "[CALL] or [CALL]"),
    "no call": ("", "Done.", "I cannot do that.", "[]", "[NAME]", "[NAME()]", "NAME()", "[NAME(]",
        "API-Request:", "\x00", "[NAME('x')]"),
    "JSON": ('{"name": "NAME", "arguments": JSON}', '[{"NAME": JSON}]', "[NAME(JSON)]", "NAME JSON",
        "[NAME(**JSON)]"),
    "beyond limits": ("x " * 5_000 + "[CALL]", "[CALL]" + "\n" * 9_000),
    "not text": ("[CALL]\x00", "\x07[CALL]", "[CALL]\x1b"),
}  # fmt: skip


def _layout(gold: dict[str, str], name: str, rng: random.Random) -> str:
    form = rng.choice(
        (
            "{}='{}'",
            '{}="{}"',
            "{}={}",
            "{} = '{}'",
            "{}: '{}'",
            "'{}'='{}'",
            "{}=‘{}’",
            "{}=\"{}'",
            "{}='{}",
            "{}=`{}`",
            "{}='''{}'''",
            "{}=('{}')",
            "{}=''{}''",
        )
    )
    between = rng.choice((", ", ",", " , ", "; ", " ", ",\n", ", , ", "\t,", " and "))
    inside = between.join(form.format(key, value) for key, value in gold.items())
    return f"[{name}({inside}{rng.choice(('', '', '', ',', ' '))})]"


def _arguments(gold: dict[str, str], name: str, rng: random.Random) -> str:
    keys = sorted(gold) or ["x"]
    key, extra = (
        rng.choice(keys),
        rng.choice(("extra", "token", "user_id", "api_name", "self", "content")),
    )
    forms = (
        {k: v for k, v in gold.items() if k != key}, gold | {extra: "x"}, dict(reversed(gold.items())),
            {key.upper(): "", **gold},
        {k.title(): v for k, v in gold.items()}, gold | {key: ""}, {**gold, f"{key}s": gold.get(key, "")},
            {}, {k: gold[key] for k in gold},
        dict(zip(gold, rng.sample(list(gold.values()), len(gold)), strict=True)),
    )  # fmt: skip
    written = write_call(name, rng.choice(forms))
    return written if rng.random() < 0.8 else written.replace(f"{key}=", f"{key}='x', {key}=", 1)


def _names(gold: dict[str, str], name: str, rng: random.Random) -> str:
    names = (
        name.lower(),
        name.upper(),
        name + "s",
        f"api.{name}",
        f"{name}API",
        name[:-1],
        "GetToday",
        "ToolSearcher",
        f" {name}",
        f"{name} ",
        f"Query{name}",
        name.replace("e", "е"),
    )
    return write_call(rng.choice(names), gold)


def _value(gold: dict[str, str], name: str, rng: random.Random) -> str:
    if not gold:
        return write_call(name, gold)
    key = rng.choice(sorted(gold))
    value = gold[key]
    words = value.split(" ")
    at, letter = rng.randrange(len(words)), rng.randrange(len(value) + 1)
    forms = (
        value.upper(), value.title(), value.swapcase(), f" {value}", f"{value}\t", value.replace(" ", "  "),
            value.replace(" ", ""),
        " ".join(words[:at] + words[at + 1 :]), " ".join([*words[:at], "nice", *words[at:]]),
            " ".join(words[::-1]), f"{value} {value}",
        " ".join(rng.sample(words, len(words))), f"{words[0]} other words",
            value[:letter] + value[letter + 1 :], value[:letter] + "x" + value[letter:],
        value.replace("-", "/"), value.replace("2023", "2022"), value.replace("-0", "-"), value.replace(":",
            "."), value.replace(":00", ""),
        value[:10], f"{value}.0", f"0{value}", f"+{value}", f"-{value}", value.replace("1", "2"),
            value.replace(".", ","), f"${value}",
        value.replace("'", '"'), value.replace('"', "'"), value.replace(", ", ","), value.replace("[", "("),
            f"[{value}]", f"['{value}']", f"'{value}'",
        value.replace("_", " "), value.replace(" ", "_"), value.replace("@", " at "), f"{value}.",
            f"{value}!", f"the {value}", f"{value}'s", f"a, b='{value}'",
        value.replace("e", "е"), value.replace("i", "í"), f"{value}\u200b", value.replace(" ", "\u00a0"),
            "True", "False", "true", "None", "null", "1", "0", "x", "[]", "{}",
    )  # fmt: skip
    return write_call(name, gold | {key: rng.choice(forms)})


def _character(gold: dict[str, str], name: str, rng: random.Random) -> str:
    text = write_call(name, gold)
    at = rng.randrange(len(text))
    return (
        text[:at] + rng.choice(("", text[at] * 2, *"()[]{}'\",=: \n\\x0")) + text[at + rng.choice((0, 1)) :]
    )


CHANGES: Mapping[str, Callable[[dict[str, str], str, random.Random], str]] = {
    "layout": _layout, "arguments": _arguments, "name": _names, "value": _value, "characters": _character,
}  # fmt: skip
_REPEATS = {"value": 14}


def answers(task: Task, rng: random.Random) -> Iterator[tuple[str, str]]:
    """(kind, text): an answer of each form and some of each change, to a task that asks for a call."""
    name, gold = task.answer["name"], dict(task.answer["parameters"])
    for kind, forms in FORMS.items():
        text = rng.choice(forms).replace("CALL", write_call(name, gold)[1:-1])
        yield kind, text.replace("NAME", name).replace("JSON", json.dumps(gold))
    for kind, change in CHANGES.items():
        for _ in range(_REPEATS.get(kind, 3)):
            yield kind, rng.choice(("API-Request: ", "")) + change(gold, name, rng)


def replies(text: str, other: str, rng: random.Random) -> Iterator[tuple[str, str]]:
    """(kind, text) for a task that asks for a reply; `other` is another task's."""
    words = text.split(" ")
    half = words[: len(words) // 2 + 1]
    yield "gold", text
    yield (
        "part",
        " ".join(rng.choice((half, words[::2], words[::-1], rng.sample(words, len(words)), words + half))),
    )
    yield "another", rng.choice((other, f"{text} {other}", "Done.", "I am sorry."))
    marks = (
        text.replace(".", ""),
        text.replace(".", ". . "),
        text.replace(",", "."),
        text.replace(" ", ".", 2),
        f"...{text}",
        text.replace(" ", "  "),
    )
    yield "punctuation", rng.choice(marks)
    yield (
        "case or speaker",
        rng.choice(
            (
                text.upper(),
                text.lower(),
                f"AI: {text}",
                f"AI: User: {text}",
                f"{text}\n",
                f"\t{text}",
            )
        ),
    )
    yield "nothing", rng.choice(("", ".", "...", " ", "AI:", "\n"))


def of_task(benchmark: Benchmark, task: Task, rng: random.Random) -> Iterator[tuple[str, str]]:
    """See `bad_answers`."""
    if task.answer["kind"] == CALL:
        yield from answers(task, rng)
    else:
        yield from replies(task.answer["text"], "Anything else?", rng)
