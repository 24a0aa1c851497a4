"""Answers that are wrong, nearly right or hostile: one module per benchmark, and what all share (`common`).

The red team bounds what they earn, the fuzzer starts from them, and `bench.agreement` compares verdicts on
them.  `bad_answers` makes some for any task; the modules have the kinds one by one.
"""

import importlib
import random
from collections.abc import Iterator

from bench.bad_answers import common
from genenv_jax.benchmarks.base import Benchmark, Task

_MODULES = ("alfworld", "api_bank", "bamboogle", "bfcl", "travelplanner")


def bad_answers(benchmark: Benchmark, task: Task, rng: random.Random) -> Iterator[tuple[str, str]]:
    """(kind, text): answers to a task that are at most partly right, and the right one written differently.

    Args:
      benchmark: the task's.
      task: of either split.
      rng: decides whatever a kind leaves open.
    """
    for kind, make in common.ANSWERS.items():
        yield kind, make(benchmark, task)
    for kind, change in common.WRAPPINGS.items():
        yield kind, change(benchmark.agent_answer(task))
    if benchmark.name in _MODULES:
        module = importlib.import_module(f"bench.bad_answers.{benchmark.name}")
        yield from module.of_task(benchmark, task, rng)
