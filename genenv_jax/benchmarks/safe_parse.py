"""Bounded parsing of text that a model wrote.

Nothing here evaluates code.  Every function is total: it returns a value or a `Rejection` whose
reason is counted.  Length and then nesting are checked before a parser sees the text, because the
standard library's parsers recurse without a bound on the cost.
"""

import ast
import json
import operator
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks import task
from genenv_jax.benchmarks.task import Rejection

Order = Mapping[str, Sequence[str]]  # of each function's parameters
MAX_CHARS = 16_384
MAX_DEPTH = 64
_MAX_OPERATORS = 256  # operators, dots and brackets on one path from the root of a syntax tree
_MAX_JSON_DIGITS = 64
_MAX_BITS = 1_000  # of a computed integer: about 10^300
_MAX_WEIGHT = 4 * MAX_CHARS  # of all values of a text: repeats can make them much longer than the text

# Control characters except tab, line feed and carriage return; surrogates, which are never text.
_NOT_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_FENCE = re.compile(r"```\w*\s*")
# Strings in each kind of quotes.  An unclosed one runs to the end of the text: retrying at each of its quotes
# would take quadratic time.
_QUOTED = [rf"{quote}(?>(?:[^{quote}\\]++|\\.)*)(?:{quote}|\\?\Z)" for quote in "\"'"]
DOUBLE_QUOTED, QUOTED = _QUOTED[0], "|".join(_QUOTED)
_JSON_TOKEN = re.compile(rf"{DOUBLE_QUOTED}|([\[{{])|([\]}}])", re.DOTALL)
# Python's strings: in three quotes, or in one at each end, on one line.
_PYTHON_STRING = "|".join(
    rf"{q * 3}(?>(?:[^{q}\\]++|\\.|{q}(?!{q * 2}))*)(?:{q * 3}|\\?\Z)"
    rf"|{q}(?>(?:[^{q}\\\n]++|\\.)*)(?:{q}|(?=\n)|\\?\Z)"
    for q in "\"'"
)
# Tokens that change the nesting of Python text: strings (perhaps with a prefix), comments, brackets,
# separators and operators.  Text between two such tokens does not affect the depth.
_PYTHON_TOKEN = re.compile(
    rf"(?P<prefix>\b[A-Za-z]{{1,2}})?(?P<string>{_PYTHON_STRING})"
    r"|(?P<comment>#[^\n]*)|(?P<open>[\[({])|(?P<close>[\])}])|(?P<comma>,)"
    r"|(?P<operator>[-+~*/%@<>=!&|^.:]|\b(?:not|lambda|if|else|await|for|and|or|in|is)\b)",
    re.DOTALL,
)


class _NotComputedError(Exception):
    """Arithmetic that the official decoder gives to `eval` and that is not computed here: reason, detail."""


_ERRORS = (
    SyntaxError, ValueError, TypeError, ArithmeticError, RecursionError, MemoryError,
    AttributeError, AssertionError,
)  # fmt: skip


def check_text(text: Any, max_chars: int = MAX_CHARS) -> Rejection | None:
    """None for a text of at most `max_chars`, at a cost that does not depend on the contents.

    Else a rejection: EMPTY (only white space), NOT_TEXT (not a string, control characters, lone surrogates)
    or TOO_LONG, checked in this order.  U+FFFD (a decoder's mark for bytes that were not UTF-8) is accepted.
    """
    if not isinstance(text, str):
        return Rejection(task.NOT_TEXT, f"expected str, got {type(text).__name__}")
    if not text or text.isspace():
        return Rejection(task.EMPTY)
    if found := _NOT_TEXT.search(text, 0, max_chars):
        return Rejection(task.NOT_TEXT, f"U+{ord(found.group()):04X} at character {found.start()}")
    if len(text) > max_chars:
        return Rejection(task.TOO_LONG, f"{len(text)} characters, limit {max_chars}")
    return None


def _python_nesting(text: str, max_depth: int) -> Rejection | None:
    """Bounds the depth of the syntax tree of `text`, in one pass and without building the tree.

    Brackets and chains of operators (`a.b.c`, `- - 1`, `x()()`) deepen a tree, so both are counted
    along each path: a comma starts a new path at its level, and a bracket starts a new level.
    """
    levels = [0]
    total = 0
    for found in _PYTHON_TOKEN.finditer(text):
        kind = found.lastgroup
        if kind == "string":
            if (found["prefix"] or "").lower() in ("f", "fr", "rf"):
                # Braces contain expressions.
                return Rejection(task.NOT_EVALUATED, "formatted string")
        elif kind == "open":
            levels[-1] += 1
            total += 1
            levels.append(0)
            if len(levels) - 1 > max_depth:
                return Rejection(task.TOO_DEEP, f"brackets nested beyond {max_depth}")
        elif kind == "close":
            if len(levels) == 1:
                return Rejection(task.UNPARSABLE, "closing bracket without an opening one")
            total -= levels.pop()
        elif kind == "comma":
            total -= levels[-1]
            levels[-1] = 0
        elif kind == "operator":
            levels[-1] += 1
            total += 1
        if total > _MAX_OPERATORS:
            return Rejection(task.TOO_DEEP, f"more than {_MAX_OPERATORS} operators in one expression")
    return None


def _json_nesting(text: str, max_depth: int) -> Rejection | None:
    """Bounds the nesting of JSON text before a recursive parser sees it."""
    depth = 0
    for opens, closes in _JSON_TOKEN.findall(text):
        depth += bool(opens) - bool(closes)
        if depth > max_depth:
            return Rejection(task.TOO_DEEP, f"nested beyond {max_depth}")
    return None


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:200]


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("repeated key")
    return value


def _bounded_int(digits: str) -> int:
    if len(digits) > _MAX_JSON_DIGITS:
        raise ValueError("integer too long")
    return int(digits)


def _finite_float(digits: str) -> float:
    value = float(digits)
    if abs(value) == float("inf"):
        raise ValueError("number out of range")
    return value


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def unfenced(text: str) -> str:
    """The contents of a code fence, in any language, if the fence is the whole text; else the text."""
    lines = text.strip().split("\n")
    if len(lines) > 2 and _FENCE.fullmatch(lines[0]) and lines[-1].strip() == "```":
        return "\n".join(lines[1:-1])
    return text


def parse_json(text: Any, max_chars: int = MAX_CHARS, max_depth: int = MAX_DEPTH) -> Any:
    """The value of strict JSON (RFC 8259): no NaN or Infinity, no repeated keys, numbers in range.

    Or a `Rejection` (EMPTY, NOT_TEXT, TOO_LONG, TOO_DEEP, UNPARSABLE).
    """
    if rejection := check_text(text, max_chars) or _json_nesting(text, max_depth):
        return rejection
    try:
        value = json.loads(
            text,
            object_pairs_hook=_unique_keys,
            parse_int=_bounded_int,
            parse_float=_finite_float,
            parse_constant=_no_constant,
        )
    except (ValueError, RecursionError, MemoryError) as error:
        return Rejection(task.UNPARSABLE, _describe(error))
    # An escape may encode what `check_text` rejects in plain text.
    if "\\u" in text and any(map(_NOT_TEXT.search, _texts(value))):
        return Rejection(task.NOT_TEXT, "escaped control character or lone surrogate")
    return value


def _texts(value: Any) -> Iterator[str]:
    """All strings in a JSON value, including keys, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for entry in value:
            yield from _texts(entry)
        if isinstance(value, dict):
            yield from _texts(list(value.values()))


def _parse_expression(text: str) -> ast.expr:
    with warnings.catch_warnings():  # "\d" in a string is a warning
        warnings.simplefilter("ignore")
        return ast.parse(text, mode="eval").body


def parse_literal(text: Any, max_chars: int = MAX_CHARS, max_depth: int = MAX_DEPTH) -> Any:
    """The value of one Python literal (numbers, strings, containers, True, False, None).

    Or a `Rejection` (EMPTY, NOT_TEXT, TOO_LONG, TOO_DEEP, NOT_EVALUATED, UNPARSABLE).  An integer too long to
    write in decimal (4,300 digits) is UNPARSABLE.
    """
    if rejection := check_text(text, max_chars) or _python_nesting(text, max_depth):
        return rejection
    try:
        value = ast.literal_eval(_parse_expression(text.strip()))
        repr(value)  # ValueError for such an integer
        return value
    except _ERRORS as error:
        return Rejection(task.UNPARSABLE, _describe(error))


def bracketed(text: str) -> str:
    """A list of calls with its optional outer brackets added and a code fence's backticks removed."""
    text = text.strip("`\n ")
    text = text if text.startswith("[") else "[" + text
    return text if text.endswith("]") else text + "]"


def parse_calls(
    text: Any, max_chars: int = MAX_CHARS, max_depth: int = MAX_DEPTH, parameter_order: Order | None = None
) -> list[dict[str, dict[str, Any]]] | Rejection:
    """Parses `[f(a=1), g.h(b="x")]` as BFCL's prompting decoder does.

    It follows `default_decode_ast_prompting` (bfcl_eval/model_handler/utils.py): backticks, line
    breaks and spaces are stripped from both ends, and missing outer brackets are added.  Each element
    must be a call; dotted names are joined; only keyword arguments count.  As a value, a bare name,
    a subscript or a call without keywords is its own source text, and a call with keywords is a
    nested {name: arguments}.  Any unary operator before a constant negates it.  A `**mapping`
    argument is kept under the key "**".

    The official decoder gives arithmetic to `eval`.  This function computes arithmetic on numbers, and adds
    and repeats strings and lists, within bounds: integers up to a thousand bits (10^300), strings and lists
    up to `MAX_CHARS`, all values together up to four times that; beyond these the result is TOO_LONG.
    Whatever else `eval` might accept gives NOT_EVALUATED: calls, names, indices and conditions inside
    arithmetic, `%` formatting, sets and dictionaries joined by `|`, byte strings.  Formatted strings give
    NOT_EVALUATED anywhere.

    `parameter_order` has the order of parameters of each function, to bind positional arguments; None drops
    these, as the official decoder does.

    Returns:
      One {name: {argument: value}} per call, or a `Rejection` (EMPTY, NOT_TEXT, TOO_LONG, TOO_DEEP,
      NOT_EVALUATED, UNPARSABLE).  An empty list is a valid result.
    """
    if rejection := check_text(text, max_chars):
        return rejection
    text = bracketed(text)
    if rejection := _python_nesting(text, max_depth):
        return rejection
    try:
        tree = _parse_expression(text.strip())
        if not isinstance(tree, ast.List | ast.Tuple):
            return Rejection(task.UNPARSABLE, "not a list of calls")
        if not all(isinstance(element, ast.Call) for element in tree.elts):
            return Rejection(task.UNPARSABLE, "an element is not a call")
        found, weight = [], 0
        for element in tree.elts:
            found.append(_call(element, parameter_order))
            weight = _bounded(weight, found[-1])
        return found
    except _NotComputedError as error:
        return Rejection(*error.args)
    except _ERRORS as error:
        return Rejection(task.UNPARSABLE, _describe(error))


def repeats_argument(text: str) -> bool:
    """Whether a call in a text that `parse_calls` reads gives an argument twice; Python does not allow it."""
    nodes = ast.walk(_parse_expression(bracketed(text).strip()))
    calls = (node for node in nodes if isinstance(node, ast.Call))
    named = ([keyword.arg for keyword in call.keywords if keyword.arg] for call in calls)
    return any(len(set(names)) < len(names) for names in named)


def _call(node: ast.Call, parameter_order: Order | None = None) -> dict[str, dict[str, Any]]:
    parts = []
    function = node.func
    while isinstance(function, ast.Attribute):
        parts.append(function.attr)
        function = function.value
    if isinstance(function, ast.Name):
        parts.append(function.id)
    name = ".".join(reversed(parts))
    arguments = {}
    if parameter_order is not None and node.args:
        order = parameter_order.get(name, ())
        if len(node.args) > len(order):
            raise ValueError(f"too many positional arguments for {name}")
        arguments = {key: _value(value) for key, value in zip(order, node.args, strict=False)}
    weight = _bounded(0, arguments)
    for keyword in node.keywords:
        key = "**" if keyword.arg is None else keyword.arg
        if parameter_order is not None and key in arguments:
            raise ValueError(f"repeated argument {key}")
        arguments[key] = _value(keyword.value)
        weight = _bounded(weight, arguments[key])
    return {name: arguments}


def _value(node: ast.expr | None) -> Any:
    match node:
        case ast.Constant(value=value):
            return "..." if value is Ellipsis else value
        case ast.UnaryOp(operand=ast.Constant(value=value)):
            return -value
        case ast.List(elts=elements):
            return [_value(element) for element in elements]
        case ast.Tuple(elts=elements):
            return tuple(_value(element) for element in elements)
        case ast.Dict(keys=keys, values=values):
            return {_value(k): _value(v) for k, v in zip(keys, values, strict=True)}
        case ast.BinOp():
            return _arithmetic(node)
        case ast.Name(id=name):
            return name
        case ast.Call(keywords=[]):
            return ast.unparse(node)
        case ast.Call():
            return _call(node)
        case ast.Subscript(value=value, slice=index):
            return f"{ast.unparse(value)}[{ast.unparse(index)}]"
    raise ValueError(f"unsupported expression {type(node).__name__}")


_UNARY = {ast.UAdd: operator.pos, ast.USub: operator.neg, ast.Invert: operator.invert, ast.Not: operator.not_}
_BINARY = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow,
    ast.LShift: operator.lshift, ast.RShift: operator.rshift, ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_, ast.BitXor: operator.xor,
}  # fmt: skip


def _arithmetic(node: ast.expr) -> Any:
    """Value of a constant expression; raises _NotComputedError or one of `_ERRORS`."""
    match node:
        case ast.Constant(value=value) if isinstance(value, int | float | complex | str):
            return value
        case ast.List(elts=elements):
            return list(map(_arithmetic, elements))
        case ast.Tuple(elts=elements):
            return tuple(map(_arithmetic, elements))
        case ast.UnaryOp(op=op, operand=operand):
            return _UNARY[type(op)](_arithmetic(operand))
        case ast.BinOp(op=op, left=left, right=right) if type(op) in _BINARY:
            return _bounded_binary(op, _arithmetic(left), _arithmetic(right))
    raise _NotComputedError(task.NOT_EVALUATED, f"unsupported operand {type(node).__name__}")


def _bounded_binary(op: ast.operator, left: Any, right: Any) -> Any:
    if isinstance(left, int | float | complex) and isinstance(right, int | float | complex):
        if isinstance(left, int) and isinstance(right, int):
            bits = abs(left).bit_length()
            # Both are bounded before they are computed: this estimates the result's length closely.
            if isinstance(op, ast.Pow) and (bits - 1) * right > _MAX_BITS:
                raise _NotComputedError(task.TOO_LONG, "power out of bounds")
            if isinstance(op, ast.LShift) and bits + right > _MAX_BITS:
                raise _NotComputedError(task.TOO_LONG, "shift out of bounds")
        value = _BINARY[type(op)](left, right)
        if isinstance(value, int) and value.bit_length() > _MAX_BITS:
            raise _NotComputedError(task.TOO_LONG, "number out of bounds")
        return value
    if isinstance(op, ast.Add):
        size = _weight(left) + _weight(right)
    elif isinstance(op, ast.Mult):
        sequence, count = (right, left) if isinstance(left, int) else (left, right)
        if not isinstance(count, int):
            raise ValueError("repetition needs an integer")
        size = _weight(sequence) * max(count, 0)
    elif isinstance(op, ast.Mod) and isinstance(left, str):  # can be asked for gigabytes of padding
        raise _NotComputedError(task.NOT_EVALUATED, "string formatting")
    else:
        raise ValueError("unsupported operands")
    if size > MAX_CHARS:
        raise _NotComputedError(task.TOO_LONG, "sequence out of bounds")
    return _BINARY[type(op)](left, right)


def _bounded(weight: int, value: Any) -> int:
    """The weight with that of a further value, which may not exceed the bound of a text."""
    weight += _weight(value)
    if weight > _MAX_WEIGHT:
        raise _NotComputedError(task.TOO_LONG, "values out of bounds")
    return weight


def _weight(value: Any) -> int:
    """Size of a value when written out: repeated lists share memory only until they are serialised."""
    if isinstance(value, list | tuple):
        return 1 + sum(_weight(element) for element in value)
    if isinstance(value, dict):
        return 1 + sum(map(_weight, value.values()))
    return len(value) if isinstance(value, str) else 1
