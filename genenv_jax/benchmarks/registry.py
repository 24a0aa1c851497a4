"""Benchmarks by name."""

import difflib
import importlib
import inspect
from collections.abc import Callable
from typing import Any

from genenv_jax.benchmarks import imported
from genenv_jax.benchmarks.base import Benchmark
from genenv_jax.benchmarks.places import place

# Imported only on use: a benchmark may need packages that others do not.
_BENCHMARKS = {
    "alfworld": ("genenv_jax.benchmarks.alfworld.benchmark", "ALFWorld"),
    "api_bank": ("genenv_jax.benchmarks.api_bank.benchmark", "APIBank"),
    "bamboogle": ("genenv_jax.benchmarks.bamboogle.benchmark", "Bamboogle"),
    "bfcl": ("genenv_jax.benchmarks.bfcl.benchmark", "BFCL"),
    "custom": ("genenv_jax.benchmarks.custom.files", "CustomFiles"),
    "dial": ("genenv_jax.benchmarks.dial.chains", "Dial"),
    "dial_turns": ("genenv_jax.benchmarks.dial.turns", "DialTurns"),
    "gymnasium": ("genenv_jax.benchmarks.custom.environment", "TextEnvironment"),
    "travelplanner": ("genenv_jax.benchmarks.travelplanner.benchmark", "TravelPlanner"),
}


def make_benchmark(name: str, **options: Any) -> Benchmark:
    """Constructs the benchmark `name`, one of this package or the user's own "module:Class".

    Raises ValueError: a name or option is unknown, a required one is missing, or the constructor raised it.
    """
    check_options(name, **options)
    try:
        benchmark = _constructor(name)(**options)
    except ValueError as error:
        # The constructor's message begins with its option; prefix the option's full name for the user.
        if str(error).partition(" = ")[0] in default_options(name):
            raise ValueError(f"config.benchmark.{error}") from error
        raise
    except Exception as error:
        if ":" not in name or isinstance(error, OSError):
            raise
        raise ValueError(f"{name} cannot be made: {type(error).__name__}: {error}{place(error)}") from error
    if not benchmark.name:
        raise ValueError(f"{name} lacks an attribute name: expected a text")
    return benchmark


def check_options(name: str, **options: Any) -> None:
    """Raises ValueError if the benchmark or an option is unknown, or a required option is missing."""
    known = default_options(name)
    for option, default in known.items():
        if default is inspect.Parameter.empty and option not in options:
            raise ValueError(f"config.benchmark.{option} is missing: {name} has no default for it")
    for option in options:
        if option not in known:
            close = difflib.get_close_matches(option, known, 1)
            hint = f"did you mean {close[0]}?" if close else f"expected one of {sorted(known)}"
            raise ValueError(f"config.benchmark.{option} is not an option of {name}; {hint}")


def default_options(name: str) -> dict[str, Any]:
    """The options of the benchmark `name` with their defaults.  Raises ValueError for an unknown name."""
    parameters = inspect.signature(_constructor(name)).parameters
    return {option: parameter.default for option, parameter in parameters.items()}


def _constructor(name: str) -> Callable[..., Benchmark]:
    if ":" in name:
        return imported.find(name)
    if name not in _BENCHMARKS:
        expected = f"expected one of {sorted(_BENCHMARKS)}, or module:Class"
        raise ValueError(f"config.benchmark.name = {name!r}: {expected}")
    module, cls = _BENCHMARKS[name]
    return getattr(importlib.import_module(module), cls)
