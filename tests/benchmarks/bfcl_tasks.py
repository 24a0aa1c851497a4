"""Made-up BFCL tasks, generations and files, for tests that need no data."""

import json
import pathlib
from typing import Any

from genenv_jax.benchmarks.base import Task
from genenv_jax.benchmarks.bfcl import categories
from genenv_jax.benchmarks.bfcl.backends import scenario
from genenv_jax.benchmarks.bfcl.benchmark import BFCL
from genenv_jax.benchmarks.bfcl.conversation_tasks import conversation_answer


def function(name, properties, required=(), description="") -> dict[str, Any]:
    """A function with the schemas of its parameters."""
    parameters = {"type": "dict", "properties": properties, "required": list(required)}
    return {"name": name, "description": description, "parameters": parameters}


_OF_WEATHER = {
    "city": {"type": "string", "description": "The city."},
    "days": {"type": "integer", "description": "Days ahead.", "default": 1},
    "unit": {"type": "string", "enum": ["C", "F"], "description": "Unit."},
}
_OF_BOOK = {
    "guests": {"type": "integer", "description": "Guests."},
    "dishes": {"type": "array", "items": {"type": "string"}, "description": "Dishes."},
    "contact": {"type": "dict", "description": "Contact.", "properties": {}},
}
WEATHER = function("weather.get", _OF_WEATHER, ["city"], "Returns the weather. It needs a city.")
BOOK = function("book", _OF_BOOK, ["guests"], "Books a table.")


def seed_task(kind="parallel", rule="ast", language="python", category="parallel", truth=None):
    truth = [{"weather.get": {"city": ["Oslo"], "days": [2, ""]}}] if truth is None else truth
    message = {"role": "user", "content": "What is the weather in Oslo for two days?"}
    answer = categories.specification(kind, language, rule, truth)
    return Task(f"{category}_0", "bfcl", category, (message,), (WEATHER, BOOK), answer)


def of_category(directory, category, rule):
    """BFCL with a conversation category's held-out tasks and no seeds."""
    options = {"seed_categories": (), "eval_categories": (category,), "multi_turn_rule": rule}
    return BFCL(data_dir=directory, **options)


def generation(tools="same", request="Weather in Rome?", answer="[weather.get(city='Rome')]"):
    return f"New Tools: {tools}\nNew Answer: {answer}\nNew Task: {request}"


def tool(name: str, **properties: str) -> dict[str, Any]:
    """A function with required parameters, given by type."""
    schema = {key: {"type": kind, "description": f"The {key}."} for key, kind in properties.items()}
    return function(name, schema, schema, f"Does {name}.")


# -- conversations: a file system with a file and a directory, and the calculator ----------------------

FUNCTIONS = {
    "GorillaFileSystem": (
        tool("ls"), tool("cat", file_name="string"), tool("touch", file_name="string"),
        tool("cd", folder="string"),
    ),
    "MathAPI": (tool("add", a="float", b="float"),),
}  # fmt: skip
_HOME = {
    "notes": {"type": "file", "content": "b\na"},
    "work": {"type": "directory", "contents": {}},
}
FILES = {"root": {"home": {"type": "directory", "contents": _HOME}}}
SCENARIO = scenario(tuple(FUNCTIONS), {"GorillaFileSystem": FILES})
TOOLS = FUNCTIONS["GorillaFileSystem"]


def conversation(calls: list[list[str]], turns: list | None = None) -> Task:
    """A whole conversation with these reference calls per turn."""
    turns = turns or [[{"role": "user", "content": f"Request {i}."}] for i in range(len(calls))]
    answer = conversation_answer(SCENARIO, turns, calls, [])
    category = "multi_turn_base"
    return Task(f"{category}_0", "bfcl", category, tuple(turns[0]), TOOLS, answer)


def turn(calls: list[str], history: tuple[list[str], ...] = ()) -> Task:
    """A single executed turn."""
    truth, played = [{"touch": {"file_name": ["x"]}}], {"history": list(history), "calls": calls}
    answer = categories.specification(
        "parallel", "python", categories.TURN_STATE, truth, scenario=SCENARIO, **played
    )
    messages = ({"role": "user", "content": "Make the file x."},)
    category = "multi_turn_base"
    return Task(f"{category}_0:turn0", "bfcl", category, messages, TOOLS, answer)


# -- files ---------------------------------------------------------------------------------------------

COUNT = 6  # records of each category
_CITIES = ("Oslo", "Rome", "Bern", "Lima", "Cairo", "Perth")
_SOURCE = {"java": ("String", "ArrayList"), "javascript": ("String", "array")}


def _single(name: str, number: int) -> tuple[dict[str, Any], list[Any]]:
    """A record of a single-turn category, and its ground truth."""
    city, language, kind = _CITIES[number], categories.language_of(name), categories.kind_of(name)
    request = f"What is the weather in {city} for {number + 2} days?"
    if language != "python":
        text, names = _SOURCE[language]
        function = tool("Board.post", text=text, names=names, count="integer")
        function["parameters"]["properties"]["names"]["items"] = {"type": "String"}
        options = {"text": [f"to {city}"], "names": [["a", city]], "count": [number]}
        return {"question": f"Post to {city}.", "function": [function]}, [{"Board.post": options}]
    calls = [{"weather.get": {"city": [city, city.upper()], "days": [number + 2, ""]}}]
    functions = [WEATHER] if kind == "simple" else [BOOK, WEATHER]
    if kind == "parallel":
        calls.append({"book": {"guests": [number + 1], "dishes": ["", ["soup"]]}})
        request += f" And a table for {number + 1}."
    elif kind == "irrelevance":
        functions = [BOOK]
    return {"question": request, "function": functions}, calls


def _conversation(name: str, number: int) -> tuple[dict[str, Any], list[list[str]]]:
    """A record of a multi-turn category, and its reference calls.

    A file is made, and another shown; in "miss_func", `cat` is offered only after it was needed.
    """
    city = _CITIES[number]
    requests = [f"Make a file named {city}.", f"Work in {city}: look around.", f"Show {city}'s notes."]
    calls = [[f"touch('{city}')"], ["cd('work')", "ls()"], ["cd('..')", "cat('notes')"]]
    turns: list[list[dict]] = [[{"role": "user", "content": request}] for request in requests]
    record = {
        "question": turns, "involved_classes": list(FUNCTIONS),
        "initial_config": {"GorillaFileSystem": FILES},
    }  # fmt: skip
    if name == "multi_turn_miss_func":
        turns.append([])
        calls = [*calls[:2], [], calls[2]]
        record["missed_function"] = {"3": ["cat"]}
    return record, calls


def write(directory: pathlib.Path, version: str = "v4") -> pathlib.Path:
    """Writes all files of a version into `directory`/bfcl/`version`; returns `directory`."""
    root = directory / "bfcl" / version
    lines: dict[str, list[dict[str, Any]]] = {}
    for name in categories.names(version):
        for number in range(COUNT):
            identifier = {"id": f"{name}_{number}"}
            if name in categories.MULTI_TURN:
                record, truth = _conversation(name, number)
            else:
                record, truth = _single(name, number)
                record["question"] = [[{"role": "user", "content": record["question"]}]]
            file = f"BFCL_{version}_{name}.json"
            lines.setdefault(file, []).append(identifier | record)
            if "relevance" not in name:
                answers = lines.setdefault(f"possible_answer/{file}", [])
                answers.append(identifier | {"ground_truth": truth})
    lines["multi_turn_func_doc/gorilla_file_system.json"] = list(FUNCTIONS["GorillaFileSystem"])
    lines["multi_turn_func_doc/math_api.json"] = list(FUNCTIONS["MathAPI"])
    for path, records in lines.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("".join(json.dumps(record) + "\n" for record in records) + "\n")
    return directory
