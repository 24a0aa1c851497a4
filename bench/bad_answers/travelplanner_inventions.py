"""Plans that pass the official constraints with things that do not exist, or that nobody has to pay for."""

from __future__ import annotations

import copy
import itertools
import string
from collections.abc import Callable
from typing import Any

from genenv_jax.benchmarks.base import Task
from genenv_jax.benchmarks.travelplanner.names import name_and_city
from genenv_jax.benchmarks.travelplanner.queries import Query
from genenv_jax.benchmarks.travelplanner.records import World

Plan = list[dict[str, Any]]

SLOTS = ("transportation", "breakfast", "attraction", "lunch", "dinner", "accommodation")
_MEALS = ("breakfast", "lunch", "dinner")


def _is_given(text: Any) -> bool:
    return bool(text) and text != "-"


def teleports(plan: Plan, world: World) -> Plan:
    """Every leg by a vehicle that there is not, and that therefore costs nothing."""
    for day in plan:
        if _is_given(day["transportation"]):
            day["transportation"] = f"Teleport, {day['current_city']}"
    return plan


def unmarked_sights(plan: Plan, world: World) -> Plan:
    """Sights that are nowhere, without the semicolon at which the official rules begin to look."""
    for number, day in enumerate(plan):
        if _is_given(day["attraction"]):
            day["attraction"] = f"Castle {number} of Nobody, {day['current_city']}"
    return plan


def _letters(rows: list[Any], price: str) -> list[str]:
    """Letters of names, those first that stand for the cheapest row."""
    first: dict[str, float] = {}
    for letter in string.ascii_letters:
        row = next((row for row in rows if letter in row.name), None)
        if row is not None:
            first[letter] = getattr(row, price)
    return sorted(first, key=lambda letter: first[letter])


def cut_names(plan: Plan, world: World) -> Plan:
    """Restaurants and accommodations as single letters of a name, the cheapest that the city has."""
    used: set[str] = set()
    for day in plan:
        for meal in _MEALS:
            if _is_given(day[meal]):
                city = name_and_city(day[meal])[1]
                for letter in _letters(world.database.restaurants[city], "cost"):
                    if f"{letter}, {city}" not in used:
                        day[meal] = f"{letter}, {city}"
                        used.add(day[meal])
                        break
        if _is_given(day["accommodation"]):
            city = name_and_city(day["accommodation"])[1]
            day["accommodation"] = (
                f"{_letters(world.database.accommodations[city], 'price')[0]}, {city}"
            )
    return plan


def template(task: Task, world: World) -> Plan:
    """One text for all queries, which asks nothing of the information but the names of the cities."""
    query = Query.from_json(task.answer["query"])
    cities = [city.name for city in world.references[task.id].cities]
    stops = [query.org, *cities, query.org]
    letters = iter("aeionrtslcdmuhgpbAEIORTSLCDMUHGPB")
    plan: Plan = []
    for index, (before, city) in enumerate(itertools.pairwise(stops)):
        plan.append(
            {
                "days": len(plan) + 1, "current_city": f"from {before} to {city}",
                "transportation": f"Teleport, from {before} to {city}", "breakfast": "-",
                "attraction": "-", "lunch": "-", "dinner": "-", "accommodation": f"a, {city}",
            }
        )  # fmt: skip
        if index < len(cities):
            plan.append({"days": len(plan) + 1, "current_city": city, "transportation": "-"})
            plan[-1] |= {meal: f"{next(letters)}, {city}" for meal in _MEALS}
            plan[-1] |= {"attraction": f"Old town, {city}", "accommodation": f"a, {city}"}
    plan[-1]["accommodation"] = "-"
    return plan


# What each changes in a plan that is right.
INVENTIONS: dict[str, Callable[[Plan, World], Plan]] = {
    function.__name__: function for function in (teleports, unmarked_sights, cut_names)
}


def invent(name: str, plan: Plan, world: World) -> Plan:
    """A copy of `plan` with the inventions of that name."""
    return INVENTIONS[name](copy.deepcopy(plan), world)
