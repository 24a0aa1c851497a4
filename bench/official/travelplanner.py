"""Runs TravelPlanner's official evaluator beside ours and keeps its verdicts.

Not needed by the tests, which read `bench/official/travelplanner.json`.  To make that file anew:

    git clone https://github.com/OSU-NLP-Group/TravelPlanner OFFICIAL
    git -C OFFICIAL checkout da7c1d41d51bf1d6e8592099bc109c9368b2dfe4
    pip install pandas==2.2.3 tqdm                          # in an environment of its own, with numpy
    GENENV_DATA=... python -m bench.official.travelplanner OFFICIAL

The script puts the tables (data directory, history_958f30d) and the flights of the training queries'
reference information below OFFICIAL/database, where the evaluator reads them, and stands in for `gradio`,
`datasets` and `requests`, which it imports.  It also compares the rows of the tables with what pandas reads
(a tenth of the distances), and the text rules of `names` with the official ones on many texts.  It takes
about ten minutes.  What is kept are letters, no benchmark text.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import json
import os
import pathlib
import random
import shutil
import sys
import types
from collections.abc import Iterable
from typing import Any

from bench.bad_answers.travelplanner import mutations
from genenv_jax.benchmarks.base import Score, Task
from genenv_jax.benchmarks.travelplanner import names, records
from genenv_jax.benchmarks.travelplanner.constraints import COMMONSENSE, HARD
from genenv_jax.benchmarks.travelplanner.database import Database
from genenv_jax.benchmarks.travelplanner.queries import Query

VERDICTS = pathlib.Path(__file__).with_suffix(".json")
CONSTRAINTS = (*COMMONSENSE, *HARD)
# A letter for each constraint: passed, failed, not asked, not looked at, exception.
PASSED, FAILED, NOT_ASKED, SKIPPED, CRASH = "pfn-x"
UNDELIVERED = SKIPPED * len(CONSTRAINTS)
RATES = (
    "Delivery Rate",
    "Commonsense Constraint Micro Pass Rate",
    "Commonsense Constraint Macro Pass Rate",
    "Hard Constraint Micro Pass Rate",
    "Hard Constraint Macro Pass Rate",
    "Final Pass Rate",
)
RUNS = 16  # of the whole evaluator, on one plan of each task


def digest(plans: Iterable[Any]) -> str:
    """Says whether two sets of plans are the same."""
    found = hashlib.sha256()
    for plan in plans:
        found.update(json.dumps(plan).encode() + b"\0")
    return found.hexdigest()


def official_query(task: Task) -> dict[str, Any]:
    """A task as a record of the official data set."""
    query = Query.from_json(task.answer["query"])
    return {
        **query.to_json(),
        "level": query.level,
        "query": task.messages[-1]["content"],
    }


def predictions(plans: list[list[Any]], number: int) -> list[Any]:
    """One plan for each task, the `number`-th of each."""
    return [each[number % len(each)] for each in plans]


def prepare(official: pathlib.Path, directory: pathlib.Path, database: Database) -> None:
    """Puts tables and stand-ins where the evaluator expects them."""
    for name in (
        "restaurants",
        "accommodations",
        "attractions",
        "googleDistanceMatrix",
        "background",
    ):
        target = official / "database" / name
        if not target.exists():
            shutil.copytree(directory / "history_958f30d" / "database" / name, target)
    path = official / "database" / "flights" / "clean_Flights_2022.csv"
    path.parent.mkdir(exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        names_ = ["Flight Number", "Price", "DepTime", "ArrTime", "ActualElapsedTime", "FlightDate"]
        writer.writerow([*names_, "OriginCityName", "DestCityName", "Distance"])
        for row in range(database.flights.size):
            flight = database.flights._flight(row)
            times = [flight.departure, flight.arrival, "x", flight.date]
            ends = [flight.origin, flight.destination, 0]
            writer.writerow([flight.number, flight.price, *times, *ends])
    sys.modules["gradio"] = types.ModuleType("gradio")
    requests = types.ModuleType("requests")
    requests.exceptions = types.ModuleType("requests.exceptions")
    requests.exceptions.SSLError = OSError
    sys.modules |= {"requests": requests, "requests.exceptions": requests.exceptions}
    datasets = types.ModuleType("datasets")
    datasets.load_dataset = lambda *args, **kwargs: {"train": datasets.queries}
    sys.modules["datasets"] = datasets
    sys.path[:0] = [str(official), str(official / "evaluation")]
    os.chdir(official / "evaluation")


def remember_searches() -> None:
    """Looks every name up once: the evaluator searches whole tables for each meal of each plan."""
    from pandas.core.strings.accessor import StringMethods

    search = StringMethods.contains
    found: dict[tuple, Any] = {}

    def contains(self, pattern):
        key = (pattern, self._orig.name, len(self._orig))
        if key not in found:
            found[key] = search(self, pattern)
        return found[key]

    StringMethods.contains = contains


def _letter(verdict: Any) -> str:
    return NOT_ASKED if verdict is None else PASSED if verdict else FAILED


def official_letters(commonsense: Any, hard: Any, query: dict[str, Any], plan: list[Any]) -> str:
    """The official functions' verdicts on a plan, each called by itself."""
    if not plan:
        return UNDELIVERED
    functions = {
        **{name: getattr(commonsense, name) for name in COMMONSENSE if hasattr(commonsense, name)},
        "is_valid_accommodation": commonsense.is_valid_accommodaton,
    }
    letters = {}
    for name in COMMONSENSE:
        try:
            letters[name] = _letter(functions[name](query, plan)[0])
        except Exception:  # it would have ended the official run
            letters[name] = CRASH
    both = letters["is_not_absent"], letters["is_valid_information_in_sandbox"]
    functions = {
        "valid_cuisine": hard.is_valid_cuisine,
        "valid_room_rule": hard.is_valid_room_rule,
        "valid_transportation": hard.is_valid_transportation,
        "valid_room_type": hard.is_valid_room_type,
        "valid_cost": lambda q, p: (bool(hard.get_total_cost(q, p) <= q["budget"]), None),
    }
    for name in HARD:
        if both != (PASSED, PASSED):
            letters[name] = SKIPPED
            continue
        try:
            letters[name] = _letter(functions[name](query, plan)[0])
        except Exception:
            letters[name] = CRASH
    return "".join(letters[name] for name in CONSTRAINTS)


def our_letters(score: Score) -> str:
    """Our verdicts as the official ones are kept."""
    if not score.detail["delivered"]:
        return UNDELIVERED
    letters = ""
    for name in CONSTRAINTS:
        if name not in COMMONSENSE and not score.detail["hard_evaluated"]:
            letters += SKIPPED
        elif name in score.detail["crashed"]:
            letters += CRASH
        else:
            letters += _letter(score.detail["constraints"][name])
    return letters


def _compare_tables(commonsense: Any, database: Database) -> int:
    tables = {
        "restaurants": (commonsense.restaurants.data, ["Name", "City", "Average Cost", "Cuisines"]),
        "attractions": (commonsense.attractions.data, ["Name", "City"]),
        "accommodations": (
            commonsense.accommodation.data,
            [
                "NAME",
                "city",
                "price",
                "room type",
                "house_rules",
                "minimum nights",
                "maximum occupancy",
            ],
        ),
    }
    rows = 0
    for name, (frame, columns) in tables.items():
        theirs: dict[str, list[tuple]] = {}
        for row in frame[columns].itertuples(index=False):
            theirs.setdefault(row[1], []).append(tuple(row))
        ours = {
            city: [tuple(row)[: len(columns)] for row in rows_]
            for city, rows_ in getattr(database, name).items()
        }
        assert ours == theirs, name
        rows += len(frame)
    matrix = commonsense.googleDistanceMatrix
    pairs = matrix.data[["origin", "destination"]].drop_duplicates().iloc[::10]  # each takes 10 ms
    for row in pairs.itertuples(index=False):
        drive = database.drive(*row)
        for mode in ("self-driving", "taxi"):
            cost = matrix.run_for_evaluation(*row, mode)["cost"]
            ours = drive and (drive.taxi_cost() if mode == "taxi" else drive.car_cost())
            assert ours == cost, row
        rows += 1
    return rows


def _compare_texts(commonsense: Any, count: int) -> int:
    rng = random.Random("texts")
    parts = [
        "from",
        "to",
        " ",
        "  ",
        ",",
        "(",
        ")",
        "\n",
        "A",
        "Be",
        "from ",
        " to ",
        "\t",
        "-",
        "",
        "tow",
    ]
    for _ in range(count):
        text = "".join(rng.choices(parts, k=rng.randint(0, 14)))
        pairs = (
            (names.before_parenthesis(text), commonsense.extract_before_parenthesis(text)),
            (names.route_of(text), commonsense.extract_from_to(text)),
            (names.name_and_city(text), commonsense.get_valid_name_city(text)),
        )
        for ours, theirs in pairs:
            assert ours == theirs, (text, ours, theirs)
    return 3 * count


def main(official: str) -> None:
    """Writes `bench/official/travelplanner.json`."""
    directory = records.find_directory()
    world = records.read_world(directory)
    tasks = world.tasks[records.TRAIN]
    plans = [mutations(task, world) for task in tasks]
    start = pathlib.Path.cwd()
    prepare(pathlib.Path(official).resolve(), directory.resolve(), world.database)
    quiet = io.StringIO()
    with contextlib.redirect_stdout(quiet):
        import commonsense_constraint
        import hard_constraint
        from eval import eval_score

        remember_searches()
        rows = _compare_tables(commonsense_constraint, world.database)
        texts = _compare_texts(commonsense_constraint, 200_000)
        kinds: list[str] = []
        verdicts: dict[str, list[int]] = {}
        for task, each in zip(tasks, plans, strict=True):
            query = official_query(task)
            codes = verdicts.setdefault(task.id, [])
            for plan in each:
                letters = official_letters(commonsense_constraint, hard_constraint, query, plan)
                if letters not in kinds:
                    kinds.append(letters)
                codes.append(kinds.index(letters))
        sys.modules["datasets"].queries = [official_query(task) for task in tasks]
        rates: dict[str, list[float]] = {}
        for number in range(RUNS):
            chosen = predictions(plans, number)
            letters = [
                kinds[verdicts[t.id][number % len(p)]] for t, p in zip(tasks, plans, strict=True)
            ]
            # The official run ends with the first exception: such a plan is replaced with none.
            chosen = [
                [] if CRASH in each else plan for each, plan in zip(letters, chosen, strict=True)
            ]
            path = pathlib.Path("predictions.jsonl")
            path.write_text("".join(json.dumps({"plan": plan}) + "\n" for plan in chosen))
            scores, _ = eval_score("train", str(path))
            rates[str(number)] = [scores[name] for name in RATES]
    os.chdir(start)
    document = {
        "plans": digest(plan for each in plans for plan in each),
        "kinds": kinds,
        "verdicts": verdicts,
        "rates": rates,
    }
    VERDICTS.write_text(json.dumps(document, separators=(",", ":")) + "\n")
    count = sum(map(len, plans))
    print(f"{count} plans, {len(kinds)} combinations; {rows} rows and {texts} texts agree")


if __name__ == "__main__":
    main(sys.argv[1])
