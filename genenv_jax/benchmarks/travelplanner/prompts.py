"""Prompts of the agent and the simulator in TravelPlanner, and which rows of information fit into them.

The published information has 29,000 characters on average; the paper's prompts hold 4,096 tokens.  Columns
that no constraint uses (addresses, telephone numbers, ratings, ...) are left out, and rows are added until
the space is full.  The choice depends only on the query and the tables, never on an annotated plan:

  1. for each leg, the road and the cheapest flight;
  2. for each city, the cheapest accommodations that can be booked for the nights there and that suit the
     house rule and room type asked for; the cheapest restaurants of each cuisine asked for, and of any
     cuisine; and the first attractions;
  3. then more of everything in turn, including unsuitable accommodations, so that the agent must still
     search for what was asked.

Rows stay in the order of the tables, so their order does not reveal how they were chosen.
"""

import dataclasses
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks.base import Message, SeedStatistics, chat
from genenv_jax.benchmarks.success_record import success_record
from genenv_jax.benchmarks.travelplanner import queries
from genenv_jax.benchmarks.travelplanner.database import (
    Accommodation,
    Attraction,
    Database,
    Flight,
    Place,
    Restaurant,
    text_of,
)
from genenv_jax.benchmarks.travelplanner.plans import MEALS, name_and_city
from genenv_jax.benchmarks.travelplanner.queries import Query
from genenv_jax.benchmarks.travelplanner.references import City, Reference, layout_of, travel_days
from genenv_jax.benchmarks.travelplanner.scoring import suits

_SUITABLE = 2  # suitable accommodations per city that are always shown
_A_CUISINE = 2  # restaurants per city and requested cuisine that are always shown

AGENT_RULES = """\
You plan trips. Use only the information that you are given; copy names and flight numbers exactly.

Reply with a JSON list and nothing else: one object for each day, with these keys.
"days": the number of the day, from 1.
"current_city": the city of the day; on a day of travel "from A to B".
"transportation": on a day of travel one of
  "Flight Number: F0000000, from A to B, Departure Time: 10:00, Arrival Time: 12:00"
  "Self-driving, from A to B, duration: 2 hours, distance: 200 km, cost: 10"
  "Taxi, from A to B, duration: 2 hours, distance: 200 km, cost: 200"
  and "-" on other days.
"breakfast", "lunch", "dinner": "Restaurant, City", or "-" for none.
"attraction": "Attraction, City;" for each attraction, every one followed by a semicolon, or "-".
"accommodation": "Accommodation, City" for the night, or "-" on the last day.

A good plan keeps all of these rules.
- Start in the city of departure, stay in one city after the other, and return on the last day. Visit \
as many cities as asked for, in the order of the legs below, none twice.
- Everything of a day is in that day's city (on a day of travel in one of its two cities); the \
accommodation is in the city where the day ends.
- A day without travel has three meals and at least one attraction. A day of travel may leave them out.
- No restaurant and no attraction twice.
- Stay in an accommodation at least its minimum of nights, one after the other.
- Do not combine self-driving with flights or taxis. A car takes five people, a taxi four; flights and \
meals are paid for each person, rooms for each night and as many as the people need.
- The whole trip stays within the budget, and every wish of the traveller is met: house rules ("No \
pets" means that pets are not allowed), room type, cuisines (each at least once, outside the city of \
departure), transportation."""

_CUE = "Write the plan: a JSON list with one object for each day."

_SIMULATOR_RULES = """\
You write training tasks for an agent that plans trips. You are shown one task, with the information \
that the agent gets, and how well the agent does on tasks like it. Write one new task: a variation, not \
a copy, in other words and with other wishes.

Reply with one JSON object and nothing else. It has the keys of the example: the text of the request \
under "query", and what the text asks for in the other keys. The text must say all of it in plain words, \
and nothing else may follow from it:
- the city of departure ("from ..."), which stays {org}; the destination: {destinations};
- the first and the last day ("from March 16th to March 18th, 2022"); as many days and cities as the \
destination says;
- "people_number" ("a group of 3 people") and "budget" ("a budget of $1,700"), both for all people;
- "local_constraint", each null or one of these, in these words:
  "house rule": {house_rules}; what accommodations must allow;
  "cuisine": a list of {cuisines};
  "room type": {room_types}; write "non-shared rooms" for the second;
  "transportation": {transportation}; write "no flights" or "no self-driving".
A task without local constraints is easy, with one medium, with three hard; a small budget is harder. \
There must be a plan that meets everything with the information below, or the task is not used."""


def agent_messages(information: str, text: str) -> list[Message]:
    """The rules, the information, the query and the instruction; nothing that was derived from the query."""
    return chat(AGENT_RULES, f"{information}\n\n# Request\n{text}\n\n{_CUE}")


def agent_overhead(text: str) -> int:
    """Characters of `agent_messages` without the information."""
    return sum(len(message["content"]) for message in agent_messages("", text))


def simulator_messages(
    information: str,
    task: str,
    record: Mapping[str, Any],
    destinations: str,
    cost: float | None,
    statistics: SeedStatistics,
) -> list[Message]:
    """Asks for one variation of a task, as the simulator would write it, with the fields `record`.

    `destinations`: those that a variation may have, in words; `cost`: dollars of a plan that passes all
    constraints, if one is known.
    """
    system = _SIMULATOR_RULES.format(
        org=record["org"],
        destinations=destinations,
        house_rules=_options(queries.HOUSE_RULES),
        cuisines=", ".join(queries.CUISINES),
        room_types=_options(queries.ROOM_TYPES),
        transportation=_options(queries.TRANSPORTATION),
    )
    parts = [f"Information:\n{information}", f"Task:\n{task}"]
    if cost is not None:
        parts.append(f"A plan that meets everything in this task costs ${cost:,.0f}.")
    parts.append(success_record(statistics))
    return chat(system, *parts)


def _options(values: tuple[str, ...]) -> str:
    return ", ".join(json.dumps(value) for value in values)


def row_text(row: Place | Flight) -> str:
    """A row as text for a prompt."""
    match row:
        case Restaurant():
            return f"{row.name} | ${_number(row.cost)} | {row.cuisines}"
        case Attraction():
            return row.name
        case Accommodation():
            return (
                f"{row.name} | ${_number(row.price)} | {row.room_type} | {row.rules} | "
                f"{_number(row.nights)} | {_number(row.guests)}"
            )
    return f"{row.number} | ${_number(row.price)} | {row.departure} | {row.arrival}"


def _number(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value}"


def render(reference: Reference) -> str:
    """Reference information as text."""
    parts = []
    for leg in reference.legs:
        date = f", {leg.date}" if leg.date else ""
        parts.append(f"## {leg.origin} to {leg.destination}{date}")
        if leg.flights:
            parts.append("Flights (number | price a person | departure | arrival):")
            parts += [row_text(flight) for flight in leg.flights]
        else:
            parts.append("No flights.")
        if leg.drive:
            parts.append(
                f"Road: duration: {leg.drive.duration}, distance: {leg.drive.distance}, "
                f"self-driving cost: {leg.drive.car_cost()} a car, "
                f"taxi cost: {leg.drive.taxi_cost()} a taxi"
            )
        else:
            parts.append("No road: neither self-driving nor taxi.")
    for city in reference.cities:
        parts.append(f"## {city.name}")
        parts.append(
            "Accommodations (name | price a night and room | room type | house rules | "
            "minimum nights | people a room):"
        )
        parts += [row_text(row) for row in city.accommodations]
        parts.append("Restaurants (name | average cost a person | cuisines):")
        parts += [row_text(row) for row in city.restaurants]
        parts.append("Attractions: " + "; ".join(row_text(row) for row in city.attractions))
    return "\n".join(parts)


def compact(reference: Reference, query: Query, database: Database, max_chars: int) -> Reference:
    """The rows that fit into `max_chars` of `render`'s text; the rows that must be shown may exceed it."""
    essential, further = _order(reference, query, database)
    chosen = set(essential)
    tables = _tables(reference)
    length = len(render(_keep(reference, chosen)))
    for table, index in further:
        cost = len(row_text(tables[table][index])) + 2
        if (table, index) not in chosen and length + cost <= max_chars:
            chosen.add((table, index))
            length += cost
    return _keep(reference, chosen)


def _tables(reference: Reference) -> list[Sequence[Place | Flight]]:
    """The flights of each leg, then the three tables of each city; (table, index) identifies a row."""
    tables: list[Sequence[Place | Flight]] = [leg.flights for leg in reference.legs]
    for city in reference.cities:
        tables += [city.attractions, city.restaurants, city.accommodations]
    return tables


def _keep(reference: Reference, chosen: set[tuple[int, int]]) -> Reference:
    kept = (
        tuple(row for index, row in enumerate(rows) if (table, index) in chosen)
        for table, rows in enumerate(_tables(reference))
    )
    legs = [dataclasses.replace(leg, flights=next(kept)) for leg in reference.legs]
    cities = [City(city.name, next(kept), next(kept), next(kept)) for city in reference.cities]
    return Reference(tuple(cities), tuple(legs))


def _order(
    reference: Reference, query: Query, database: Database
) -> tuple[list[tuple[int, int]], Iterator[tuple[int, int]]]:
    """The rows that must be shown, and further rows in the order in which they are added."""
    layout = layout_of(reference, query) or travel_days(query.days)
    essential: list[tuple[int, int]] = []
    queues: list[list[tuple[int, int]]] = []

    def queue(table: int, rows: Iterable[tuple[int, Any]], always: int, copies: int = 1) -> None:
        found = [(table, index) for index, _ in rows]
        essential.extend(found[:always])
        # A queue that should grow faster than the others gets several turns per round.
        for part in range(copies):
            queues.append(found[always + part :: copies])

    for table, leg in enumerate(reference.legs):
        queue(table, sorted(enumerate(leg.flights), key=lambda item: item[1].price), 1)
    for number, city in enumerate(reference.cities):
        table = len(reference.legs) + 3 * number
        nights = layout[number + 1] - layout[number] if number + 1 < len(layout) else 1

        rooms, people = enumerate(city.accommodations), query.people_number
        stays = sorted(rooms, key=lambda item: item[1].cost(people))
        suitable = [item for item in stays if _suits(item[1], query, nights, database)]
        queue(table + 2, suitable, _SUITABLE)
        queue(table + 2, stays, 0)

        found = enumerate(city.restaurants)
        restaurants = [(index, row) for index, row in found if _is_itself(row, database)]
        restaurants.sort(key=lambda item: item[1].cost)
        for cuisine in query.cuisine:
            serving = [item for item in restaurants if cuisine in item[1].cuisines]
            queue(table + 1, serving, _A_CUISINE)
        queue(table + 1, restaurants, len(MEALS) * max(1, nights - 1) + 1, copies=3)

        attractions = [item for item in enumerate(city.attractions) if ";" not in item[1].name]
        queue(table, attractions, max(2, nights), copies=2)
    rounds = itertools.zip_longest(*queues)
    return essential, (row for round_ in rounds for row in round_ if row is not None)


def _suits(row: Accommodation, query: Query, nights: int, database: Database) -> bool:
    """Whether a row can be booked; the row that the evaluator finds under its name must suit, too."""
    seen = database.accommodation(*name_and_city(text_of(row)))
    return seen is not None and all(stay.nights <= nights and suits(query, stay) for stay in (row, seen))


def _is_itself(row: Restaurant, database: Database) -> bool:
    """Whether looking up a restaurant's name finds it, and not an earlier one that contains the name."""
    found = database.restaurant(*name_and_city(text_of(row)))
    return found is not None and (found.cost, found.cuisines) == (row.cost, row.cuisines)
