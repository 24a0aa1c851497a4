"""Seeds in pairs that share their functions, so that a simulator can vary a task without new functions."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from genenv_jax.benchmarks.base import Task
from genenv_jax.benchmarks.bfcl.categories import kind_and_category, varies
from genenv_jax.benchmarks.subsets import stable_position

PAIRED = "paired"  # in `Task.answer`: names the pair; what the simulator writes keeps the seed's functions
_MOST_FUNCTIONS = 3  # of a pair
_ENDS = tuple(".?!:…。？！")  # of a sentence
_CLOSING = "\"'`)]}*”’»」）"  # what may follow the end


def paired(seeds: Sequence[Task]) -> list[Task]:
    """Each seed with its own functions and those of one other, its partner, in an order by hash.

    Partners have no function's name in common and at most three functions together.  Left out are seeds
    without a partner, those whose number of calls is fixed (`varies`), and those whose answer calls a
    function that they do not have, which the official checker forgives if they have only one.
    """
    free = [seed for seed in seeds if varies(seed.answer) and _called(seed) <= _names(seed)]
    free.sort(key=lambda seed: stable_position(f"pair:{seed.id}"))
    found = []
    while free:
        one = free.pop(0)
        other = next((seed for seed in free if _fit(one, seed)), None)
        if other is None:
            continue
        free.remove(other)
        found += [_with_functions(seed, (*one.tools, *other.tools), one.id) for seed in (one, other)]
    return found


def joined(one: Task, other: Task) -> Task | None:
    """A task with the requests and the calls of two partners, one after the other.

    None for seeds of different pairs, or if one has messages before its request that the other lacks.
    """
    if one.answer.get(PAIRED) != other.answer.get(PAIRED) or one.messages[:-1] != other.messages[:-1]:
        return None
    asked = [task.messages[-1]["content"].rstrip() for task in (one, other)]
    first = asked[0] if asked[0].rstrip(_CLOSING).endswith(_ENDS) else f"{asked[0]}."
    messages = (*one.messages[:-1], {"role": "user", "content": f"{first} {asked[1]}"})
    calls = one.answer["ground_truth"] + other.answer["ground_truth"]
    return _with_calls(dataclasses.replace(one, messages=messages), calls)


def _names(seed: Task) -> set[str]:
    return {tool["name"] for tool in seed.tools}


def _called(seed: Task) -> set[str]:
    return {name for call in seed.answer["ground_truth"] for name in call}


def _fit(one: Task, other: Task) -> bool:
    count = len(one.tools) + len(other.tools)
    return len(_names(one) | _names(other)) == count <= _MOST_FUNCTIONS


def _with_functions(seed: Task, tools: tuple, pair: str) -> Task:
    shown = dataclasses.replace(seed, tools=tools, answer={**seed.answer, PAIRED: pair})
    return _with_calls(shown, seed.answer["ground_truth"])


def _with_calls(task: Task, calls: Sequence[Any]) -> Task:
    kind, category = kind_and_category(task.category, len(calls), len(task.tools))
    answer = {**task.answer, "kind": kind, "ground_truth": calls}
    return dataclasses.replace(task, category=category, answer=answer)
