"""Predictions made from API-Bank's gold calls, for comparing scorers: one change each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from genenv_jax.benchmarks.api_bank.calls import write_call
from genenv_jax.benchmarks.api_bank.tasks import CALL, TOOL_SEARCHER
from genenv_jax.benchmarks.base import Task

Mutation = tuple[str, str, str, str, Mapping[str, str] | None]


def is_compared(task: Task) -> bool:
    """Whether the official verdict needs no sentence-embedding model."""
    return task.answer["kind"] == CALL and task.answer["name"] != TOOL_SEARCHER


def mutations(task: Task) -> Iterator[Mutation]:
    """(kind, parameter or "", text, API, arguments) for each change of the gold call.

    Arguments are None where the text holds no call.
    """
    name, gold = task.answer["name"], dict(task.answer["parameters"])

    def call(kind: str, parameter: str, arguments: Mapping[str, str], api: str = name) -> Mutation:
        return kind, parameter, f"API-Request: {write_call(api, arguments)}", api, arguments

    printed = write_call(name, gold)
    yield call("gold", "", gold)
    yield "prose", "", f"Sure, here it is.\nAPI-Request: {printed} That is all.", name, gold
    yield "bare", "", printed, name, gold
    quoted = ", ".join(f'{key}="{value}"' for key, value in gold.items())
    yield "double_quotes", "", f"[{name}({quoted})]", name, gold
    spaced = " , ".join(f"{key} = '{value}'" for key, value in gold.items())
    yield "spaces_between", "", f"[{name}({spaced})]", name, gold
    yield call("order", "", dict(reversed(gold.items())))
    yield call("other_api", "", gold, "GetToday" if name != "GetToday" else "Calculator")
    yield call("unknown_api", "", gold, name + "s")
    yield call("lower_case_api", "", gold, name.lower())
    yield call("unknown_parameter", "", {**gold, "priority": "high"})
    yield "no_brackets", "", printed[1:-1], name, None
    yield "empty", "", "", name, None
    yield "refusal", "", "I am sorry, I cannot do that.", name, None
    for parameter, value in gold.items():
        yield call("missing", parameter, {k: v for k, v in gold.items() if k != parameter})
        changes = {
            "upper_case": value.upper(),
            "lower_case": value.lower(),
            "outer_spaces": f" {value} ",
            "longer": value + "x",
            "shorter": value[:-1],
            "one_word_more": value + " now",
            "first_word_only": value.split(" ")[0],
            "last_word_replaced": " ".join([*value.split(" ")[:-1], "something"]),
            "no_leading_zeros": value.replace("-0", "-"),
            "decimal": value + ".0",
            "other": "something else",
        }
        for kind, changed in changes.items():
            if changed != value and changed:
                yield call(kind, parameter, {**gold, parameter: changed})
    if len(gold) > 1:
        keys = list(gold)
        rotated = dict(zip(keys, [*list(gold.values())[1:], gold[keys[0]]], strict=True))
        yield call("values_rotated", "", rotated)
