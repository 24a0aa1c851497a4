"""Function calls as answers, compared by BFCL's checker.

A reference is {"name": ..., "arguments": {...}} or a list of these; "parameters" may replace "arguments", as
in the data of the paper's authors.  An answer has its calls in any format of `benchmarks.calls`.  The
question's tools set the argument types, which the reference must fit; without tools, the reference does.
"""

from collections.abc import Mapping
from typing import Any

from genenv_jax.benchmarks.base import Rejection
from genenv_jax.benchmarks.bfcl.ast_checker import check
from genenv_jax.benchmarks.bfcl.schemas import check_tools, ground_truth_of, with_own_types
from genenv_jax.benchmarks.calls import Call, Calls, read_calls
from genenv_jax.benchmarks.task import Tools
from genenv_jax.benchmarks.tools import described, python_call

_MAX_CALLS = 16
_EXACT = 2**53  # a float holds every whole number up to this
_TYPES = {
    str: "string", bool: "boolean", int: "integer", float: "float", list: "array", dict: "dict"
}  # fmt: skip
_EXPECTED = 'expected {"name": ..., "arguments": {...}} or a list of 1 to 16 of these'
_VALUES = {  # types of values, by JSON schema's names
    "object": (dict,), "array": (list,), "string": (str,), "integer": (int,), "number": (int, float),
    "boolean": (bool,), "null": (type(None),),
}  # fmt: skip


def read_reference(value: Any) -> list[Call]:
    """Reads calls from JSON.  Raises ValueError that says what was expected."""
    entries = value if isinstance(value, list) else [value]
    found = list(map(_from_json, entries)) if 0 < len(entries) <= _MAX_CALLS else [None]
    if None in found:
        raise ValueError(_EXPECTED)
    tools = _tools(found)
    truth = ground_truth_of(_with_decimals(found, tools), tools, "python", False)
    if isinstance(truth, Rejection):
        raise ValueError(f"{_EXPECTED}; {truth.detail}")
    return found


def read_tools(value: Any) -> list[dict[str, Any]]:
    """Descriptions of functions, with JSON schema's types, from a list in OpenAI's form or in BFCL's.

    Raises ValueError that says what was expected.
    """
    entries = value if isinstance(value, list | tuple) else []
    inside = [of.get("function", of) if isinstance(of, Mapping) else of for of in entries]
    tools = [_of_bfcl(entry) if isinstance(entry, Mapping) else entry for entry in inside]
    if rejection := check_tools(tools, "python"):
        raise ValueError(
            f'{rejection.detail}; expected a list of {{"name": ..., "description": ..., "parameters": '
            '{"type": "object", "properties": {...}, "required": [...]}}'
        )
    return described(tools)


def misfit(reference: Calls, tools: Tools) -> str:
    """Why calls do not fit the tools that may be called; "" if they do."""
    schemas = {tool["name"]: tool["parameters"] for tool in tools}
    made = pairs(reference)
    faults = [_fault(of, schemas[name], name) if name in schemas else f"no tool {name}" for name, of in made]
    return next(filter(None, faults), "")[:200]


def _fault(value: Any, schema: Mapping[str, Any], where: str) -> str:
    """Why a value does not fit a JSON schema; "" if it does."""
    kind = schema["type"]
    if type(value) not in _VALUES[kind]:
        return f"{where}: not of type {kind}"
    if value not in schema.get("enum", [value]):
        return f"{where}: not in the enum"
    parts = []
    if kind == "array" and "items" in schema:
        parts = [_fault(entry, schema["items"], f"{where}[{n}]") for n, entry in enumerate(value)]
    if kind == "object" and "properties" in schema:
        of = schema["properties"]
        parts = [f"{where}: no {key}" for key in schema.get("required", ()) if key not in value]
        parts += [f"{where}: unknown {key}" for key in value if key not in of]
        parts += [_fault(value[key], of[key], f"{where}.{key}") for key in value if key in of]
    return next(filter(None, parts), "")


def to_json(reference: Calls) -> Any:
    """Inverse of `read_reference`: one call, or a list."""
    entries = [{"name": name, "arguments": dict(of)} for name, of in pairs(reference)]
    return entries if len(entries) > 1 else entries[0]


def pairs(reference: Calls) -> list[tuple[str, Mapping[str, Any]]]:
    """(name, arguments) of each call."""
    return [pair for call in reference for pair in call.items()]


def write(reference: Calls) -> str:
    """Calls as an agent writes them: `[f(a=1), g(b='x')]`."""
    return f"[{', '.join(python_call(*pair) for pair in pairs(reference))}]"


def agree(reference: Calls, text: str, tools: Tools = ()) -> bool:
    """Whether a text consists of the reference's calls, in any order."""
    found, tools = read_calls(text), _tools(reference, tools)
    if isinstance(found, Rejection):
        return False
    reference, found = _with_decimals(reference, tools), _with_decimals(found, tools)
    return not check(tools, found, ground_truth_of(reference, tools, "python", False), "parallel")


def _with_decimals(made: Calls, tools: Tools) -> list[Call]:
    """Calls in which whole numbers in lists of floats are floats: JSON does not tell 52 from 52.0."""
    schemas = {tool["name"]: tool["parameters"]["properties"] for tool in tools}

    def converted(value: Any, schema: Mapping[str, Any]) -> Any:
        if not isinstance(value, list) or schema.get("items", {}).get("type") != "float":
            return value
        return [float(x) if type(x) is int and abs(x) <= _EXACT else x for x in value]

    return [
        {name: {key: converted(of[key], schemas.get(name, {}).get(key, {})) for key in of}}
        for name, of in pairs(made)
    ]


def _of_bfcl(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A tool as BFCL describes it; what may be missing in OpenAI's form is filled in."""
    whole = {"description": "", "parameters": {"type": "object"}, **tool}
    of = with_own_types([whole], "python")[0]["parameters"]
    if isinstance(of, Mapping):
        of = {**of, "properties": of.get("properties", {}), "required": of.get("required", [])}
    return {**whole, "parameters": of}


def _from_json(value: Any) -> Call | None:
    """A call from its JSON, or None if it is not a call; the "id" and "type" of a call are ignored."""
    if not isinstance(value, dict) or len(value.keys() - {"id", "type"}) != 2:
        return None
    if not isinstance(value.get("name"), str):
        return None
    arguments = value.get("arguments", value.get("parameters"))
    return {value["name"]: arguments} if isinstance(arguments, dict) else None


def _tools(reference: Calls, tools: Tools = ()) -> list[dict[str, Any]]:
    """Descriptions of the functions, in the form that BFCL's checker takes."""
    declared = {tool["name"]: _of_bfcl(tool)["parameters"]["properties"] for tool in tools}
    schemas: dict[str, dict[str, Any]] = {}
    for name, arguments in pairs(reference):
        of, known = schemas.setdefault(name, {}), declared.get(name, {})
        of |= {key: known.get(key) or _schema(value) for key, value in arguments.items()}
    return [
        {"name": name, "parameters": {"type": "dict", "properties": of, "required": []}}
        for name, of in schemas.items()
    ]


def _schema(value: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": _TYPES.get(type(value), "any")}
    if isinstance(value, list):
        kinds = set(map(type, value))
        kind = float if kinds == {int, float} else type(value[0]) if value else None
        schema["items"] = {"type": _TYPES.get(kind, "any")}
    return schema
