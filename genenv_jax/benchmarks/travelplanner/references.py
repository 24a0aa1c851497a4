"""Reference information: what a planner is given in the sole-planning mode.

It has the attractions, restaurants and accommodations of each city on the route, and the flights and the
road of each leg.  It is published for the training queries (`database/train_ref_info.jsonl`), and built
from the database in the same form for other queries.
"""

import dataclasses
import datetime
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks.travelplanner.database import (
    Accommodation,
    Attraction,
    Database,
    Drive,
    Flight,
    Restaurant,
    Row,
    read_row,
)
from genenv_jax.benchmarks.travelplanner.queries import Query

_KEY = re.compile(r"(Attractions|Restaurants|Accommodations) in (.+)")
_LEG = re.compile(r"(Flight|Self-driving|Taxi) from (.+?) to (.+?)(?: on (\d{4}-\d\d-\d\d))?")
_ROAD = re.compile(r"duration: ([^,]+), distance: ([\d,.]+ k?m)\b")
_KINDS = {"Attractions": Attraction, "Restaurants": Restaurant, "Accommodations": Accommodation}


@dataclasses.dataclass(frozen=True)
class City:
    """What a city offers, in the order of the tables."""

    name: str
    attractions: tuple[Attraction, ...] = ()
    restaurants: tuple[Restaurant, ...] = ()
    accommodations: tuple[Accommodation, ...] = ()


@dataclasses.dataclass(frozen=True)
class Leg:
    """The ways from one city to the next on a day; `drive` is None if there is no usable road."""

    origin: str
    destination: str
    date: str = ""
    flights: tuple[Flight, ...] = ()
    drive: Drive | None = None


@dataclasses.dataclass(frozen=True)
class Reference:
    """Cities in the order of the route, and the legs from the city of departure back to it."""

    cities: tuple[City, ...]
    legs: tuple[Leg, ...]


def read_reference(record: Mapping[str, Any], where: str) -> Reference:
    """Reads one published record; ValueError naming `where` if it is malformed."""
    cities: dict[str, dict[str, Any]] = {}
    legs: dict[tuple[str, str], dict[str, Any]] = {}
    for key, value in record.items():
        about, leg = _KEY.fullmatch(key), _LEG.fullmatch(key)
        try:
            if about:
                offers = cities.setdefault(about[2], {})
                offers[about[1].lower()] = _read_rows(_KINDS[about[1]], value)
            elif leg:
                vehicle, origin, destination, date = leg.groups()
                ways = legs.setdefault((origin, destination), {})
                if vehicle == "Flight":
                    ways |= {"date": date or "", "flights": _read_rows(Flight, value)}
                else:
                    road = _ROAD.search(value)
                    ways["drive"] = Drive(*road.groups()) if road else None
            else:
                raise ValueError("unknown kind of information")
        except (TypeError, ValueError) as error:
            raise ValueError(f"{where}: {key!r}: {error}") from None
    if not cities or not legs:
        raise ValueError(f"{where}: no cities or no legs")
    return Reference(
        tuple(City(name, **offers) for name, offers in cities.items()),
        tuple(Leg(*ends, **ways) for ends, ways in legs.items()),
    )


def _read_rows(kind: type[Row], value: Any) -> tuple[Row, ...]:
    """The rows of a table; a string in place of a table means that there are none."""
    return () if isinstance(value, str) else tuple(read_row(kind, record) for record in value)


def travel_days(days: int) -> tuple[int, ...]:
    """The travel days (from 1) of the usual layout: two nights in each city."""
    return tuple(range(1, days + 1, 2))


def build_reference(query: Query, cities: Sequence[str], database: Database) -> Reference:
    """Reference information for a route through `cities`, on the query's dates in the usual layout."""
    stops = [query.org, *cities, query.org]
    legs = []
    for day, ends in zip(travel_days(query.days), itertools.pairwise(stops), strict=True):
        date = query.date[day - 1]
        flights = tuple(database.flights.between(*ends, date))
        legs.append(Leg(*ends, date, flights, database.drive(*ends)))
    tables = (database.attractions, database.restaurants, database.accommodations)
    offers = (City(name, *(tuple(table.get(name, ())) for table in tables)) for name in cities)
    return Reference(tuple(offers), tuple(legs))


def adapt(reference: Reference, query: Query, database: Database) -> Reference:
    """`reference` for a query with its route and days; else built for the first cities of it that match.

    ValueError if `reference` does not have the query's departure or destination.
    """
    known = [city.name for city in reference.cities]
    org = reference.legs[0].origin
    if query.org != org:
        raise ValueError(f"org: expected {org}")
    if query.days == 3:
        if query.dest not in known:
            raise ValueError(f"dest: expected one of {', '.join(known)}")
        names = [query.dest]
    else:
        names = [name for name in known if database.states.get(name) == query.dest]
        needed = query.visiting_city_number
        if len(names) < needed:
            raise ValueError(f"dest: {len(names)} cities of {query.dest} are described, {needed} needed")
        names = names[:needed]
    if query.org in names:
        raise ValueError("dest: expected other cities than the departure")
    if names == known and layout_of(reference, query):
        return reference
    return build_reference(query, names, database)


def layout_of(reference: Reference, query: Query) -> tuple[int, ...] | None:
    """Days (from 1) of the legs, or None if they do not fit the days of the query."""
    try:
        start = datetime.date.fromisoformat(query.date[0])
        dates = (datetime.date.fromisoformat(leg.date) for leg in reference.legs)
        days = tuple((date - start).days + 1 for date in dates)
    except ValueError:  # a leg without a date
        return None
    rising = all(before < after for before, after in itertools.pairwise(days))
    return days if rising and (days[0], days[-1]) == (1, query.days) else None


def choose_cities(query: Query, database: Database) -> list[str]:
    """Cities for a query without published reference information, from the database alone.

    For a 3-day trip, the destination.  For longer trips, each next city is the nearest in the state by road,
    or the first in the file if no road is known.
    """
    if query.days == 3:
        return [query.dest]
    left = [
        city
        for city, state in database.states.items()
        if state == query.dest
        and city != query.org
        and len(database.restaurants.get(city, ())) >= 3
        and database.attractions.get(city)
        and database.accommodations.get(city)
    ]
    chosen: list[str] = []
    here = query.org
    while left and len(chosen) < query.visiting_city_number:
        drives = [database.drive(here, city) for city in left]
        lengths = [drive.kilometres if drive else float("inf") for drive in drives]
        here = left.pop(lengths.index(min(lengths)))
        chosen.append(here)
    return chosen
