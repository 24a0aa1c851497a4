"""What TravelPlanner's two players read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from genenv_jax.benchmarks.base import Message, SeedStatistics
from genenv_jax.benchmarks.success_record import success_record
from genenv_jax.benchmarks.travelplanner.queries import (
    CUISINES,
    HOUSE_RULES,
    ROOM_TYPES,
    TRANSPORTATION,
)

AGENT_RULES = """\
You plan trips. Use only the information that you are given; copy names and flight numbers exactly.

Reply with a JSON list and nothing else: one object for each day, with these keys.
"days": the number of the day, from 1.
"current_city": the city of the day; on a day of travel "from A to B".
"transportation": on a day of travel one of
  "Flight Number: F0000000, from A to B, Departure Time: 10:00, Arrival Time: 12:00"
  "Self-driving, from A to B, duration: 2 hours, distance: 200 km, cost: 10"
  "Taxi, from A to B, duration: 2 hours, distance: 200 km, cost: 200"
  and "-" on other days.
"breakfast", "lunch", "dinner": "Restaurant, City", or "-" for none.
"attraction": "Attraction, City;" for each attraction, every one followed by a semicolon, or "-".
"accommodation": "Accommodation, City" for the night, or "-" on the last day.

A good plan keeps all of these rules.
- Start in the city of departure, stay in one city after the other, and return on the last day. Visit \
as many cities as asked for, in the order of the legs below, none twice.
- Everything of a day is in that day's city (on a day of travel in one of its two cities); the \
accommodation is in the city where the day ends.
- A day without travel has three meals and at least one attraction. A day of travel may leave them out.
- No restaurant and no attraction twice.
- Stay in an accommodation at least its minimum of nights, one after the other.
- Do not combine self-driving with flights or taxis. A car takes five people, a taxi four; flights and \
meals are paid for each person, rooms for each night and as many as the people need.
- The whole trip stays within the budget, and every wish of the traveller is met: house rules ("No \
pets" means that pets are not allowed), room type, cuisines (each at least once, outside the city of \
departure), transportation."""

_CUE = "Write the plan: a JSON list with one object for each day."

_SIMULATOR_RULES = """\
You write training tasks for an agent that plans trips. You are shown one task, with the information \
that the agent gets, and how well the agent does on tasks like it. Write one new task: a variation, not \
a copy, in other words and with other wishes.

Reply with one JSON object and nothing else. It has the keys of the example: the text of the request \
under "query", and what the text asks for in the other keys. The text must say all of it in plain words, \
and nothing else may follow from it:
- the city of departure ("from ..."), which stays {org}; the destination: {destinations};
- the first and the last day ("from March 16th to March 18th, 2022"); as many days and cities as the \
destination says;
- "people_number" ("a group of 3 people") and "budget" ("a budget of $1,700"), both for all people;
- "local_constraint", each null or one of these, in these words:
  "house rule": {house_rules}; what accommodations must allow;
  "cuisine": a list of {cuisines};
  "room type": {room_types}; write "non-shared rooms" for the second;
  "transportation": {transportation}; write "no flights" or "no self-driving".
A task without local constraints is easy, with one medium, with three hard; a small budget is harder. \
There must be a plan that meets everything with the information below, or the task is not used."""


def agent_messages(information: str, text: str) -> list[Message]:
    """Rules, then the information, the query and what to write; nothing that was derived from the query.

    Args:
      information: reference information as text.
      text: the query.
    """
    return [
        {"role": "system", "content": AGENT_RULES},
        {"role": "user", "content": f"{information}\n\n# Request\n{text}\n\n{_CUE}"},
    ]


def agent_overhead(text: str) -> int:
    """Characters of `agent_messages` beside the information."""
    return sum(len(message["content"]) for message in agent_messages("", text))


def simulator_messages(
    information: str,
    task: str,
    record: Mapping[str, Any],
    destinations: str,
    cost: float | None,
    statistics: SeedStatistics,
) -> list[Message]:
    """Asks for one variation of a task.

    Args:
      information: reference information as text.
      task: the task, as the simulator would write it.
      record: its fields.
      destinations: where a variation may go, in words.
      cost: dollars of a plan that meets everything, if one is known.
      statistics: how the agent fared on earlier variations.
    """
    system = _SIMULATOR_RULES.format(
        org=record["org"],
        destinations=destinations,
        house_rules=_options(HOUSE_RULES),
        cuisines=", ".join(CUISINES),
        room_types=_options(ROOM_TYPES),
        transportation=_options(TRANSPORTATION),
    )
    parts = [f"Information:\n{information}", f"Task:\n{task}"]
    if cost is not None:
        parts.append(f"A plan that meets everything in this task costs ${cost:,.0f}.")
    parts.append(success_record(statistics))
    return [
        {"role": "system", "content": system},
        {"role": "user", "content": "\n\n".join(parts)},
    ]


def _options(values: tuple[str, ...]) -> str:
    return ", ".join(json.dumps(value) for value in values)
