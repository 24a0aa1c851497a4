"""Shortened reference information, and the planner that proves it sufficient."""

import dataclasses
import json

import pytest

from genenv_jax.benchmarks.travelplanner import prompts, tasks
from genenv_jax.benchmarks.travelplanner.benchmark import TravelPlanner
from genenv_jax.benchmarks.travelplanner.planner import find_plan
from genenv_jax.benchmarks.travelplanner.queries import Query
from genenv_jax.benchmarks.travelplanner.scoring import total_cost


@pytest.fixture(scope="module")
def world(travelplanner_dir):
    return tasks.read_world(tasks.find_directory(travelplanner_dir))


def _cases(world):
    for task in world.tasks[tasks.TRAIN]:
        yield task, Query.from_json(task.answer["query"]), world.references[task.id]


def _names(plan):
    """A plan's names, with their cities."""
    for day in plan:
        for slot in ("breakfast", "lunch", "dinner", "accommodation"):
            if day[slot] != "-":
                yield day[slot]
        yield from day["attraction"].strip("-").split(";")[:-1]


@pytest.mark.parametrize("max_chars", [0, 8_000])
def test_shortened_information_keeps_its_order_and_admits_a_passing_plan(world, max_chars):
    for task, query, reference in _cases(world):
        shown = prompts.compact(reference, query, world.database, max_chars)
        assert not max_chars or len(prompts.render(shown)) <= max_chars
        for before, after in zip(reference.cities, shown.cities, strict=True):
            for name in ("attractions", "restaurants", "accommodations"):
                left = iter(getattr(before, name))
                assert all(row in left for row in getattr(after, name))  # a subsequence
                assert getattr(after, name)
        # It returns only plans that `judge` passes.
        assert find_plan(query, shown, world.database) is not None, task.id


def test_the_passing_plan_can_be_read_from_the_prompt(travelplanner_dir, world):
    """The proof: every name, flight and road of the plan is in the agent's prompt."""
    benchmark = TravelPlanner(data_dir=travelplanner_dir, seed_fraction=0.0)
    for task in benchmark.tasks("eval"):
        prompt = benchmark.agent_messages(task)[-1]["content"]
        sections = {part.split("\n")[0].split(",")[0]: part for part in prompt.split("## ")[1:]}
        plan = json.loads(benchmark.agent_answer(task))
        for text in _names(plan):
            name, _, city = text.rpartition(", ")
            assert name in sections[city], (task.id, text)
        for day in plan:
            if (way := day["transportation"]) != "-":
                section = sections[day["current_city"].removeprefix("from ")]
                flies = way.startswith("Flight")
                assert (way.split(": ")[1].split(",")[0] if flies else "self-driving cost:") in section


def test_more_space_shows_more(world):
    lengths = []
    for limit in (0, 3_000, 6_000, 12_000, 10**6):
        shown = (prompts.compact(r, q, world.database, limit) for _, q, r in _cases(world))
        lengths.append(sum(len(prompts.render(reference)) for reference in shown))
    assert lengths == sorted(lengths) and lengths[0] < 0.75 * lengths[-1]
    # With unlimited space, everything usable is shown.
    for _, query, reference in _cases(world):
        shown = prompts.compact(reference, query, world.database, 10**6)
        assert [leg.flights for leg in shown.legs] == [leg.flights for leg in reference.legs]
        rooms, all_rooms = ([c.accommodations for c in of.cities] for of in (shown, reference))
        assert rooms == all_rooms


def test_rows_depend_on_the_query_alone(travelplanner_dir):
    """Without the annotated plan the prompt is the same."""
    benchmark = TravelPlanner(data_dir=travelplanner_dir)
    for task in benchmark.tasks("seed"):
        bare = dataclasses.replace(task, answer={**task.answer, "annotated_plan": None})
        assert benchmark.agent_messages(bare) == benchmark.agent_messages(task)


def test_accommodations_that_do_not_suit_are_shown_too(world):
    """Otherwise the choice of rows would reveal the answer."""
    unfit = 0
    for _, query, reference in _cases(world):
        if query.room_type != "private room":
            continue
        shown = prompts.compact(reference, query, world.database, 8_000)
        rows = [row for city in shown.cities for row in city.accommodations]
        unfit += sum(row.room_type != "Private room" for row in rows)
    assert unfit > 2


def test_the_planner_keeps_to_the_budget(world):
    found = 0
    for _, query, reference in _cases(world):
        plan = find_plan(query, reference, world.database)
        cost = total_cost(query, plan, world.database)
        assert cost <= query.budget
        cheaper = dataclasses.replace(query, budget=int(cost) - 1)
        other = find_plan(cheaper, reference, world.database)
        if other is not None:
            found += 1
            assert total_cost(cheaper, other, world.database) < cost
        assert find_plan(dataclasses.replace(query, budget=1), reference, world.database) is None
    assert found > len(world.references) // 3  # there are cheaper plans, with fewer meals


@pytest.mark.parametrize(("wish", "word"), [("no flight", "Flight"), ("no self-driving", "Self-driving")])
def test_the_planner_keeps_to_the_vehicle(world, wish, word):
    found = 0
    for _, query, reference in _cases(world):
        other = dataclasses.replace(query, transportation=wish, budget=10**6)
        plan = find_plan(other, reference, world.database)
        if plan is not None:
            found += 1
            assert not any(word in day["transportation"] for day in plan)
    assert found > len(world.references) // 3


def test_without_fitting_rows_there_is_no_plan(world):
    """Too few cities, legs, attractions, beds or meals."""
    _, query, reference = next(_cases(world))
    city = reference.cities[0]

    def plan(**changes):
        reduced = dataclasses.replace(city, **changes)
        other = dataclasses.replace(reference, cities=(reduced, *reference.cities[1:]))
        return find_plan(query, other, world.database)

    assert plan() is not None
    assert plan(attractions=()) is plan(accommodations=()) is plan(restaurants=()) is None
    unknown = city.accommodations[0]._replace(name="No such house")
    assert plan(accommodations=(unknown,)) is None
    more = dataclasses.replace(reference, cities=reference.cities * 2)
    assert find_plan(query, more, world.database) is None  # too few legs
    more = dataclasses.replace(more, legs=reference.legs + reference.legs[:1])
    assert find_plan(query, more, world.database) is None  # too many cities
    # Legs on other days, or undated: two nights per city.
    undated = [dataclasses.replace(leg, date="") for leg in reference.legs]
    for dates, legs in ((("2022-05-01",) * query.days, reference.legs), (query.date, tuple(undated))):
        other = dataclasses.replace(reference, legs=legs)
        assert find_plan(dataclasses.replace(query, date=dates), other, world.database)
    no_way = [dataclasses.replace(leg, flights=(), drive=None) for leg in reference.legs]
    other = dataclasses.replace(reference, legs=tuple(no_way))
    assert find_plan(query, other, world.database) is None
