"""Texts that a model may write, made at random: by grammars, and by changes to texts that are right.

Every function takes a `random.Random` first, and nothing else is random.
"""

import ast
import contextlib
import functools
import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

from bench.bad_answers.common import HOSTILE

MOST = 60_000  # characters of a text, except a few of `_VAST`
_VAST = 400_000
_SCANNED = 5_000  # characters searched for a place to change

# Characters that parsers, normalisations and terminals treat in their own ways.
CHARACTERS = (
    *"\x00\x07\x08\x0b\x0c\x1b\x1c\x1d\x1e\x7f\x85\u2028\u2029\ufeff\u200b\u200d\u00ad\u202e\u2066",
    *"\ud800\udfff\ufffd\uffff\U0010ffff\U000e0041\u0301\u0300\u20dd\u0345\u3099\u115f\u3164",
    *"İıŉßſﬁﷺ㎯Ⅷ①²½٣໙𝟗𝐟ｆª・（）［＂＇，．＝：аеоΑΒɑ中한がกำ👩‍🚀🏳️‍🌈\r\t\n",
)
NUMBERS = (
    "0", "-0", "-1", "007", "1e308", "1e309", "-1e309", "1e-400", "0.1e+1", "1_000", "1,000", "0x1F", "0b1",
    "0o7", "1j", "1e5j", "NaN", "Infinity", "-Infinity", "inf", "nan", "½", "²", "٣", "９", "1.", ".5", "1L",
    "1n", "1f", "2**62", "2**9999", "1<<70", "10**30", "1/0", "1//0", "7%0", "~5", "--5", "not 1", "9" * 65,
    "9" * 310, "9" * 4301, "-" + "9" * 5000, "0." + "3" * 400, "1e" + "9" * 30, "true", "null", "None",
    "True",
)  # fmt: skip
STRINGS = (
    "", " ", "\\", "\\'", '\\"', "'", '"', "''", "`", "```", "\\n", "\\x", "\\u12", "\\N{DIGIT ONE}",
    "\\ud800", "%s%n", "{}", "{0.__class__}", "$1", "../..", "<b>", "</pre><script>", "<|im_end|>",
    "<answer>", "->", ")]", "')]", "same", "None", "User:", "AI:", "API-Request: [f(a='1')]", "New Task:",
    "\nNew Answer:", "a" * 300, "from A to B", "Flight Number: F1", "nan", "1" * 40, "2022-02-30", "-1",
    "__class__", "[]", "()",
)  # fmt: skip
# Values of other types, and numbers that cannot be written or compared.
VALUES = (
    "0x" + "f" * 4000, "9" * 310, "1e999", "1j", "b'x'", "(1, 2)", "(1, [2])", "{1}", "{1: 2}", "{}", "[]",
    "[[]]", "[null]", '{"a": {}}', "5", "-1", "0.5", "null", "None", "true", "False", '""', '"dict"',
    '"array"', '"any"', '{"type": "dict", "properties": {"x": {"type": "string"}}, "required": 5}',
    '{"type": "array", "items": {"type": "dict", "properties": {"x": {}}, "required": ["x"], "enum": 1}}',
)  # fmt: skip
SCHEMA_WORDS = "items properties required enum default type input_parameters description".split()
_TOKEN = re.compile(r"\w+|\s+|[^\w\s]")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_STRING = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"")
_HEADER = re.compile(r"^(?:New \w+|Calls|Start at|Tools|User|AI|API-Request|Action):?", re.MULTILINE)
_FRAGMENTS = tuple(text for text in HOSTILE.values() if 0 < len(text) <= 40_000)
_RAW, _RAW_IN_QUOTES = "⟦{}⟧", re.compile(r"""["']⟦(.*?)⟧["']""")  # to be written without quotes
_LETTERS = str.maketrans("aeopcxyABEHKMTf-'\"(", "аеорсхуАВЕНКМТ𝐟–’”（")


def write(rng: random.Random, examples: Sequence[str]) -> str:
    """One text.

    Args:
      rng: of this text alone.
      examples: whole texts of the expected form.
    """
    plain = bool(examples) and rng.random() < 0.7
    text = rng.choice(examples) if plain else grammatical(rng, examples)
    kinds = (_structure,) if plain and rng.random() < 0.3 else _CHANGES  # or the surroundings stay right
    for _ in range(rng.choice((0, 1, 1, 1, 2, 2, 3, 5))):
        text = rng.choice(kinds)(rng, text, examples)[:MOST]
    if rng.random() < 0.0005:
        text = (text or "a") * (_VAST // max(1, len(text)))
    return text


def change(rng: random.Random, text: str, others: Sequence[str]) -> str:
    """The text with one change of a random kind; `others` are taken apart for material."""
    return rng.choice(_CHANGES)(rng, text, others)


# -- grammars ---------------------------------------------------------------------------------------------


def words_of(rng: random.Random, examples: Sequence[str]) -> list[str]:
    """Some identifiers of an example, or a few common ones."""
    return _identifiers(rng.choice(examples)) if examples else ["f", "g", "a", "b", "name", "value"]


@functools.lru_cache(4096)
def _identifiers(text: str) -> list[str]:
    return re.findall(r"[^\W\d]\w*", text[:4000]) or ["f"]


@functools.lru_cache(1024)
def _tokens(text: str) -> tuple[str, ...]:
    return tuple(_TOKEN.findall(text[:_SCANNED]))


def _word(rng: random.Random, words: Sequence[str]) -> str:
    return rng.choice(words) if rng.random() < 0.9 else rng.choice(("f", "a", "class", "new", "_", "é", "𝐟"))


def _string(rng: random.Random, words: Sequence[str], quotes: str = "'\"") -> str:
    quote = rng.choice(quotes)
    inside = rng.choice(STRINGS) if rng.random() < 0.3 else " ".join(rng.choices(words, k=rng.randint(0, 4)))
    return f"{quote}{inside}{quote}"


def python(rng: random.Random, words: Sequence[str], depth: int = 0) -> str:
    """A Python expression."""
    kind = rng.randrange(6 if depth > 4 else 16)
    inner = lambda: python(rng, words, depth + 1)  # noqa: E731
    several = lambda: ", ".join(inner() for _ in range(rng.randint(0, 3)))  # noqa: E731
    match kind:
        case 0 | 1:
            return rng.choice(NUMBERS) if rng.random() < 0.4 else str(rng.randint(-5, 2000))
        case 2 | 3 | 4:
            return _string(rng, words)
        case 5:
            return _word(rng, words)
        case 6 | 7:
            return f"[{several()}]"
        case 8:
            return f"({several()})"
        case 9 | 10:
            return "{" + ", ".join(f"{inner()}: {inner()}" for _ in range(rng.randint(0, 3))) + "}"
        case 11:
            operator = rng.choice("+ - * / // % ** << >> & | ^ == < and or if in @ := . , ? ??".split())
            return f"{inner()} {operator} {inner()}"
        case 12:
            return rng.choice("- + ~ not * ** lambda: await ! ++ typeof".split()) + " " + inner()
        case 13:
            return f"{_word(rng, words)}[{inner()}]"
        case 14:
            return rng.choice(("b", "f", "r", "rb", "u")) + _string(rng, words)
    return call(rng, words, depth + 1)


def call(rng: random.Random, words: Sequence[str], depth: int = 0) -> str:
    """A call with named and other arguments, in Python."""
    parts = []
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        value = python(rng, words, depth + 1)
        parts.append(value if rng.random() < 0.15 else f"{_word(rng, words)}={value}")
    name = ".".join(_word(rng, words) for _ in range(rng.choice((1, 1, 1, 2))))
    return f"{name}({', '.join(parts)})"


def calls(rng: random.Random, words: Sequence[str]) -> str:
    """A list of calls."""
    inside = ", ".join(call(rng, words) for _ in range(rng.choice((1, 1, 2, 4))))
    return f"[{inside}]" if rng.random() < 0.8 else inside


def source(rng: random.Random, words: Sequence[str], depth: int = 0) -> str:
    """A Java or JavaScript expression."""
    inner = lambda: source(rng, words, depth + 1)  # noqa: E731
    several = lambda: ", ".join(inner() for _ in range(rng.randint(0, 3)))  # noqa: E731
    if depth > 4:
        return _string(rng, words, "'\"`") if rng.random() < 0.5 else rng.choice(NUMBERS)
    forms: tuple[Callable[[], str], ...] = (
        lambda: f"{_word(rng, words)}({', '.join(f'{_word(rng, words)}={inner()}' for _ in range(2))})",
        lambda: f"new ArrayList<>(Arrays.asList({several()}))",
        lambda: f"new ArrayList<String>() {{{{ add({inner()}); add({inner()}); }}}}",
        lambda: f"new HashMap<String, Object>() {{{{ put({_string(rng, words)}, {inner()}); }}}}",
        lambda: f"new {rng.choice(('int', 'String', 'Object', 'Array'))}[]{{{several()}}}",
        lambda: f"[{several()}]",
        lambda: f"new Array([{several()}], [{several()}])",
        lambda: "{" + ", ".join(f"{_string(rng, words)}: {inner()}" for _ in range(rng.randint(0, 3))) + "}",
        lambda: f"({several()}) => {inner()}",
        lambda: f"function f({_word(rng, words)}) {{ return {inner()}; }}",
        lambda: f"{inner()} {rng.choice('+ ? : && = => -> >> instanceof . ?. ::'.split())} {inner()}",
        lambda: f"/* {inner()} */ {inner()} // {_word(rng, words)}",
        lambda: f"({_word(rng, words)}) {inner()};",
        lambda: f"return {inner()};",
        lambda: _string(rng, words, "'\"`/"),
        lambda: rng.choice(NUMBERS) + rng.choice(("", "L", "f", "n")),
    )  # fmt: skip
    return rng.choice(forms)()


def value(rng: random.Random, words: Sequence[str], depth: int = 0) -> Any:
    """A JSON value, or what Python's `json` writes although it is not (NaN)."""
    match rng.randrange(5 if depth > 3 else 9):
        case 0:
            return rng.choice((None, True, False, 0, -1, 10**20, 1e308, float("nan"), 0.5, 2**63))
        case 1 | 2:
            return rng.choice(STRINGS)
        case 3 | 4:
            return " ".join(rng.choices(words, k=rng.randint(1, 3)))
        case 5 | 6:
            return [value(rng, words, depth + 1) for _ in range(rng.randint(0, 3))]
    return {_word(rng, words): value(rng, words, depth + 1) for _ in range(rng.randint(0, 4))}


def _json(rng: random.Random, words: Sequence[str]) -> str:
    text = json.dumps(value(rng, words), ensure_ascii=rng.random() < 0.5)
    text = _RAW_IN_QUOTES.sub(r"\1", text)
    return text if rng.random() < 0.8 else text[: rng.randrange(len(text) + 1)]


def _tagged(rng: random.Random, words: Sequence[str]) -> str:
    tags = ("answer", "search", "action", "information", "think", "tool_call")
    parts = []
    for _ in range(rng.randint(1, 4)):
        tag = rng.choice(tags)
        closing = rng.choice((f"</{tag}>", f"</{tag}>", "", f"<{tag}>"))
        parts.append(f"<{tag}>{' '.join(rng.choices(words, k=rng.randint(0, 6)))}{closing}")
    return rng.choice(("", "\n", " ")).join(parts)


def _lines(rng: random.Random, words: Sequence[str]) -> str:
    heads = ("Action: ", "> ", "- ", "1. ", "", "", "Calls: ", "AI: ", "User: ", "API-Request: ")
    return "\n".join(
        rng.choice(heads) + " ".join(rng.choices((*words, "1", "12", "in/on"), k=rng.randint(1, 6)))
        for _ in range(rng.randint(1, 6))
    )


def _refilled(rng: random.Random, examples: Sequence[str]) -> str:
    """An example's headers, with something else after some of them."""
    if not examples:
        return ""
    text = rng.choice(examples)
    marks = [found.span() for found in _HEADER.finditer(text)] or [(0, 0)]
    ends = [begin for begin, _ in marks[1:]] + [len(text)]
    parts = [text[: marks[0][0]]]
    for (begin, behind), end in zip(marks, ends, strict=True):
        new = rng.random() < 0.5
        inside = f" {_plain(rng, examples)}\n" if new else text[behind:end]
        parts.append(text[begin:behind] + inside)
    return "".join(parts)


def _plain(rng: random.Random, examples: Sequence[str]) -> str:
    words = words_of(rng, examples)
    return rng.choice((calls, calls, source, _json, _json, _tagged, _lines))(rng, words)


def grammatical(rng: random.Random, examples: Sequence[str]) -> str:
    """A text of one of the grammars, with the words of an example."""
    return _refilled(rng, examples) if rng.random() < 0.4 else _plain(rng, examples)


# -- changes ----------------------------------------------------------------------------------------------


def _span(rng: random.Random, text: str) -> tuple[int, int]:
    begin = rng.randrange(len(text) + 1)
    return begin, min(len(text), begin + int(rng.expovariate(1 / 12)) + 1)


def _flip(rng, text, others):
    data = bytearray(text.encode("utf-8", "surrogatepass"))
    for _ in range(rng.randint(1, 4)):
        if data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data).decode("utf-8", rng.choice(("replace", "surrogateescape", "ignore")))


def _delete(rng, text, others):
    begin, end = _span(rng, text)
    return text[:begin] + text[end:]


def _truncate(rng, text, others):
    cut = rng.randrange(len(text) + 1)
    return text[:cut] if rng.random() < 0.7 else text[cut:]


def _repeat(rng, text, others):
    begin, end = _span(rng, text)
    times = rng.choice((2, 2, 3, 10, 100, 1000, 20_000))
    return text[:begin] + text[begin:end] * min(times, 1 + MOST // (end - begin + 1)) + text[end:]


def _insert(rng, text, others):
    at = rng.randrange(len(text) + 1)
    many = rng.choice((1, 1, 2, 5, 300))
    return text[:at] + rng.choice(CHARACTERS) * many + text[at:]


def _insert_fragment(rng, text, others):
    begin, end = _span(rng, text)
    return text[:begin] + rng.choice((*_FRAGMENTS, *STRINGS, *NUMBERS)) + text[end:]


def _nest(rng, text, others):
    begin, end = _span(rng, text)
    opening, closing = rng.choice(
        ("[]", "()", "{}", ("[[", "]]"), ('{"a":', "}"), ("f(", ")"), ("f(a=", ")"))
    )
    depth = rng.choice((1, 2, 8, 33, 65, 100, 1000, 5000))
    closed = closing * (depth if rng.random() < 0.7 else depth // 2)
    return text[:begin] + opening * depth + text[begin:end] + closed + text[end:]


def _replace_match(rng, text, pattern, new):
    found = [match.span() for match in pattern.finditer(text[:_SCANNED])]
    if not found:
        return text + new
    begin, end = rng.choice(found)
    return text[:begin] + new + text[end:]


def _number(rng, text, others):
    return _replace_match(rng, text, _NUMBER, rng.choice(NUMBERS))


def _quoted(rng, text, others):
    return _replace_match(rng, text, _STRING, _string(rng, words_of(rng, others)))


def _argument(rng, text, others):
    words = words_of(rng, others)
    grammar = python if rng.random() < 0.6 else source
    return _replace_match(rng, text, _STRING, grammar(rng, words, 2))


def _token(rng, text, others):
    tokens = list(_tokens(text))
    if not tokens:
        return text
    at = rng.randrange(len(tokens))
    pool = _tokens(rng.choice(others)) if others else ()
    match rng.randrange(4):
        case 0:
            tokens[at] = rng.choice(pool or tokens)
        case 1:
            tokens.insert(at, rng.choice(pool or tokens))
        case 2:
            other = rng.randrange(len(tokens))
            tokens[at], tokens[other] = tokens[other], tokens[at]
        case 3:
            del tokens[at]
    return "".join(tokens) + text[_SCANNED:]


def _splice(rng, text, others):
    if not others:
        return text
    other = rng.choice(others)
    return text[: rng.randrange(len(text) + 1)] + other[rng.randrange(len(other) + 1) :]


def _fence(rng, text, others):
    language = rng.choice(("", "json", "python", "java", "javascript"))
    before = rng.choice(("", "Here it is:\n", " "))
    return f"{before}```{language}\n{text}\n" + rng.choice(("```", "", "``", "```\nDone."))


def _letters(rng, text, others):
    begin, end = _span(rng, text)
    how = rng.choice((str.upper, str.lower, str.title, str.swapcase, lambda s: s.translate(_LETTERS)))
    return how(text) if rng.random() < 0.3 else text[:begin] + how(text[begin:end]) + text[end:]


def _order(rng, text, others):
    lines = text.split("\n")
    match rng.randrange(3):
        case 0:
            rng.shuffle(lines)
        case 1:
            lines.insert(rng.randrange(len(lines) + 1), rng.choice(lines))
        case 2:
            del lines[rng.randrange(len(lines))]
    return rng.choice(("\n", "\n", "\r\n", "\n\n", " ", "\x0b")).join(lines)


def _structure(rng, text, others):
    """Changes a value inside the JSON or Python literal of a text; the rest stays well formed."""
    starts = [found.start() for found in re.finditer(r"[\[{]", text[:_SCANNED])][:8]
    rng.shuffle(starts)
    for start in starts[:3]:
        read = _read_value(text, start)
        if read is None:
            continue
        found, end, write = read
        for _ in range(rng.choice((1, 1, 2, 4))):
            found = _changed(rng, found, words_of(rng, others))
        with contextlib.suppress(ValueError):  # a number that cannot be written
            return text[:start] + _RAW_IN_QUOTES.sub(r"\1", write(found)) + text[end:]
    return _token(rng, text, others)


def _read_value(text: str, start: int) -> tuple[Any, int, Callable[[Any], str]] | None:
    """The list or mapping at `start`, the index after it, and what writes such values."""
    with contextlib.suppress(ValueError, RecursionError):
        found, end = json.JSONDecoder().raw_decode(text, start)
        return found, end, functools.partial(json.dumps, ensure_ascii=False)
    line = text.find("\n", start)
    end = text.rfind({"[": "]", "{": "}"}[text[start]], start, len(text) if line < 0 else line) + 1
    with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        if 0 < end < start + _SCANNED:
            return ast.literal_eval(text[start:end]), end, repr
    return None


def _changed(rng: random.Random, found: Any, words: Sequence[str], depth: int = 0) -> Any:
    """A JSON value with one thing in it changed."""
    if depth < 40 and found and rng.random() < 0.8:
        if isinstance(found, dict):
            key = rng.choice(list(found))
            match rng.randrange(8):
                case 0:
                    return {k: v for k, v in found.items() if k != key}
                case 1:
                    new = rng.choice((_word(rng, words), *SCHEMA_WORDS, _raw(rng)))
                    return found | {new: value(rng, words, 2)}
                case 2:
                    new = rng.choice((rng.choice(STRINGS), _raw(rng)))
                    return {(new if k == key else k): v for k, v in found.items()}
            return found | {key: _changed(rng, found[key], words, depth + 1)}
        if isinstance(found, list):
            at = rng.randrange(len(found))
            match rng.randrange(8):
                case 0:
                    return found[:at] + found[at + 1 :]
                case 1:
                    return found + [found[at]] * rng.choice((1, 2, 70))
            return [*found[:at], _changed(rng, found[at], words, depth + 1), *found[at + 1 :]]
    return _raw(rng) if rng.random() < 0.5 else value(rng, words, 1)


def _raw(rng: random.Random) -> str:
    return _RAW.format(rng.choice(VALUES if rng.random() < 0.7 else NUMBERS))


_CHANGES = (
    _flip, _delete, _truncate, _repeat, _insert, _insert, _insert_fragment, _nest, _number, _number, _quoted,
    _quoted, _argument, _argument, _token, _token, _splice, _fence, _letters, _order, _structure, _structure,
    _structure,
)  # fmt: skip
