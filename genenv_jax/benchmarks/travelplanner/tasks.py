"""Reads TravelPlanner's files into tasks.

Published files (OSU-NLP-Group/TravelPlanner), as laid out below the benchmark's directory:
  HEAD/finetuning_data/std_travelplanner.jsonl   45 training prompts with annotated plans
  HEAD/database/train_ref_info.jsonl             reference information of the training queries
  HEAD/postprocess/example_evaluation.jsonl      texts of the 180 validation queries (optional)
  HEAD/database/validation_ref_info.jsonl        their reference information (optional)
  history_958f30d/database/                      tables, which later commits no longer have
The official flight table is not published with the repository.  Without it (`flights`), the flights of the
reference information, which has all that the training queries can use, serve as the flight table.
"""

import dataclasses
import hashlib
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

from genenv_jax.benchmarks import data_files
from genenv_jax.benchmarks.base import Task
from genenv_jax.benchmarks.records import field, read_lines
from genenv_jax.benchmarks.safe_parse import parse_literal
from genenv_jax.benchmarks.travelplanner import prompts
from genenv_jax.benchmarks.travelplanner.database import Database, Flight, load, read_table
from genenv_jax.benchmarks.travelplanner.queries import Gazetteer, Query, parse_query
from genenv_jax.benchmarks.travelplanner.references import (
    Reference,
    adapt,
    build_reference,
    choose_cities,
    read_reference,
)

NAME = "travelplanner"
TRAIN = "train"
VALIDATION = "validation"

_TABLES = "history_958f30d/database"
_TRAIN_PROMPTS = "HEAD/finetuning_data/std_travelplanner.jsonl"
_REFERENCES = {split: f"HEAD/database/{split}_ref_info.jsonl" for split in (TRAIN, VALIDATION)}
# Git blob id of the validation file at the source table's commit; that table has no SHA-256 for it.
_VALIDATION_BLOB = "e1be711528ea7fde30647b8a3e24ffe367fea82d"
_VALIDATION_QUERIES = (
    "HEAD/postprocess/example_evaluation.jsonl",
    "DERIVED/validation_queries_structured.jsonl",  # the same texts; not published
)
_QUERY = "\nQuery:"
_PLAN_CHARS = 100_000

ALWAYS = (
    _TRAIN_PROMPTS,
    _REFERENCES[TRAIN],
    f"{_TABLES}/restaurants/clean_restaurant_2022.csv",
    f"{_TABLES}/attractions/attractions.csv",
    f"{_TABLES}/accommodations/clean_accommodations_2022.csv",
    f"{_TABLES}/googleDistanceMatrix/distance.csv",
    f"{_TABLES}/background/citySet_with_states.txt",
)


def query_of(task: Task) -> Query:
    """The fields of a task's query; raises for a malformed task."""
    return Query.from_json(task.answer["query"])


@dataclasses.dataclass(frozen=True)
class World:
    """Everything read from the files."""

    database: Database
    references: dict[str, Reference]  # published reference information by task id
    tasks: dict[str, list[Task]]  # by split: "train", and "validation" if its queries are present
    gazetteer: Gazetteer

    def reference(self, task: Task) -> Reference | None:
        """The published reference information of a task, or its seed's, adapted to its route.

        None for a validation query whose information is absent.  ValueError if the seed's information does
        not describe the route.
        """
        name = task.answer["reference"]
        published = self.references.get(name)
        if published is None or name == task.id:
            return published
        return adapt(published, query_of(task), self.database)

    def information(self, task: Task, max_chars: int) -> Reference:
        """The reference information of a task, shortened; built from the database if there is none."""
        query = query_of(task)
        try:
            reference = self.reference(task)
        except ValueError:  # a different route, which `TravelPlanner.fault` rejects
            reference = None
        if reference is None:
            cities = choose_cities(query, self.database) or [query.dest]
            # With too few cities no plan can pass; the agent still sees those that exist.
            cities = (cities * query.visiting_city_number)[: query.visiting_city_number]
            reference = build_reference(query, cities, self.database)
        return prompts.compact(reference, query, self.database, max_chars)


def find_directory(data_dir: data_files.PathLike | None = None) -> pathlib.Path:
    """The directory that holds HEAD/ and history_958f30d/; see `data_files.find`."""
    return data_files.find(NAME, _REFERENCES[TRAIN], data_dir)


def splits(directory: pathlib.Path) -> dict[str, list[Task]]:
    """All tasks by official split: "train" (45), and "validation" (180) if its queries are present.

    `Task.answer` is {"query": the official fields (parsed from the text), "reference": the id of its
    reference information, "annotated_plan": the published plan or None}.

    Raises:
      FileNotFoundError: a missing file.
      ValueError: a malformed record, named as file:line.
    """
    return read_world(directory).tasks


def read_world(
    directory: pathlib.Path, flights: data_files.PathLike = "", verify_files: bool = False
) -> World:
    """Reads everything in `find_directory`; for the rest see `TravelPlanner`.  Raises like `splits`."""
    there = [path for path in _VALIDATION_QUERIES if (directory / path).is_file()]
    if verify_files:
        optional = [path for path in there if path == _VALIDATION_QUERIES[0]]
        data_files.verify(NAME, directory, [*ALWAYS, *optional])
        _verify_blob(directory / _REFERENCES[VALIDATION])
    references = _references(directory, TRAIN)
    if (directory / _REFERENCES[VALIDATION]).is_file():
        references |= _references(directory, VALIDATION)
    if flights:
        rows = read_table(pathlib.Path(flights).expanduser(), Flight)
    else:  # the flights of all reference information, each once, in order
        legs = (leg for reference in references.values() for leg in reference.legs)
        rows = dict.fromkeys(flight for leg in legs for flight in leg.flights)
    database = load(directory / _TABLES, rows)
    gazetteer = Gazetteer(database.states)
    tasks = {TRAIN: list(_train(directory / _TRAIN_PROMPTS, gazetteer, references))}
    if there:
        tasks[VALIDATION] = list(_validation(directory / there[0], gazetteer))
    return World(database, references, tasks, gazetteer)


def _verify_blob(path: pathlib.Path) -> None:
    if not path.is_file():
        return
    contents = path.read_bytes()
    found = hashlib.sha1(b"blob %d\0" % len(contents) + contents, usedforsecurity=False).hexdigest()
    if found != _VALIDATION_BLOB:
        raise ValueError(f"{path} has git blob id {found}, expected {_VALIDATION_BLOB}")


def _references(directory: pathlib.Path, split: str) -> dict[str, Reference]:
    path = directory / _REFERENCES[split]
    lines = enumerate(read_lines(path), 1)
    found = {f"{split}_{n}": read_reference(record, where) for n, (where, record) in lines}
    if not found:
        raise ValueError(f"{path}: no records")
    return found


def make_task(
    task_id: str, text: str, query: Query, reference: str, plan: list | None = None, **fields: Any
) -> Task:
    """A task for a query; `reference`: id of the published task whose reference information it uses."""
    return Task(
        id=task_id,
        benchmark=NAME,
        category=f"{query.level}_{query.days}_days",
        messages=({"role": "user", "content": text},),
        answer={"query": query.to_json(), "reference": reference, "annotated_plan": plan},
        **fields,
    )


def _published(task_id: str, text: str, gazetteer: Gazetteer, plan: list | None, where: str) -> Task:
    try:
        query = parse_query(text, gazetteer)
    except ValueError as error:
        raise ValueError(f"{where}: query: {error}") from None
    return make_task(task_id, text, query, reference=task_id, plan=plan, origin="eval")


def _train(path: pathlib.Path, gazetteer: Gazetteer, references: Mapping[str, Reference]) -> Iterator[Task]:
    expected = sum(name.startswith(f"{TRAIN}_") for name in references)
    index = 0
    for index, (where, record) in enumerate(read_lines(path), 1):
        if index > expected:
            raise ValueError(f"{where}: no reference information for query {index}")
        try:
            _, user, assistant = (message["content"] for message in record["messages"])
            _, found, text = user.rpartition(_QUERY)
        except (TypeError, KeyError, ValueError, AttributeError):
            raise ValueError(f"{where}: expected a system, a user and an assistant message") from None
        if not found:
            raise ValueError(f"{where}: no query in the user's message")
        plan = parse_literal(assistant, _PLAN_CHARS)
        if not isinstance(plan, list):
            raise ValueError(f"{where}: the annotated plan is not a list")
        if not all(isinstance(day, dict) for day in plan):
            raise ValueError(f"{where}: a day of the annotated plan is not an object")
        plan = [day for day in plan if day]
        yield _published(f"{TRAIN}_{index}", text.strip(), gazetteer, plan, where)
    if index != expected:
        raise ValueError(f"{path}: {index} queries, but reference information for {expected}")


def _validation(path: pathlib.Path, gazetteer: Gazetteer) -> Iterator[Task]:
    for index, (where, record) in enumerate(read_lines(path), 1):
        if record.get("idx") != index:
            raise ValueError(f"{where}: idx {record.get('idx')!r}, expected {index}")
        text = field(record, "query", str, where).strip()
        yield _published(f"{VALIDATION}_{index}", text, gazetteer, None, where)
