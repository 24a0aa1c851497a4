"""A planner without a model: finds a plan that passes all constraints, if one exists in the usual layout.

It searches only the rows that it is given, so a plan from the rows of a prompt proves that the prompt
admits one.  It writes the reference answers of tasks and checks the tasks that the simulator writes.
"""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

from genenv_jax.benchmarks.travelplanner.database import Database, text_of
from genenv_jax.benchmarks.travelplanner.plans import MEALS, SLOTS, name_and_city
from genenv_jax.benchmarks.travelplanner.queries import Query
from genenv_jax.benchmarks.travelplanner.references import City, Leg, Reference, layout_of, travel_days
from genenv_jax.benchmarks.travelplanner.scoring import failed, judge, suits

_ATTRACTIONS_A_DAY = 2


@dataclasses.dataclass(frozen=True)
class _Choice:
    """A candidate for a slot: its text, dollars for the whole party, and the cuisines that it serves."""

    text: str
    cost: float
    cuisines: frozenset[str] = frozenset()


def find_plan(query: Query, reference: Reference, database: Database) -> list[dict[str, Any]] | None:
    """A plan that passes every constraint, made of the rows of `reference`; None if there is none.

    The trip follows the route of the reference, on its days if they fit the query, otherwise with two nights
    per city, by own car or by flights and taxis.  It takes the cheapest legs, suitable accommodations
    and restaurants that serve all cuisines, and adds meals on travel days as far as the budget allows.
    """
    cities = len(reference.cities)
    if (cities, len(reference.legs)) != (query.visiting_city_number, cities + 1):
        return None
    layouts = dict.fromkeys([layout_of(reference, query), travel_days(query.days)])
    for layout in filter(None, layouts):
        nights = (after - before for before, after in itertools.pairwise(layout))
        pairs = zip(reference.cities, nights, strict=True)
        stays = [_stay(city, query, count, database) for city, count in pairs]
        if not all(stays):
            continue
        for legs in _ways(reference.legs, query):
            plan = _fill(query, reference, database, layout, legs, stays)
            if plan is not None and not failed(judge(query, plan, database)[0]):
                return plan
    return None


def _ways(legs: Sequence[Leg], query: Query) -> list[list[_Choice]]:
    """The ways to travel all legs, the cheapest first."""
    ways = []
    if query.transportation != "no self-driving":
        ways.append([_by_car(leg, query) for leg in legs])
    ways.append([_by_flight_or_taxi(leg, query) for leg in legs])
    complete = [way for way in ways if all(way)]
    return sorted(complete, key=lambda way: sum(choice.cost for choice in way))


def _by_car(leg: Leg, query: Query) -> _Choice | None:
    if leg.drive is None:
        return None
    text = _road("Self-driving", leg, leg.drive.car_cost())
    return _Choice(text, leg.drive.car_cost(query.people_number))


def _by_flight_or_taxi(leg: Leg, query: Query) -> _Choice | None:
    choices = []
    if leg.drive is not None:
        text = _road("Taxi", leg, leg.drive.taxi_cost())
        choices.append(_Choice(text, leg.drive.taxi_cost(query.people_number)))
    if query.transportation != "no flight":
        for flight in leg.flights:
            text = (
                f"Flight Number: {flight.number}, from {leg.origin} to {leg.destination}, "
                f"Departure Time: {flight.departure}, Arrival Time: {flight.arrival}"
            )
            choices.append(_Choice(text, flight.price * query.people_number))
    return min(choices, key=lambda choice: choice.cost, default=None)


def _road(vehicle: str, leg: Leg, cost: int) -> str:
    return (
        f"{vehicle}, from {leg.origin} to {leg.destination}, duration: {leg.drive.duration}, "
        f"distance: {leg.drive.distance}, cost: {cost}"
    )


def _stay(city: City, query: Query, nights: int, database: Database) -> _Choice | None:
    """The cheapest suitable accommodation, as the evaluator sees it (the first row with its name)."""
    choices = [
        _Choice(text_of(row), seen.cost(query.people_number) * nights)
        for row in city.accommodations
        if (seen := database.accommodation(*name_and_city(text_of(row))))
        and max(row.nights, seen.nights) <= nights
        and suits(query, seen)
    ]
    return min(choices, key=lambda choice: choice.cost, default=None)


def _restaurants(city: City, query: Query, database: Database) -> list[_Choice]:
    choices = {}
    for row in city.restaurants:
        text = text_of(row)
        seen = database.restaurant(*name_and_city(text))
        if seen is not None and text not in choices:
            cuisines = frozenset(c for c in query.cuisine if c in seen.cuisines)
            choices[text] = _Choice(text, seen.cost * query.people_number, cuisines)
    return sorted(choices.values(), key=lambda choice: choice.cost)


# (number of choices, cuisines served) -> (dollars, choices), the cheapest for each key.
_Table = dict[tuple[int, frozenset[str]], tuple[float, tuple[_Choice, ...]]]


def _selections(choices: Sequence[_Choice], most: int) -> _Table:
    """The cheapest selection of each size and set of cuisines."""
    table: _Table = {(0, frozenset()): (0.0, ())}
    for choice in choices:
        for (count, cuisines), (cost, chosen) in list(table.items()):
            if count == most:
                continue
            key = (count + 1, cuisines | choice.cuisines)
            if key not in table or cost + choice.cost < table[key][0]:
                table[key] = (cost + choice.cost, (*chosen, choice))
    return table


def _cheapest_meals(
    tables: Sequence[_Table], needed: Sequence[int], cuisines: frozenset[str], budget: float
) -> tuple[tuple[_Choice, ...], ...] | None:
    """Restaurants for each city: at least `needed`, serving all cuisines, as many as the budget allows.

    None if the budget or the rows do not suffice for `needed` and `cuisines`.
    """
    # (meals beyond those needed, cuisines served) -> (dollars, choices of each city).
    states: dict[tuple[int, frozenset[str]], tuple[float, tuple[tuple[_Choice, ...], ...]]]
    states = {(0, frozenset()): (0.0, ())}
    for table, least in zip(tables, needed, strict=True):
        following: dict[Any, Any] = {}
        for (extra, served), (cost, chosen) in states.items():
            for (count, adds), (more, choices) in table.items():
                if count < least or cost + more > budget:
                    continue
                key = (extra + count - least, served | adds)
                if key not in following or cost + more < following[key][0]:
                    following[key] = (cost + more, (*chosen, choices))
        states = following
    served_all = [(extra, of) for (extra, served), of in states.items() if served >= cuisines]
    complete = [(-extra, cost, chosen) for extra, (cost, chosen) in served_all]
    return min(complete, key=lambda item: item[:2])[2] if complete else None


def _fill(
    query: Query,
    reference: Reference,
    database: Database,
    layout: Sequence[int],
    legs: Sequence[_Choice],
    stays: Sequence[_Choice],
) -> list[dict[str, Any]] | None:
    """A plan with the given legs and accommodations; None if the budget or the rows do not suffice."""
    left = query.budget - sum(choice.cost for choice in (*legs, *stays))
    if left < 0:
        return None
    gaps = list(itertools.pairwise(layout))
    needed = [len(MEALS) * (after - before - 1) for before, after in gaps]
    pairs = zip(reference.cities, needed, strict=True)
    tables = [_selections(_restaurants(city, query, database), n + 2) for city, n in pairs]
    meals = _cheapest_meals(tables, needed, frozenset(query.cuisine), left)
    if meals is None:
        return None
    days = [{"days": day, **dict.fromkeys(SLOTS, "-")} for day in range(1, query.days + 1)]
    for day, leg, way in zip(layout, reference.legs, legs, strict=True):
        days[day - 1]["current_city"] = f"from {leg.origin} to {leg.destination}"
        days[day - 1]["transportation"] = way.text
    places = zip(reference.cities, gaps, stays, meals, strict=True)
    for city, (before, after), stay, chosen in places:
        slots = [(day, meal) for day in range(before + 1, after) for meal in MEALS]
        slots += [(before, "dinner"), (after, "breakfast")]
        for (day, meal), restaurant in zip(slots, chosen, strict=False):
            days[day - 1][meal] = restaurant.text
        for day in range(before, after):
            days[day - 1]["accommodation"] = stay.text
        named = dict.fromkeys(text_of(row) for row in city.attractions if ";" not in row.name)
        attractions = [text for text in named if database.attraction(*name_and_city(text))]
        full_days = range(before + 1, after)
        if len(attractions) < len(full_days):
            return None
        share = min(_ATTRACTIONS_A_DAY, len(attractions) // len(full_days)) if full_days else 0
        for index, day in enumerate(full_days):
            seen = attractions[index * share : (index + 1) * share]
            days[day - 1]["current_city"] = city.name
            days[day - 1]["attraction"] = "".join(f"{text};" for text in seen)
    return days
