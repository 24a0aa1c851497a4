"""Plans that are wrong in many ways, made from the annotated ones, for comparing verdicts."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

from genenv_jax.benchmarks.base import Task
from genenv_jax.benchmarks.travelplanner.planner import find_plan
from genenv_jax.benchmarks.travelplanner.queries import Query
from genenv_jax.benchmarks.travelplanner.records import World

Plan = list[dict[str, Any]]

_MEALS = ("breakfast", "lunch", "dinner")
_SLOTS = ("current_city", "transportation", "attraction", "accommodation", *_MEALS)
_UNUSED = "You don't need to fill in the information for this or later days."


class Mutator:
    """Changes of one plan; every public method changes the plan that it is given, in place."""

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
            self.rng.choice([plan[0], plan[-1]])[self.rng.choice(_MEALS)] = (
                f"{row.name}, {self.query.org}"
            )

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
        day["transportation"] = (
            self.rng.choice(["Self-driving", "Taxi"]) + f", {day['current_city']}"
        )

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


KINDS = [k for name, k in vars(Mutator).items() if callable(k) and not name.startswith("_")]
_REPEATED: dict[Callable[[Mutator, Plan], None], int] = {
    Mutator.other_restaurant: 4,
    Mutator.other_restaurants: 3,
    Mutator.other_accommodation: 5,
    Mutator.one_other_night: 3,
    Mutator.odd_place: 6,
    Mutator.odd_city: 5,
    Mutator.odd_transportation: 5,
    Mutator.other_attraction: 4,
    Mutator.other_flight: 3,
    Mutator.empty_slot: 3,
    Mutator.missing_slot: 2,
    Mutator.dear_or_cheap_trip: 3,
}


def mutations(task: Task, world: World) -> list[Plan]:
    """The annotated plan, the planner's plan, none, and changes of the annotated plan.

    Deterministic; empty days at the end are left out, as reading a plan does.
    """
    annotated = [dict(day) for day in task.answer["annotated_plan"]]
    mutator = Mutator(task, world)
    found = find_plan(mutator.query, mutator.reference, world.database)
    plans: list[Plan] = [annotated, found or [], []]
    for index, kind in enumerate(KINDS):
        for repeat in range(_REPEATED.get(kind, 1)):
            # Every other change starts from the planner's plan, which is built in another way.
            plan = copy.deepcopy(found if (index + repeat) % 2 and found else annotated)
            kind(mutator, plan)
            while plan and plan[-1] == {}:
                plan.pop()
            plans.append(plan)
    for _ in range(4):  # two changes at once
        plan = copy.deepcopy(annotated)
        for kind in mutator.rng.sample(KINDS, 2):
            try:
                kind(mutator, plan)
            except (KeyError, AttributeError):  # the second does not fit what the first has left
                break
        while plan and plan[-1] == {}:
            plan.pop()
        plans.append(plan)
    return plans
