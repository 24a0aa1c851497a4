"""Reading TravelPlanner's queries, routes and names."""

import json

import pytest

from genenv_jax.benchmarks.travelplanner.plans import NO_NAME, before_parenthesis, name_and_city, route_of
from genenv_jax.benchmarks.travelplanner.queries import Gazetteer, Query, parse_query

_STATES = {"Denver": "Colorado", "New York": "New York", "Aspen": "Colorado", "Reno": "Nevada"}
PLACES = Gazetteer(_STATES)
SIMPLE = "A trip from Denver to Reno from March 1st to March 3rd, 2022, with a budget of $1,400."


def test_a_simple_query():
    query = parse_query(SIMPLE, PLACES)
    assert (query.org, query.dest, query.days, query.people_number) == ("Denver", "Reno", 3, 1)
    assert query.date == ("2022-03-01", "2022-03-02", "2022-03-03") and query.budget == 1400
    assert query.level == "easy" and query.asked == []
    assert Query.from_json(json.loads(json.dumps(query.to_json()))) == query


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("for two", {"people_number": 2}),
        ("for 3 days, for a party of 5", {"people_number": 5}),
        ("for a couple", {"people_number": 2}),
        ("for 12 people", {"people_number": 12}),
        ("Our rooms must allow parties.", {"house_rule": "parties"}),
        ("We bring our pets.", {"house_rule": "pets"}),
        ("We travel with kids.", {"house_rule": "children under 10"}),
        ("Smoking must be allowed.", {"house_rule": "smoking"}),
        ("We like non-shared rooms.", {"room_type": "not shared room"}),
        ("A shared room will do.", {"room_type": "shared room"}),
        ("We want entire rooms.", {"room_type": "entire room"}),
        ("We want private rooms.", {"room_type": "private room"}),
        ("We do not fly.", {"transportation": "no flight"}),
        ("No self-driving, please.", {"transportation": "no self-driving"}),
        ("A flight would be nice.", {"transportation": None}),
        ("We like Indian and Chinese food.", {"cuisine": ("Chinese", "Indian")}),
        ("We will not be driving. Pets must be allowed.", {"house_rule": "pets"}),
        ("No flights, please. Italian food would be great.", {"cuisine": ("Italian",)}),
        ("Please no self-driving, and Mexican and Indian cuisines.", {"cuisine": ("Mexican", "Indian")}),
        ("We would rather have an entire room.", {"room_type": "entire room"}),
        ("The room must not forbid smoking.", {"house_rule": "smoking"}),
        ("Pets are not negotiable.", {"house_rule": "pets"}),
        ("The other two love Chinese cuisine.", {"cuisine": ("Chinese",)}),
        ("for a group of 5: 3 adults and 2 children under 10.", {"people_number": 5}),
        ("We have been to Indiana.", {"cuisine": ()}),
    ],
)
def test_wishes(text, fields):
    query = parse_query(f"{SIMPLE} It is {text}", PLACES)
    assert {name: getattr(query, name) for name in fields} == fields


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("$1,400", "little", "budget"),
        ("$1,400", "$1,400 or $1,500", "budget"),
        ("March 3rd", "March 4th", "date"),
        ("March 3rd", "March 33rd", "date"),
        ("March 1st", "March 9th", "date"),
        (", 2022", "", "date"),
        ("A trip", "A 5-day trip", "days"),
        ("A trip", "A week-long trip", "days"),
        ("A trip", "A trip to 2 cities", "visiting_city_number"),
        ("Reno", "Atlantis", "dest"),
        ("from Denver to Reno ", "", "org"),
        ("A trip", "A trip for 90 people", "people_number"),
        ("A trip", "A trip with pets and for smoking", "house rule"),
        *(
            ("A trip", f"A trip, {unwished}, ", "local_constraint")
            for unwished in (
                "we do not want any Chinese food",
                "avoid Italian and Mexican restaurants",
                "without our pets",
                "smoking must be forbidden",
                "we never want a private room",
                "in a non-smoking room",
            )
        ),
    ],
)
def test_what_is_missing_or_ambiguous_is_named(old, new, reason):
    with pytest.raises(ValueError, match=f"^{reason}: "):
        parse_query(SIMPLE.replace(old, new), PLACES)


def test_names_of_cities_and_states_are_told_apart():
    text = "From New York to 2 cities in Colorado, March 1st to March 5th, 2022, $5,000."
    assert parse_query(text, PLACES).dest == "Colorado"
    text = "From Denver to 2 cities in New York, March 1st to March 5th, 2022, $5,000."
    assert parse_query(text, PLACES).dest == "New York"
    text = "From Denver in Colorado to 2 cities in Nevada, March 1st to March 5th, 2022, $5,000."
    assert parse_query(text, PLACES).dest == "Nevada"


@pytest.mark.parametrize(
    ("text", "route"),
    [
        ("from A to B", ("A", "B")),
        ("Taxi, from New York to Reno, duration: 1", ("New York", "Reno")),
        ("from A(X) to B(Y)", ("A(X)", "B(Y)")),
        ("from A to B to C", ("A", "B to C")),
        ("from to to to B", ("to", "to B")),
        ("from A to", (None, None)),
        ("from A to ", (None, None)),
        ("from A to  ", ("A", " ")),
        ("from A to ,", (None, None)),
        ("fromA to B", (None, None)),
        ("from\nA to B", ("A", "B")),
        ("from A\nto B", ("A", "B")),
        ("from A\nX to B, from C to D", ("C", "D")),
        ("a to b", (None, None)),
    ],
)
def test_routes(text, route):
    assert route_of(text) == route


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Cafe, Denver", ("Cafe", "Denver")),
        ("A, B & C , Denver(Colorado)", ("A, B & C", "Denver")),
        ("Cafe", NO_NAME),
        ("Cafe,", NO_NAME),
        ("Cafe, ", ("Cafe", "")),
        ("x\nCafe, Denver", ("Cafe", "Denver")),
        (", Denver", ("", "Denver")),
    ],
)
def test_names(text, expected):
    assert name_and_city(text) == expected


def test_parentheses():
    assert before_parenthesis("Denver(Colorado)") == "Denver"
    assert before_parenthesis("Denver (Colorado) x (y)") == "Denver "
    assert before_parenthesis("Denver(Colorado") == "Denver(Colorado"
    assert before_parenthesis("a\nb(c)") == "a\nb(c)"
