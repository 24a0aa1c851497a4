"""The simulator's side of TravelPlanner: reads a generation into a task, and checks the task."""

from __future__ import annotations

import json

from genenv_jax.benchmarks import base
from genenv_jax.benchmarks.base import Rejection, Task
from genenv_jax.benchmarks.headers import part_fault
from genenv_jax.benchmarks.lenient import parse_lenient
from genenv_jax.benchmarks.travelplanner.queries import Query, parse_query
from genenv_jax.benchmarks.travelplanner.references import Reference
from genenv_jax.benchmarks.travelplanner.tasks import World, make_task, query_of

TEXT_DIFFERS = "text_differs"  # the text of a query and its fields disagree
UNSOLVABLE = "unsolvable"  # the planner finds no plan that passes all constraints

_MAX_QUERY = 2_000  # characters of the text of a query
_MAX_DEPTH = 8


def write(task: Task) -> str:
    """A task as one JSON object with its text and the official fields; `read` inverts it."""
    text = task.messages[-1]["content"]
    return json.dumps({"query": text, **task.answer["query"]}, ensure_ascii=False)


def read(text: str, seed: Task) -> Task | Rejection:
    """The task in a generation, one JSON object.  Never raises.

    Rejections: NOT_TEXT, TOO_LONG, TOO_DEEP, UNPARSABLE, BAD_ANSWER (fields).
    """
    record = parse_lenient(text, base.MAX_GENERATION, _MAX_DEPTH)
    if isinstance(record, Rejection):
        return record
    if not isinstance(record, dict):
        return Rejection(base.UNPARSABLE, "no JSON object")
    wording = record.pop("query", None)
    if rejection := part_fault(wording, "query", _MAX_QUERY):
        return rejection
    try:
        query = Query.from_json(record)
    except base.MALFORMED as error:
        return Rejection(base.BAD_ANSWER, str(error)[:200])
    return make_task(seed.id, wording.strip(), query, seed.answer["reference"])


def fault(task: Task, world: World) -> Rejection | None:
    """TEXT_DIFFERS or BAD_ANSWER; None if text and fields agree on a possible trip.

    The text must say what the fields say, and the seed's reference information must describe the route.
    """
    query = query_of(task)
    try:
        said = parse_query(task.messages[-1]["content"], world.gazetteer)
    except ValueError as error:
        return Rejection(TEXT_DIFFERS, str(error)[:200])
    if said != query:
        read, given = said.to_json(), query.to_json()
        fields = [name for name in given if given[name] != read[name]]
        return Rejection(TEXT_DIFFERS, f"other {', '.join(fields)} in the text"[:200])
    try:
        world.reference(task)
    except ValueError as error:
        return Rejection(base.BAD_ANSWER, str(error)[:200])
    return None


def destinations(reference: Reference, world: World) -> str:
    """The destinations that a variation may have, in words."""
    names = [city.name for city in reference.cities]
    found = f"for 3 days and 1 city {' or '.join(names)}"
    states = {world.database.states.get(name) for name in names}
    if len(states) == 1 and len(names) > 1:
        state = states.pop()
        found += f"; for 5 days and 2 cities the state {state}"
        if len(names) > 2:
            found += f"; for 7 days and 3 cities the state {state}"
    return found
