"""TravelPlanner: all thirteen constraints of each plan, and so whether it passes."""

import csv
import importlib
import json
import os
import pathlib
import random
import shutil
import sys
import types
from collections.abc import Iterator
from typing import Any

from bench.agreement.tally import Case, Judge, Verdict
from bench.bad_answers.travelplanner import Mutator, plans
from genenv_jax.benchmarks.base import Score, Task
from genenv_jax.benchmarks.travelplanner import tasks
from genenv_jax.benchmarks.travelplanner.benchmark import TravelPlanner
from genenv_jax.benchmarks.travelplanner.database import Database
from genenv_jax.benchmarks.travelplanner.queries import Query
from genenv_jax.benchmarks.travelplanner.scoring import COMMONSENSE, HARD

CONSTRAINTS = (*COMMONSENSE, *HARD)
# A letter for each constraint: passed, failed, not asked, not looked at, exception.
PASSED, FAILED, NOT_ASKED, SKIPPED, CRASH = "pfn-x"
UNDELIVERED = SKIPPED * len(CONSTRAINTS)


def cases(data_dir: pathlib.Path | None, seed: int, share: float) -> Iterator[Case]:
    """The training queries with plans of all kinds."""
    world = tasks.read_world(tasks.find_directory(data_dir))
    train = world.tasks[tasks.TRAIN]
    for task, next_task in zip(train, train[1:] + train[:1], strict=True):
        rng = random.Random(f"agreement {seed} {task.id}")
        if rng.random() >= share:
            continue
        right, other = ([dict(day) for day in t.answer["annotated_plan"]] for t in (task, next_task))
        mutator = Mutator(task, world, f"agreement {seed}")
        for kind, plan in plans(right, other, mutator, rng):
            while plan and plan[-1] == {}:  # as both sides' readers do
                plan = plan[:-1]
            text = repr(plan) if rng.random() < 0.5 else json.dumps(plan)
            yield Case(kind, task, text, plan)


def _verdict(letters: str) -> Verdict:
    accepted = not set(letters) - {PASSED, NOT_ASKED}
    reason = "not_delivered" if letters == UNDELIVERED else "constraint_failed"
    return Verdict(accepted, "" if accepted else reason, letters)


def ours(data_dir: pathlib.Path | None) -> Judge:
    """The letters of all constraints; accepted is the final pass."""
    benchmark = TravelPlanner(data_dir=data_dir)
    return lambda case: _verdict(our_letters(benchmark.score(case.task, case.text)))


def official(data_dir: pathlib.Path | None, clones: pathlib.Path) -> Judge:
    """Likewise, from the official evaluator's functions."""
    directory = tasks.find_directory(data_dir)
    database = tasks.read_world(directory).database
    prepare(clones / "TravelPlanner", directory.resolve(), database)
    commonsense, hard = map(importlib.import_module, ("commonsense_constraint", "hard_constraint"))
    remember_searches()
    return lambda case: _verdict(official_letters(commonsense, hard, official_query(case.task), case.given))


def official_query(task: Task) -> dict[str, Any]:
    """A task as a record of the official data set."""
    query = Query.from_json(task.answer["query"])
    return {
        **query.to_json(),
        "level": query.level,
        "query": task.messages[-1]["content"],
    }


def prepare(official: pathlib.Path, directory: pathlib.Path, database: Database) -> None:
    """Puts tables and stand-ins where the evaluator expects them."""
    for name in (
        "restaurants",
        "accommodations",
        "attractions",
        "googleDistanceMatrix",
        "background",
    ):
        target = official / "database" / name
        if not target.exists():
            shutil.copytree(directory / "history_958f30d" / "database" / name, target)
    path = official / "database" / "flights" / "clean_Flights_2022.csv"
    path.parent.mkdir(exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        names_ = ["Flight Number", "Price", "DepTime", "ArrTime", "ActualElapsedTime", "FlightDate"]
        writer.writerow([*names_, "OriginCityName", "DestCityName", "Distance"])
        for flight in database.flights:
            times = [flight.departure, flight.arrival, "x", flight.date]
            ends = [flight.origin, flight.destination, 0]
            writer.writerow([flight.number, flight.price, *times, *ends])
    sys.modules["gradio"] = types.ModuleType("gradio")
    requests = types.ModuleType("requests")
    requests.exceptions = types.ModuleType("requests.exceptions")
    requests.exceptions.SSLError = OSError
    sys.modules |= {"requests": requests, "requests.exceptions": requests.exceptions}
    datasets = types.ModuleType("datasets")
    datasets.load_dataset = lambda *args, **kwargs: {"train": datasets.queries}
    sys.modules["datasets"] = datasets
    sys.path[:0] = [str(official), str(official / "evaluation")]
    os.chdir(official / "evaluation")


def remember_searches() -> None:
    """Looks every name up once: the evaluator searches whole tables for each meal of each plan."""
    from pandas.core.strings.accessor import StringMethods

    search = StringMethods.contains
    found: dict[tuple, Any] = {}

    def contains(self, pattern):
        key = (pattern, self._orig.name, len(self._orig))
        if key not in found:
            found[key] = search(self, pattern)
        return found[key]

    StringMethods.contains = contains


def _letter(verdict: Any) -> str:
    return NOT_ASKED if verdict is None else PASSED if verdict else FAILED


def official_letters(commonsense: Any, hard: Any, query: dict[str, Any], plan: list[Any]) -> str:
    """The official functions' verdicts on a plan, each called by itself."""
    if not plan:
        return UNDELIVERED
    functions = {
        **{name: getattr(commonsense, name) for name in COMMONSENSE if hasattr(commonsense, name)},
        "is_valid_accommodation": commonsense.is_valid_accommodaton,
    }
    letters = {}
    for name in COMMONSENSE:
        try:
            letters[name] = _letter(functions[name](query, plan)[0])
        except Exception:  # it would have ended the official run
            letters[name] = CRASH
    both = letters["is_not_absent"], letters["is_valid_information_in_sandbox"]
    functions = {
        "valid_cuisine": hard.is_valid_cuisine,
        "valid_room_rule": hard.is_valid_room_rule,
        "valid_transportation": hard.is_valid_transportation,
        "valid_room_type": hard.is_valid_room_type,
        "valid_cost": lambda q, p: (bool(hard.get_total_cost(q, p) <= q["budget"]), None),
    }
    for name in HARD:
        if both != (PASSED, PASSED):
            letters[name] = SKIPPED
            continue
        try:
            letters[name] = _letter(functions[name](query, plan)[0])
        except Exception:
            letters[name] = CRASH
    return "".join(letters[name] for name in CONSTRAINTS)


def our_letters(score: Score) -> str:
    """Our verdicts in the official ones' form."""
    if not score.detail["delivered"]:
        return UNDELIVERED
    letters = ""
    for name in CONSTRAINTS:
        if name not in COMMONSENSE and not score.detail["hard_evaluated"]:
            letters += SKIPPED
        elif name in score.detail["crashed"]:
            letters += CRASH
        else:
            letters += _letter(score.detail["constraints"][name])
    return letters
