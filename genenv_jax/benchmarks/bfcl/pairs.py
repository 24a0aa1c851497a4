"""Seeds in pairs that share their functions, so that a simulator can vary a task without new functions."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from genenv_jax.benchmarks.base import Task
from genenv_jax.benchmarks.bfcl.categories import kind_and_category, varies
from genenv_jax.benchmarks.subsets import stable_position

PAIRED = "paired"  # in `Task.answer`: names the pair; what the simulator writes keeps the seed's functions
_MOST_FUNCTIONS = 3  # of a pair


def paired(seeds: Sequence[Task]) -> list[Task]:
    """Each seed with its own functions and those of one other, its partner, in an order by hash.

    Partners have no function's name in common and at most three functions together.  Seeds without a partner
    are left out, and so are those for which `varies` does not hold.  Category and rule are those of the
    seed's number of calls with these functions (`kind_and_category`).
    """
    free = sorted(
        filter(lambda seed: varies(seed.answer), seeds), key=lambda s: stable_position(f"pair:{s.id}")
    )
    found = []
    while free:
        one = free.pop(0)
        other = next((seed for seed in free if _fit(one, seed)), None)
        if other is None:
            continue
        free.remove(other)
        found += [_with_functions(seed, (*one.tools, *other.tools), one.id) for seed in (one, other)]
    return found


def _fit(one: Task, other: Task) -> bool:
    names = {tool["name"] for task in (one, other) for tool in task.tools}
    return len(names) == len(one.tools) + len(other.tools) <= _MOST_FUNCTIONS


def _with_functions(seed: Task, tools: tuple, pair: str) -> Task:
    calls = len(seed.answer["ground_truth"])
    kind, category = kind_and_category(seed.category, calls, len(tools))
    answer = {**seed.answer, "kind": kind, PAIRED: pair}
    return dataclasses.replace(seed, tools=tools, category=category, answer=answer)
