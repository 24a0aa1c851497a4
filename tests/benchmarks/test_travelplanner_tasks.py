"""TravelPlanner's files: contents of small ones, and errors that name file and line."""

import pytest

from genenv_jax.benchmarks.travelplanner import tasks
from genenv_jax.benchmarks.travelplanner.benchmark import TravelPlanner
from genenv_jax.benchmarks.travelplanner.queries import Query
from tests.benchmarks import travelplanner_files
from tests.benchmarks.published import published

PROMPTS, REFERENCES, RESTAURANTS, _, _, DISTANCES, STATES = tasks.ALWAYS
VALIDATION = "HEAD/postprocess/example_evaluation.jsonl"
COLUMNS = b"Name,City,Average Cost,Cuisines\n"


@pytest.fixture
def directory(tmp_path):
    """Small files that a test may change."""
    return travelplanner_files.write(tmp_path / "travelplanner")


def test_the_queries_and_their_information(directory):
    world = tasks.read_world(directory)
    texts = [task.messages[0]["content"] for task in world.tasks[tasks.TRAIN]]
    assert texts == [text for text, *_ in travelplanner_files.queries()]
    assert len(world.tasks[tasks.VALIDATION]) == 4
    query = Query.from_json(world.tasks[tasks.TRAIN][15].answer["query"])
    assert query == Query(
        org="Portfield", dest="Northmark",
        date=tuple(f"2022-03-{day}" for day in range(15, 20)), people_number=2, budget=6_000,
        house_rule="pets", room_type="entire room", transportation="no self-driving",
    )  # fmt: skip
    reference = world.references["train_3"]
    assert [city.name for city in reference.cities] == ["Ashton", "Brookby"]
    assert [city.restaurants[1].cost for city in reference.cities] == [15.0, 15.0]
    legs = [(leg.origin, leg.date, len(leg.flights), leg.drive.kilometres) for leg in reference.legs]
    assert legs == [
        ("Portfield", "2022-03-08", 2, 210.0), ("Ashton", "2022-03-10", 0, 80.0),
        ("Brookby", "2022-03-12", 1, 80.0),
    ]  # fmt: skip
    database = world.database
    assert database.flights.size == 10 and database.flights.price("F0000004") == 70.0
    assert not database.restaurants.get("Nowhere")  # a row with a missing value is none
    assert database.drive("Portfield", "Dunmore") is database.drive("Calder", "Dunmore") is None
    assert database.drives["Calder", "Dunmore"] is None


def test_validation_queries_can_be_held_out(directory):
    """Missing information is made from the database: no flights, the nearest cities."""
    benchmark = TravelPlanner(data_dir=directory, eval="validation")
    held_out = benchmark.tasks("eval")
    answers = [benchmark.agent_answer(task) for task in held_out]
    verdicts = [benchmark.score(*pair).success for pair in zip(held_out, answers, strict=True)]
    assert verdicts == [True, True, True, False] and answers[3] == "[]"
    assert "not comparable" in benchmark.about()["reference_information"]
    shown = benchmark.agent_messages(held_out[2])[-1]["content"]
    # Of the state's cities, Ashton is farther away, and no road leads to Dunmore.
    assert "## Portfield to Brookby, 2022-03-08\nNo flights." in shown
    assert "## Brookby to Ashton" in shown
    assert len(benchmark.tasks("seed")) == 18 - 3  # three are also validation queries
    (directory / VALIDATION).unlink()
    with pytest.raises(FileNotFoundError, match="example_evaluation"):
        TravelPlanner(data_dir=directory, eval="validation").tasks("eval")


def test_validation_queries_with_their_information(directory):
    path = directory / "HEAD/database/validation_ref_info.jsonl"
    path.write_bytes(b"".join((directory / REFERENCES).read_bytes().splitlines(True)[:4]))
    benchmark = TravelPlanner(data_dir=directory, eval="validation")
    assert "published" in benchmark.about()["reference_information"]
    assert all(benchmark.verify(task) is None for task in benchmark.tasks("eval")[:3])
    with published("travelplanner", directory), pytest.raises(ValueError, match="git blob id"):
        tasks.read_world(directory, verify_files=True)


@pytest.mark.parametrize(
    ("file", "line", "old", "new", "message"),
    [
        (PROMPTS, 3, '{"messages', "", "jsonl:3: not JSON"),
        (PROMPTS, 3, "messages", "message", "jsonl:3: expected a system, a user and an assistant"),
        (PROMPTS, 3, "Query:", "Question:", "jsonl:3: no query in the user's message"),
        (PROMPTS, 3, "$6,000", "not much", "jsonl:3: query: budget"),
        (PROMPTS, 3, "[{'days'", "x[{'days'", "jsonl:3: the annotated plan is not a list"),
        (PROMPTS, 3, "[{'days'", "[5, {'days'", "jsonl:3: a day of the annotated plan is not an object"),
        (PROMPTS, 18, None, "", "17 queries, but reference information for 18"),
        (PROMPTS, 18, "}\n", "}\n{}\n", "jsonl:19: no reference information for query 19"),
        (REFERENCES, 2, None, "[]\n", "jsonl:2: expected an object"),
        (REFERENCES, 2, None, "{}\n", "jsonl:2: no cities or no legs"),
        (REFERENCES, 2, "Attractions in", "Museums in", "'Museums in .*unknown kind of information"),
        (REFERENCES, 2, '"Name"', '"Title"', "jsonl:2: 'Attractions in .*no column 'Name'"),
        (REFERENCES, 2, '"price": 100', '"price": "much"', "jsonl:2: 'Accommodations in .*could not"),
        (VALIDATION, 2, "query", "text", "jsonl:2: 'query' is missing"),
        (VALIDATION, 2, '"idx": 2', '"idx": 5', "jsonl:2: idx 5, expected 2"),
        (RESTAURANTS, 6, None, "5,half a row\n", "csv:6: 2 fields, expected 6"),
        (RESTAURANTS, 6, ",30,", ",cheap,", "csv:6: could not convert"),
        (RESTAURANTS, 1, "Cuisines", "Food", "csv:1: no column 'Cuisines'"),
        (DISTANCES, 1, "duration", "time", "csv:1: no column 'duration'"),
        (DISTANCES, 2, "210 km", "far", "csv:2: distance 'far' is not a length"),
        (STATES, 2, "\t", " ", "txt:2: expected a city, a tab and a state"),
    ],
)  # fmt: skip
def test_malformed_records_are_named_by_file_and_line(directory, file, line, old, new, message):
    path = directory / file
    lines = path.read_text().splitlines(True)
    assert old is None or old in lines[line - 1]
    lines[line - 1] = new if old is None else lines[line - 1].replace(old, new, 1)
    path.write_text("".join(lines))
    with pytest.raises(ValueError, match=message):
        tasks.splits(directory)


@pytest.mark.parametrize(
    ("file", "contents", "message"),
    [
        (REFERENCES, b"", "no records"),
        (RESTAURANTS, COLUMNS, "no rows"),
        (DISTANCES, b"origin,destination,duration,distance\n\n", "no rows"),
        (RESTAURANTS, b"Name\n\xff\n", "not UTF-8"),
        (RESTAURANTS, COLUMNS + b"a" * 200_000 + b"\n", "2: field larger than"),
        *((file, None, "is missing") for file in (PROMPTS, RESTAURANTS, STATES)),
    ],
)
def test_files_that_cannot_be_read_are_named(directory, file, contents, message):
    path = directory / file
    if contents is None:
        path.unlink()
    else:
        path.write_bytes(contents)
    with pytest.raises((ValueError, FileNotFoundError), match=f"{path.name}:? ?{message}"):
        tasks.splits(directory)


def test_a_flight_table_takes_the_place_of_the_reference_flights(directory, tmp_path):
    path = tmp_path / "clean_Flights_2022.csv"
    path.write_text(
        "Flight Number,Price,DepTime,ArrTime,ActualElapsedTime,FlightDate,OriginCityName,"
        "DestCityName,Distance\n"
        "F1,100,10:00,11:00,1 hours,2022-03-16,St. Petersburg,Rockford,9.0\n"
        "F2,,10:00,11:00,1 hours,2022-03-16,St. Petersburg,Rockford,9.0\n"
        "F1,300,12:00,13:00,1 hours,2022-03-18,Rockford,St. Petersburg,9.0\n"
    )
    flights = tasks.read_world(directory, path).database.flights
    assert flights.size == 2  # a row with a missing value is none
    assert [flight.price for flight in flights] == [100.0, 300.0]
    assert flights.exists("F1", "St. Petersburg", "Rockford")
    assert flights.exists("F1", "Rockford", "St. Petersburg")
    assert not flights.exists("F1", "Rockford", "Denver")
    assert not flights.exists("F2", "St. Petersburg", "Rockford")
    assert not flights.exists("", "St. Petersburg", "Rockford")
    assert not flights.exists("F1" * 50, "St. Petersburg", "Rockford")
    assert flights.price("F1") == 100.0 and flights.price("F9") is None
    day = flights.between("Rockford", "St. Petersburg", "2022-03-18")
    assert [flight.departure for flight in day] == ["12:00"]
    assert flights.between("Rockford", "St. Petersburg", "2022-03-19") == []
    assert flights.between("Rockford", "Denver", "2022-03-19") == []
    about = TravelPlanner(data_dir=directory, flights=str(path)).about()
    assert "2 flights, the flight table clean_Flights_2022.csv" in about["flights"]
    path.write_text("Flight Number,Price\nF1,100\n")
    with pytest.raises(ValueError, match="csv:1: no column 'DepTime'"):
        tasks.read_world(directory, path)
