"""BFCL function descriptions and reference calls: validation, ground truth and rendering."""

import contextlib
import json
import keyword
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks.base import BAD_ANSWER, BAD_TOOLS, Rejection
from genenv_jax.benchmarks.bfcl import ast_checker
from genenv_jax.benchmarks.calls import Calls
from genenv_jax.benchmarks.grounding import leaves
from genenv_jax.benchmarks.task import Tools
from genenv_jax.benchmarks.tools import json_type

_VARIABLE = re.compile(r"[^\W\d][\w$]*(?:\.[^\W\d][\w$]*|\[\w*\])*")
# "Default is 'miles'.", "Defaults to 0.05", "default: true", "Default is km/h if not given."
_STATED_DEFAULT = re.compile(
    r"""\bdefaults?(?:\ value)?[*]*(?P<stated>(?:\ (?:is|to|be|set\ to)|:|=)*)\s*(?:
    (?P<quote>["'`])(?P<quoted>.*?)(?P=quote)(?![^\W_])
    |(?P<number>[-+]?[0-9]{1,15}(?:[.][0-9]{1,15})?(?:e[-+]?[0-9]{1,2})?)
      (?=[.;,)]*(?:\s|$))(?!\s*(?:hundred|thousand|million|billion|percent|am|pm|[^\w\s.;,()])\b)
    |(?P<bare>(?!(?:an?|the|that|all|any|not|no|none|null|use|empty|current|will)\b)[^\W_][^'"`;,()]{0,40}?)
      (?=\ if\b|[;,)]|[.](?:\s|$)|$))""",
    re.IGNORECASE | re.VERBOSE,
)
_LONGEST = 200  # characters of a default
_SEARCHED = 1_000  # characters of a description
_OWN_TYPES = {"object": "dict", "number": "float"}  # BFCL's names of JSON schema's types
_NO_OPTION = (KeyError, TypeError, ValueError, NotImplementedError)
_MAX_TOOLS = 64
_MAX_PARAMETERS = 64  # of one function


def check_tools(tools: Any, language: str) -> Rejection | None:
    """None if tools are well-formed BFCL function descriptions, else a BAD_TOOLS rejection; total.

    A description is {"name", "description", "parameters"}; parameters is {"type": "dict",
    "properties": {name: {"type", "description", ...}}, "required": [names]} with types that the
    checker of `language` supports.  Names are unique and valid in a call.
    """
    if not isinstance(tools, list | tuple) or not tools:
        return Rejection(BAD_TOOLS, "expected a list of at least one function")
    if len(tools) > _MAX_TOOLS:
        return Rejection(BAD_TOOLS, f"more than {_MAX_TOOLS} functions")
    names = set()
    for tool in tools:
        if problem := _tool_problem(tool, language):
            return Rejection(BAD_TOOLS, problem[:200])
        if tool["name"] in names:
            return Rejection(BAD_TOOLS, f"two functions named {tool['name']}"[:200])
        names.add(tool["name"])
    return None


def with_own_types(tools: Sequence[Any], language: str) -> list[Any]:
    """Descriptions whose types have JSON schema's or Python's names, with BFCL's names instead.

    In Java only upper and lower case is corrected, because one such name stands for several types.
    """
    own = {name.lower(): name for name in ast_checker.TYPES[language]}

    def named(kind: str) -> str:
        names = [kind.lower()]
        if language != "java":
            names += [json_type(kind), _OWN_TYPES.get(json_type(kind), "")]
        return next((own[name] for name in names if name in own), kind)

    def converted(schema: Any) -> Any:
        if not isinstance(schema, dict):
            return schema
        changed = {"items": converted(schema["items"])} if "items" in schema else {}
        if isinstance(schema.get("type"), str):
            changed["type"] = named(schema["type"])
        if isinstance(schema.get("properties"), dict):
            changed["properties"] = {k: converted(of) for k, of in schema["properties"].items()}
        return schema | changed

    def of_tool(tool: Any) -> Any:
        parameters = converted(tool.get("parameters")) if isinstance(tool, dict) else None
        if not isinstance(parameters, dict):
            return tool
        whole = {"type": "dict"} if json_type(parameters.get("type")) == "object" else {}
        return tool | {"parameters": parameters | whole}

    return [of_tool(tool) for tool in tools]


def _tool_problem(tool: Any, language: str) -> str:
    if not isinstance(tool, Mapping):
        return "a function is not an object"
    name, parameters = tool.get("name"), tool.get("parameters")
    if not isinstance(name, str) or not all(_is_name(part, language) for part in name.split(".")):
        return f"function name {name!r}"
    if not isinstance(tool.get("description"), str):
        return f"{name}: no description"
    if not isinstance(parameters, Mapping) or parameters.get("type") != "dict":
        return f'{name}: parameters must be an object of type "dict"'
    properties, required = parameters.get("properties"), parameters.get("required")
    if not isinstance(properties, Mapping) or len(properties) > _MAX_PARAMETERS:
        return f"{name}: properties must be an object of at most {_MAX_PARAMETERS} entries"
    if not isinstance(required, list | tuple) or not all(isinstance(r, str) for r in required):
        return f"{name}: required must be a list of names"
    if len(set(required)) != len(required) or not set(required) <= set(properties):
        return f"{name}: required names a parameter that is not there, or one twice"
    for parameter, schema in properties.items():
        if not _is_name(parameter, language):
            return f"{name}: parameter name {parameter!r}"
        if problem := _schema_problem(schema, language):
            return f"{name}.{parameter}: {problem}"
    return ""


def _is_name(name: str, language: str) -> bool:
    """Whether a call can use this name: `class` and `from` would not parse."""
    return name.isascii() and name.isidentifier() and not (language == "python" and keyword.iskeyword(name))


def _schema_problem(schema: Any, language: str) -> str:
    if not isinstance(schema, Mapping):
        return "schema is not an object"
    declared = schema.get("type")
    types = ast_checker.CONVERTED_TYPES[language]
    if not isinstance(declared, str) or declared not in types:
        return f"type {declared!r} is not a BFCL {language} type"
    if declared in ast_checker.NESTED_TYPES[language]:
        items = schema.get("items")
        nested = items.get("type") if isinstance(items, Mapping) else None
        if not isinstance(nested, str) or nested not in types:
            return f"items of {declared} have type {nested!r}"
    if "enum" in schema and not isinstance(schema["enum"], list | tuple):
        return "enum is not a list"
    return ""


def parameter_order(tools: Tools) -> dict[str, tuple[str, ...]]:
    """Order of each function's parameters, used to bind positional arguments."""
    return {entry["name"]: tuple(entry["parameters"]["properties"]) for entry in tools}


def ground_truth_of(
    calls: Calls, tools: Tools, language: str, defaults_are_optional: bool
) -> list[dict[str, dict[str, list[Any]]]] | Rejection:
    """The BFCL ground truth that accepts exactly these calls.

    Args:
      calls: decoded calls, {name: {argument: value}}; values are source text in Java and JavaScript.
      tools: well-formed function descriptions.
      defaults_are_optional: treat an optional parameter at its default (`default_of`) like a missing one,
        as BFCL's own answers do.  (The official checker then takes an empty text or list for a missing one.)

    Returns:
      One {name: {argument: options}} per call, with one acceptable value per argument (and "" if it
      may be left out), or a BAD_ANSWER rejection: unknown function or parameter, missing required
      parameter, a value that neither has its declared type nor names a variable (the checker itself would let
      it pass as a variable), or one that JSON cannot hold.
    """
    by_name = {tool["name"]: tool for tool in tools}
    defaults: dict[str, dict[str, Any]] = {}
    truth = []
    for call in calls:
        name, arguments = next(iter(call.items()))
        if name not in by_name:
            return Rejection(BAD_ANSWER, f"unknown function {name!r}"[:200])
        parameters = by_name[name]["parameters"]
        if missing := [r for r in parameters["required"] if r not in arguments]:
            return Rejection(BAD_ANSWER, f"{name}: missing {', '.join(missing)}"[:200])
        options: dict[str, list[Any]] = {}
        for argument, value in arguments.items():
            schema = parameters["properties"].get(argument)
            if schema is None:
                return Rejection(BAD_ANSWER, f"{name}: unknown parameter {argument!r}"[:200])
            try:
                options[argument] = [_option(value, schema, language)]
            except _NO_OPTION as error:
                return Rejection(BAD_ANSWER, f"{name}.{argument}: {error}"[:200])
        if defaults_are_optional:
            if name not in defaults:
                defaults[name] = _defaults(by_name[name], language)
            _admit_defaults(options, defaults[name])
        truth.append({name: options})
    return truth


def _option(value: Any, schema: Mapping[str, Any], language: str) -> Any:
    """A value as a ground truth holds it; one of `_NO_OPTION` if it does not have its declared type."""
    option = _converted(value, schema, language)
    if not _has_type(option, schema, language):
        raise TypeError(f"not of type {schema['type']}")
    return option


def _converted(value: Any, schema: Mapping[str, Any], language: str) -> Any:
    types = ast_checker.TYPES[language]
    value = _plain(ast_checker.convert(value, schema, language))
    declared = types[schema["type"]]
    if declared is dict and isinstance(value, dict):
        return {key: [entry] for key, entry in value.items()}
    is_list = declared is list and isinstance(value, list) and "items" in schema
    if is_list and types.get(schema["items"]["type"]) is dict:
        return [{k: [v] for k, v in entry.items()} if isinstance(entry, dict) else entry for entry in value]
    return value


def _has_type(value: Any, schema: Mapping[str, Any], language: str) -> bool:
    """Whether a value, and each element of a list, has its declared type or names a variable."""
    types = ast_checker.TYPES[language]
    expected = types[schema["type"]]
    if type(value) is expected:
        if expected is not list or schema["type"] not in ast_checker.NESTED_TYPES[language]:
            return True
        nested = schema["items"]
        if nested["type"] in ast_checker.NESTED_TYPES[language]:
            return all(type(element) is list for element in value)  # as deep as the checker goes
        return all(_has_type(element, nested, language) for element in value)
    if expected is float and type(value) is int:
        return True
    return type(value) is str and bool(_VARIABLE.fullmatch(value))


def _plain(value: Any) -> Any:
    """`value` with tuples as lists; TypeError or ValueError for what JSON cannot hold."""
    if isinstance(value, list | tuple):
        return [_plain(element) for element in value]
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("a dict key is not a string")
        return {key: _plain(entry) for key, entry in value.items()}
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int | float):
        if abs(value) > 1e300 or value != value:
            raise ValueError("number out of range")
        return value
    raise TypeError(f"a {type(value).__name__} is not a JSON value")


def _defaults(tool: Mapping[str, Any], language: str) -> dict[str, Any]:
    """The defaults of a function's optional parameters that have their declared type."""
    parameters, found = tool["parameters"], {}
    for name, schema in parameters["properties"].items():
        with contextlib.suppress(*_NO_OPTION):
            default = None if name in parameters["required"] else default_of(schema)
            found |= {} if default is None else {name: _option(default, schema, language)}
    return found


def _admit_defaults(options: dict[str, list[Any]], defaults: Mapping[str, Any]) -> None:
    for name, default in defaults.items():
        if name not in options:
            options[name] = ["", default]
            continue
        (given,) = options[name]
        if default == given and isinstance(default, bool) == isinstance(given, bool):
            options[name].append("")


def default_of(schema: Mapping[str, Any]) -> Any:
    """A parameter's default: the schema's "default", or the one that its description states; None: neither.

    A stated default has the declared type.  Most functions of BFCL have only this one.
    """
    if "default" in schema:
        default = schema["default"]
        with contextlib.suppress(ValueError):  # too many digits to be written
            return None if default == "None" or len(str(default)) > _LONGEST else default
        return None
    found = _STATED_DEFAULT.search(str(schema.get("description"))[:_SEARCHED])
    if not found:
        return None
    quoted, number, bare = found.group("quoted", "number", "bare")
    match schema.get("type"):
        case "boolean" if bare and bare.lower() in ("true", "false"):
            return bare.lower() == "true"
        case "integer" if number and number.lstrip("+-").isdigit():
            return int(number)
        case "float" | "number" if number:
            return float(number)
        case "string":
            return quoted if quoted is not None else number or (bare if found["stated"] else None)
    return None


def reference_calls(ground_truth: ast_checker.Truth, tools: Tools) -> Iterator[tuple[str, dict[str, Any]]]:
    """One call for each entry of a ground truth, with the first option of each parameter.

    A required parameter takes its first option that is not "left out".  If a task has only one function and
    its answer names another, the function's name is used, as the official checker expects.
    """
    by_name = {tool["name"]: tool["parameters"] for tool in tools}
    for entry in ground_truth:
        name, options_of = next(iter(entry.items()))
        if name not in by_name and len(tools) == 1:
            name = tools[0]["name"]
        parameters = by_name[name]
        arguments = {}
        for argument, options in options_of.items():
            present = [option for option in options if option != ""]
            if argument not in parameters["required"] and (not options or options[0] == ""):
                continue
            schema = parameters["properties"].get(argument, {})
            arguments[argument] = _chosen(present[0] if present else "", schema)
        yield name, arguments


def values_to_state(calls: Sequence[tuple[str, Mapping[str, Any]]], tools: Tools) -> list[Any]:
    """The values of calls that a request must state, lists and mappings flattened.

    It need not state defaults (`default_of`), also nested ones, what the "enum" of something required lists,
    or a truth value that an "enum" has as text.
    """
    by_name = {tool["name"]: tool["parameters"] for tool in tools}
    return [leaf for name, arguments in calls for leaf in _to_state(arguments, by_name[name], True)]


def _to_state(value: Any, schema: Any, required: bool) -> Iterator[Any]:
    schema = schema if isinstance(schema, Mapping) else {}
    if value == default_of(schema):
        return
    if isinstance(value, Mapping):
        inner, names = schema.get("properties"), schema.get("required")
        inner = inner if isinstance(inner, Mapping) else {}
        names = names if isinstance(names, list | tuple) else value
        for key, entry in value.items():
            yield from _to_state(entry, inner.get(key), required and key in names)
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from _to_state(entry, schema.get("items"), required)
    else:
        listed = list(leaves(schema.get("enum", ())))
        if not (value in listed and (required or str(value) in ("True", "False", "true", "false"))):
            yield value


def _chosen(option: Any, schema: Mapping[str, Any]) -> Any:
    if isinstance(option, dict):
        return _chosen_dict(option)
    if isinstance(option, list) and schema.get("items", {}).get("type") == "dict":
        return [_chosen_dict(entry) if isinstance(entry, dict) else entry for entry in option]
    return option


def _chosen_dict(option: Mapping[str, Any]) -> dict[str, Any]:
    chosen = {}
    for key, options in option.items():
        present = [entry for entry in options if entry != ""] if isinstance(options, list) else [options]
        if present:
            chosen[key] = present[0]
    return chosen


def render_calls(ground_truth: ast_checker.Truth, tools: Tools, language: str = "python") -> str:
    """The reference calls of a ground truth, as an agent would write them: `[f(a=1), g(b='x')]`."""
    schemas = {tool["name"]: tool["parameters"]["properties"] for tool in tools}
    written = []
    for name, arguments in reference_calls(ground_truth, tools):
        parts = [f"{k}={_render(v, schemas[name].get(k, {}), language)}" for k, v in arguments.items()]
        written.append(f"{name}({', '.join(parts)})")
    return f"[{', '.join(written)}]"


def _render(value: Any, schema: Mapping[str, Any], language: str) -> str:
    if language == "python":
        return repr(value)
    declared = schema.get("type", "any")
    if isinstance(value, str):
        return _quoted(value)
    if language == "javascript":
        return _javascript(value) + ("n" if declared == "Bigint" else "")
    if isinstance(value, list):
        nested = schema.get("items", {}).get("type", "any")
        elements = ", ".join(_java(element, nested, declared) for element in value)
        if declared == "ArrayList":
            inside = f"Arrays.asList({elements})" if value else ""
            return f"new ArrayList<>({inside})"
        literal = f"new {'Object' if nested == 'any' else nested}[]{{{elements}}}"
        return _quoted(literal) if any(isinstance(e, str) for e in value) else literal
    if isinstance(value, dict):
        puts = " ".join(f'put("{key}", {_java(v, "any", "HashMap")});' for key, v in value.items())
        # Quoted, because the official decoder drops the block of an unquoted `new`.
        return _quoted(f"new HashMap<String, Object>() {{{{ {puts} }}}}")
    return _java(value, declared, "")


def _quoted(text: str) -> str:
    if '"' not in text:
        return f'"{text}"'
    return f"'{text}'" if "'" not in text else text


def _javascript(value: Any) -> str:
    match value:
        case str():
            return _quoted(value)
        case list():
            return f"[{', '.join(_javascript(element) for element in value)}]"
        case dict():
            parts = (f'"{key}": {_javascript(entry)}' for key, entry in value.items())
            return f"{{{', '.join(parts)}}}"
    return json.dumps(value)


def _java(value: Any, declared: str, container: str) -> str:
    if isinstance(value, str):
        # The official converter keeps the quotes of array elements as part of the text.
        return value if container == "Array" else f'"{value}"'
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    suffixes = {"long": "L", "float": "f"} if isinstance(value, int | float) else {}
    return f"{value}{suffixes.get(declared, '')}"
