"""Reference information that fits into a prompt.

The published information takes 29,000 characters on average; the paper's prompts hold 4,096 tokens.  Columns
that no constraint looks at (addresses, telephone numbers, ratings, ...) are left out, and rows are chosen
until the space is used.  The choice depends on the query and the tables alone, never on an annotated plan:

  1. for each leg the road and the cheapest flight;
  2. for each city the cheapest accommodations that can be booked for the nights there and that suit the
     house rule and the room type asked for, the cheapest restaurants of each cuisine asked for and of any,
     and the first attractions;
  3. then more of everything in turn, accommodations that do not suit included, so that what was asked for
     still has to be looked for.

Rows stay in the order of the tables: their order says nothing of how they were chosen.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from genenv_jax.benchmarks.travelplanner.database import (
    Accommodation,
    Attraction,
    Database,
    Flight,
    Place,
    Restaurant,
    text_of,
)
from genenv_jax.benchmarks.travelplanner.plans import name_and_city
from genenv_jax.benchmarks.travelplanner.queries import Query
from genenv_jax.benchmarks.travelplanner.references import (
    City,
    Reference,
    layout_of,
    travel_days,
)
from genenv_jax.benchmarks.travelplanner.scoring import suits

_SUITABLE = 2  # accommodations of a city that are always there
_A_CUISINE = 2  # restaurants of a city and cuisine asked for that are always there
_MEALS_A_DAY = 3


def row_text(row: Place | Flight) -> str:
    """A row as it stands in a prompt."""
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
        parts.append(
            f"## {leg.origin} to {leg.destination}" + (f", {leg.date}" if leg.date else "")
        )
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
    """The rows that fit into `max_chars` of `render`'s text; what must be there may take more."""
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
    """The flights of each leg, then the three tables of each city; a row is called by table and index."""
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
    """Rows that must be there, and all rows in the order in which they are added."""
    layout = layout_of(reference, query) or travel_days(query.days)
    essential: list[tuple[int, int]] = []
    queues: list[list[tuple[int, int]]] = []

    def queue(table: int, rows: Iterable[tuple[int, Any]], always: int, copies: int = 1) -> None:
        found = [(table, index) for index, _ in rows]
        essential.extend(found[:always])
        # A queue that is to grow faster than the others is served several times a round.
        for part in range(copies):
            queues.append(found[always + part :: copies])

    for table, leg in enumerate(reference.legs):
        queue(table, sorted(enumerate(leg.flights), key=lambda item: item[1].price), 1)
    for number, city in enumerate(reference.cities):
        table = len(reference.legs) + 3 * number
        nights = layout[number + 1] - layout[number] if number + 1 < len(layout) else 1

        stays = sorted(
            enumerate(city.accommodations), key=lambda item: item[1].cost(query.people_number)
        )
        suitable = [item for item in stays if _suits(item[1], query, nights, database)]
        queue(table + 2, suitable, _SUITABLE)
        queue(table + 2, stays, 0)

        restaurants = [
            item for item in enumerate(city.restaurants) if _is_itself(item[1], database)
        ]
        restaurants.sort(key=lambda item: item[1].cost)
        for cuisine in query.cuisine:
            serving = [item for item in restaurants if cuisine in item[1].cuisines]
            queue(table + 1, serving, _A_CUISINE)
        queue(table + 1, restaurants, _MEALS_A_DAY * max(1, nights - 1) + 1, copies=3)

        attractions = [item for item in enumerate(city.attractions) if ";" not in item[1].name]
        queue(table, attractions, max(2, nights), copies=2)
    rounds = itertools.zip_longest(*queues)
    return essential, (row for round_ in rounds for row in round_ if row is not None)


def _suits(row: Accommodation, query: Query, nights: int, database: Database) -> bool:
    """Whether a row can be booked; where another row has the same name, that one counts as well."""
    named = database.accommodations_named(*name_and_city(text_of(row)))
    return bool(named) and all(
        stay.nights <= nights and suits(query, stay) for stay in (row, named[0])
    )


def _is_itself(row: Restaurant, database: Database) -> bool:
    """Whether a restaurant's name leads to it, and not to an earlier one that contains the name."""
    found = database.restaurant(*name_and_city(text_of(row)))
    return found is not None and (found.cost, found.cuisines) == (row.cost, row.cuisines)
