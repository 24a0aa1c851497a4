"""Changes of one value of a call: another value, another type, or the same value written differently."""

import json
import random
import unicodedata
from typing import Any


class Source:
    """An argument by its source text."""

    def __init__(self, text: str):
        self._text = text

    def __repr__(self) -> str:
        return self._text


def case(value: str, rng: random.Random) -> str:
    """The text in other letters."""
    return rng.choice((value.upper(), value.lower(), value.title(), value.swapcase(), value.capitalize()))


def punctuation(value: str, rng: random.Random) -> str:
    """The text with marks or spaces added, removed or replaced."""
    at = rng.randint(0, len(value))
    mark = rng.choice(" ,./-_*^'\"!?;:()&+@#\\")
    added = value[:at] + mark + value[at:]
    removed = "".join(c for c in value if c.isalnum())
    marks = [c for c in value if not c.isalnum()]
    replaced = value.replace(rng.choice(marks), mark) if marks else added
    return rng.choice((added, removed, replaced, value + " ", "  ".join(value.split(" "))))


_LOOK_ALIKES = str.maketrans("aceopxyi", "асеорхуі")  # Latin to Cyrillic


def unicode(value: str, rng: random.Random) -> str:
    """The text with letters that look alike, or in another normal form."""
    wide = "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in value)
    quoted = value.replace("'", "’").replace('"', "”").replace("-", "–")
    return rng.choice(
        (
            wide, quoted, value.translate(_LOOK_ALIKES), unicodedata.normalize("NFD", value),
            value.replace(" ", "\u00a0"), value + "\u200b", value.replace("s", "ſ").replace("K", "\u212a"),
            value.replace("e", "é"), value.replace("i", "İ"), value + "\u0301", value.replace("fi", "ﬁ"),
        )
    )  # fmt: skip


def other_text(value: str, rng: random.Random) -> str:
    """The text with a word or letter added or removed, or another text."""
    words = value.split(" ")
    at = rng.randrange(len(words))
    letter = rng.randint(0, len(value))
    return rng.choice(
        (
            " ".join(words[:at] + words[at + 1 :]), " ".join([*words[:at], "nice", *words[at:]]), value[::-1],
            value[:letter] + value[letter + 1 :], f"{value} {value}", "", value + "s", " ".join(words[::-1]),
            f"the {value}", f"{value}, USA", "something else",
        )
    )  # fmt: skip


def number(value: Any, rng: random.Random) -> Any:
    """Another number."""
    return rng.choice((value + 1, -value, value * 10, value + 1e-9, 0, value / 100, 10**30, 1e400, value - 1))


def type_of(value: Any, rng: random.Random) -> Any:
    """The value as another type."""
    forms: tuple[Any, ...] = (
        str(value),
        [value],
        (value,),
        {"value": value},
        None,
        Source(f"{{{value!r}}}"),
    )
    if isinstance(value, bool):
        forms += (int(value), str(value).lower(), Source(str(value).lower()))
    elif isinstance(value, int | float):
        forms += (float(value), f"{value} units", bool(value), complex(value), int(value))
    elif isinstance(value, str):
        number = value.replace(".", "", 1).isdigit()
        forms += (
            float(value) if number else 1,
            value.split(" "),
            value.encode(),
            True,
            list(value),
        )
    elif isinstance(value, list):
        forms += (", ".join(map(str, value)), value[0] if value else None, dict(enumerate(value)))
    return rng.choice(forms)


def list_of(value: list, rng: random.Random) -> Any:
    """The list with entries dropped, added, changed or in another order."""
    forms = [
        value[::-1],
        value[:-1],
        value + value[:1],
        tuple(value),
        [value],
        [],
        [*value, "x"],
        [*value, None],
    ]
    if value:
        forms += [[str(v) for v in value], [*value[1:], changed(value[0], rng)]]
        forms.append(sorted(value, key=str))
    return rng.choice(forms)


def dict_of(value: dict, rng: random.Random) -> Any:
    """The mapping with an entry dropped, added, changed, or in another order."""
    key = rng.choice(sorted(value, key=str)) if value else ""
    without = {k: v for k, v in value.items() if k != key}
    forms = [
        without,
        dict(reversed(value.items())),
        {**value, "extra": 1},
        {},
        [value],
        [*value.items()],
    ]
    if value:
        forms.append({**value, key: changed(value[key], rng)})
        forms.append({**without, key.upper(): value[key]})
    return rng.choice(forms)


def changed(value: Any, rng: random.Random) -> Any:
    """The value with something about it changed, whatever its type."""
    match value:
        case str():
            return rng.choice((case, punctuation, unicode, other_text, type_of))(value, rng)
        case bool() | None:
            return type_of(value, rng)
        case int() | float():
            return rng.choice((number, type_of))(value, rng)
        case list() | tuple():
            return list_of(list(value), rng)
        case dict():
            return dict_of(value, rng)
    return value


def arithmetic(value: Any, rng: random.Random) -> Source:
    """The same number, as an expression."""
    v = repr(value)
    forms = (f"{v} + 0", f"{v} * 1", f"{v} - 0", f"0 + {v} + 0", f"{v} ** 1", f"2 * {v} - {v}", f"{v} // 1",
             f"{v} / 1", f"({v}) + (-0)", f"{v} % 10 ** 9", f"{v} << 0", f"{v} | 0",
                 f"1 * (2 + {v} - 2)")  # fmt: skip
    return Source(rng.choice(forms))


def beyond(value: Any, rng: random.Random) -> Source:
    """The same number by arithmetic that needs more than numbers, or is out of bounds."""
    v = repr(value)
    forms = (f"len('') + {v}", f"[{v}][0] + 0", f"{v} + int('0')", f"{v} + True - 1",
        f"{v} + 10 ** 400 - 10 ** 400",
             f"{v} + (0 if True else 1)", f"{v} * (2 > 1)", f"({v}).real + 0", f"{v} + sum([0])",
                 f"{v} + abs(-0)",
             f"{v} + 2 ** 2000 * 0", f"(lambda: {v})() + 0", f"{v} + {{'a': 0}}['a']")  # fmt: skip
    return Source(rng.choice(forms))


def number_form(value: Any, rng: random.Random) -> Source:
    """The same number, written differently, or put into an expression."""
    v = repr(value)
    forms = [f"+{v}", f"({v})", f"-(-{v})", f"~(~{v})", f"{v} if True else 0", f"float({v})", f"int('{v}')",
             f"{v} and {v}", f"--{v}", f"not {v}", f"[{v}][0]", f"~{v}", f"{v}.real", f"0{v}",
                 f"${v}"]  # fmt: skip
    if isinstance(value, int):
        forms += [
            hex(value),
            bin(value),
            f"{value:_}",
            f"{value:,}",
            f"{value}e0",
            f"{value}.",
            f"{value}L",
        ]
    return Source(rng.choice(forms))


def text_form(value: str, rng: random.Random) -> Source:
    """The text written differently, or put into an expression."""
    v, half = repr(value), len(value) // 2
    first, second = repr(value[:half]), repr(value[half:])
    forms = (
        f"{first} {second}", f"{first} + {second}", f"f{v}", f"r{v}", f"b{v}", f"({v})", f"{v} * 1",
            f"'%s' % {v}",
        f"{v}.strip()", f"str({v})", f"{v}[:]", f'"""{value}"""', f"{v} + ''", f"u{v}", v.replace("a",
            "\\x61"),
        f'"{value}"', f"'{value}'", value, f"{v} if True else ''", f"{v} or ''", f"[{v}][0]", f"{v} + str(1)",
        f"''.join([{v}])", v[:-1], f"{v}, ", f"({first}\n{second})", v.replace("'", "`"), f"“{value}”",
    )  # fmt: skip
    return Source(rng.choice(forms))


def list_form(value: list, rng: random.Random) -> Source:
    """The list written differently, or put into an expression."""
    v, half = repr(value), len(value) // 2
    inside = v[1:-1]
    forms = (f"{value[:half]!r} + {value[half:]!r}", f"{v} * 1", f"({inside})", f"{{{inside}}}", f"[*{v}]",
        f"list({v})",
             f"[x for x in {v}]", f"[{inside},]", f"[{inside}, ]", f"({v})", f"{v}[:]", f"{v} or []",
                 f"[] + {v}",
             f"{v} + list()", f"tuple({v})", v.replace("'", '"'), f"[\n{inside}\n]",
                 f"{v} + [*[]]")  # fmt: skip
    return Source(rng.choice(forms))


def dict_form(value: dict, rng: random.Random) -> Source:
    """The mapping written differently, or put into an expression."""
    v = repr(value)
    pairs = ", ".join(f"{k}={each!r}" for k, each in value.items())
    forms = (f"dict({pairs})", f"{{**{v}}}", f"{v} | {{}}", json.dumps(value), f"dict({v})", f"({v})",
        f"object({pairs})",
             f"{{{pairs}}}", repr(json.dumps(value)), f"{v[:-1]},}}" if value else "{}",
                 f"[{v}][0]")  # fmt: skip
    return Source(rng.choice(forms))


def bool_form(value: bool, rng: random.Random) -> Source:
    """The truth value written differently, or put into an expression."""
    forms = (f"not {not value}", str(value).lower(), str(value).upper(), f"bool({int(value)})",
        f"1 == {int(value)}",
             f"{value} and True", f"{value} * 1", f"{value} | False", f"({value})",
                 repr(str(value)))  # fmt: skip
    return Source(rng.choice(forms))
