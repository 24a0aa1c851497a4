"""Benchmarks by name."""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from genenv_jax.benchmarks import imported
from genenv_jax.benchmarks.base import Benchmark, Message, SeedStatistics
from genenv_jax.benchmarks.demonstrations import Completion, reference

# Imported when asked for: a benchmark may need packages that others do not.
_BENCHMARKS = {
    "alfworld": ("genenv_jax.benchmarks.alfworld.benchmark", "ALFWorld"),
    "api_bank": ("genenv_jax.benchmarks.api_bank.benchmark", "APIBank"),
    "bamboogle": ("genenv_jax.benchmarks.bamboogle.benchmark", "Bamboogle"),
    "bfcl": ("genenv_jax.benchmarks.bfcl.benchmark", "BFCL"),
    "custom": ("genenv_jax.benchmarks.custom.dataset", "CustomFiles"),
    "dial": ("genenv_jax.benchmarks.dial", "Dial"),
    "dial_turns": ("genenv_jax.benchmarks.dial_turns", "DialTurns"),
    "travelplanner": ("genenv_jax.benchmarks.travelplanner.benchmark", "TravelPlanner"),
}


def make_benchmark(name: str, **options: Any) -> Benchmark:
    """The benchmark `name`, constructed with `options`.

    Args:
      name: of one of the package, or "module:Class" of one's own.
    Raises:
      ValueError: an unknown name or option, or one that is missing; and what the constructor raises.
    """
    check_options(name, **options)
    try:
        benchmark = _constructor(name)(**options)
    except ValueError as error:
        # A constructor knows its option, and this is what the option is called from outside.
        if str(error).partition(" = ")[0] in default_options(name):
            raise ValueError(f"config.benchmark.{error}") from error
        raise
    except Exception as error:
        if ":" not in name or isinstance(error, OSError):
            raise
        raise ValueError(
            f"{name} cannot be made: {type(error).__name__}: {error}{imported.place(error)}"
        ) from error
    if not isinstance(getattr(benchmark, "name", None), str):
        raise ValueError(f"{name} lacks an attribute name: expected a text")
    return benchmark


def check_options(name: str, **options: Any) -> None:
    """Raises ValueError for an unknown name or option of a benchmark, or one that it cannot be without."""
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
        raise ValueError(
            f"config.benchmark.name = {name!r}: expected one of {sorted(_BENCHMARKS)}, or module:Class"
        )
    module, cls = _BENCHMARKS[name]
    return getattr(importlib.import_module(module), cls)


def demonstrations(
    benchmark: Benchmark, rng: np.random.Generator
) -> Iterator[tuple[list[Message], Completion]]:
    """Endless (messages, completion) pairs of both roles for supervised training.

    The embedded defaults have demonstrators of their own.  Elsewhere the agent's pairs are the seed tasks
    with their reference answers, and the simulator's pair a seed with another seed of its category.
    """
    # By its class as well: one of a user's may have that name.
    name = benchmark.name
    if name in ("dial", "dial_turns") and isinstance(benchmark, _constructor(name)):
        from genenv_jax.benchmarks.dial_demonstrations import Demonstrator, TurnsDemonstrator

        own = {"dial": Demonstrator, "dial_turns": TurnsDemonstrator}[name]
        yield from own(benchmark).pairs(rng)
    seeds = list(benchmark.tasks("seed"))
    by_category: dict[str, list[int]] = {}
    for index, task in enumerate(seeds):
        by_category.setdefault(task.category, []).append(index)

    # A few seeds are drawn over and over, and writing one out may mean to execute its calls.
    @functools.cache
    def of_agent(seed: int) -> tuple[list[Message], Completion]:
        return reference(benchmark, seeds[seed])

    @functools.cache
    def asked(seed: int) -> list[Message]:
        return benchmark.simulator_messages(seeds[seed], SeedStatistics())

    @functools.cache
    def written(seed: int) -> str:
        return benchmark.simulator_answer(seeds[seed])

    for _ in itertools.count():
        seed = int(rng.integers(len(seeds)))
        yield of_agent(seed)
        others = by_category[seeds[seed].category]
        yield asked(seed), written(others[rng.integers(len(others))])
