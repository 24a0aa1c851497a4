"""Imports what the user has written, by a name like "my_module:MyBenchmark"."""

import difflib
import importlib
import inspect
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from genenv_jax.benchmarks.base import Benchmark
from genenv_jax.benchmarks.places import place
from genenv_jax.system import signals


def find(name: str) -> type:
    """The class with this name; the working directory is also searched for its module.

    Raises:
      ValueError: the module is not found, cannot be imported or has no such class, or the class is not
        a benchmark.
    """
    where = f"config.benchmark.name = {name!r}"
    module, class_name = _import(where, name, "module:Class")
    found = getattr(module, class_name, None)
    if not inspect.isclass(found):
        raise ValueError(f"{where}: {_no(module, 'class', class_name, inspect.isclass)}")
    if not issubclass(found, Benchmark):
        raise ValueError(
            f"{where}: {class_name} is not a benchmark; expected a subclass of "
            "genenv_jax.benchmarks.base.Benchmark"
        )
    if missing := sorted(found.__abstractmethods__):
        raise ValueError(f"{where}: {class_name} lacks {', '.join(missing)}")
    annotations = inspect.get_annotations(found)
    own = [key for key, kind in annotations.items() if "ClassVar" not in str(kind)]
    if own and "__dataclass_fields__" not in vars(found):
        raise ValueError(
            f"{where}: {class_name} has the options {', '.join(own)} but is not a dataclass: expected "
            "@dataclasses.dataclass(kw_only=True, eq=False) above it"
        )
    return found


def find_callable(option: str, name: Any, what: str) -> Callable[..., Any]:
    """The function or class "module:name" that an option of a benchmark names; `what` it should be.

    Raises ValueError as `find`; the message begins with the option and its value.
    """
    where = f"{option} = {name!r}"
    module, attribute = _import(where, name, f"module:name of {what}")
    found = getattr(module, attribute, None)
    if not callable(found):
        raise ValueError(f"{where}: {_no(module, 'function', attribute, callable)}")
    return found


def _import(where: str, name: Any, form: str) -> tuple[ModuleType, str]:
    """The module in a name, imported, and the attribute.  where, form: for messages."""
    module_name, _, attribute = name.partition(":") if isinstance(name, str) else ("", "", "")
    if not attribute.isidentifier() or not all(map(str.isidentifier, module_name.split("."))):
        raise ValueError(f"{where}: expected {form}")
    here = os.getcwd()
    if not {here, ""} & set(sys.path):
        sys.path.append(here)
    importlib.invalidate_caches()
    try:
        return importlib.import_module(module_name), attribute
    except signals.Ended:
        raise
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{module_name}.".startswith(f"{missing}."):
            message = f"there is no module {missing!r}; expected it in {here} or on PYTHONPATH"
            raise ValueError(f"{where}: {message}") from None
        detail = f"{type(error).__name__}: {error}{place(error)}"
        raise ValueError(f"{where}: the module cannot be imported: {detail}") from error


def _no(module: ModuleType, kind: str, name: str, is_one: Callable[[Any], bool]) -> str:
    """Says that a module has no such class or function, and which one may be meant."""
    own = {
        key: value
        for key, value in vars(module).items()
        if is_one(value) and getattr(value, "__module__", "") == module.__name__
    }
    close = difflib.get_close_matches(name, own, 1)
    hint = f"did you mean {close[0]}?" if close else f"expected it in {module.__file__}"
    return f"{module.__name__} has no {kind} {name}; {hint}"
