"""TravelPlanner: all thirteen constraints of each plan, and so whether it passes."""

from __future__ import annotations

import copy
import importlib
import json
import pathlib
import random
from collections.abc import Iterator

from bench.agreement.tally import Case, Judge, Verdict
from bench.bad_answers.travelplanner import KINDS, Mutator, Plan
from bench.official import travelplanner as oracle
from genenv_jax.benchmarks.travelplanner import records
from genenv_jax.benchmarks.travelplanner.benchmark import TravelPlanner
from genenv_jax.benchmarks.travelplanner.planner import find_plan
from genenv_jax.benchmarks.travelplanner.queries import Query

_WORDS = (
    "",
    "-",
    " ",
    None,
    "no",
    "Taxi",
    "from A to B",
    "A(B)",
    "x, y",
    "x;",
    3,
    ["x"],
    {"a": 1},
    "from  to ",
    ", ",
    "(",
)


def _slots(plan: Plan, other: Plan, rng: random.Random) -> None:
    """Some slots take another day's, another slot's or another plan's text, or what fits nowhere."""
    for _ in range(rng.choice((1, 1, 2, 4))):
        day = rng.choice(plan)
        if day:
            texts = [rng.choice(rng.choice((plan, other)) or [{}]).get(slot) for slot in day]
            day[rng.choice(list(day))] = rng.choice([*texts, rng.choice(_WORDS)])


def _characters(plan: Plan, other: Plan, rng: random.Random) -> None:
    """One text is cut, doubled, turned into capitals, or has a character more or less."""
    day = rng.choice([day for day in plan if day] or [{}])
    slots = [slot for slot, text in day.items() if isinstance(text, str) and text not in ("", "-")]
    if slots:
        slot = rng.choice(slots)
        text = day[slot]
        at = rng.randrange(len(text))
        new = rng.choice(("", ",", ";", "(", ")", " ", "\n", "x", "é", ".", ", "))
        forms = (
            text[:at] + new + text[at + 1 :],
            text[:at],
            text[at:],
            text + text,
            text.upper(),
            text[:at] + new + text[at:],
        )
        day[slot] = rng.choice(forms)


def _days(plan: Plan, other: Plan, rng: random.Random) -> None:
    """Days left out, repeated, exchanged, emptied or taken from another plan."""
    at = rng.randrange(len(plan))
    forms = (
        plan[:at],
        plan[at:],
        plan[::-1],
        plan + plan[at:],
        [*plan[:at], {}, *plan[at:]],
        rng.sample(plan, len(plan)),
        plan[:at] + other[at:],
        [*plan, {}],
    )
    plan[:] = copy.deepcopy(rng.choice(forms))


_OWN = {"slots exchanged": _slots, "characters wrong": _characters, "days exchanged": _days}
_REPEATS = 7


def plans(
    annotated: Plan, found: Plan, other: Plan, mutator: Mutator, rng: random.Random
) -> Iterator[tuple[str, Plan]]:
    """(kind, plan): those given, and changes of them, each kind of `KINDS` once."""
    yield "annotated", annotated
    yield "the planner's", found
    yield "another query's", other
    starts = [plan for plan in (annotated, found) if plan]
    for kind in KINDS:
        plan = copy.deepcopy(rng.choice(starts))
        kind(mutator, plan)
        yield kind.__name__.replace("_", " "), plan
    for name, change in _OWN.items():
        for _ in range(_REPEATS):
            plan = copy.deepcopy(rng.choice(starts))
            change(plan, other, rng)
            yield name, plan


def cases(data_dir: pathlib.Path | None, seed: int, share: float) -> Iterator[Case]:
    """The training queries with plans of all kinds; the validation queries with a model's plans.

    The latter are those of the official example_evaluation.jsonl, as they are and with two changes each.
    """
    world = records.read_world(records.find_directory(data_dir))
    tasks = world.tasks[records.TRAIN]
    for task, next_task in zip(tasks, tasks[1:] + tasks[:1], strict=True):
        rng = random.Random(f"agreement {seed} {task.id}")
        if rng.random() >= share:
            continue
        annotated, other = (
            [dict(day) for day in t.answer["annotated_plan"]] for t in (task, next_task)
        )
        found = (
            find_plan(
                Query.from_json(task.answer["query"]), world.references[task.id], world.database
            )
            or []
        )
        mutator = Mutator(task, world, f"agreement {seed}")
        for kind, plan in plans(annotated, found, other, mutator, rng):
            yield _case(f"training, {kind}", task, plan)
    examples = pathlib.Path(
        "../postprocess/example_evaluation.jsonl"
    )  # `judges` has gone to evaluation/
    if not examples.is_file() or records.VALIDATION not in world.tasks:
        return
    written = [
        json.loads(line)["plan"] or [] for line in examples.read_text(encoding="utf-8").splitlines()
    ]
    for task, plan, other in zip(
        world.tasks[records.VALIDATION], written, written[1:] + written[:1], strict=True
    ):
        rng = random.Random(f"agreement {seed} {task.id}")
        if rng.random() >= share:
            continue
        yield _case("validation, a model's", task, plan)
        for name in rng.sample(list(_OWN), 2):
            if any(plan):
                changed = copy.deepcopy(plan)
                _OWN[name](changed, other, rng)
                yield _case(f"validation, {name}", task, changed)


def _case(kind: str, task, plan: Plan) -> Case:
    while plan and plan[-1] == {}:  # as reading a plan does, there as here
        plan = plan[:-1]
    return Case(kind, task, json.dumps(plan), plan)


def judges(data_dir: pathlib.Path | None, official: pathlib.Path) -> tuple[Judge, Judge]:
    """The letters of all constraints (`bench.official.travelplanner`); accepted is the final pass."""
    directory = records.find_directory(data_dir)
    benchmark = TravelPlanner(data_dir=data_dir)
    oracle.prepare(
        official / "TravelPlanner", directory.resolve(), records.read_world(directory).database
    )
    commonsense, hard = map(importlib.import_module, ("commonsense_constraint", "hard_constraint"))
    oracle.remember_searches()

    def verdict(letters: str) -> Verdict:
        accepted = not set(letters) - {oracle.PASSED, oracle.NOT_ASKED}
        reason = "not delivered" if letters == oracle.UNDELIVERED else "a constraint failed"
        return Verdict(accepted, "" if accepted else reason, letters)

    def ours(case: Case) -> Verdict:
        return verdict(oracle.our_letters(benchmark.score(case.task, case.text)))

    def theirs(case: Case) -> Verdict:
        return verdict(
            oracle.official_letters(commonsense, hard, oracle.official_query(case.task), case.given)
        )

    return ours, theirs
