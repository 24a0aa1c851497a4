"""Tools as data: JSON schemas for a chat template, and the calls that come back.

If a model's chat template takes tools, it shows them as the model was trained to read them, and the model
writes calls in its family's format.  Otherwise the benchmark describes its tools in the prompt's text and
asks for its own call format.
"""

import dataclasses
import json
import keyword
import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from genenv_jax.benchmarks.base import Benchmark
from genenv_jax.benchmarks.calls import Calls, Found, form_of, read_calls, write_calls
from genenv_jax.benchmarks.grounding import leaves
from genenv_jax.benchmarks.options import check_choice
from genenv_jax.benchmarks.safe_parse import parse_calls
from genenv_jax.benchmarks.task import TOOLS, Message, Rejection, Tools
from genenv_jax.benchmarks.wording import words

AUTO, TEMPLATE, TEXT = "auto", "template", "text"
_MAX_DEPTH = 16
# How BFCL's evaluator converts types that are not JSON schema's, for models that take tools.  Unknown types
# become strings, as they do there.
_NAMES = {
    "string": "str",
    "object": "dict hashmap hashtable",
    "number": "float double",
    "integer": "int long short byte bigint",
    "boolean": "bool",
    "array": "tuple list arraylist queue stack set",
    "null": "",
}
_TYPES = {name: kind for kind, names in _NAMES.items() for name in [kind, *names.split()]}


@dataclasses.dataclass(kw_only=True, eq=False)
class ToolBenchmark(Benchmark):
    """A benchmark whose agent calls functions.

    Args, besides those of `Benchmark`:
      tools_in: where the agent reads its tools: in its chat "template", as the benchmark's own "text", or
        "auto": in the template if it takes tools.
    Attributes:
      call_form: the call format of the chat template (`calls.form_of`) if it shows the tools, else "".
    """

    has_tools: ClassVar[bool] = True

    call_form: ClassVar[str] = ""

    tools_in: str = AUTO

    def __post_init__(self):
        super().__post_init__()
        check_choice("tools_in", self.tools_in, (AUTO, TEMPLATE, TEXT))

    def use_template(self, written_call: str, made: bool = False) -> None:
        if self.tools_in == TEMPLATE and not written_call:
            found = "tools_in = 'template': the model's chat template takes no tools"
            raise ValueError(f"{found}; expected 'text' or 'auto'")
        if written_call and self.tools_in != TEXT:
            self.call_form = form_of(written_call)

    def about(self) -> dict[str, str]:
        shown = "as text"
        if self.call_form:
            shown = f"in the chat template, calls of the form {self.call_form}"
        return super().about() | {"tools": shown}


def rewritten(text: str, calls: Found, form: str) -> str:
    """A text with its calls in a format of `calls.write_calls`, if JSON can express their values."""
    if isinstance(calls, Rejection) or not calls:
        return text
    try:
        return write_calls(calls, form)
    except (TypeError, ValueError):
        return text


def tools_message(tools: Tools) -> Message:
    """The message that passes tools to a chat template; the types of their parameters may be BFCL's."""
    wrapped = [{"type": "function", "function": function} for function in described(tools)]
    return {"role": TOOLS, "content": json.dumps(wrapped, ensure_ascii=False)}


def described(tools: Tools) -> list[dict[str, Any]]:
    """The name, the description and the parameters, as JSON schema, of each tool; see `tools_message`."""
    return [
        {
            "name": tool["name"],
            "description": str(tool.get("description", "")),
            "parameters": json_schema(tool.get("parameters", {"type": "object"})),
        }
        for tool in tools
    ]


def json_schema(schema: Any, depth: int = 0) -> Any:
    """A parameter's description as JSON schema, of bounded depth; anything malformed becomes a string."""
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return {"type": "string"}
    converted = {**schema, "type": json_type(schema.get("type")) or "string"}
    if isinstance(schema.get("properties"), Mapping):
        properties = schema["properties"].items()
        converted["properties"] = {name: json_schema(of, depth + 1) for name, of in properties}
    if "items" in schema:
        converted["items"] = json_schema(schema["items"], depth + 1)
    return converted


def json_type(name: Any) -> str:
    """The JSON schema type that a type's name means in a benchmark or in Python; "" if unknown."""
    return _TYPES.get(str(name).lower(), "")


def read_tool_calls(text: str, tools: Tools) -> Found:
    """`read_calls`, with the names and types of the tools that were shown.

    Servers and some families replace the dots of a name by "_"; this is undone if it is unambiguous.
    """
    types = {
        str(tool.get("name")): {name: str(json_schema(of)["type"]) for name, of in _properties(tool).items()}
        for tool in tools
    }
    found = read_calls(text, types)
    if isinstance(found, Rejection):
        return found
    safe: dict[str, list[str]] = {}
    for name in types:
        safe.setdefault(re.sub(r"[^\w-]", "_", name), []).append(name)
    names = {name: of[0] for name, of in safe.items() if len(of) == 1}
    return [{names.get(name, name): of for name, of in call.items()} for call in found]


def as_python(answer: str, tools: Tools) -> str:
    """An answer with its calls as `[f(x=1)]`; unchanged if already so or not convertible."""
    if not isinstance(parse_calls(answer), Rejection):
        return answer
    found = read_tool_calls(answer, tools)
    return answer if isinstance(found, Rejection) else write_python(found) or answer


def write_python(calls: Calls) -> str:
    """Calls as a Python list; "" if a name is not an ASCII identifier, or a number has too many digits."""
    pairs = [(name, of) for call in calls for name, of in call.items()]
    names = [part for name, of in pairs for part in (*name.split("."), *of)]
    # Python would fold other letters: ｆ is f.
    if not all(n.isascii() and n.isidentifier() and not keyword.iskeyword(n) for n in names):
        return ""
    try:
        return f"[{', '.join(python_call(*pair) for pair in pairs)}]"
    except ValueError:
        return ""


def python_call(name: str, arguments: Mapping[str, Any]) -> str:
    """One call as `f(x=1)`; ValueError for a number with too many digits."""
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def _properties(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    parameters = tool.get("parameters")
    properties = parameters.get("properties") if isinstance(parameters, Mapping) else None
    return properties if isinstance(properties, Mapping) else {}


def meaning_of(tools: Tools, calls: Iterable[tuple[str, Mapping[str, Any]]]) -> list[str]:
    """A key for the tools, names and values of calls, however written; none if no call has arguments."""
    made = sorted(
        (name, sorted((key, [words(str(leaf)) for leaf in leaves(of[key])]) for key in of))
        for name, of in calls
    )
    names = sorted(tool["name"] for tool in tools)
    return [json.dumps([names, made])] if any(of for _, of in made) else []
