"""Function calls in the formats that models write.

Each model family's chat template asks for its own call format.  `read_calls` reads them all: the text alone
decides, not the model that wrote it.  The formats, for the call `f(x=1)`:

    <tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>                Hermes, Qwen2.5, Qwen3, Falcon
    <|tool_call|>[{"name": "f", "arguments": {"x": 1}}]                        Granite 3, Phi 4 mini
    <function_call> {"name": "f", "arguments": {"x": 1}}                       Granite
    <|tool_call_start|>[f(x=1)]<|tool_call_end|>                               LFM2, MiniCPM
    <tool_call><function=f><parameter=x>1</parameter></function></tool_call>   Qwen3-Coder
    <function=f>{"x": 1}</function>                                            Llama 3.1 and 3.2
    <|python_tag|>{"name": "f", "parameters": {"x": 1}}; {...}                 Llama 3.x
    <|python_tag|>f.call(x=1)                                                  Llama 3.x, built-in tools
    [TOOL_CALLS][{"name": "f", "arguments": {"x": 1}}]                         Mistral
    [TOOL_CALLS]f[ARGS]{"x": 1}                                                Mistral, newer
    <｜tool▁call▁begin｜>function<｜tool▁sep｜>f, and a fence of JSON              DeepSeek V3, R1
    <｜tool▁call▁begin｜>f<｜tool▁sep｜>{"x": 1}<｜tool▁call▁end｜>                  DeepSeek V3.1
    a code fence of tool_code with print(f(x=1))                               Gemma
    JSON or calls in code fences, with or without words around them            Qwen2.5-Coder, Hammer, Phi
    a JSON object, a list of objects, or several objects in a row              Llama 3.x, xLAM
    f, and a line of JSON: {"x": 1}                                            GLM 4
    [f(x=1), g(y=2)]                                                           BFCL's own prompt

Nothing is evaluated, and all work is bounded.
"""

import json
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks.safe_parse import DOUBLE_QUOTED, check_text, parse_calls, parse_json, parse_literal
from genenv_jax.benchmarks.task import TOO_LONG, UNPARSABLE, Rejection
from genenv_jax.benchmarks.thoughts import after_thoughts

Call = dict[str, dict[str, Any]]  # {name: arguments}
Calls = Sequence[Mapping[str, Mapping[str, Any]]]  # any calls, to be read only
Found = list[Call] | Rejection

MAX_CALLS = 128  # in one answer
HERMES, QWEN3_CODER, LLAMA, LLAMA_TAGS = "hermes", "qwen3_coder", "llama", "llama_tags"
MISTRAL, DEEPSEEK = "mistral", "deepseek"
# The strings that identify each call format of the chat templates, most specific format first.
_TAGS = {
    QWEN3_CODER: ("<function=", "<parameter="),
    HERMES: ("<tool_call>",),
    LLAMA_TAGS: ("<function=",),
    MISTRAL: ("[TOOL_CALLS]",),
    DEEPSEEK: ("<｜tool▁call▁begin｜>",),
    LLAMA: ('"parameters"',),
}
_LINE = "\n"
_NAME = re.compile(r"[A-Za-z_][\w.\-]{0,255}")
_EXPECTED = 'expected {"name": ..., "arguments": {...}}'
_PRINTED = re.compile(r"^print\((.*)\)$", re.DOTALL)
_FUNCTION, _PARAMETER = (
    re.compile(rf"<{tag}=([^<>]{{1,256}})>(.*?)(?:</{tag}>|(?=<{tag}=)|\Z)", re.DOTALL)
    for tag in ("function", "parameter")
)
# A name and its arguments: f{"x": 1}, f[ARGS]{"x": 1}, f<｜tool▁sep｜>{"x": 1}, "function" and a code fence.
_NAMED = re.compile(
    r"\s*+(?>(?:function<｜tool▁sep｜>)?)([\w.\-]++)\s*+(?:(?:\[ARGS\]|<｜tool▁sep｜>)\s*+)?(?:```json\s*+)?(?=\{)"
)
_JSON = re.compile(r"[\s`]*+(?:\{|\[\s*+\{)")
# Text that starts so has no tags around its calls: any tags are in strings.
_BARE = re.compile(r"\s*+(?:```\w*+\s*+)?(?:[\w.\-]*+\s*+\{|\[\s*+(?:\{|[\w.]++\())")
_CALL_METHOD = re.compile(r"^(\s*[\w.]+)\.call\(")


def read_calls(text: Any, types: Mapping[str, Mapping[str, str]] | None = None) -> Found:
    """The calls in an answer, in order.  Total, in time linear in the text.

    If the text has a family's tags, only their contents are read; words around them are ignored.  One broken
    call makes the whole answer a rejection.

    Args:
      text: what a model wrote; after its thoughts, at most `MAX_CHARS` characters.
      types: JSON types of the parameters of each function, for formats that write values as bare text.

    Returns:
      {name: arguments} for each call, empty only for `[]`; or a `Rejection` with a reason from `safe_parse`.
    """
    text = after_thoughts(text)
    rejection = text if isinstance(text, Rejection) else check_text(text)
    if rejection:
        return rejection
    tag = None if _BARE.match(text) else _TAG.search(text)
    if not tag:
        found = _of_block(text) if "```" in text else _of_text(text)
    elif tag[0] in _BLOCKS:
        found = _of_blocks(text, tag[0], types or {})
    else:
        found = _python_tag(text) if tag[0] == _PYTHON_TAG else _function_tags(text, types or {})
    if not isinstance(found, Rejection) and len(found) > MAX_CALLS:
        return Rejection(TOO_LONG, f"{len(found)} calls, limit {MAX_CALLS}")
    return found


def form_of(written: str) -> str:
    """The `write_calls` format of a chat template, detected from a call that the template wrote."""
    for form, tags in _TAGS.items():
        if all(tag in written for tag in tags):
            return form
    return HERMES


def write_calls(calls: Calls, form: str) -> str:
    """Calls in the format `form` of a model family (`form_of`); `read_calls` inverts it.

    Raises TypeError or ValueError for an argument that is not a JSON value.
    """
    pairs = [(name, arguments) for call in calls for name, arguments in call.items()]
    if form == QWEN3_CODER:
        return "\n".join(_qwen3_coder(name, arguments) for name, arguments in pairs)
    if form == LLAMA_TAGS:
        return "".join(f"<function={name}>{_dump(of)}</function>" for name, of in pairs)
    if form == LLAMA:
        return "; ".join(_dump({"name": name, "parameters": of}) for name, of in pairs)
    written = [_dump({"name": name, "arguments": arguments}) for name, arguments in pairs]
    if form == MISTRAL:
        return f"[TOOL_CALLS][{', '.join(written)}]"
    if form == DEEPSEEK:
        blocks = (
            f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{_dump(of)}\n```<｜tool▁call▁end｜>"
            for name, of in pairs
        )
        return f"<｜tool▁calls▁begin｜>{_LINE.join(blocks)}<｜tool▁calls▁end｜>"
    return "\n".join(f"<tool_call>\n{call}\n</tool_call>" for call in written)


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _qwen3_coder(name: str, arguments: Mapping[str, Any]) -> str:
    lines = [f"<tool_call>\n<function={name}>"]
    for key, value in arguments.items():
        text = value if isinstance(value, str) else _dump(value)
        lines.append(f"<parameter={key}>\n{text}\n</parameter>")
    return "\n".join([*lines, "</function>\n</tool_call>"])


def call_of(value: Any) -> Call | None:
    """A call from JSON {"name", "arguments" or "parameters"}, optionally in OpenAI's wrapper; else None.

    The arguments may be an object, the JSON text of an object, or absent.
    """
    if not isinstance(value, dict):
        return None
    inside = value.get("function")
    if isinstance(inside, dict):
        value = inside
    name = value.get("name", inside if isinstance(inside, str) else None)
    arguments = value.get("arguments", value.get("parameters"))
    if isinstance(arguments, str):
        arguments = parse_json(arguments) if arguments.strip() else {}
    if arguments is None:
        arguments = {}
    if not isinstance(name, str) or not _NAME.fullmatch(name) or not isinstance(arguments, dict):
        return None
    return {name: arguments} if all(isinstance(key, str) for key in arguments) else None


def _joined(reader: Callable[[str], Found], parts: Iterable[str]) -> Found:
    calls: list[Call] = []
    for part in parts:
        found = reader(part)
        if isinstance(found, Rejection):
            return found
        calls += found
        if len(calls) > MAX_CALLS:
            break
    return calls


def _of_text(text: str) -> Found:
    """The calls in JSON, in a Python list, or in a name with arguments as JSON."""
    if _JSON.match(text):
        return _of_json(text.strip("`\n "))
    if named := _NAMED.match(text):
        arguments = parse_json(text[named.end() :].rstrip("`\n "))
        return _call(named[1], arguments)
    return parse_calls(text)


def _of_block(text: str) -> Found:
    """The calls in a text, or in its code fences if it has any; Python calls may be statements."""
    fences = _fences(text)
    tool_code = [body for language, body in fences if language == "tool_code"]
    return _joined(_of_code, tool_code or [body for _, body in fences] or [text])


def _of_code(text: str) -> Found:
    text = textwrap.dedent(text).strip()
    if not re.match(r"[\w.]+\(", text):
        return _of_text(text)
    statements = re.split(r"\n(?=\w)", text)
    return parse_calls(", ".join(_PRINTED.sub(r"\1", each.rstrip()) for each in statements))


def _of_json(text: str) -> Found:
    """The calls in one or more JSON values, separated by white space, commas or semicolons."""
    calls: list[Call] = []
    for part in _values(text):
        value = parse_json(part)
        if isinstance(value, Rejection) and value.detail.startswith("JSONDecodeError"):
            # Python's quotes and constants: the official handler of Llama 3.1 evaluates the text.
            literal = parse_literal(part)
            value = value if isinstance(literal, Rejection) else literal
        if isinstance(value, Rejection):
            return value
        for entry in value if isinstance(value, list) else [value]:
            call = call_of(entry)
            if call is None:
                return Rejection(UNPARSABLE, _EXPECTED)
            calls.append(call)
            if len(calls) > MAX_CALLS:
                return calls
    return calls


def _fences(text: str) -> list[tuple[str, str]]:
    """(language, content) of each code fence; a fence that is never closed does not count."""
    fences: list[tuple[str, str]] = []
    language, body = None, []
    for line in text.splitlines():
        if not line.strip().startswith("```"):
            body.append(line)
        elif language is None:
            language, body = line.strip().removeprefix("```").strip().lower(), []
        else:
            fences.append((language, "\n".join(body)))
            language = None
    return fences


_STRUCTURE = re.compile(DOUBLE_QUOTED + r"|[\[{]|[\]}]", re.DOTALL)


def _values(text: str) -> Iterator[str]:
    """The top-level objects and lists of a text; if it has anything else, the rest is yielded as it is."""
    depth, start = 0, 0
    for found in _STRUCTURE.finditer(text):
        symbol = found.group()
        if symbol in "[{":
            if depth == 0:
                between = text[start : found.start()]
                if between.strip(" \t\r\n;,"):
                    break
                start = found.start()
            depth += 1
        elif symbol in "]}":
            depth -= 1
            if depth == 0:
                yield text[start : found.end()]
                start = found.end()
    rest = text[start:]
    if rest.strip(" \t\r\n;,"):
        yield rest


def _of_blocks(text: str, opening: str, types: Mapping[str, Mapping[str, str]]) -> Found:
    closing, reader = _BLOCKS[opening]

    def read(part: str) -> Found:
        if not part.strip():
            return Rejection(UNPARSABLE, "no call")
        if part.lstrip().startswith("<function="):
            return _function_tags(part, types)
        return reader(part)

    return _joined(read, _between(text, opening, closing))


def _between(text: str, opening: str, closing: str) -> Iterator[str]:
    """The text after each opening tag, up to the closing tag, the next opening tag or the end.

    Tags in a string of JSON do not count.
    """
    ends = re.compile(f"{DOUBLE_QUOTED}|{re.escape(opening)}|{re.escape(closing)}", re.DOTALL)
    at = text.find(opening)
    while at >= 0:
        begin = at + len(opening)
        tags = (found.start() for found in ends.finditer(text, begin) if found[0][0] != '"')
        end = next(tags, len(text))
        yield text[begin:end]
        at = text.find(opening, end)


def _function_tags(text: str, types: Mapping[str, Mapping[str, str]]) -> Found:
    calls: list[Call] = []
    for name, body in _FUNCTION.findall(text)[: MAX_CALLS + 1]:
        if body.lstrip().startswith("<parameter="):
            of = types.get(name, {})
            pairs = [(key, _typed(value, of.get(key))) for key, value in _PARAMETER.findall(body)]
            arguments: Any = dict(pairs)
            if len(arguments) != len(pairs):
                return Rejection(UNPARSABLE, "repeated key")
        else:
            arguments = parse_json(body) if body.strip() else {}
        found = _call(name, arguments)
        if isinstance(found, Rejection):
            return found
        calls += found
    return calls or Rejection(UNPARSABLE, "no call")


def _call(name: str, arguments: Any) -> Found:
    if isinstance(arguments, Rejection):
        return arguments
    call = call_of({"name": name, "arguments": arguments})
    return Rejection(UNPARSABLE, _EXPECTED) if call is None else [call]


def _typed(text: str, kind: str | None) -> Any:
    """A value written as bare text between tags, converted to its parameter's JSON type."""
    text = text.removeprefix("\n").removesuffix("\n")
    if kind == "string":
        return text
    value = parse_json(text)
    return text if isinstance(value, Rejection) else value


def _python_tag(text: str) -> Found:
    said = text.partition(_PYTHON_TAG)[2].replace(_PYTHON_TAG, "").removesuffix("<|eom_id|>")
    return _of_text(_CALL_METHOD.sub(r"\1(", said))


_PYTHON_TAG = "<|python_tag|>"
# Opening tag -> closing tag, reader of the contents.
_BLOCKS: dict[str, tuple[str, Callable[[str], Found]]] = {
    "<tool_call>": ("</tool_call>", _of_block),
    "<|tool_call|>": ("<|/tool_call|>", _of_block),
    "<|tool_call_start|>": ("<|tool_call_end|>", _of_block),
    "<function_call>": ("</function_call>", _of_block),
    "[TOOL_CALLS]": ("</s>", _of_text),
    "<｜tool▁call▁begin｜>": ("<｜tool▁call▁end｜>", _of_text),
}
# The first tag of a text decides how it is read.
_TAG = re.compile("|".join(map(re.escape, (*_BLOCKS, _PYTHON_TAG, "<function="))))
