"""Function calls as answers, compared by BFCL's checker.

A reference is {"name": ..., "arguments": {...}} or a list of these; "parameters" may replace "arguments", as
in the data of the paper's authors.  An answer has its calls in any format of `benchmarks.calls`.  The
reference determines the argument types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks.base import Rejection
from genenv_jax.benchmarks.bfcl.ast_checker import check
from genenv_jax.benchmarks.bfcl.schemas import ground_truth_of
from genenv_jax.benchmarks.calls import read_calls

Call = Mapping[str, Mapping[str, Any]]  # {name: arguments}

_MAX_CALLS = 16
_TYPES = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "float",
    list: "array",
    dict: "dict",
}
_EXPECTED = 'expected {"name": ..., "arguments": {...}} or a list of 1 to 16 such'


def read_reference(value: Any) -> list[Call]:
    """Reads calls from JSON.  Raises ValueError that says what was expected."""
    entries = value if isinstance(value, list) else [value]
    found = list(map(_from_json, entries)) if 0 < len(entries) <= _MAX_CALLS else [None]
    if None in found:
        raise ValueError(_EXPECTED)
    truth = ground_truth_of(found, _tools(found), "python", False)
    if isinstance(truth, Rejection):
        raise ValueError(f"{_EXPECTED}; {truth.detail}")
    return found


def to_json(reference: Sequence[Call]) -> Any:
    """Inverse of `read_reference`: one call, or a list."""
    entries = [{"name": name, "arguments": dict(of)} for name, of in pairs(reference)]
    return entries if len(entries) > 1 else entries[0]


def pairs(reference: Sequence[Call]) -> list[tuple[str, Mapping[str, Any]]]:
    """(name, arguments) of each call."""
    return [pair for call in reference for pair in call.items()]


def write(reference: Sequence[Call]) -> str:
    """Calls as an agent writes them: `[f(a=1), g(b='x')]`."""
    written = (
        f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"
        for name, arguments in pairs(reference)
    )
    return f"[{', '.join(written)}]"


def agree(reference: Sequence[Call], text: str) -> bool:
    """Whether a text consists of the reference's calls, in any order."""
    found, tools = read_calls(text), _tools(reference)
    truth = ground_truth_of(reference, tools, "python", False)
    return not isinstance(found, Rejection) and not check(tools, found, truth, "parallel")


def _from_json(value: Any) -> Call | None:
    """A call from its JSON, or None if it is not a call."""
    if not isinstance(value, dict) or len(value) != 2 or not isinstance(value.get("name"), str):
        return None
    arguments = value.get("arguments", value.get("parameters"))
    return {value["name"]: arguments} if isinstance(arguments, dict) else None


def _tools(reference: Sequence[Call]) -> list[dict[str, Any]]:
    """Descriptions of the functions, in the form that BFCL's checker takes."""
    schemas: dict[str, dict[str, Any]] = {}
    for name, arguments in pairs(reference):
        of = schemas.setdefault(name, {})
        of |= {key: _schema(value) for key, value in arguments.items()}
    return [
        {"name": name, "parameters": {"type": "dict", "properties": of, "required": []}}
        for name, of in schemas.items()
    ]


def _schema(value: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": _TYPES.get(type(value), "any")}
    if isinstance(value, list):
        schema["items"] = {"type": _TYPES.get(type(value[0]), "any") if value else "any"}
    return schema
