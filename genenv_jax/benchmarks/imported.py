"""Imports a benchmark class by a name like "my_module:MyBenchmark"."""

from __future__ import annotations

import difflib
import importlib
import inspect
import os
import sys

from genenv_jax.benchmarks.base import Benchmark
from genenv_jax.benchmarks.places import place


def find(name: str) -> type:
    """The class with this name; the working directory is also searched for its module.

    Raises:
      ValueError: the module is not found, cannot be imported or has no such class, or the class is not
        a benchmark.
    """
    module_name, _, class_name = name.partition(":")
    where = f"config.benchmark.name = {name!r}"
    if not class_name.isidentifier() or not all(map(str.isidentifier, module_name.split("."))):
        raise ValueError(f"{where}: expected module:Class")
    here = os.getcwd()
    if not {here, ""} & set(sys.path):
        sys.path.append(here)
    importlib.invalidate_caches()
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{module_name}.".startswith(f"{missing}."):
            message = f"there is no module {missing!r}; expected it in {here} or on PYTHONPATH"
            raise ValueError(f"{where}: {message}") from None
        detail = f"{type(error).__name__}: {error}{place(error)}"
        raise ValueError(f"{where}: the module cannot be imported: {detail}") from error
    found = getattr(module, class_name, None)
    if not inspect.isclass(found):
        own = [value for value in vars(module).values() if inspect.isclass(value)]
        classes = [value.__name__ for value in own if value.__module__ == module_name]
        close = difflib.get_close_matches(class_name, classes, 1)
        hint = f"did you mean {close[0]}?" if close else f"expected it in {module.__file__}"
        raise ValueError(f"{where}: {module_name} has no class {class_name}; {hint}")
    if not issubclass(found, Benchmark):
        raise ValueError(
            f"{where}: {class_name} is no benchmark; expected a subclass of "
            "genenv_jax.benchmarks.base.Benchmark"
        )
    if missing := sorted(found.__abstractmethods__):
        raise ValueError(f"{where}: {class_name} lacks {', '.join(missing)}")
    annotations = inspect.get_annotations(found)
    own = [key for key, kind in annotations.items() if "ClassVar" not in str(kind)]
    if own and "__dataclass_fields__" not in vars(found):
        raise ValueError(
            f"{where}: {class_name} has the options {', '.join(own)} and is no dataclass: expected "
            "@dataclasses.dataclass(kw_only=True, eq=False) above it"
        )
    return found
