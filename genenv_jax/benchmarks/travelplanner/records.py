"""Reads TravelPlanner's files into tasks.

Published files (OSU-NLP-Group/TravelPlanner), as laid out below the benchmark's directory:
  HEAD/finetuning_data/std_travelplanner.jsonl   45 training prompts with annotated plans
  HEAD/database/train_ref_info.jsonl             reference information of the training queries
  HEAD/postprocess/example_evaluation.jsonl      texts of the 180 validation queries (optional)
  HEAD/database/validation_ref_info.jsonl        their reference information (optional)
  history_958f30d/database/                      tables, which later commits no longer have
The official flight table is not published with the repository.  Without it (`flights`) the flights of the
reference information are the flight table.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from genenv_jax.benchmarks import data_files
from genenv_jax.benchmarks.base import Rejection, Task
from genenv_jax.benchmarks.safe_parse import parse_literal
from genenv_jax.benchmarks.travelplanner.database import Database, Flight, flights_of, load
from genenv_jax.benchmarks.travelplanner.queries import Gazetteer, Query, parse_query
from genenv_jax.benchmarks.travelplanner.references import Reference, read_reference

NAME = "travelplanner"
TRAIN = "train"
VALIDATION = "validation"

_TABLES = "history_958f30d/database"
_TRAIN_PROMPTS = "HEAD/finetuning_data/std_travelplanner.jsonl"
_TRAIN_REFERENCES = "HEAD/database/train_ref_info.jsonl"
_VALIDATION_REFERENCES = "HEAD/database/validation_ref_info.jsonl"
# Git's name of that file at the commit of the source table, which gives no SHA-256 for it.
_VALIDATION_BLOB = "e1be711528ea7fde30647b8a3e24ffe367fea82d"
_VALIDATION_QUERIES = (
    "HEAD/postprocess/example_evaluation.jsonl",
    "DERIVED/validation_queries_structured.jsonl",  # the same texts; not published
)
_QUERY = "\nQuery:"
_PLAN_CHARS = 100_000

ALWAYS = (
    _TRAIN_PROMPTS,
    _TRAIN_REFERENCES,
    f"{_TABLES}/restaurants/clean_restaurant_2022.csv",
    f"{_TABLES}/attractions/attractions.csv",
    f"{_TABLES}/accommodations/clean_accommodations_2022.csv",
    f"{_TABLES}/googleDistanceMatrix/distance.csv",
    f"{_TABLES}/background/citySet_with_states.txt",
)


@dataclasses.dataclass(frozen=True)
class World:
    """All that is read.

    Attributes:
      database: what plans are checked against.
      references: published reference information by the id of its task.
      tasks: tasks of each split: "train", and "validation" where its queries are there.
      gazetteer: finds places in queries.
    """

    database: Database
    references: dict[str, Reference]
    tasks: dict[str, list[Task]]
    gazetteer: Gazetteer


def find_directory(data_dir: str | os.PathLike[str] | None = None) -> pathlib.Path:
    """The directory that holds HEAD/ and history_958f30d/; see `data_files.find`."""
    return data_files.find(NAME, _TRAIN_REFERENCES, data_dir)


def splits(directory: pathlib.Path) -> dict[str, list[Task]]:
    """All tasks by official split: "train" (45), and "validation" (180) where its queries are there.

    `Task.answer` is {"query": the official fields (read from the text), "reference": the id under which
    its reference information is found, "annotated_plan": the published plan or None}.

    Raises:
      FileNotFoundError: a missing file.
      ValueError: a malformed record, named as file:line.
    """
    return read_world(directory).tasks


def read_world(
    directory: pathlib.Path, flights: str | os.PathLike[str] = "", verify_files: bool = False
) -> World:
    """Reads everything; raises as `splits`.

    Args:
      directory: see `find_directory`.
      flights: the official clean_Flights_2022.csv; "" takes the flights of the reference information.
      verify_files: compare the files with the table of published ones first.
    """
    if verify_files:
        paths = list(ALWAYS)
        if (directory / _VALIDATION_QUERIES[0]).is_file():
            paths.append(_VALIDATION_QUERIES[0])
        data_files.verify(NAME, directory, paths)
        _verify_blob(directory / _VALIDATION_REFERENCES)
    references = _references(directory / _TRAIN_REFERENCES, TRAIN)
    if (directory / _VALIDATION_REFERENCES).is_file():
        references |= _references(directory / _VALIDATION_REFERENCES, VALIDATION)
    rows = flights_of(pathlib.Path(flights).expanduser()) if flights else _flights_in(references)
    database = load(directory / _TABLES, rows)
    gazetteer = Gazetteer(database.states)
    tasks = {TRAIN: list(_train(directory / _TRAIN_PROMPTS, gazetteer, references))}
    for path in _VALIDATION_QUERIES:
        if (directory / path).is_file():
            tasks[VALIDATION] = list(_validation(directory / path, gazetteer))
            break
    return World(database, references, tasks, gazetteer)


def _verify_blob(path: pathlib.Path) -> None:
    if not path.is_file():
        return
    contents = path.read_bytes()
    found = hashlib.sha1(b"blob %d\0" % len(contents) + contents, usedforsecurity=False).hexdigest()
    if found != _VALIDATION_BLOB:
        raise ValueError(f"{path} has git blob id {found}, expected {_VALIDATION_BLOB}")


def _flights_in(references: Mapping[str, Reference]) -> list[Flight]:
    """Flights of all reference information, each once, in order."""
    return list(
        dict.fromkeys(
            flight
            for reference in references.values()
            for leg in reference.legs
            for flight in leg.flights
        )
    )


def _records(path: pathlib.Path) -> Iterator[tuple[str, Any]]:
    if not path.is_file():
        raise FileNotFoundError(f"TravelPlanner file {path} is missing")
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            where = f"{path}:{number}"
            if not line.strip():
                continue
            try:
                yield where, json.loads(line.decode("utf-8"))
            except ValueError as error:
                raise ValueError(f"{where}: not JSON: {error}") from None


def _references(path: pathlib.Path, split: str) -> dict[str, Reference]:
    found = {
        f"{split}_{index}": read_reference(record, where)
        for index, (where, record) in enumerate(_records(path), 1)
    }
    if not found:
        raise ValueError(f"{path}: no records")
    return found


def _task(
    split: str, index: int, text: str, gazetteer: Gazetteer, plan: Sequence | None, where: str
) -> Task:
    try:
        query = parse_query(text, gazetteer)
    except ValueError as error:
        raise ValueError(f"{where}: query: {error}") from None
    task_id = f"{split}_{index}"
    return make_task(task_id, text, query, reference=task_id, plan=plan, origin="eval")


def make_task(
    task_id: str,
    text: str,
    query: Query,
    reference: str,
    plan: Sequence | None = None,
    **fields: Any,
) -> Task:
    """A task for a query.

    Args:
      task_id: `Task.id`.
      text: the query.
      query: its fields.
      reference: id of the published task whose reference information it uses.
      plan: an annotated plan.
      **fields: more fields of `Task`.
    """
    return Task(
        id=task_id,
        benchmark=NAME,
        category=f"{query.level}_{query.days}_days",
        messages=({"role": "user", "content": text},),
        answer={
            "query": query.to_json(),
            "reference": reference,
            "annotated_plan": None if plan is None else list(plan),
        },
        **fields,
    )


def _train(
    path: pathlib.Path, gazetteer: Gazetteer, references: Mapping[str, Reference]
) -> Iterator[Task]:
    index = 0
    for index, (where, record) in enumerate(_records(path), 1):
        if f"{TRAIN}_{index}" not in references:
            raise ValueError(f"{where}: no reference information for query {index}")
        try:
            _, user, assistant = (message["content"] for message in record["messages"])
            _, found, text = user.rpartition(_QUERY)
        except (TypeError, KeyError, ValueError, AttributeError):
            raise ValueError(
                f"{where}: expected a system, a user and an assistant message"
            ) from None
        if not found:
            raise ValueError(f"{where}: no query in the user's message")
        plan = parse_literal(assistant, _PLAN_CHARS)
        if isinstance(plan, Rejection) or not isinstance(plan, list):
            raise ValueError(f"{where}: the annotated plan is no list")
        if not all(isinstance(day, dict) for day in plan):
            raise ValueError(f"{where}: a day of the annotated plan is no object")
        yield _task(TRAIN, index, text.strip(), gazetteer, [d for d in plan if d], where)
    expected = sum(key.startswith(f"{TRAIN}_") for key in references)
    if index != expected:
        raise ValueError(f"{path}: {index} queries, but reference information for {expected}")


def _validation(path: pathlib.Path, gazetteer: Gazetteer) -> Iterator[Task]:
    for index, (where, record) in enumerate(_records(path), 1):
        if not isinstance(record, dict) or not isinstance(record.get("query"), str):
            raise ValueError(f"{where}: no query")
        if record.get("idx") != index:
            raise ValueError(f"{where}: idx {record.get('idx')!r}, expected {index}")
        yield _task(VALIDATION, index, record["query"].strip(), gazetteer, None, where)
