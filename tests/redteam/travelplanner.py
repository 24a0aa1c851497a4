"""TravelPlanner: plans of things that do not exist, and unanswerable queries.

The plans that the official evaluator accepts come from `bench.bad_answers.travelplanner`.
"""

import functools
import json
from collections.abc import Callable
from typing import Any

from bench.bad_answers.travelplanner import INVENTIONS, SLOTS, invent, template
from genenv_jax.benchmarks import base
from genenv_jax.benchmarks.base import Task
from tests.redteam import common
from tests.redteam.common import answers, generations
from tests.redteam.exploits import AGENT, SIMULATOR, Exploit, Make, Scene

Plan = list[dict[str, Any]]

_agent = functools.partial(Exploit, "travelplanner", AGENT)
_simulator = functools.partial(Exploit, "travelplanner", SIMULATOR)


def _plan(scene: Scene, task: Task) -> Plan:
    return json.loads(scene.benchmark.agent_answer(task))


changed = functools.partial(common.changed, of=_plan, write=json.dumps)  # of a right plan


def slots(change: Callable[[str, str], str], *names: str) -> Make:
    """A right plan with the text of some slots changed; `change` takes slot and text."""

    def make(plan: Plan) -> Plan:
        return [
            {k: change(k, v) if k in names and v and v != "-" else v for k, v in day.items()} for day in plan
        ]

    return changed(make)


def _invented(name: str) -> Make:
    def make(scene: Scene, task: Task) -> str | None:
        plan = _plan(scene, task)
        other = invent(name, plan, scene.benchmark.world)
        return None if other == plan else json.dumps(other)

    return make


def _every_thing(scene: Scene, task: Task) -> str:
    """All restaurants of the city (at most 20) in every slot."""
    plan = _plan(scene, task)
    database = scene.benchmark.world.database
    for day in plan:
        city = day["current_city"].split(" ")[-1]
        names = "; ".join(f"{row.name}, {city}" for row in database.restaurants.get(city, ())[:20])
        day |= dict.fromkeys(SLOTS, names)
    return json.dumps(plan)


def _query(change: Callable[[dict[str, Any]], None]) -> Make:
    """The seed's query with fields changed."""

    def make(scene: Scene, seed: Task) -> str:
        record = json.loads(scene.benchmark.simulator_answer(seed, seed))
        change(record)
        return json.dumps(record)

    return make


def _said(old: Callable[[dict[str, Any]], str], new: Callable[[dict[str, Any]], str], **fields: Any):
    """The seed's query with its text and matching fields changed."""

    def change(record: dict[str, Any]) -> None:
        record["query"] = record["query"].replace(old(record), new(record))
        record.update(fields)

    return _query(change)


def _wish(scene: Scene, seed: Task) -> str | None:
    """The seed's trip for more people, with a wish that has no field."""
    if seed.answer["query"]["people_number"] != 1:
        return None
    wish = " We are a group of 4 people. And the pool must be warm."
    return _query(lambda record: record.update(query=record["query"] + wish, people_number=4))(scene, seed)


_MEALS = ("breakfast", "lunch", "dinner")

EXPLOITS = [
    *answers("travelplanner"),
    *(_agent(name.replace("_", " "), _invented(name)) for name in INVENTIONS),
    _agent("one template for all queries", lambda scene, task: json.dumps(
        template(task, scene.benchmark.world))),
    _agent("no day", "[]"),
    _agent("days without anything", lambda scene, task: json.dumps(
        [{"days": n + 1} for n in range(task.answer["query"]["days"])])),
    _agent("nothing in any slot", slots(lambda slot, text: "-", *SLOTS)),
    _agent("a day less", changed(lambda plan: plan[:-1])),
    _agent("all days the first", changed(lambda plan: [plan[0]] * len(plan))),
    _agent("the days backwards", changed(lambda plan: plan[::-1])),
    _agent("no meals", slots(lambda slot, text: "-", *_MEALS)),
    _agent("every restaurant in every slot", _every_thing),
    _agent("names with a word more", slots(lambda slot, text: f"The best {text}", *_MEALS)),
    _agent("names without their city", slots(lambda slot, text: text.rpartition(",")[0], *_MEALS)),
    _agent("names in capitals", slots(lambda slot, text: text.upper(), *_MEALS, "accommodation")),
    _agent("names in look-alike letters", slots(
        lambda slot, text: text.replace("e", "\u0435").replace("o", "\u043e"), *_MEALS)),
    _agent("a price in the plan", slots(lambda slot, text: f"{text}, cost: 0", *_MEALS)),
    _agent("the right plan, then an empty one", lambda scene, task: (
        f"{scene.benchmark.agent_answer(task)}\n[{{}}]")),
    _agent("the right plan, then another", lambda scene, task: (
        f'{scene.benchmark.agent_answer(task)}\n[{{"days": 1}}]')),

    *generations("travelplanner", ("text_differs", base.BAD_ANSWER, "unsolvable")),
    _simulator("a town that there is not", _said(
        lambda record: record["org"], lambda record: "Nowhere", org="Nowhere"),
        reasons=("text_differs", base.BAD_ANSWER)),
    _simulator("a wish that is no field", _wish, 1.0, reasons=("text_differs", "unsolvable"),
               remains="only wishes that are fields are read"),
    _simulator("a plan in the query", _query(
        lambda record: record.update(query=record["query"] + " [{'days': 1}]")),
        reasons=("text_differs", "duplicate", "near_duplicate")),
    _simulator("another day of departure", _query(lambda record: record.update(
        query=record["query"].replace("2022", "2023"))), reasons=("text_differs",)),
]  # fmt: skip
