"""The thirteen constraints, each failed by a small change of a plan, and what a reward also requires."""

import copy
import dataclasses
import json
import random

import pytest

from bench.bad_answers.travelplanner import CHANGES, Mutator, invent, plans
from genenv_jax.benchmarks.travelplanner import tasks
from genenv_jax.benchmarks.travelplanner.benchmark import TravelPlanner
from genenv_jax.benchmarks.travelplanner.planner import find_plan
from genenv_jax.benchmarks.travelplanner.queries import Query
from genenv_jax.benchmarks.travelplanner.reward import grounded_part, judge_grounded
from genenv_jax.benchmarks.travelplanner.scoring import HARD, PAPER_MEAN, failed, judge, total_cost
from tests.benchmarks import travelplanner_files

QUERY = Query(
    org="Portfield", dest="Ashton",
    date=("2022-03-08", "2022-03-09", "2022-03-10"), people_number=2, budget=600,
    house_rule="pets", cuisine=("Italian", "Mexican"), room_type="entire room",
    transportation="no flight",
)  # fmt: skip
_NO_WISH = {"house_rule": None, "cuisine": (), "room_type": None, "transportation": None}
PLAIN = dataclasses.replace(QUERY, budget=1_000, **_NO_WISH)
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

FLIGHT = "Flight Number: {}, from {} to {}, Departure Time: 10:00"
BY_AIR = [
    (1, "transportation", FLIGHT.format("F0000002", "Portfield", "Ashton")),
    (3, "transportation", FLIGHT.format("F0000003", "Ashton", "Portfield")),
]
CITY, SANDBOX = "is_valid_information_in_current_city", "is_valid_information_in_sandbox"
ROUTE, VEHICLES, ABSENT = (
    "is_reasonable_visiting_city", "is_valid_transportation", "is_not_absent",
)  # fmt: skip


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return tasks.read_world(travelplanner_files.write(tmp_path_factory.mktemp("small")))


def _changed(*changes):
    """The plan with (day, slot, text) changed; a slot whose text is None is removed."""
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
        ([(2, "attraction", "River Walk, Ashton; River Walk, Ashton;")], set()),  # officially two
        (_both_nights("Long Stay Flat, Ashton"), {"is_valid_accommodation", "valid_room_type"}),
        ([(2, "accommodation", "Quiet Room, Ashton")], {"is_valid_accommodation", "valid_room_type"}),
        # Two have this name, so no minimum holds; the first is a shared room.
        (_both_nights("Bunk Hall, Ashton"), {"valid_room_type"}),
        (_both_nights("Loft by the Park, Ashton"), {"valid_room_rule"}),
        ([(3, "transportation", "Taxi, from Ashton to Portfield")], {VEHICLES, "valid_cost"}),
        ([(1, "transportation", "-")], {VEHICLES, ABSENT}),
        ([(1, "transportation", "Train, from Portfield to Ashton")], set()),  # no known kind
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
        ([(1, "transportation", "Self-driving")], {CITY}),  # the day's route counts
        ([(1, "transportation", "Flight Number: F9999999, from Portfield to Ashton")], {VEHICLES, SANDBOX}),
        ([(2, "lunch", "Nowhere at all, Ashton")], {SANDBOX}),
        ([(2, "attraction", "Nothing to see, Ashton;")], {SANDBOX}),
        ([(2, "attraction", "Nothing to see, Ashton")], set()),  # no semicolon: ignored
        (_both_nights("No such house, Ashton"), {SANDBOX}),
        ([(2, "lunch", None)], {ABSENT}),
        ([(2, "accommodation", None)], {ABSENT, "is_valid_accommodation"}),
        ([(2, "attraction", "-")], {ABSENT}),
        ([(2, "lunch", "-")], {ABSENT}),
        ([(1, "accommodation", "-")], {ABSENT, "is_valid_accommodation"}),
        # Served in the city of departure; officially the day ends there.
        ([(1, "breakfast", "Old Harbour, Portfield")], {"valid_cuisine"}),
        ([(2, "dinner", "Late Kitchen, Ashton")], {"valid_cuisine"}),
    ],
)  # fmt: skip
def test_what_a_change_fails(world, changes, failed):
    verdicts, evaluated, crashed = judge(QUERY, _changed(*changes), world.database)
    assert evaluated == (not failed & {SANDBOX, ABSENT}) and not crashed
    if not evaluated:  # the requested ones count as failed
        failed = failed | set(HARD)
    assert {name for name, verdict in verdicts.items() if verdict is False} == failed


def test_what_is_not_asked_has_no_verdict(world):
    verdicts, _, _ = judge(PLAIN, PLAN, world.database)
    assert [name for name, verdict in verdicts.items() if verdict is None] == list(HARD)[:4]
    for room, stay, passes in (
        ("not shared room", "Garden House, Ashton", True),
        ("not shared room", "Bunk Hall, Ashton", False),
        ("private room", "Garden House, Ashton", False),
    ):
        query = dataclasses.replace(PLAIN, room_type=room)
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
    query = tasks.query_of(world.tasks[tasks.TRAIN][2])
    plan = find_plan(query, world.references["train_3"], world.database)
    assert judge(query, plan, world.database)[0][ROUTE]
    other = dataclasses.replace(query, dest="Southmark")
    assert not judge(other, plan, world.database)[0][ROUTE]
    for day, city in ((3, "Ashton"), (4, "from Ashton to Portfield")):  # back in the first city
        again = copy.deepcopy(plan)
        again[day]["current_city"] = city
        assert not judge(query, again, world.database)[0][ROUTE]


# -- what exists ------------------------------------------------------------------------------------------


def _read(query, plan, database):
    """Whether a plan passes officially, which constraints it fails here, and what is missing."""
    verdicts, evaluated, _ = judge(query, plan, database)
    grounded, _, missing = judge_grounded(query, plan, database, verdicts, evaluated)
    return not failed(verdicts), set(failed(grounded)), missing


@pytest.mark.parametrize(
    "changes",
    [
        [(1, "transportation", "Teleport, from Portfield to Ashton")],
        [(1, "transportation", "A car, from Portfield to Ashton")],
        [(1, "transportation", "Train, Portfield, Ashton")],
        [(2, "transportation", "On foot, in Ashton")],
        [(1, "transportation", "Flight F0000002, from Portfield to Ashton"), BY_AIR[1]],
        # Calder is nearer; officially, both cities' names may stand anywhere.
        [(3, "transportation", "Self-driving, from Ashton to Calder, near Portfield")],
        [(2, "attraction", "Nothing to see, Ashton")],
        [(2, "attraction", "Clock Museum, Ashton;Nothing to see, Ashton")],
        [(2, "attraction", "Clock, Ashton;")],
        [(2, "attraction", " ")],
        [(2, "lunch", "O, Ashton")],
        [(2, "lunch", "Old Harb, Ashton")],
        [(2, "lunch", "Harbour, Ashton")],
        [(2, "lunch", ", Ashton")],
        [(2, "lunch", "any of them\nOld Harbour, Ashton")],
        [(2, "lunch", "Old Harbour, Brookby")],  # officially a letter of the city is enough
        [(1, "accommodation", "G, Ashton"), (2, "accommodation", "G, Ashton")],
    ],
)
def test_what_does_not_exist_is_named(world, changes):
    """The official rules accept it all; here the constraint that requires it fails."""
    passes, failed, missing = _read(PLAIN, _changed(*changes), world.database)
    assert passes and set(missing) == {slot for _, slot, _ in changes}
    assert {SANDBOX, "valid_cost"} <= failed


@pytest.mark.parametrize(
    "changes",
    [
        # The journey home is omitted: the last day has meals, sights and no leg.
        [(3, "current_city", "Portfield"), (3, "transportation", "-"),
         (3, "attraction", "Old Mill, Portfield;"), (3, "lunch", "Mill, Portfield"),
         (3, "breakfast", "Casa Azul, Portfield"), (3, "dinner", "Late Kitchen, Portfield")],
        # A city that was not requested; officially this is not checked for 3 days.
        [(1, "current_city", "from Portfield to Brookby"), (1, "dinner", "-"),
         (1, "transportation", "Self-driving, from Portfield to Brookby"),
         (1, "accommodation", "Garden House, Brookby"), (2, "current_city", "Brookby"),
         (2, "breakfast", "Quick Bite, Brookby"), (2, "attraction", "Old Mill, Brookby;"),
         (2, "lunch", "Old Harbour, Brookby"), (2, "dinner", "Blue Plate, Brookby"),
         (2, "accommodation", "Garden House, Brookby"), (3, "breakfast", "-"),
         (3, "current_city", "from Brookby to Portfield"),
         (3, "transportation", "Self-driving, from Brookby to Portfield")],
        # Tabs instead of spaces hide a day of travel, so that no vehicle is required.
        [(3, "current_city", "from\tAshton\tto\tPortfield"), (3, "transportation", "-"),
         (3, "attraction", "Old Mill, Portfield;"), (3, "lunch", "Mill, Portfield"),
         (3, "dinner", "Late Kitchen, Portfield")],
    ],
)  # fmt: skip
def test_every_change_of_city_is_a_leg_of_the_trip(world, changes):
    passes, failed, missing = _read(PLAIN, _changed(*changes), world.database)
    assert passes and missing == ["current_city"] and SANDBOX in failed


def test_a_flight_goes_on_its_day(world):
    """The official rules look up its number without the day."""
    other = dataclasses.replace(PLAIN, date=("2022-03-09", "2022-03-10", "2022-03-11"))
    passes, _, missing = _read(other, _changed(*BY_AIR), world.database)
    assert passes and missing == ["transportation", "transportation"]


@pytest.mark.parametrize(
    ("changes", "query", "failed"),
    [
        *((changes, PLAIN, set()) for changes in (
            [],
            BY_AIR,
            [(1, "transportation", "self-driving  from Portfield to Ashton(Northmark)")],
            [(3, "transportation", "Self-driving, Ashton - Portfield")],  # of the day's route
            [(2, "attraction", "Clock Museum, Ashton; River Walk, Ashton(Northmark)")],
            [(2, "lunch", " Old Harbour ,  Ashton(Northmark)")],
            [(2, "attraction", "River Walk, Brookby;")],  # as one of the annotated plans has it
            [(1, "lunch", "Late Kitchen, Portfield")],
        )),
        ([(2, "lunch", "Casa Azul, Ashton(Northmark)")], PLAIN, {"is_valid_restaurants"}),
        ([(2, "attraction", "Clock Museum, Ashton; Clock Museum, Ashton")], PLAIN, {"is_valid_attractions"}),
        (
            [(1, "transportation", "Self-driving (no taxi), from Portfield to Ashton"), BY_AIR[1]],
            PLAIN,
            {"is_valid_transportation"},
        ),
        (
            [(day, "transportation", PLAN[day - 1]["transportation"].lower().replace(
                "portfield", "Portfield").replace("ashton", "Ashton")) for day in (1, 3)],
            dataclasses.replace(PLAIN, transportation="no self-driving"),
            {"valid_transportation"},
        ),
        ([(1, "attraction", "River Walk, Brookby")], PLAIN, {"is_valid_information_in_current_city"}),
    ],
)  # fmt: skip
def test_what_exists_is_found_in_any_spelling_that_the_official_rules_take(world, changes, query, failed):
    """And judged again in its plainest wording, so that another spelling hides nothing."""
    assert _read(query, _changed(*changes), world.database) == (True, failed, [])


@pytest.mark.parametrize("plan", [[{}], [{"current_city": None}], [{"current_city": "from"}, {}]])
def test_a_plan_without_a_route_has_nothing_that_exists(world, plan):
    verdicts, evaluated, _ = judge(PLAIN, plan, world.database)
    grounded, evaluated, missing = judge_grounded(PLAIN, plan, world.database, verdicts, evaluated)
    assert not evaluated and "current_city" in missing and not grounded[SANDBOX]


# -- as it is paid for -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def benchmarks(travelplanner_dir):
    """All training queries held out, rewarded for final passes or for the share of constraints."""
    options = {"data_dir": travelplanner_dir, "seed_fraction": 0.0}
    return {reward: TravelPlanner(**options, reward=reward) for reward in ("final", "micro")}


def _right_plans(benchmark, task):
    """The planner's plan, and the annotated one if complete."""
    plans = [json.loads(benchmark.agent_answer(task))]
    annotated = [dict(day) for day in task.answer["annotated_plan"]]
    return [*plans, *([annotated] if len(annotated) == len(plans[0]) else [])]


def test_plans_that_are_right_earn_everything(benchmarks):
    for reward, benchmark in benchmarks.items():
        for task in benchmark.tasks("eval"):
            for plan in _right_plans(benchmark, task):
                score = benchmark.score(task, json.dumps(plan))
                found = score.reward, score.success, score.reason
                assert found == (1.0, True, ""), (task.id, reward)


def test_no_plan_earns_more_than_what_exists_of_it(benchmarks):
    """Nor more than officially, for plans wrong in many ways."""
    micro = benchmarks["micro"]
    world = micro.world
    for task in micro.tasks("eval")[::5]:
        query = tasks.query_of(task)
        right, mutator = _right_plans(micro, task)[-1], Mutator(task, world, "grounded")
        made = plans(right, [{}], mutator, random.Random(task.id))
        for plan in [plan for kind, plan in made if plan and kind not in CHANGES]:
            score = micro.score(task, json.dumps(plan))
            part, _ = grounded_part(query, plan, world.database)
            official = [v for v in score.detail["constraints"].values() if v is not None]
            assert score.reward <= micro.score(task, json.dumps(part)).reward
            assert score.reward <= sum(official) / len(official)


def test_the_score_stays_official_and_both_are_reported(benchmarks):
    """Success is the official verdict on held-out tasks; in training it follows the reward."""
    benchmark = benchmarks["final"]
    right = [(task, benchmark.agent_answer(task)) for task in benchmark.tasks("eval")]
    plans = [(task, invent("teleports", json.loads(text), benchmark.world)) for task, text in right]
    invented = [(task, json.dumps(plan)) for task, plan in plans]
    scores = [[(t, benchmark.score(t, text)) for t, text in of] for of in (right, invented)]
    good, bad = (benchmark.aggregate(of) for of in scores)
    names = {f"grounded_{name}" for name in (*PAPER_MEAN, "final_pass_rate")}
    assert names <= set(good) == set(bad)
    official = set(good) - names
    assert {name: bad[name] for name in official} == {name: good[name] for name in official}
    assert {good[name] for name in names} == {1.0} and bad["grounded_final_pass_rate"] == 0.0
    assert bad["grounded_commonsense_constraint_micro_pass_rate"] == 5 / 8
    for task, text in invented:
        held_out = benchmark.score(task, text)
        seed = benchmark.score(dataclasses.replace(task, origin="seed"), text)
        assert (held_out.success, held_out.reason) == (True, "")
        assert (seed.success, seed.reason) == (False, "missing_transportation")
        assert held_out.reward == seed.reward == 0.0 and held_out.detail == seed.detail
        json.dumps(held_out.detail)
