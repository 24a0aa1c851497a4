"""BFCL's whole conversations: the multi-turn checker on the official classes."""

from __future__ import annotations

import copy
import json
import pathlib
import random
from collections.abc import Iterator

from bench.agreement.tally import Case, Judge, Verdict
from bench.bad_answers.bfcl_conversations import (
    CHANGES,
    Calls,
    Play,
    reference_turns,
    sorted_tools,
    too_many_steps,
    write_play,
)
from bench.official.bfcl_conversations import conversations, official_judge
from genenv_jax.benchmarks.base import Task
from genenv_jax.benchmarks.bfcl import backends
from genenv_jax.benchmarks.bfcl.benchmark import BFCL
from genenv_jax.benchmarks.bfcl.categories import MULTI_TURN

_PER_TASK = 5
_KINDS = {change.__name__.strip("_").replace("_", " "): change for change in CHANGES}
_FORMS = (
    "one call an answer",
    "too many steps",
    "a turn less",
    "a turn more",
    "answers reversed",
    "calls in fences",
)


def plays(task: Task, rng: random.Random, count: int) -> Iterator[tuple[str, Play]]:
    """(kind, play): the reference, and `count` - 1 others, each of a kind of its own."""
    order = backends.Backends(
        backends.Scenario.from_json(task.answer["scenario"])
    ).parameter_order()
    reference = reference_turns(task, order)
    yield "reference", write_play(reference, rng, plain=True)
    for kind in rng.sample([*_KINDS, *_FORMS], count - 1):
        turns = copy.deepcopy(reference)
        if kind in _KINDS:
            _KINDS[kind](turns, sorted_tools(task), rng)
            yield kind, write_play(turns, rng)
        else:
            yield kind, _formed(kind, turns, task, rng)


def _formed(kind: str, turns: list[Calls], task: Task, rng: random.Random) -> Play:
    play = write_play(turns, rng, plain=True)
    match kind:
        case "one call an answer":
            return [
                [a for call in calls for a in write_play([[call]], rng, True)[0][:-1]] + ["Done."]
                for calls in turns
            ]
        case "too many steps":
            return too_many_steps(play, task, rng)
        case "a turn less":
            return play[:-1]
        case "a turn more":
            return [*play, rng.choice(play)]
        case "answers reversed":
            return [answers[::-1] for answers in play]
    form = rng.choice(
        (
            "```python\n{}\n```",
            "```\n{}\n```",
            "Sure: {}",
            "{}  # done",
            "{};",
            "<tool_call>{}</tool_call>",
        )
    )
    return [
        [*(form.replace("{}", answer) for answer in answers[:-1]), answers[-1]] for answers in play
    ]


def cases(data_dir: pathlib.Path | None, seed: int, share: float) -> Iterator[Case]:
    """Every conversation with plays of many kinds."""
    for task in conversations(data_dir):
        rng = random.Random(f"agreement {seed} {task.id}")
        if rng.random() < share:
            for kind, play in plays(task, rng, _PER_TASK):
                yield Case(kind, task, json.dumps(play), play)


def judges(data_dir: pathlib.Path | None, official: pathlib.Path) -> tuple[Judge, Judge]:
    """Ours and the official one, of the installed package bfcl-eval."""
    benchmark = BFCL(
        data_dir=data_dir,
        seed_categories=(),
        eval_categories=MULTI_TURN,
        multi_turn_rule="conversation",
    )
    judged = official_judge()

    def ours(case: Case) -> Verdict:
        score = benchmark.score(case.task, case.text)
        return Verdict(score.success, score.reason)

    def theirs(case: Case) -> Verdict:
        error = judged(case.task, case.given)
        return Verdict(not error, error)

    return ours, theirs
