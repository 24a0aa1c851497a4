"""What training pays for a plan: the official rules, and that what it names exists.

The official rules (`scoring`) take a part of a name for the name, look at no attraction without a
semicolon behind it, at no vehicle but three words and at no change of city without "from", and let what they
do not find cost nothing.  An agent that is paid by them alone learns to write what is nowhere.  So these are
looked for in the database again, each in full:

  * legs: every change of city is a leg of the trip that was asked for, the first from the departure, each
    from where the last one led, those of a 3-day trip to its destination and back; and it has a price, that
    of a flight of its number, route and day, or of a road for a car or a taxi.  The vehicle stands first in
    the text; there is no other vehicle, and none for a day without a leg;
  * restaurants and accommodations by the whole name and city, a city of the day, for accommodations the last;
  * attractions by the whole name and city, semicolon or not.  They may be in any city, since one of the
    annotated plans has some of another city.

White space around a name, and what stands in parentheses behind a city, do not count.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks.base import Rejection, Score, Task
from genenv_jax.benchmarks.travelplanner.database import Database, Place
from genenv_jax.benchmarks.travelplanner.plans import (
    SLOTS,
    before_parenthesis,
    read_plan,
    route_of,
)
from genenv_jax.benchmarks.travelplanner.queries import Query
from genenv_jax.benchmarks.travelplanner.scoring import (
    GROUNDED,
    HARD,
    Plan,
    Verdicts,
    cities_of,
    failed,
    is_given,
    judge,
)

FINAL, MICRO = "final", "micro"
_NOTHING = "-"
_FLIGHT = re.compile(r"flight number:\s*([^\s,]+)", re.IGNORECASE)
_ROAD = re.compile(r"(self-driving|taxi)\b", re.IGNORECASE)


def score_plan(task: Task, answer: str, database: Database, reward: str) -> Score:
    """The score of an answer; an empty one has all that a score can have in its `detail`.

    Success is the official final pass for a held-out task, else that of the grounded plan.  `reason` is why
    no plan was delivered (`plans.read_plan`), or the first constraint that failed.  For a plan that fails
    only as it is read here, it is "missing_" and the first slot of what does not exist, or the first
    constraint that failed in that reading.  A plan on which the official code raises an exception is not
    valid.

    `detail` has the official "delivered", "hard_evaluated", "crashed" and "constraints": True, False or None
    (not asked) for each; and "grounded": "constraints", "hard_evaluated" and "missing" (slots) of that
    reading.

    Args:
      reward: "final": 1 for a grounded final pass, else 0; "micro": the share of the constraints that apply
        which the grounded plan passes.
    """
    query = Query.from_json(task.answer["query"])
    plan, reason = read_plan(answer), ""
    if isinstance(plan, Rejection):
        reason, plan = plan.reason, []
    verdicts, evaluated, crashed = judge(query, plan, database)
    earned, evaluated_again, missing = judge_grounded(query, plan, database, verdicts, evaluated)
    official, unpaid = failed(verdicts), failed(earned)
    success = not (official if task.origin == "eval" else unpaid)
    if not reason and not success:
        reason = [*official, *(f"missing_{slot}" for slot in missing), *unpaid][0]
    applying = [verdict for verdict in earned.values() if verdict is not None]
    return Score(
        reward=float(not unpaid) if reward == FINAL else sum(applying) / len(applying),
        success=success,
        valid=bool(plan) and not crashed,
        reason=reason,
        detail={
            "delivered": bool(plan),
            "hard_evaluated": evaluated,
            "crashed": crashed,
            "constraints": verdicts,
            GROUNDED: {
                "constraints": earned,
                "hard_evaluated": evaluated_again,
                "missing": missing,
            },
        },
    )


def judge_grounded(
    query: Query, plan: Plan, database: Database, verdicts: Verdicts, evaluated: bool
) -> tuple[Verdicts, bool, list[str]]:
    """The verdicts on a plan that count for a reward.

    A constraint is passed if the plan passes it as it is written and its grounded part does so too.  Where
    something is missing, `is_valid_information_in_sandbox` has failed, and with it, as in the official rules,
    the hard constraints.  So no plan earns more than officially, nor more than without what does not exist.

    Args:
      query, plan, database: see `grounded_part`.
      verdicts, evaluated: what `judge` says of the plan as it is written.

    Returns:
      Verdicts, and whether hard constraints were looked at, as `judge` gives them; and the slots of what is
      missing.
    """
    part, missing = grounded_part(query, plan, database)
    grounded, evaluated_again, _ = judge(query, part, database)
    evaluated = evaluated and evaluated_again and not missing
    both = {name: verdict and grounded[name] for name, verdict in verdicts.items()}
    if missing:
        both["is_valid_information_in_sandbox"] = False
    if not evaluated:
        both |= {name: False for name in HARD if both[name] is not None}
    return both, evaluated, missing


def grounded_part(
    query: Query, plan: Plan, database: Database
) -> tuple[list[dict[str, Any]], list[str]]:
    """The part of a plan that exists.

    Args:
      query: what was asked.
      plan: days as `plans.read_plan` gives them.
      database: what they are looked for in.

    Returns:
      The days of the trip with what was found, in its plainest wording ("Name, City", "Taxi, from A to B"),
      and "-" for what was not.  The slots of what was not found, in the order of the plan; "current_city"
      stands for a city that no leg leads to.
    """
    part: list[dict[str, Any]] = []
    missing: list[str] = []
    here = query.org
    for day, date in zip(plan, query.date, strict=False):
        cities = _cities(day)
        if not _is_reached(cities, here, day, query):
            missing.append("current_city")
        here = cities[-1] if cities else here
        known = dict(day)
        for slot in SLOTS[1:]:
            if not is_given(day, slot):
                continue
            end = ""
            if slot == "transportation":
                found = [_leg(day[slot], cities, date, database)]
            elif slot == "attraction":
                end = ";"
                sights = [text for text in day[slot].split(";") if text.strip()]
                found = [_named(sight, database.attractions) for sight in sights]
            elif slot == "accommodation":
                found = [_named(day[slot], database.accommodations, cities[-1:])]
            else:
                found = [_named(day[slot], database.restaurants, cities)]
            known[slot] = "".join(f"{text}{end}" for text in found if text) or _NOTHING
            if not found or not all(found):
                missing.append(slot)
        part.append(known)
    return part, missing


def _cities(day: Mapping[str, Any]) -> list[str]:
    """The city of a day or both of a day of travel; none where they cannot be read."""
    try:
        return cities_of(day["current_city"])
    except (KeyError, TypeError):
        return []


def _is_reached(cities: Sequence[str], here: str, day: Mapping[str, Any], query: Query) -> bool:
    """Whether one is in a day's cities, coming from `here`."""
    if len(cities) != 2:
        return list(cities) == [here]
    in_trip = query.days > 3 or cities[1] in (query.org, query.dest)
    return cities[0] == here and in_trip and is_given(day, "transportation")


def _leg(text: str, cities: Sequence[str], date: str, database: Database) -> str | None:
    """The way from the first of two cities to the second, if there is one with a price.

    A text that names no route is of the day's, as officially.
    """
    if len(cities) != 2:
        return None
    ends = route_of(text)
    if None not in ends and [before_parenthesis(end) for end in ends] != list(cities):
        return None
    text = text.strip()
    way = "from {} to {}".format(*cities)
    if flight := _FLIGHT.match(text):
        numbers = [row.number for row in database.flights.between(*cities, date)]
        return f"Flight Number: {flight[1]}, {way}" if flight[1] in numbers else None
    if (road := _ROAD.match(text)) and database.drive(*cities):
        return f"{road[1].capitalize()}, {way}"
    return None


def _named(
    text: str, table: Mapping[str, Sequence[Place]], cities: Sequence[str] | None = None
) -> str | None:
    """A thing as "Name, City" if a table has both; `cities`: where it must be."""
    name, _, city = text.rpartition(",")
    name, city = name.strip(), before_parenthesis(city.strip()).strip()
    if cities is not None and city not in cities:
        return None
    found = any(row.name.strip() == name for row in table.get(city, ()))
    return f"{name}, {city}" if found else None
