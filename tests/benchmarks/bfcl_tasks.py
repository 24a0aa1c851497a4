"""A made-up BFCL task and generation, for tests that need no data."""

from genenv_jax.benchmarks.base import Task

WEATHER = {
    "name": "weather.get",
    "description": "Returns the weather. It needs a city.",
    "parameters": {
        "type": "dict",
        "properties": {
            "city": {"type": "string", "description": "The city."},
            "days": {"type": "integer", "description": "Days ahead.", "default": 1},
            "unit": {"type": "string", "enum": ["C", "F"], "description": "Unit."},
        },
        "required": ["city"],
    },
}
BOOK = {
    "name": "book",
    "description": "Books a table.",
    "parameters": {
        "type": "dict",
        "properties": {
            "guests": {"type": "integer", "description": "Guests."},
            "dishes": {"type": "array", "items": {"type": "string"}, "description": "Dishes."},
            "contact": {"type": "dict", "description": "Contact.", "properties": {}},
        },
        "required": ["guests"],
    },
}


def seed_task(kind="parallel", rule="ast", language="python", category="parallel", truth=None):
    truth = [{"weather.get": {"city": ["Oslo"], "days": [2, ""]}}] if truth is None else truth
    return Task(
        id=f"{category}_0",
        benchmark="bfcl",
        category=category,
        messages=({"role": "user", "content": "What is the weather in Oslo for two days?"},),
        tools=(WEATHER, BOOK),
        answer={
            "kind": kind, "language": language, "rule": rule, "ground_truth": truth,
            "same_tools": True,
        },
    )  # fmt: skip


def generation(tools="same", request="Weather in Rome?", answer="[weather.get(city='Rome')]"):
    return f"New Tools: {tools}\nNew Task: {request}\nNew Answer: {answer}"
