"""The thirteen constraints, each failed by a small change of a plan that passes all of them."""

import copy
import dataclasses

import pytest

from genenv_jax.benchmarks.travelplanner import tasks
from genenv_jax.benchmarks.travelplanner.planner import find_plan
from genenv_jax.benchmarks.travelplanner.queries import Query
from genenv_jax.benchmarks.travelplanner.scoring import HARD, judge, total_cost
from tests.benchmarks import travelplanner_files

QUERY = Query(
    org="Portfield", dest="Ashton", days=3, visiting_city_number=1,
    date=("2022-03-08", "2022-03-09", "2022-03-10"), people_number=2, budget=600,
    house_rule="pets", cuisine=("Italian", "Mexican"), room_type="entire room",
    transportation="no flight",
)  # fmt: skip
DRIVE = "Self-driving, from {} to {}, duration: 2 hours 30 mins, distance: 210 km, cost: 10"
PLAN = [
    {
        "days": 1, "current_city": "from Portfield to Ashton",
        "transportation": DRIVE.format("Portfield", "Ashton"), "breakfast": "-", "attraction": "-",
        "lunch": "-", "dinner": "Casa Azul, Ashton", "accommodation": "Garden House, Ashton",
    },
    {
        "days": 2, "current_city": "Ashton", "transportation": "-",
        "breakfast": "Quick Bite, Ashton", "attraction": "Clock Museum, Ashton;River Walk, Ashton;",
        "lunch": "Old Harbour, Ashton", "dinner": "Blue Plate, Ashton",
        "accommodation": "Garden House, Ashton",
    },
    {
        "days": 3, "current_city": "from Ashton to Portfield",
        "transportation": DRIVE.format("Ashton", "Portfield"), "breakfast": "Green Lantern, Ashton",
        "attraction": "-", "lunch": "-", "dinner": "-", "accommodation": "-",
    },
]  # fmt: skip
# One car there and back; five meals for two; two nights in a room for six.
COST = 2 * 10 + 2 * (25 + 11 + 12 + 14 + 30) + 2 * 150

CITY, SANDBOX = "is_valid_information_in_current_city", "is_valid_information_in_sandbox"
ROUTE, VEHICLES, ABSENT = (
    "is_reasonable_visiting_city", "is_valid_transportation", "is_not_absent",
)  # fmt: skip


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return tasks.read_world(travelplanner_files.write(tmp_path_factory.mktemp("small")))


def _changed(*changes):
    """The plan with (day, slot, text) changed; a slot whose text is None is taken away."""
    plan = copy.deepcopy(PLAN)
    for day, slot, text in changes:
        if text is None:
            del plan[day - 1][slot]
        else:
            plan[day - 1][slot] = text
    return plan


def _both_nights(name):
    return [(1, "accommodation", name), (2, "accommodation", name)]


def test_the_plan_passes_and_costs_what_its_parts_cost(world):
    for budget in (600, COST):
        query = dataclasses.replace(QUERY, budget=budget)
        verdicts, evaluated, crashed = judge(query, PLAN, world.database)
        assert set(verdicts.values()) == {True} and evaluated and not crashed
    assert total_cost(QUERY, PLAN, world.database) == COST
    # Seven people: two cars, two rooms.
    seven = dataclasses.replace(QUERY, people_number=7)
    assert total_cost(seven, PLAN, world.database) == 4 * 10 + 7 * 92 + 4 * 150


@pytest.mark.parametrize(
    ("changes", "failed"),
    [
        ([(1, "current_city", "from Brookby to Ashton")], {ROUTE, CITY, ABSENT}),
        ([(2, "current_city", "Atlantis")], {ROUTE, ABSENT}),
        ([(2, "current_city", "")], {ROUTE, CITY, ABSENT}),
        (
            [(1, "current_city", "from Portfield to Atlantis"), (2, "current_city", "Atlantis"),
             (3, "current_city", "from Atlantis to Portfield")],
            {ROUTE, CITY},
        ),
        ([(3, "current_city", "from Ashton to Brookby")], {ROUTE, CITY, ABSENT}),
        ([(2, "current_city", "from Ashton to Ashton")], {ABSENT}),
        ([(2, "lunch", "Casa Azul, Ashton")], {"is_valid_restaurants"}),
        ([(2, "attraction", "River Walk, Ashton;River Walk, Ashton;")], {"is_valid_attractions"}),
        ([(2, "attraction", "River Walk, Ashton; River Walk, Ashton;")], set()),  # officially another
        (_both_nights("Long Stay Flat, Ashton"), {"is_valid_accommodation", "valid_room_type"}),
        ([(2, "accommodation", "Quiet Room, Ashton")], {"is_valid_accommodation", "valid_room_type"}),
        # Two have this name, so no minimum holds; the first is a shared room.
        (_both_nights("Bunk Hall, Ashton"), {"valid_room_type"}),
        (_both_nights("Loft by the Park, Ashton"), {"valid_room_rule"}),
        ([(3, "transportation", "Taxi, from Ashton to Portfield")], {VEHICLES, "valid_cost"}),
        ([(1, "transportation", "-")], {VEHICLES, ABSENT}),
        ([(1, "transportation", "Train, from Portfield to Ashton")], set()),  # of no known kind
        ([(2, "transportation", "On foot, in Ashton")], set()),
        (
            [(1, "transportation", "Flight Number: F0000002, from Portfield to Ashton"),
             (3, "transportation", "Flight Number: F0000003, from Ashton to Portfield")],
            {"valid_transportation", "valid_cost"},
        ),
        ([(2, "lunch", "Old Harbour, Brookby")], set()),  # a letter of the city is enough
        ([(1, "dinner", "Casa Azul, Brookby")], {CITY}),
        ([(1, "attraction", "River Walk, Brookby;")], {CITY}),
        ([(1, "accommodation", "Garden House, Brookby")], {CITY, "is_valid_accommodation"}),
        ([(1, "transportation", DRIVE.format("Portfield", "Dunmore"))], {CITY, SANDBOX}),
        ([(1, "transportation", "Self-driving")], {CITY}),  # the route is that of the day
        (
            [(1, "transportation", "Flight Number: F9999999, from Portfield to Ashton")],
            {VEHICLES, SANDBOX},
        ),
        ([(2, "lunch", "Nowhere at all, Ashton")], {SANDBOX}),
        ([(2, "attraction", "Nothing to see, Ashton;")], {SANDBOX}),
        ([(2, "attraction", "Nothing to see, Ashton")], set()),  # no semicolon: not looked at
        (_both_nights("No such house, Ashton"), {SANDBOX}),
        ([(2, "lunch", None)], {ABSENT}),
        ([(2, "accommodation", None)], {ABSENT, "is_valid_accommodation"}),
        ([(2, "attraction", "-")], {ABSENT}),
        ([(2, "lunch", "-")], {ABSENT}),
        ([(1, "accommodation", "-")], {ABSENT, "is_valid_accommodation"}),
        # Served in the city of departure: officially the end of that day.
        ([(1, "breakfast", "Old Harbour, Portfield")], {"valid_cuisine"}),
        ([(2, "dinner", "Late Kitchen, Ashton")], {"valid_cuisine"}),
    ],
)  # fmt: skip
def test_what_a_change_fails(world, changes, failed):
    verdicts, evaluated, crashed = judge(QUERY, _changed(*changes), world.database)
    assert evaluated == (not failed & {SANDBOX, ABSENT}) and not crashed
    if not evaluated:  # then those asked for count as failed
        failed = failed | set(HARD)
    assert {name for name, verdict in verdicts.items() if verdict is False} == failed


def test_what_is_not_asked_has_no_verdict(world):
    plain = dataclasses.replace(
        QUERY, house_rule=None, cuisine=(), room_type=None, transportation=None
    )
    verdicts, _, _ = judge(plain, PLAN, world.database)
    assert [name for name, verdict in verdicts.items() if verdict is None] == list(HARD)[:4]
    for room, stay, passes in (
        ("not shared room", "Garden House, Ashton", True),
        ("not shared room", "Bunk Hall, Ashton", False),
        ("private room", "Garden House, Ashton", False),
    ):
        query = dataclasses.replace(plain, room_type=room)
        verdicts, _, _ = judge(query, _changed(*_both_nights(stay)), world.database)
        assert verdicts["valid_room_type"] is passes


def test_too_few_days_and_no_plan(world):
    verdicts, evaluated, crashed = judge(QUERY, PLAN[:2], world.database)
    assert not evaluated and not crashed and not verdicts[ROUTE] and not verdicts[ABSENT]
    verdicts, evaluated, crashed = judge(QUERY, [], world.database)
    assert set(verdicts.values()) == {False} and not evaluated and not crashed


@pytest.mark.parametrize(
    ("change", "crashed"),
    [
        ((2, "current_city", None), {ROUTE, CITY, ABSENT}),
        ((1, "current_city", "from Portfield"), {ROUTE, CITY, ABSENT}),
        ((1, "transportation", None), {VEHICLES, SANDBOX}),
        ((1, "transportation", "Flight Number:F1, from Portfield to Ashton"), {SANDBOX}),
    ],
)
def test_where_the_official_code_raises_the_constraint_failed(world, change, crashed):
    verdicts, evaluated, found = judge(QUERY, _changed(change), world.database)
    assert set(found) == crashed and not evaluated
    assert not any(verdicts[name] for name in crashed)


def test_longer_trips_stay_in_the_state(world):
    query = Query.from_json(world.tasks[tasks.TRAIN][2].answer["query"])
    plan = find_plan(query, world.references["train_3"], world.database)
    assert judge(query, plan, world.database)[0][ROUTE]
    other = dataclasses.replace(query, dest="Southmark")
    assert not judge(other, plan, world.database)[0][ROUTE]
    for day, city in ((3, "Ashton"), (4, "from Ashton to Portfield")):  # back in the first city
        again = copy.deepcopy(plan)
        again[day]["current_city"] = city
        assert not judge(query, again, world.database)[0][ROUTE]
