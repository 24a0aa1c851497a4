"""BFCL's single-turn checker: compares an agent's calls with the ground truth.

The rules of `check` are those of `bfcl_eval/eval_checker/ast_eval/ast_checker.py` (BFCL v4, Apache-2.0),
reimplemented from their description with the official error words.  Where the official code raises (a
malformed schema, an int that overflows a float), `check` reports CHECKER_ERROR.  `check_in_order` is our own
stricter rule for calls that are meant to be executed.

Data shapes:
  tools         [{"name", "parameters": {"type": "dict", "properties": {...}, "required": [...]}}]
  calls         [{name: {argument: value}}]                  the agent's decoded calls
  ground_truth  [{name: {argument: [acceptable value, ...]}}] with "" for "may be left out"
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks import graded
from genenv_jax.benchmarks.bfcl import java, javascript
from genenv_jax.benchmarks.calls import Calls
from genenv_jax.benchmarks.task import Tools

# Schema type name -> Python type of a converted value, by language.
TYPES: Mapping[str, Mapping[str, type]] = {
    "python": {
        "string": str, "integer": int, "float": float, "boolean": bool, "array": list, "tuple": list,
        "dict": dict, "any": str,
    },
    "java": java.TYPES,
    "javascript": javascript.TYPES,
}  # fmt: skip
# Those that `convert` has a rule for; a new function may declare only these.
CONVERTED_TYPES: Mapping[str, Sequence[str]] = {
    language: [name for name in types if language != "java" or name not in java.UNSUPPORTED_TYPES]
    for language, types in TYPES.items()
}
# Schema types whose `items.type` names the type of their elements.
NESTED_TYPES: Mapping[str, Sequence[str]] = {
    "python": ("array", "tuple"),
    "java": ("Array", "ArrayList", "array"),
    "javascript": ("Array", "ArrayList", "array"),
}
CHECKER_ERROR = "checker_error"
_SOURCE = {"java": java.convert, "javascript": javascript.convert}
_NOT_SOURCE = {"java": "type_error:java", "javascript": "type_error:js"}
_WRONG_COUNT = "parallel_function_checker_no_order:wrong_count"
# KeyError and IndexError are LookupErrors; RecursionError and NotImplementedError are RuntimeErrors.
_ERRORS = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError)
_IGNORED_IN_STRINGS = re.compile(r"[ ,./\-_*^]")

_Tool = Mapping[str, Any]
_Call = Mapping[str, Mapping[str, Any]]
_Expected = Mapping[str, Mapping[str, list[Any]]]
Truth = Sequence[_Expected]
_Standard = Callable[[str], str]  # normalizes a string for comparison


def convert(value: Any, schema: Mapping[str, Any], language: str) -> Any:
    """An argument for comparison: Java and JavaScript source text becomes a Python value.

    Raises KeyError, NotImplementedError or ValueError for a type in `schema` that the language lacks.
    """
    if language == "python":
        return value
    declared = schema["type"]
    nested = schema["items"]["type"] if declared in NESTED_TYPES[language] else None
    return _SOURCE[language](value, declared, nested)


def standardize_string(text: str) -> str:
    """Drops spaces and , . / - _ * ^, lower-cases, and turns ' into a double quote."""
    return _IGNORED_IN_STRINGS.sub("", text).lower().replace("'", '"')


def check(tools: Tools, calls: Calls, ground_truth: Truth, kind: str, language: str = "python") -> str:
    """Checks decoded calls against a ground truth; total.

    Args:
      kind: "simple" (one call, the first tool), "multiple" (one call, the tool that the ground
        truth names) or "parallel" (each acceptable call takes the first call that satisfies it,
        in any order).

    Returns:
      "" if the calls are accepted, else the official `error_type`.
    """
    try:
        if kind == "parallel":
            return _check_parallel(tools, calls, ground_truth, language)
        if len(calls) != (len(ground_truth) if kind == "multiple" else 1):
            return f"{kind}_function_checker:wrong_count"
        tool = tools[0] if kind == "simple" else _find_tool(tools, next(iter(ground_truth[0])))
        return _check_call(tool, calls[0], ground_truth[0], language)
    except _ERRORS:
        return CHECKER_ERROR


def check_in_order(tools: Tools, calls: Calls, ground_truth: Truth) -> str:
    """Checks decoded Python calls one by one against a ground truth, without normalizing strings; total.

    Like `check`, but strings must be identical, call k must match acceptable call k, and the "" that marks
    "may be left out" is not accepted as a value.  Only execution can show whether two calls may be
    reordered, so the order of the ground truth is always required.
    """
    try:
        if len(calls) != len(ground_truth):
            return _WRONG_COUNT
        for call, expected in zip(calls, ground_truth, strict=True):
            ((name, options_of),) = expected.items()
            options_of = _without_marks(options_of, call.get(name, {}))
            if error := _check_call(_find_tool(tools, name), call, {name: options_of}, "python", str):
                return error
    except _ERRORS:
        return CHECKER_ERROR
    return ""


def grade(tools: Tools, calls: Calls, ground_truth: Truth, language: str, in_order: bool) -> float:
    """Partial reward of calls that `check`, or `check_in_order`, does not accept; see `graded`.  Total.

    A call of another function earns nothing.  An argument that may be left out counts if it is given.
    """
    standard = str if in_order else standardize_string

    def agreement(call: _Call, expected: _Expected) -> float:
        ((name, options_of),) = expected.items()
        if name not in call:
            return 0.0
        arguments, parameters = call[name], _find_tool(tools, name)["parameters"]
        if in_order:
            options_of = _without_marks(options_of, arguments)
        needed = {key for key, of in options_of.items() if key in arguments or "" not in of}
        equal = {
            key
            for key in arguments.keys() & options_of.keys()
            if not _check_argument(
                arguments[key], parameters["properties"][key], options_of[key], language, standard
            )
        }
        return graded.agreement(arguments.keys(), needed | {*parameters["required"]}, equal)

    return graded.partial_reward(calls, ground_truth, agreement)


def _without_marks(options_of: Mapping[str, list[Any]], arguments: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Acceptable values, without the mark for "may be left out" on arguments that were given."""
    return {
        name: (name in arguments and [option for option in options if option != ""]) or options
        for name, options in options_of.items()
    }


def _find_tool(tools: Tools, name: str) -> _Tool:
    for tool in tools:
        if tool["name"] == name:
            return tool
    raise KeyError(f"no tool named {name}")


def _check_parallel(tools: Tools, calls: Calls, ground_truth: Truth, language: str) -> str:
    if len(calls) != len(ground_truth):
        return _WRONG_COUNT
    free = list(range(len(calls)))
    for expected in ground_truth:
        tool = _find_tool(tools, next(iter(expected)))
        for candidate in free:  # greedy, like the official checker: no search over assignments
            if not _check_call(tool, calls[candidate], expected, language):
                free.remove(candidate)
                break
        else:
            return "parallel_function_checker_no_order:cannot_find_match"
    return ""


def _check_call(
    tool: _Tool, call: _Call, expected: _Expected, language: str, standard: _Standard = standardize_string
) -> str:
    """`simple_function_checker`: one call against one acceptable call."""
    options_of = next(iter(expected.values()))
    schemas = tool["parameters"]["properties"]
    if tool["name"] not in call:
        return "simple_function_checker:wrong_func_name"
    arguments = call[tool["name"]]
    if any(name not in arguments for name in tool["parameters"]["required"]):
        return "simple_function_checker:missing_required"
    for name, value in arguments.items():
        if name not in schemas or name not in options_of:
            return "simple_function_checker:unexpected_param"
        if error := _check_argument(value, schemas[name], options_of[name], language, standard):
            return error
    if any(name not in arguments and "" not in options for name, options in options_of.items()):
        return "simple_function_checker:missing_optional"
    return ""


def _check_argument(
    value: Any, schema: Mapping[str, Any], options: list[Any], language: str, standard: _Standard
) -> str:
    types = TYPES[language]
    declared = schema["type"]
    expected_type = types[declared]
    is_nested = declared in NESTED_TYPES[language]
    nested_type = types[schema["items"]["type"]] if is_nested else None
    if language in _SOURCE and type(value) is not str:
        return _NOT_SOURCE[language]
    value = convert(value, schema, language)
    if declared == "tuple" and type(value) is tuple:
        value = list(value)
    if language == "python" and declared == "float" and type(value) is int:
        value = float(value)

    error, is_variable = _check_type(value, options, expected_type, nested_type)
    if error:
        return error
    if not is_variable:
        if expected_type is dict:
            return _check_dict(value, options, standard)
        if expected_type is list and nested_type is dict:
            return _check_dicts(value, options, standard)
        if expected_type is str:
            accepted = [standard(option) for option in options if type(option) is str]
            return "" if standard(value) in accepted else "value_error:string"
        if expected_type is list:
            return _check_list(value, options, standard)
    return "" if value in options else "value_error:others"


def _check_type(value: Any, options: list[Any], expected: type, nested: type | None) -> tuple[str, bool]:
    """`type_checker`: (error or "", whether the value stands for a variable).

    Types must be identical, so True is not an integer.  An option whose type differs from the
    schema's means that a variable or an expression is expected; its type is accepted too.
    Elements are checked one level deep.
    """
    option_type = next((type(option) for option in options if option != ""), None)
    is_variable = option_type is not None and option_type is not expected
    error = "type_error:simple"
    if type(value) is expected:
        if nested is None:
            return "", is_variable
        for option in options:
            # An option that is not a list has no elements to compare types with.
            if type(option) is not list or all(
                not _check_type(element, option, nested, None)[0] for element in value
            ):
                return "", is_variable
        error = "type_error:nested"
    if option_type is not None and type(value) is option_type:
        # A nested failure stays a failure even if the outer types agree.
        return ("", True) if error == "type_error:simple" else (error, True)
    return "type_error:simple", is_variable


def _standardized(value: Any, standard: _Standard) -> Any:
    return standard(value) if type(value) is str else value


def _check_list(value: list[Any], options: list[Any], standard: _Standard) -> str:
    accepted = [[_standardized(element, standard) for element in option] for option in options]
    found = [_standardized(element, standard) for element in value]
    return "" if found in accepted else "value_error:list/tuple"


def _check_dict(value: Mapping[str, Any], options: list[Any], standard: _Standard) -> str:
    error = "dict_checker:unclear"
    for option in options:
        if option == "":
            continue
        error = _compare_dict(value, option, standard)
        if not error:
            return ""
    return error


def _compare_dict(value: Mapping[str, Any], option: Mapping[str, list[Any]], standard: _Standard) -> str:
    if any(key not in value and "" not in accepted for key, accepted in option.items()):
        return "value_error:dict_key"
    for key, entry in value.items():
        if key not in option:
            return "value_error:dict_key"
        accepted = [_standardized(each, standard) for each in option[key]]
        if _standardized(entry, standard) not in accepted:
            return "value_error:dict_value"
    return ""


def _check_dicts(value: list[Any], options: list[Any], standard: _Standard) -> str:
    error = "list_dict_checker:unclear"
    for option in options:
        if len(value) != len(option):
            error = "value_error:list_dict_count"
            continue
        for entry, accepted in zip(value, option, strict=True):
            if error := _check_dict(entry, [accepted], standard):
                break
        else:
            return ""
    return error
