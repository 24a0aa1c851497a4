"""The training reward of a plan: it must satisfy the official rules, and everything it names must exist.

The official rules (`scoring`) accept a part of a name as the name.  They ignore attractions without a
semicolon after them, vehicles other than three known words, and changes of city without "from".  Things that
they do not find cost nothing.  An agent rewarded by these rules alone learns to invent things.  So the reward
looks up each of these in the database again, in full:

  * legs: every change of city is a leg of the requested trip.  The first leg starts at the departure, each
    other leg where the last one ended; a 3-day trip goes to its destination and back.  A leg has a price: of
    a flight with its number, route and day, or of a road for a car or a taxi.  The text starts with the
    vehicle.  No other vehicle is allowed, and none on a day without a leg;
  * restaurants and accommodations: whole name and city, a city of that day (for accommodations the last);
  * attractions: whole name and city, with or without a semicolon.  Any city is allowed, because one of the
    annotated plans has attractions of another city.

White space around a name and parentheses after a city are ignored.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks.base import MALFORMED, Rejection, Score, Task
from genenv_jax.benchmarks.travelplanner import scoring
from genenv_jax.benchmarks.travelplanner.database import Database, Place
from genenv_jax.benchmarks.travelplanner.plans import SLOTS, before_parenthesis, read_plan, route_of
from genenv_jax.benchmarks.travelplanner.queries import Query
from genenv_jax.benchmarks.travelplanner.scoring import Plan, Verdicts, failed, is_given, judge

FINAL, MICRO = "final", "micro"
_NOTHING = "-"
_FLIGHT = re.compile(r"flight number:\s*([^\s,]+)", re.IGNORECASE)
_ROAD = re.compile(r"(self-driving|taxi)\b", re.IGNORECASE)


def score_plan(task: Task, answer: str, database: Database, reward: str) -> Score:
    """The score of an answer; `detail` is complete even for an empty answer.

    Success is the official final pass for a held-out task, and the final pass of the grounded plan for
    others.  `reason` says why no plan was delivered (`plans.read_plan`), or names the first constraint that
    failed.  If only the grounded plan fails, it is "missing_" and the first slot that names something
    nonexistent, or the first constraint that the grounded plan fails.  A plan is invalid if the official
    code raises an exception on it.

    `reward`: see `TravelPlanner`.
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
            "delivered": bool(plan), "hard_evaluated": evaluated, "crashed": crashed,
            "constraints": verdicts,
            scoring.GROUNDED: {"constraints": earned, "hard_evaluated": evaluated_again, "missing": missing},
        },
    )  # fmt: skip


def judge_grounded(
    query: Query, plan: Plan, database: Database, verdicts: Verdicts, evaluated: bool
) -> tuple[Verdicts, bool, list[str]]:
    """The verdicts that count for the reward and whether hard constraints were evaluated; missing slots.

    A constraint is passed if both the plan as written (`verdicts`, `evaluated`: see `judge`) and its grounded
    part pass it.  If something is missing, `is_valid_information_in_sandbox` fails, and with it, as in the
    official rules, the hard constraints.
    """
    part, missing = grounded_part(query, plan, database)
    grounded, evaluated_again, _ = judge(query, part, database)
    evaluated = evaluated and evaluated_again and not missing
    both = {name: verdict and grounded[name] for name, verdict in verdicts.items()}
    if missing:
        both["is_valid_information_in_sandbox"] = False
    if not evaluated:
        both |= {name: False for name in scoring.HARD if both[name] is not None}
    return both, evaluated, missing


def grounded_part(query: Query, plan: Plan, database: Database) -> tuple[list[dict[str, Any]], list[str]]:
    """The part of a plan that exists.

    Returns:
      The days of the trip, with entries that were found in their plainest wording ("Name, City", "Taxi, from
      A to B") and "-" for the others.  The slots with entries that were not found, in the order of the plan;
      "current_city" stands for a city that no leg leads to.
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
    """The city of a day, or both cities of a travel day; empty if they cannot be read."""
    try:
        return scoring.cities_of(day["current_city"])
    except MALFORMED:
        return []


def _is_reached(cities: Sequence[str], here: str, day: Mapping[str, Any], query: Query) -> bool:
    """Whether a traveller who is in `here` can reach the day's cities."""
    if len(cities) != 2:
        return list(cities) == [here]
    in_trip = query.days > 3 or cities[1] in (query.org, query.dest)
    return cities[0] == here and in_trip and is_given(day, "transportation")


def _leg(text: str, cities: Sequence[str], date: str, database: Database) -> str | None:
    """The leg from the first of two cities to the second, or None if it has no price.

    As in the official code, a text without a route has the day's route.
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
    """An entry as "Name, City" if the table has it, otherwise None; `cities`: where it must be."""
    name, _, city = text.rpartition(",")
    name, city = name.strip(), before_parenthesis(city.strip()).strip()
    if cities is not None and city not in cities:
        return None
    found = any(row.name.strip() == name for row in table.get(city, ()))
    return f"{name}, {city}" if found else None
