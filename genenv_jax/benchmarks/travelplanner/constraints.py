"""TravelPlanner's thirteen constraints, each as the official evaluator gives it.

The rules of `evaluation/commonsense_constraint.py` and `evaluation/hard_constraint.py` (TravelPlanner at
commit da7c1d4), quirks included:
  * names match as parts of names, and the first match in the table counts;
  * on a day without "from" in its city, `within current city` compares with single letters of the city;
  * only attractions that a semicolon follows count;
  * flights are looked up by number and cities, not by day, and priced by number alone;
  * the minimum of nights holds only where the name fits exactly one accommodation;
  * a restaurant in the city of departure ends the look at that day's cuisines.
Where the official code raises an exception, which ends its whole run, the constraint counts as failed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks.travelplanner.database import Accommodation, Database, cars, taxis
from genenv_jax.benchmarks.travelplanner.names import before_parenthesis, name_and_city, route_of
from genenv_jax.benchmarks.travelplanner.queries import Query

Plan = Sequence[Mapping[str, Any]]  # a day each; texts, or None (or another empty value) for none

_MEALS = ("breakfast", "lunch", "dinner")
_UNUSED_DAY = "You don't need to fill in the information for this or later days."
_CRASHES = (KeyError, TypeError, AttributeError, IndexError, ValueError)
_HOUSE_RULES = {
    "smoking": "No smoking",
    "parties": "No parties",
    "children under 10": "No children under 10",
    "visitors": "No visitors",
    "pets": "No pets",
}
_ROOM_TYPES = {
    "shared room": "Shared room",
    "private room": "Private room",
    "entire room": "Entire home/apt",
}


def _days(query: Query, plan: Plan) -> Plan:
    return plan[: query.days]


def is_given(day: Mapping[str, Any], slot: str) -> bool:
    """Whether something stands in a slot."""
    return bool(slot in day and day[slot] and day[slot] != "-")


def cities_of(text: str) -> list[str]:
    """The one city of a day, or both of a day of travel; TypeError if "from" begins no route."""
    if "from" in text:
        origin, destination = route_of(text)
        return [before_parenthesis(origin), before_parenthesis(destination)]
    return [before_parenthesis(text)]


def is_reasonable_visiting_city(query: Query, plan: Plan, database: Database) -> bool:
    """A closed loop from the departure through known cities of the destination, none twice."""
    cities: list[str] = []
    for index, day in enumerate(_days(query, plan)):
        text = day["current_city"]
        found = cities_of(text)
        if index == 0 and "from" in text and found[0] != query.org:
            return False
        cities += found
    if cities[0] != cities[-1] or not _is_city_sequence(cities):
        return False
    for index, city in enumerate(cities):
        if city not in database.states:
            return False
        inner = 0 < index < len(cities) - 1
        if inner and query.days > 3 and database.states[city] != query.dest:
            return False
    return True


def _is_city_sequence(cities: Sequence[str]) -> bool:
    if len(cities) < 3:
        return False
    visited: set[str] = set()
    position = 0
    while position < len(cities):
        city = cities[position]
        if city in visited and position not in (0, len(cities) - 1):
            return False
        count = 0
        while position < len(cities) and cities[position] == city:
            count += 1
            position += 1
        if count == 1 and 0 < position - 1 < len(cities) - 1:
            return False
        visited.add(city)
    return True


def is_valid_restaurants(query: Query, plan: Plan, database: Database) -> bool:
    """No restaurant twice."""
    meals = [day[meal] for day in _days(query, plan) for meal in _MEALS if is_given(day, meal)]
    return len(set(meals)) == len(meals)


def is_valid_attractions(query: Query, plan: Plan, database: Database) -> bool:
    """No attraction twice."""
    seen: list[str] = []
    for day in _days(query, plan):
        if is_given(day, "attraction"):
            seen += day["attraction"].split(";")[:-1]
    return len(set(seen)) == len(seen)


def is_valid_accommodation(query: Query, plan: Plan, database: Database) -> bool:
    """Enough consecutive nights in each accommodation."""
    stays = []
    for day in _days(query, plan):
        if "accommodation" not in day:
            return False
        stays.append(day["accommodation"])
    for stay, nights in itertools.groupby(stays):
        if stay in ("-", ""):
            continue
        named = database.accommodations_named(*name_and_city(stay))
        if len(named) == 1 and len(list(nights)) < named[0].nights:
            return False
    return True


def _vehicle(text: str) -> str | None:
    for vehicle in ("taxi", "self-driving", "flight"):
        if vehicle in text.lower():
            return vehicle
    return None


def is_valid_transportation(query: Query, plan: Plan, database: Database) -> bool:
    """Something on the first day, and no own car together with flights or taxis."""
    first = plan[0]["transportation"]
    if not first or first == "-":
        return False
    vehicles = {_vehicle(first)}
    vehicles.update(
        _vehicle(day["transportation"])
        for day in _days(query, plan)
        if is_given(day, "transportation")
    )
    return not ("self-driving" in vehicles and vehicles & {"flight", "taxi"})


def is_valid_information_in_current_city(query: Query, plan: Plan, database: Database) -> bool:
    """Everything of a day is in one of the day's cities, the accommodation in the last of them."""
    for day in _days(query, plan):
        text = day["current_city"]
        cities: Sequence[str] = cities_of(text)
        if "from" not in text:
            # The official loops then run over the letters of the city (here each once), and the
            # accommodation is compared with the last one.
            cities = [*dict.fromkeys(cities[0]), cities[0][-1:]]
            if not cities[0]:
                cities = []
        if is_given(day, "transportation") and any(
            city not in day["transportation"] for city in cities
        ):
            return False
        for meal in _MEALS:
            if is_given(day, meal) and not any(city in day[meal] for city in cities):
                return False
        if is_given(day, "attraction"):
            for attraction in day["attraction"].split(";")[:-1]:
                if not any(city in attraction for city in cities):
                    return False
        if is_given(day, "accommodation") and cities[-1] not in day["accommodation"]:
            return False
    return True


def _flight_number(text: str) -> str:
    return text.split("Flight Number: ")[1].split(",")[0]


def is_valid_information_in_sandbox(query: Query, plan: Plan, database: Database) -> bool:
    """Every flight, road, restaurant, attraction and accommodation is in the data base."""
    for day in _days(query, plan):
        text = day["transportation"]
        if text and text != "-":
            origin, destination = route_of(text)
            if origin is None:
                origin, destination = route_of(day["current_city"])
            if "flight number" in text.lower():
                origin, destination = before_parenthesis(origin), before_parenthesis(destination)
                if not database.flights.exists(_flight_number(text), origin, destination):
                    return False
            elif ("self-driving" in text.lower() or "taxi" in text.lower()) and (
                origin is None or _drive(database, origin, destination) is None
            ):
                return False
        for meal in _MEALS:
            if is_given(day, meal) and database.restaurant(*name_and_city(day[meal])) is None:
                return False
        if is_given(day, "attraction"):
            for attraction in day["attraction"].split(";")[:-1]:
                if database.attraction(*name_and_city(attraction)) is None:
                    return False
        if is_given(day, "accommodation") and not database.accommodations_named(
            *name_and_city(day["accommodation"])
        ):
            return False
    return True


def _drive(database: Database, origin: str, destination: str):
    # The official code cuts the parenthesis twice.
    ends = [before_parenthesis(before_parenthesis(end)) for end in (origin, destination)]
    return database.drive(*ends)


def is_not_absent(query: Query, plan: Plan, database: Database) -> bool:
    """All days and cities, what each day needs, and half of all slots filled."""
    days = _days(query, plan)
    filled_days = [day for day in days if day != {} and day["current_city"] != _UNUSED_DAY]
    if len(filled_days) != query.days or not _has_city_number(query, days):
        return False
    filled = 0
    for index, day in enumerate(days):
        if any(slot not in day for slot in ("transportation", *_MEALS, "attraction")):
            return False
        if "accommodation" not in day:
            return False
        city = day["current_city"]
        if ("from " in city or "to " in city) and day["transportation"] in ("", "-"):
            return False
        if "from " not in city and " to " not in city and day["attraction"] in ("", "-"):
            return False
        if index != query.days - 1 and day["accommodation"] in ("", "-"):
            return False
        if "from " not in city and any(day[meal] in ("", "-") for meal in _MEALS):
            return False
        filled += sum(1 for value in day.values() if value and value != "-")
    return filled / (6 * query.days) >= 0.5


def _has_city_number(query: Query, days: Plan) -> bool:
    cities: set[str] = set()
    for index, day in enumerate(days):
        found = cities_of(day["current_city"])
        if index == 0 and "from" in day["current_city"] and found[0] != query.org:
            return False
        cities.update(found)
    cities.discard(query.org)
    return len(cities) == query.visiting_city_number


def total_cost(query: Query, plan: Plan, database: Database) -> float:
    """Dollars that a plan takes; what is not in the data base costs nothing."""
    total = 0.0
    for day in _days(query, plan):
        total += _transportation_cost(query, day, database)
        for meal in _MEALS:
            if day[meal] and day[meal] != "-":
                restaurant = database.restaurant(*name_and_city(day[meal]))
                total += restaurant.cost * query.people_number if restaurant else 0
        accommodation = _accommodation(day, database)
        if accommodation:
            total += accommodation.price * math.ceil(query.people_number / accommodation.guests)
    return total


def _transportation_cost(query: Query, day: Mapping[str, Any], database: Database) -> float:
    text = day["transportation"]
    if not text or text == "-":
        return 0
    origin, destination = route_of(text)
    if origin is None:
        origin, destination = route_of(day["current_city"])
    if origin is None:
        return 0
    if "flight number" in text.lower():
        return (database.flights.price(_flight_number(text)) or 0) * query.people_number
    if "self-driving" in text.lower():
        return _drive(database, origin, destination).car_cost() * cars(query.people_number)
    if "taxi" in text.lower():
        return _drive(database, origin, destination).taxi_cost() * taxis(query.people_number)
    return 0


def _accommodation(day: Mapping[str, Any], database: Database) -> Accommodation | None:
    """The accommodation of a day, if there is one and the data base has it."""
    if not day["accommodation"] or day["accommodation"] == "-":
        return None
    named = database.accommodations_named(*name_and_city(day["accommodation"]))
    return named[0] if named else None


def valid_cost(query: Query, plan: Plan, database: Database) -> bool | None:
    """Within the budget; always asked."""
    return total_cost(query, plan, database) <= query.budget


def valid_room_rule(query: Query, plan: Plan, database: Database) -> bool | None:
    """No accommodation forbids what the party wants to do; None if not asked."""
    if query.house_rule is None:
        return None
    forbidden = _HOUSE_RULES.get(query.house_rule)
    for day in _days(query, plan):
        accommodation = _accommodation(day, database)
        if accommodation and forbidden and forbidden in accommodation.rules:
            return False
    return True


def valid_cuisine(query: Query, plan: Plan, database: Database) -> bool | None:
    """Every cuisine asked for is served outside the city of departure; None if not asked."""
    if not query.cuisine:
        return None
    served: set[str] = set()
    for day in _days(query, plan):
        for meal in _MEALS:
            if not day[meal] or day[meal] == "-":
                continue
            name, city = name_and_city(day[meal])
            if city == query.org:
                break
            restaurant = database.restaurant(name, city)
            if restaurant:
                served.update(c for c in query.cuisine if c in restaurant.cuisines)
    return len(served) == len(query.cuisine)


def valid_room_type(query: Query, plan: Plan, database: Database) -> bool | None:
    """Every accommodation is of the type asked for; None if not asked."""
    if query.room_type is None:
        return None
    for day in _days(query, plan):
        accommodation = _accommodation(day, database)
        if accommodation and not fits_room_type(query.room_type, accommodation.room_type):
            return False
    return True


def fits_room_type(asked: str, found: str) -> bool:
    """Whether an accommodation of type `found` is what was asked for."""
    if asked == "not shared room":
        return found != "Shared room"
    return asked not in _ROOM_TYPES or found == _ROOM_TYPES[asked]


def fits_house_rule(asked: str | None, rules: str) -> bool:
    """Whether an accommodation with these rules allows what was asked for (None: nothing)."""
    return asked is None or _HOUSE_RULES[asked] not in rules


def valid_transportation(query: Query, plan: Plan, database: Database) -> bool | None:
    """The vehicle that the party does not want is not used; None if not asked."""
    if query.transportation is None:
        return None
    unwanted = {"no flight": "Flight", "no self-driving": "Self-driving"}.get(query.transportation)
    for day in _days(query, plan):
        text = day["transportation"]
        if text and text != "-" and unwanted and unwanted in text:
            return False
    return True


Constraint = Callable[[Query, Plan, Database], bool | None]

# In the order of the official evaluator.
COMMONSENSE: dict[str, Constraint] = {
    "is_reasonable_visiting_city": is_reasonable_visiting_city,
    "is_valid_restaurants": is_valid_restaurants,
    "is_valid_attractions": is_valid_attractions,
    "is_valid_accommodation": is_valid_accommodation,
    "is_valid_transportation": is_valid_transportation,
    "is_valid_information_in_current_city": is_valid_information_in_current_city,
    "is_valid_information_in_sandbox": is_valid_information_in_sandbox,
    "is_not_absent": is_not_absent,
}
HARD: dict[str, Constraint] = {
    "valid_cuisine": valid_cuisine,
    "valid_room_rule": valid_room_rule,
    "valid_transportation": valid_transportation,
    "valid_room_type": valid_room_type,
    "valid_cost": valid_cost,
}


def is_asked(name: str, query: Query) -> bool:
    """Whether a query asks for a hard constraint."""
    return {
        "valid_cuisine": bool(query.cuisine),
        "valid_room_rule": query.house_rule is not None,
        "valid_transportation": query.transportation is not None,
        "valid_room_type": query.room_type is not None,
        "valid_cost": True,
    }[name]


def judge(
    query: Query, plan: Plan, database: Database
) -> tuple[dict[str, bool | None], bool, list[str]]:
    """All verdicts on a plan.  Total.

    Args:
      query: what was asked.
      plan: the days of the plan, without padding; empty where none was delivered.
      database: what it is checked against.

    Returns:
      The verdict of each constraint: True, False, or None for a hard constraint that was not asked.
      Whether the hard constraints were looked at: only in a plan that `is_not_absent` and
      `is_valid_information_in_sandbox` accept; else those asked count as failed.
      The constraints whose official code raises an exception.
    """
    crashed: list[str] = []

    def verdict(name: str, constraint: Constraint) -> bool | None:
        try:
            return constraint(query, plan, database)
        except _CRASHES:
            crashed.append(name)
            return False

    if not plan:
        return undelivered(query), False, crashed
    verdicts = {name: verdict(name, rule) for name, rule in COMMONSENSE.items()}
    evaluated = bool(verdicts["is_not_absent"] and verdicts["is_valid_information_in_sandbox"])
    if not evaluated:
        return {**undelivered(query), **verdicts}, False, crashed
    verdicts.update((name, verdict(name, rule)) for name, rule in HARD.items())
    return verdicts, evaluated, crashed


def undelivered(query: Query) -> dict[str, bool | None]:
    """The verdicts where there is no plan: nothing that applies is passed."""
    verdicts: dict[str, bool | None] = dict.fromkeys(COMMONSENSE, False)
    verdicts.update((name, False if is_asked(name, query) else None) for name in HARD)
    return verdicts
