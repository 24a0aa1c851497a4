"""Runs BFCL's stateful classes (a file system, a ticket desk, ...) without `eval`.

The classes are the official ones, from the package `bfcl-eval`.  Its dependencies pin versions that conflict
with JAX, and its classes need only `mpmath`, so it is installed without them (`INSTALL`).  Only the modules
of the classes are imported.

The official code (`eval_checker/multi_turn_eval/multi_turn_utils.py`) turns each decoded call back into text,
prefixes every method name with the name of its object and passes the text to `eval`.  Here a call is looked
up among the public methods of the task's objects and called.  The results are the same, except:
  * Python's built-in functions and the official module's own variables are unknown functions here; the
    official code executes `dict(result=5)` or `open(...)`;
  * text inside a string that looks like a method call stays unchanged; the official code prefixes it too;
  * `_check_size` rejects numbers that would take minutes, and arguments that double at every call.
"""

import ast
import contextlib
import copy
import dataclasses
import decimal
import importlib
import importlib.metadata
import importlib.util
import inspect
import json
import keyword
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks.base import TOO_LONG, UNPARSABLE, Rejection
from genenv_jax.benchmarks.calls import MAX_CALLS, Calls
from genenv_jax.benchmarks.safe_parse import MAX_CHARS, Order, parse_calls
from genenv_jax.benchmarks.tools import python_call

INSTALL = "pip install -e '.[bfcl]' && pip install --no-deps bfcl-eval==2026.3.23"

_PACKAGE = "bfcl_eval.eval_checker.multi_turn_eval.func_source_code"
CLASSES = {  # class -> module
    "GorillaFileSystem": "gorilla_file_system", "MathAPI": "math_api", "MessageAPI": "message_api",
    "TwitterAPI": "posting_api", "TicketAPI": "ticket_api", "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking", "VehicleControlAPI": "vehicle_control",
}  # fmt: skip
_STATELESS = "MathAPI"
# Names that the official executor rejects before evaluating a call.
_FORBIDDEN = ("kill", "exit", "quit", "remove", "unlink", "popen", "Popen", "run")
_PRECISIONS = {  # of a function's result
    "logarithm": "precision", "square_root": "precision", "round_number": "decimal_places"
}  # fmt: skip
_MAX_RESULT_BITS = 14_300  # slightly more than the 4,300 digits that Python prints
_MAX_PRECISION = 500  # digits; no reference uses more than 10
_MAX_NODES = 10_000  # files and directories that `du` and `find` may visit
_MAX_WEIGHT = 50_000  # characters of one call's arguments, including results inside them
_ERROR = "Error during execution: "

# The official classes share module-level dictionaries, and mpmath's precision is global.
_ONE_AT_A_TIME = threading.Lock()


def is_installed() -> bool:
    """Whether the classes can be executed here."""
    return all(importlib.util.find_spec(name) is not None for name in ("bfcl_eval", "mpmath"))


def require() -> None:
    """Raises ValueError with the remedy if the classes cannot be executed."""
    if not is_installed():
        raise ValueError(
            "benchmark.multi_turn_rule: 'conversation' and 'turn_state' execute calls with the package "
            f"bfcl-eval, which is not installed; run `{INSTALL}` or choose 'turn_static'"
        )


def package_version() -> str:
    """Version of the package that provides the classes; "" if it is not installed."""
    try:
        return importlib.metadata.version("bfcl-eval")
    except importlib.metadata.PackageNotFoundError:
        return ""


@dataclasses.dataclass(frozen=True)
class Call:
    """One decoded call: a name and arguments, with nested calls as `Call`, dictionaries as `_Entries`."""

    name: str
    arguments: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class _Entries:
    """A dictionary whose values may hold calls; None if a key cannot be written."""

    values: Mapping[str, Any] | None


def decode(
    text: str, max_calls: int = MAX_CALLS, parameter_order: Order | None = None
) -> list[Call] | Rejection:
    """Reads an agent's answer like `default_decode_execute_prompting` and the official executor.

    As in the official code, a dictionary whose values are all dictionaries is read as a nested call, and an
    empty dictionary makes the answer undecodable.  The longest reference answer has 34 calls.
    `parameter_order`: see `safe_parse.parse_calls`.
    """
    calls = parse_calls(text, parameter_order=parameter_order)
    if isinstance(calls, Rejection):
        return calls
    if len(calls) > max_calls:
        return Rejection(TOO_LONG, f"{len(calls)} calls, limit {max_calls}")
    try:
        return [Call(call.name, {k: _plan(v) for k, v in call.arguments.items()}) for call in as_calls(calls)]
    except ValueError as error:
        return Rejection(UNPARSABLE, str(error))


def as_calls(parsed: Calls) -> list[Call]:
    """Converts the output of `safe_parse.parse_calls` to `Call`s."""
    return [Call(name, arguments) for call in parsed for name, arguments in call.items()]


def reference(calls: Sequence[str], order: Order) -> list[Call]:
    """Reference calls, positional arguments bound by `order`; ValueError if they do not parse."""
    parsed = parse_calls(f"[{', '.join(calls)}]", 1 << 20, parameter_order=order)
    if isinstance(parsed, Rejection):
        raise ValueError(f"reference calls do not parse: {parsed.detail}")
    return as_calls(parsed)


def written(calls: Sequence[Call]) -> str:
    """Reference calls as an agent writes them, with named arguments."""
    return f"[{', '.join(python_call(call.name, call.arguments) for call in calls)}]"


def _plan(value: Any) -> Any:
    """An argument as the official executor reads it back from its text."""
    if not isinstance(value, dict):
        return value
    if all(isinstance(entry, dict) for entry in value.values()):
        if not value:
            raise ValueError("an empty dictionary as an argument")
        name, arguments = next(iter(value.items()))
        return Call(str(name), {str(key): _plan(entry) for key, entry in arguments.items()})
    entries: dict[str, Any] | None = {}
    for key, entry in value.items():
        planned = _plan(entry)
        try:
            written = ast.literal_eval(f"'{key}'")  # officially, keys are quoted without escaping
        except (SyntaxError, ValueError, MemoryError):
            written = None
        if not isinstance(written, str) or entries is None:
            entries = None
        else:
            entries[written] = planned
    return _Entries(entries)


Scenario = Mapping[str, Any]  # made by `scenario`


def scenario(classes: Sequence[str], config: Mapping[str, Any], long_context: bool = False) -> dict[str, Any]:
    """The starting point of a conversation's objects, as JSON: names of classes, and their initial states.

    `long_context`: whether the objects pad their results.
    """
    return {"classes": list(classes), "config": dict(config), "long_context": long_context}


class _Consulted(dict):
    """A dictionary that records which keys are looked up."""

    def __init__(self, values: Mapping[str, Any]):
        super().__init__(values)
        self.keys_read: set[str] = set()

    def __getitem__(self, key):
        self.keys_read.add(key)
        return super().__getitem__(key)

    def get(self, key, default=None):
        self.keys_read.add(key)
        return super().get(key, default)


def keys_read(name: str, config: Mapping[str, Any]) -> set[str]:
    """The keys that a class looks up in its state, including absent ones; ValueError if it does not load."""
    if name == _STATELESS:
        return set()
    noted = _Consulted(copy.deepcopy(dict(config)))
    _load(_new(name), name, noted, long_context=False)
    return noted.keys_read


def _new(name: str) -> Any:
    if name not in CLASSES:
        raise ValueError(f"class {name!r}: expected one of {', '.join(CLASSES)}")
    return getattr(importlib.import_module(f"{_PACKAGE}.{CLASSES[name]}"), name)()


def _load(made: Any, name: str, state: dict[str, Any], long_context: bool) -> None:
    try:
        made._load_scenario(state, long_context=long_context)
    except Exception as error:
        raise ValueError(f"the initial state of {name} does not load: {error}") from error


class Backends:
    """A set of stateful objects that calls are executed on; `scenario` has their classes and initial states.

    Raises ValueError: a class is unknown or a state cannot be loaded.
    """

    def __init__(self, scenario: Scenario):
        self.objects: dict[str, Any] = {}
        self._methods: dict[str, Any] = {}
        for name in scenario["classes"]:
            made = _new(name)
            if name != _STATELESS:
                state = copy.deepcopy(dict(scenario["config"].get(name, {})))
                _load(made, name, state, scenario["long_context"])
            self.objects[name] = made
            for method, function in inspect.getmembers(made, predicate=inspect.ismethod):
                if not method.startswith("_"):  # later classes override earlier ones, as officially
                    self._methods[method] = function

    def parameter_order(self) -> dict[str, tuple[str, ...]]:
        """The order of each method's parameters, used to bind reference calls."""
        signatures = {name: inspect.signature(of) for name, of in self._methods.items()}
        return {name: tuple(of.parameters) for name, of in signatures.items()}

    def run_reference(self, calls: Sequence[str]) -> list[str]:
        """Executes reference calls given as text; returns one result per call."""
        return [self.run(call) for call in reference(calls, self.parameter_order())]

    def run(self, call: Call) -> str:
        """Executes one call and returns its result as text, in the official executor's format."""
        try:
            with _ONE_AT_A_TIME, decimal.localcontext():
                return _text(self._call(call))
        except Exception as error:  # any error of a class is a result, as officially
            try:
                return f"{_ERROR}{error}"
            except Exception:  # the error itself cannot be converted to text
                return f"{_ERROR}{type(error).__name__}"

    def _call(self, call: Call) -> Any:
        if any(keyword.iskeyword(key) or not key.isidentifier() for key in call.arguments):
            raise SyntaxError("invalid syntax")
        if call.name not in self._methods:
            parts = call.name.split(".")
            if (parts[1] if len(parts) > 1 else parts[0]) in _FORBIDDEN:
                raise ValueError(f"Function call {parts[-1]} is not allowed.")
            raise NameError(f"name '{parts[0]}' is not defined")
        arguments = {key: self._argument(value) for key, value in call.arguments.items()}
        self._check_size(call.name, arguments)
        return self._methods[call.name](**arguments)

    def _argument(self, value: Any) -> Any:
        match value:
            case Call():
                return self._call(value)
            case _Entries(values=None):
                raise SyntaxError("invalid syntax")
            case _Entries(values=values):
                return {key: self._argument(entry) for key, entry in values.items()}
        if _is_infinite(value):
            raise NameError("name 'inf' is not defined")  # infinity prints as `inf`
        return value

    def _check_size(self, name: str, arguments: Mapping[str, Any]) -> None:
        """Rejects calls that would run for minutes: ValueError, like Python for very long integers."""
        if not _is_light(arguments):
            raise ValueError(f"arguments of more than {_MAX_WEIGHT} characters")
        owner = self._methods[name].__self__
        kind = type(owner).__name__
        if kind == "MathAPI":
            _check_numbers(name, arguments)
        elif kind == "GorillaFileSystem" and name in ("du", "find"):
            # Copied directories share their contents, so a few calls can build an endless tree.
            waiting, seen = [owner.root], 0
            while waiting:
                entry = waiting.pop()
                seen += 1
                if seen > _MAX_NODES:
                    raise RecursionError("maximum recursion depth exceeded")
                waiting.extend(getattr(entry, "contents", {}).values())


def _is_light(value: Any) -> bool:
    """Whether a value is small as text: results inside arguments can double at every call."""
    waiting, weight = [value], 0
    while waiting and weight <= _MAX_WEIGHT:
        entry = waiting.pop()
        weight += len(entry) if isinstance(entry, str) else 1
        if isinstance(entry, dict):
            waiting.extend(entry.values())
        elif isinstance(entry, list | tuple):
            waiting.extend(entry)
    return weight <= _MAX_WEIGHT


def _check_numbers(name: str, arguments: Mapping[str, Any]) -> None:
    values = list(arguments.values())
    if name == "power":
        base, exponent = arguments.get("base"), arguments.get("exponent")
        whole = isinstance(base, int) and isinstance(exponent, int)
        if whole and exponent * max(abs(base).bit_length() - 1, 0) > _MAX_RESULT_BITS:
            raise ValueError("Exceeds the limit (4300 digits) for integer string conversion")
    precision = arguments.get(_PRECISIONS.get(name), 0)
    if isinstance(precision, int | float) and abs(precision) > _MAX_PRECISION:
        raise ValueError(f"a precision of more than {_MAX_PRECISION} digits")
    if any(isinstance(value, str | list | tuple) and len(value) > MAX_CHARS for value in values):
        raise ValueError(f"a value of more than {MAX_CHARS} elements")


def _is_infinite(value: Any) -> bool:
    match value:
        case float():
            return value in (float("inf"), float("-inf"))
        case list() | tuple():
            return any(map(_is_infinite, value))
        case dict():
            return any(map(_is_infinite, (*value, *value.values())))
    return False


def _text(result: Any) -> str:
    if type(result) is dict:
        with contextlib.suppress(Exception):  # not a JSON value, or one that contains itself
            return json.dumps(result)
    return str(result)


def is_error(result: str) -> bool:
    """Whether a result reports a failed call: an exception, or a dictionary with an "error"."""
    return result.startswith((_ERROR, '{"error":'))


def same_state(one: Backends, other: Backends) -> bool:
    """Whether all public attributes of all objects are equal (official state rule)."""
    with _ONE_AT_A_TIME:
        for name, reference_object in other.objects.items():
            found = vars(one.objects[name])
            for attribute, value in vars(reference_object).items():
                if attribute.startswith("_"):
                    continue
                try:
                    if attribute not in found or found[attribute] != value:
                        return False
                except RecursionError:  # directories that contain themselves; officially an error
                    return False
    return True
