"""TravelPlanner's thirteen constraints and its rates, as the official evaluator computes them.

The rules of `evaluation/commonsense_constraint.py` and `evaluation/hard_constraint.py` (TravelPlanner at
commit da7c1d4), quirks included:
  * names match as parts of names, and the first match in the table counts;
  * on a day without "from" in its city, `within current city` compares with single letters of the city;
  * only attractions with a semicolon after them count;
  * flights are looked up by number and cities, not by day, and priced by number alone;
  * the minimum number of nights applies only if the name matches exactly one accommodation;
  * a restaurant in the city of departure ends the check of that day's cuisines.
If the official code raises an exception, which ends its whole run, the constraint counts as failed.

The rates are those of `evaluation/eval.py`, under their official names in snake case.  Micro: the share of
applicable constraints (8 per plan; the budget and those asked for) that are passed.  Macro: the share of
plans that pass all constraints of a kind.  As in the official code, a plan whose hard constraints were not
evaluated does not pass in the commonsense macro rate either.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from genenv_jax.benchmarks.base import MALFORMED, Score, Task
from genenv_jax.benchmarks.travelplanner.database import Accommodation, Database, Drive
from genenv_jax.benchmarks.travelplanner.plans import MEALS, before_parenthesis, name_and_city, route_of
from genenv_jax.benchmarks.travelplanner.queries import Query

Plan = Sequence[Mapping[str, Any]]  # days; slots hold strings, or None (or another empty value)
Verdicts = dict[str, bool | None]  # by constraint; None: not asked

_UNUSED_DAY = "You don't need to fill in the information for this or later days."
_UNWANTED = {"no flight": "Flight", "no self-driving": "Self-driving"}


def is_given(day: Mapping[str, Any], slot: str) -> bool:
    """Whether a slot is filled."""
    return slot in day and bool(_filled(day[slot]))


def _filled(text: Any) -> Any:
    """The text of a slot; empty for "-"."""
    return "" if text == "-" else text


def _given(plan: Plan, *slots: str) -> list[str]:
    """The texts of the filled slots, day by day."""
    return [day[slot] for day in plan for slot in slots if is_given(day, slot)]


def _sights(plan: Plan) -> list[str]:
    """All attractions with a semicolon after them."""
    return [sight for text in _given(plan, "attraction") for sight in text.split(";")[:-1]]


def cities_of(text: str) -> list[str]:
    """The city of a day, or both cities of a travel day; one of `MALFORMED` if it has no such form."""
    if "from" in text:
        origin, destination = route_of(text)
        return [before_parenthesis(origin), before_parenthesis(destination)]
    return [before_parenthesis(text)]


def is_reasonable_visiting_city(query: Query, plan: Plan, database: Database) -> bool:
    """The route is a closed loop from the departure through known cities of the destination, none twice."""
    if not _starts_at_departure(query, plan):
        return False
    cities = [city for day in plan for city in cities_of(day["current_city"])]
    if cities[0] != cities[-1] or not _is_city_sequence(cities):
        return False
    if any(city not in database.states for city in cities):
        return False
    return query.days == 3 or all(database.states[city] == query.dest for city in cities[1:-1])


def _starts_at_departure(query: Query, plan: Plan) -> bool:
    text = plan[0]["current_city"]
    return "from" not in text or cities_of(text)[0] == query.org


def _is_city_sequence(cities: Sequence[str]) -> bool:
    visited: set[str] = set()
    begin = 0
    for city, run in itertools.groupby(cities):
        count = len(list(run))
        is_last = begin == len(cities) - 1
        if not is_last and (city in visited or (count == 1 and begin)):
            return False
        visited.add(city)
        begin += count
    return len(cities) >= 3


def is_valid_restaurants(query: Query, plan: Plan, database: Database) -> bool:
    """No restaurant twice."""
    meals = _given(plan, *MEALS)
    return len(set(meals)) == len(meals)


def is_valid_attractions(query: Query, plan: Plan, database: Database) -> bool:
    """No attraction twice."""
    sights = _sights(plan)
    return len(set(sights)) == len(sights)


def is_valid_accommodation(query: Query, plan: Plan, database: Database) -> bool:
    """Enough consecutive nights in each accommodation."""
    if any("accommodation" not in day for day in plan):
        return False
    for stay, nights in itertools.groupby(day["accommodation"] for day in plan):
        if stay in ("-", ""):
            continue
        named = database.accommodations_named(*name_and_city(stay))
        if len(named) == 1 and len(list(nights)) < named[0].nights:
            return False
    return True


def is_valid_transportation(query: Query, plan: Plan, database: Database) -> bool:
    """The first day has transportation, and an own car is not combined with flights or taxis."""
    if not _filled(plan[0]["transportation"]):
        return False
    known = ("taxi", "self-driving", "flight")  # the first in a text counts
    texts = [text.lower() for text in _given(plan, "transportation")]
    vehicles = {next((vehicle for vehicle in known if vehicle in text), None) for text in texts}
    return not ("self-driving" in vehicles and vehicles & {"flight", "taxi"})


def is_valid_information_in_current_city(query: Query, plan: Plan, database: Database) -> bool:
    """Everything of a day is in one of the day's cities, the accommodation in the last of them."""
    for day in plan:
        text = day["current_city"]
        cities: Sequence[str] = cities_of(text)
        if "from" not in text:
            # The official loops then run over the letters of the city (here each once), and compare the
            # accommodation with the last letter.
            cities = [*dict.fromkeys(cities[0]), *cities[0][-1:]]
        is_leg = is_given(day, "transportation")
        if is_leg and any(city not in day["transportation"] for city in cities):
            return False
        things = _given([day], *MEALS) + _sights([day])
        if not all(any(city in thing for city in cities) for thing in things):
            return False
        if is_given(day, "accommodation") and cities[-1] not in day["accommodation"]:
            return False
    return True


def _flight_number(text: str) -> str:
    return text.split("Flight Number: ")[1].split(",")[0]


def _leg(day: Mapping[str, Any]) -> tuple[str, Sequence[str | None]]:
    """The vehicle of a day ("" if none or unknown), and its route, by default the day's route."""
    text = _filled(day["transportation"])
    if not text:
        return "", (None, None)
    ends = route_of(text)
    if ends[0] is None:
        ends = route_of(day["current_city"])
    known = ("flight number", "self-driving", "taxi")
    return next((vehicle for vehicle in known if vehicle in text.lower()), ""), ends


def _drive(database: Database, ends: Sequence[str]) -> Drive | None:
    # The official code strips the parenthesis twice.
    return database.drive(*(before_parenthesis(before_parenthesis(end)) for end in ends))


def is_valid_information_in_sandbox(query: Query, plan: Plan, database: Database) -> bool:
    """Every flight, road, restaurant, attraction and accommodation is in the database."""
    lookups = (
        (database.restaurant, lambda day: _given([day], *MEALS)),
        (database.attraction, lambda day: _sights([day])),
        (database.accommodation, lambda day: _given([day], "accommodation")),
    )
    return all(
        _is_known_leg(day, database)
        and all(find(*name_and_city(text)) for find, texts in lookups for text in texts(day))
        for day in plan
    )


def _is_known_leg(day: Mapping[str, Any], database: Database) -> bool:
    vehicle, ends = _leg(day)
    if vehicle == "flight number":
        ends = map(before_parenthesis, ends)
        return database.flights.exists(_flight_number(day["transportation"]), *ends)
    return not vehicle or (ends[0] is not None and _drive(database, ends) is not None)


def is_not_absent(query: Query, plan: Plan, database: Database) -> bool:
    """All days and cities are there, each day has what it needs, and half of all slots are filled."""
    used = [day for day in plan if day != {} and day["current_city"] != _UNUSED_DAY]
    if len(used) != query.days or not _has_city_number(query, plan):
        return False
    filled = 0
    for index, day in enumerate(plan):
        slots = ("transportation", *MEALS, "attraction", "accommodation")
        if any(slot not in day for slot in slots):
            return False
        empty = {slot for slot in slots if day[slot] in ("", "-")}
        city = day["current_city"]
        if ("from " in city or "to " in city) and "transportation" in empty:
            return False
        if "from " not in city and " to " not in city and "attraction" in empty:
            return False
        if index != query.days - 1 and "accommodation" in empty:
            return False
        if "from " not in city and empty.intersection(MEALS):
            return False
        filled += sum(1 for value in day.values() if value and value != "-")
    return filled / (6 * query.days) >= 0.5


def _has_city_number(query: Query, plan: Plan) -> bool:
    if not _starts_at_departure(query, plan):
        return False
    cities = {city for day in plan for city in cities_of(day["current_city"])}
    return len(cities - {query.org}) == query.visiting_city_number


def total_cost(query: Query, plan: Plan, database: Database) -> float:
    """The cost of a plan in dollars; entries that are not in the database cost nothing."""
    people, total = query.people_number, 0.0
    for day in plan:
        total += _transportation_cost(people, day, database)
        for meal in MEALS:
            if _filled(day[meal]):
                restaurant = database.restaurant(*name_and_city(day[meal]))
                total += restaurant.cost * people if restaurant else 0
        (stay,) = _stays([day], database)
        total += stay.cost(people) if stay else 0
    return total


def _transportation_cost(people: int, day: Mapping[str, Any], database: Database) -> float:
    vehicle, ends = _leg(day)
    if ends[0] is None or not vehicle:
        return 0
    if vehicle == "flight number":
        return (database.flights.price(_flight_number(day["transportation"])) or 0) * people
    drive = _drive(database, ends)
    return drive.taxi_cost(people) if vehicle == "taxi" else drive.car_cost(people)


def _stays(plan: Plan, database: Database) -> Iterator[Accommodation | None]:
    """The accommodation of each day; None if there is none or the database does not have it."""
    for day in plan:
        text = _filled(day["accommodation"])
        yield database.accommodation(*name_and_city(text)) if text else None


def valid_cost(query: Query, plan: Plan, database: Database) -> bool:
    """The cost is within the budget."""
    return total_cost(query, plan, database) <= query.budget


def valid_room_rule(query: Query, plan: Plan, database: Database) -> bool:
    """No accommodation forbids what the party wants to do."""
    return all(_allows(query, stay) for stay in _stays(plan, database) if stay)


def valid_room_type(query: Query, plan: Plan, database: Database) -> bool:
    """Every accommodation is of the type asked for."""
    return all(_is_of_type(query, stay) for stay in _stays(plan, database) if stay)


def suits(query: Query, stay: Accommodation) -> bool:
    """Whether an accommodation has the house rules and the room type that a query asks for."""
    return _allows(query, stay) and _is_of_type(query, stay)


def _allows(query: Query, stay: Accommodation) -> bool:
    return query.house_rule is None or f"No {query.house_rule}" not in stay.rules


def _is_of_type(query: Query, stay: Accommodation) -> bool:
    if query.room_type == "not shared room":
        return stay.room_type != "Shared room"
    if query.room_type == "entire room":
        return stay.room_type == "Entire home/apt"
    return query.room_type is None or stay.room_type == query.room_type.capitalize()


def valid_cuisine(query: Query, plan: Plan, database: Database) -> bool:
    """Every cuisine asked for is served outside the city of departure."""
    served: set[str] = set()
    for day in plan:
        for meal in MEALS:
            if not _filled(day[meal]):
                continue
            name, city = name_and_city(day[meal])
            if city == query.org:
                break
            if restaurant := database.restaurant(name, city):
                served.update(c for c in query.cuisine if c in restaurant.cuisines)
    return len(served) == len(query.cuisine)


def valid_transportation(query: Query, plan: Plan, database: Database) -> bool:
    """The plan does not use the vehicle that the party does not want."""
    texts = (_filled(day["transportation"]) for day in plan)
    return not any(_UNWANTED[query.transportation] in text for text in texts if text)


class Constraint(NamedTuple):
    """A constraint, its name in the official paper, and the query field that asks for it."""

    rule: Callable[[Query, Plan, Database], bool]
    term: str
    asked: str = ""


def _by_name(*constraints: Constraint) -> dict[str, Constraint]:
    return {constraint.rule.__name__: constraint for constraint in constraints}


# In the order of the official evaluator.
COMMONSENSE = _by_name(
    Constraint(is_reasonable_visiting_city, "reasonable_city_route"),
    Constraint(is_valid_restaurants, "diverse_restaurants"),
    Constraint(is_valid_attractions, "diverse_attractions"),
    Constraint(is_valid_accommodation, "minimum_nights_stay"),
    Constraint(is_valid_transportation, "non_conflicting_transportation"),
    Constraint(is_valid_information_in_current_city, "within_current_city"),
    Constraint(is_valid_information_in_sandbox, "within_sandbox"),
    Constraint(is_not_absent, "complete_information"),
)
HARD = _by_name(
    Constraint(valid_cuisine, "cuisine", "cuisine"),
    Constraint(valid_room_rule, "room_rule", "house_rule"),
    Constraint(valid_transportation, "transportation", "transportation"),
    Constraint(valid_room_type, "room_type", "room_type"),
    Constraint(valid_cost, "budget", "budget"),
)


def judge(query: Query, plan: Plan, database: Database) -> tuple[Verdicts, bool, list[str]]:
    """All verdicts on a plan's days, empty if none was delivered.  Never raises.

    Returns:
      The verdict of each constraint: True, False, or None for a hard constraint that was not asked.
      Whether the hard constraints were evaluated: only if `is_not_absent` and
      `is_valid_information_in_sandbox` accept the plan; otherwise those asked count as failed.
      The constraints whose official code raises an exception.
    """
    asked = [name for name, constraint in HARD.items() if getattr(query, constraint.asked)]
    # Constraints that are not evaluated are not passed.
    verdicts: Verdicts = dict.fromkeys(COMMONSENSE, False) | dict.fromkeys(HARD)
    verdicts |= dict.fromkeys(asked, False)
    crashed: list[str] = []

    def look_at(names: Iterable[str]) -> None:
        for name in names:
            rule = (COMMONSENSE | HARD)[name].rule
            try:
                verdicts[name] = rule(query, plan[: query.days], database)
            except MALFORMED:
                crashed.append(name)

    if plan:
        look_at(COMMONSENSE)
    evaluated = bool(verdicts["is_not_absent"] and verdicts["is_valid_information_in_sandbox"])
    if evaluated:
        look_at(asked)
    return verdicts, evaluated, crashed


def failed(verdicts: Verdicts) -> list[str]:
    """The constraints that failed, in the order of the official evaluator."""
    return [name for name in (*COMMONSENSE, *HARD) if verdicts[name] is False]


# The GenEnv paper reports the mean of these rates for TravelPlanner.
PAPER_MEAN = tuple(
    f"{kind}_constraint_{how}_pass_rate" for kind in ("commonsense", "hard") for how in ("micro", "macro")
)
GROUNDED = "grounded"  # the entry of `Score.detail` with the verdicts that the training reward uses


def official_metrics(
    results: Sequence[tuple[Task, Score]], unread: Callable[[Task], Mapping[str, Any]]
) -> dict[str, float]:
    """The official rates, from the `Score.detail` of each answer; `unread` makes one if a score has none.

    Returns:
      accuracy                 the final pass rate; 0 if there are no results;
      delivery_rate            the share of plans that could be read;
      `PAPER_MEAN`, final_pass_rate   final: the share of plans that pass all constraints;
      genenv_mean              the mean of `PAPER_MEAN`;
      within_sandbox, ...      the rate of each constraint among the plans to which it applies, under its
                               name in the official paper;
      grounded_...             the same for the verdicts that the reward uses (ours);
      easy_3_days_final_pass_rate, ...
    """
    if not results:
        return {"accuracy": 0.0}
    details = [score.detail or unread(task) for task, score in results]
    rates = _rates(details)
    metrics = {
        "accuracy": rates["final_pass_rate"],
        "delivery_rate": _mean(detail["delivered"] for detail in details),
        **rates,
        "genenv_mean": _mean(rates[name] for name in PAPER_MEAN),
    }
    for name, constraint in (COMMONSENSE | HARD).items():
        verdicts = [detail["constraints"][name] for detail in details]
        if any(verdict is not None for verdict in verdicts):
            metrics[constraint.term] = _mean(verdicts)
    grounded = _rates([detail[GROUNDED] for detail in details])
    metrics |= {f"{GROUNDED}_{name}": rate for name, rate in grounded.items()}
    strata: dict[str, list[bool]] = {}
    for (task, _), detail in zip(results, details, strict=True):
        strata.setdefault(task.category, []).append(not failed(detail["constraints"]))
    return metrics | {f"{name}_final_pass_rate": _mean(strata[name]) for name in sorted(strata)}


def _rates(details: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    found = {}
    for kind, names in (("commonsense", COMMONSENSE), ("hard", HARD)):
        of_each = [[detail["constraints"][name] for name in names] for detail in details]
        found[f"{kind}_constraint_micro_pass_rate"] = _mean(itertools.chain(*of_each))
        pairs = zip(details, of_each, strict=True)
        passed = (of["hard_evaluated"] and False not in verdicts for of, verdicts in pairs)
        found[f"{kind}_constraint_macro_pass_rate"] = _mean(passed)
    found["final_pass_rate"] = _mean(not failed(detail["constraints"]) for detail in details)
    return found


def _mean(values: Iterable[float | None]) -> float:
    """The mean of the values that are not None."""
    known = [float(value) for value in values if value is not None]
    return sum(known) / len(known)
