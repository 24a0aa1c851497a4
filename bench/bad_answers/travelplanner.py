"""Plans that are wrong in many ways, made from right ones, and plans of things that do not exist."""

import contextlib
import copy
import itertools
import json
import random
import string
from collections.abc import Callable, Iterator
from typing import Any

from genenv_jax.benchmarks.base import Benchmark, Task
from genenv_jax.benchmarks.travelplanner.planner import find_plan
from genenv_jax.benchmarks.travelplanner.plans import name_and_city
from genenv_jax.benchmarks.travelplanner.queries import Query
from genenv_jax.benchmarks.travelplanner.tasks import World

Plan = list[dict[str, Any]]

SLOTS = ("transportation", "breakfast", "attraction", "lunch", "dinner", "accommodation")
_MEALS = ("breakfast", "lunch", "dinner")
_SLOTS = ("current_city", "transportation", "attraction", "accommodation", *_MEALS)
_UNUSED = "You don't need to fill in the information for this or later days."


class Mutator:
    """Changes to one plan; every public method changes the given plan in place."""

    def __init__(self, task: Task, world: World, seed: str = "mutations of"):
        self.query = Query.from_json(task.answer["query"])
        self.world = world
        self.reference = world.references[task.id]
        self.cities = [city.name for city in self.reference.cities]
        self.rng = random.Random(f"{seed} {task.id}")

    def _day(self, plan: Plan, slot: str | None = None) -> dict[str, Any]:
        filled = [day for day in plan if slot is None or day.get(slot, "-") not in ("-", "")]
        return self.rng.choice(filled or plan)

    def _city_of(self, day: dict[str, Any]) -> str:
        return next(
            (c for c in reversed(self.cities) if day["current_city"].rstrip(")").endswith(c)),
            next((c for c in self.cities if c in day["current_city"]), self.cities[0]),
        )

    def _row(self, table: str, city: str) -> Any:
        return self.rng.choice(getattr(self.world.database, table)[city])

    def _leg(self) -> Any:
        return self.rng.choice(self.reference.legs)

    def other_city(self, plan: Plan) -> None:
        day = self._day(plan)
        other = self.rng.choice([*sorted(self.world.database.states), "Atlantis", "", "denver"])
        day["current_city"] = other

    def other_route(self, plan: Plan) -> None:
        day = self._day(plan)
        ends = self.rng.sample([*self.cities, self.query.org, "Atlantis", "Chicago"], 2)
        day["current_city"] = f"from {ends[0]} to {ends[1]}"

    def odd_city(self, plan: Plan) -> None:
        day = self._day(plan)
        city = day["current_city"]
        day["current_city"] = self.rng.choice(
            [
                city.replace("from ", "").replace(" to ", " "),
                city.replace(" to ", " towards "),
                f"{city}(Nowhere)",
                f"{city} (Nowhere)",
                f"{city}(",
                f" {city}",
                city.lower(),
                f"{city}, {city}",
                f"from {city}",
                f"{city} to",
                city.replace("(", "\n("),
                _UNUSED,
            ]
        )

    def stay_on_travel_day(self, plan: Plan) -> None:
        day = self._day(plan, "transportation")
        day["current_city"] = self._city_of(day)

    def repeat_restaurant(self, plan: Plan) -> None:
        source, target = self.rng.choice(_MEALS), self.rng.choice(_MEALS)
        self._day(plan)[target] = self._day(plan, source).get(source)

    def other_restaurant(self, plan: Plan) -> None:
        for _ in range(self.rng.randint(1, 4)):
            meal = self.rng.choice(_MEALS)
            day = self._day(plan, meal)
            city = self._city_of(day)
            day[meal] = f"{self._row('restaurants', city).name}, {city}"

    def other_restaurants(self, plan: Plan) -> None:
        for day in plan:
            for meal in _MEALS:
                if day.get(meal, "-") != "-":
                    city = self._city_of(day)
                    day[meal] = f"{self._row('restaurants', city).name}, {city}"

    def restaurant_elsewhere(self, plan: Plan) -> None:
        meal = self.rng.choice(_MEALS)
        city = self.rng.choice(sorted(self.world.database.restaurants))
        self._day(plan, meal)[meal] = f"{self._row('restaurants', city).name}, {city}"

    def meal_in_departure(self, plan: Plan) -> None:
        if self.query.org in self.world.database.restaurants:
            row = self._row("restaurants", self.query.org)
            self.rng.choice([plan[0], plan[-1]])[self.rng.choice(_MEALS)] = f"{row.name}, {self.query.org}"

    def other_accommodation(self, plan: Plan) -> None:
        target = self._day(plan, "accommodation")["accommodation"]
        days = [day for day in plan if day["accommodation"] == target]
        city = self._city_of(days[0])
        name = self._row("accommodations", city).name
        for day in days:
            day["accommodation"] = f"{name}, {city}"

    def one_other_night(self, plan: Plan) -> None:
        day = self._day(plan, "accommodation")
        city = self._city_of(day)
        day["accommodation"] = f"{self._row('accommodations', city).name}, {city}"

    def dearest_accommodations(self, plan: Plan) -> None:
        for day in plan:
            if day["accommodation"] != "-":
                city = self._city_of(day)
                rows = self.world.database.accommodations[city]
                day["accommodation"] = f"{max(rows, key=lambda row: row.price).name}, {city}"

    def unknown_place(self, plan: Plan) -> None:
        slot = self.rng.choice([*_MEALS, "accommodation"])
        day = self._day(plan, slot)
        day[slot] = f"Nowhere at all, {self._city_of(day)}"

    def odd_place(self, plan: Plan) -> None:
        slot = self.rng.choice([*_MEALS, "accommodation"])
        day = self._day(plan, slot)
        text = day[slot] or "-"
        name, _, city = text.rpartition(",")
        day[slot] = self.rng.choice(
            [
                f"{name[: max(1, len(name) // 2)]},{city}",
                f"{name[len(name) // 2 :]},{city}",
                f",{city}",
                f"{name},",
                f"{name},  ",
                name,
                text.upper(),
                f"{text}(State)",
                f"{name},{city.split('(')[0]}",
                f"{name},{city} (State)",
                f"{name},{city}.",
                f"first line, x\n{text}",
                f"{text}\n",
                f"{name}.*,{city}",
                f"{text};",
                " ",
            ]
        )

    def dear_or_cheap_trip(self, plan: Plan) -> None:
        pick = self.rng.choice([min, max])
        for day in plan:
            for meal in _MEALS:
                if day.get(meal, "-") != "-":
                    city = self._city_of(day)
                    rows = sorted(self.world.database.restaurants[city], key=lambda row: row.cost)
                    rows = rows[:12] if pick is min else rows[-12:]
                    day[meal] = f"{self.rng.choice(rows).name}, {city}"

    def missing_slot(self, plan: Plan) -> None:
        self._day(plan).pop(self.rng.choice(_SLOTS), None)

    def empty_slot(self, plan: Plan) -> None:
        slot = self.rng.choice(_SLOTS)
        self._day(plan, slot)[slot] = self.rng.choice(["-", "-", "", None])

    def many_empty_slots(self, plan: Plan) -> None:
        for day in plan:
            for slot in _SLOTS[1:]:
                if self.rng.random() < 0.5:
                    day[slot] = "-"

    def drive(self, plan: Plan) -> None:
        self._by_road(plan, "Self-driving")

    def taxi(self, plan: Plan) -> None:
        self._by_road(plan, "Taxi")

    def _by_road(self, plan: Plan, vehicle: str) -> None:
        for day in plan:
            text = day["current_city"]
            if text.startswith("from ") and self.rng.random() < 0.8:
                word = self.rng.choice([vehicle, vehicle, vehicle.lower()])
                day["transportation"] = f"{word}, {text}, duration: 1 hour, cost: 1"

    def other_flight(self, plan: Plan) -> None:
        day = self._day(plan, "transportation")
        flights = [flight for leg in self.reference.legs for flight in leg.flights]
        number = self.rng.choice([flight.number for flight in flights] + ["F0000000"])
        route = day["current_city"]
        day["transportation"] = self.rng.choice(
            [
                f"Flight Number: {number}, {route}, Departure Time: 10:00, Arrival Time: 11:00",
                f"Flight Number: {number}, {route}",
                f"Flight Number: {number}",
                f"flight number: {number}, {route}",
                f"Flight Number:{number}, {route}",
                f"Flight {number}, {route}",
            ]
        )

    def flights_where_there_are(self, plan: Plan) -> None:
        for leg in self.reference.legs:
            for day in plan:
                if leg.flights and leg.origin in day["current_city"].split(" to ")[0]:
                    flight = self.rng.choice(leg.flights)
                    text = f"Flight Number: {flight.number}, {day['current_city']}"
                    day["transportation"] = text

    def odd_transportation(self, plan: Plan) -> None:
        day = self._day(plan, "transportation")
        leg = self._leg()
        day["transportation"] = self.rng.choice(
            [
                "Train, by night",
                "Self-driving",
                "Taxi",
                f"Taxi, from {leg.origin} to {leg.destination}",
                f"Self-driving, from {leg.destination} to {leg.origin}",
                f"Taxi and Self-driving, from {leg.origin} to {leg.destination}",
                f"Self-driving from  {leg.origin}  to  {leg.destination}",
                f"Self-driving, from {leg.origin}(State) to {leg.destination}(State), cost: 1",
                f"Self-driving, from {leg.origin} to ,",
                day["transportation"].replace(" to ", " - "),
                day["transportation"].lower(),
                "-",
            ]
        )

    def mixed_vehicles(self, plan: Plan) -> None:
        day = plan[0]
        day["transportation"] = self.rng.choice(["Self-driving", "Taxi"]) + f", {day['current_city']}"

    def other_attraction(self, plan: Plan) -> None:
        day = self._day(plan, "attraction")
        city = self._city_of(day)
        where = self.rng.choice([city, self.rng.choice(sorted(self.world.database.attractions))])
        row = self._row("attractions", where)
        day["attraction"] = self.rng.choice(
            [
                f"{row.name}, {where};",
                f"{row.name}, {where}",
                f"{day['attraction']}{row.name}, {where};",
                f"{day['attraction']}{day['attraction']}",
                f"{day['attraction']} {day['attraction']}",
                day["attraction"].replace(";", "; "),
                day["attraction"].replace(";", ","),
                f"Nothing to see, {city};",
                ";",
                f"{row.name};",
            ]
        )

    def swap_days(self, plan: Plan) -> None:
        first, second = self.rng.sample(range(len(plan)), 2)
        plan[first], plan[second] = plan[second], plan[first]

    def empty_day(self, plan: Plan) -> None:
        plan[self.rng.randrange(len(plan))] = {}

    def fewer_days(self, plan: Plan) -> None:
        del plan[self.rng.randrange(len(plan))]

    def more_days(self, plan: Plan) -> None:
        plan.insert(self.rng.randrange(len(plan) + 1), dict(self.rng.choice(plan)))

    def more_keys(self, plan: Plan) -> None:
        self._day(plan)["note"] = self.rng.choice(["-", "nice", 3, ["a"], None])


# Another room rarely breaks a rule that is asked for.
_OFTEN = {Mutator.other_accommodation: 6, Mutator.other_restaurants: 3}
KINDS = [k for name, k in vars(Mutator).items() if callable(k) and not name.startswith("_")]


_WORDS = (
    "",
    "-",
    " ",
    None,
    "no",
    "Taxi",
    "from A to B",
    "A(B)",
    "x, y",
    "x;",
    3,
    ["x"],
    {"a": 1},
    "from  to ",
    ", ",
    "(",
)


def _exchange_slots(plan: Plan, other: Plan, rng: random.Random) -> None:
    """Some slots take another day's, another slot's or another plan's text, or what fits nowhere."""
    for _ in range(rng.choice((1, 1, 2, 4))):
        day = rng.choice(plan)
        if day:
            texts = [rng.choice(rng.choice((plan, other)) or [{}]).get(slot) for slot in day]
            day[rng.choice(list(day))] = rng.choice([*texts, rng.choice(_WORDS)])


def _change_characters(plan: Plan, other: Plan, rng: random.Random) -> None:
    """One text is cut, doubled, turned into capitals, or gains or loses a character."""
    day = rng.choice([day for day in plan if day] or [{}])
    slots = [slot for slot, text in day.items() if isinstance(text, str) and text not in ("", "-")]
    if slots:
        slot = rng.choice(slots)
        text = day[slot]
        at = rng.randrange(len(text))
        new = rng.choice(("", ",", ";", "(", ")", " ", "\n", "x", "é", ".", ", "))
        forms = (
            text[:at] + new + text[at + 1 :],
            text[:at],
            text[at:],
            text + text,
            text.upper(),
            text[:at] + new + text[at:],
        )
        day[slot] = rng.choice(forms)


def _exchange_days(plan: Plan, other: Plan, rng: random.Random) -> None:
    """Days left out, repeated, exchanged, emptied or taken from another plan."""
    at = rng.randrange(len(plan))
    forms = (
        plan[:at],
        plan[at:],
        plan[::-1],
        plan + plan[at:],
        [*plan[:at], {}, *plan[at:]],
        rng.sample(plan, len(plan)),
        plan[:at] + other[at:],
        [*plan, {}],
    )
    plan[:] = copy.deepcopy(rng.choice(forms))


CHANGES = {
    "slots exchanged": _exchange_slots,
    "characters wrong": _change_characters,
    "days exchanged": _exchange_days,
}
_REPEATS = 7
_DOUBLES = 4


def plans(annotated: Plan, other: Plan, mutator: Mutator, rng: random.Random) -> Iterator[tuple[str, Plan]]:
    """(kind, plan): the right one, the planner's, another query's, none, and changes to the first two.

    Each kind of `KINDS` comes once, each of `CHANGES` several times, and some pairs of `KINDS` together.
    """
    found = find_plan(mutator.query, mutator.reference, mutator.world.database) or []
    yield "annotated", annotated
    yield "the planner's", found
    yield "another query's", other
    yield "none", []
    starts = [plan for plan in (annotated, found) if plan]
    for kind in KINDS:
        for _ in range(_OFTEN.get(kind, 1)):
            plan = copy.deepcopy(rng.choice(starts))
            kind(mutator, plan)
            yield kind.__name__.replace("_", " "), plan
    for name, change in CHANGES.items():
        for _ in range(_REPEATS):
            plan = copy.deepcopy(rng.choice(starts))
            change(plan, other, rng)
            yield name, plan
    for _ in range(_DOUBLES):
        plan = copy.deepcopy(annotated)
        # The second may not fit what the first has left.
        with contextlib.suppress(KeyError, AttributeError):
            for kind in mutator.rng.sample(KINDS, 2):
                kind(mutator, plan)
        yield "two changes", plan


# -- inventions: what passes the official constraints although it does not exist, or costs nothing --------


def _is_given(text: Any) -> bool:
    return bool(text) and text != "-"


def teleports(plan: Plan, world: World) -> Plan:
    """Every leg by a vehicle that does not exist and therefore costs nothing."""
    for day in plan:
        if _is_given(day["transportation"]):
            day["transportation"] = f"Teleport, {day['current_city']}"
    return plan


def unmarked_sights(plan: Plan, world: World) -> Plan:
    """Nonexistent sights, without the semicolon that makes the official rules look."""
    for number, day in enumerate(plan):
        if _is_given(day["attraction"]):
            day["attraction"] = f"Castle {number} of Nobody, {day['current_city']}"
    return plan


def _letters(rows: list[Any], price: str) -> list[str]:
    """Letters of names, first those that stand for the cheapest row."""
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
            day["accommodation"] = f"{_letters(world.database.accommodations[city], 'price')[0]}, {city}"
    return plan


def template(task: Task, world: World) -> Plan:
    """One text for all queries, which needs only the names of the cities from the information."""
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


# What each changes in a right plan.
INVENTIONS: dict[str, Callable[[Plan, World], Plan]] = {
    function.__name__: function for function in (teleports, unmarked_sights, cut_names)
}


def invent(name: str, plan: Plan, world: World) -> Plan:
    """A copy of `plan` with the inventions of that name."""
    return INVENTIONS[name](copy.deepcopy(plan), world)


def of_task(benchmark: Benchmark, task: Task, rng: random.Random) -> Iterator[tuple[str, str]]:
    """See `bad_answers`."""
    world, right = benchmark.world, json.loads(benchmark.agent_answer(task))
    mutator = Mutator(task, world, "bad answers to")
    for kind, plan in plans(right, [{}], mutator, rng):
        yield kind, json.dumps(plan)
    for kind in INVENTIONS:
        yield kind, json.dumps(invent(kind, right, world))
