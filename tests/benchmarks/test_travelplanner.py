"""TravelPlanner as a benchmark: splits, prompts, answers, the simulator's side, aggregates, bad input."""

import json
import pathlib
import pickle
import shutil
import time

import pytest

from genenv_jax.benchmarks import data_files
from genenv_jax.benchmarks.base import Benchmark, Described, Rejection, SeedStatistics, Task
from genenv_jax.benchmarks.travelplanner import records
from genenv_jax.benchmarks.travelplanner.benchmark import TravelPlanner
from genenv_jax.benchmarks.travelplanner.metrics import PAPER_MEAN
from tests.benchmarks.test_safe_parse import HOSTILE

HOSTILE_PLANS = {
    **HOSTILE,
    "many lists": "[{}] " * 5_000,
    "unfinished lists": "[{" * 5_000,
    "unfinished strings": "[{'" * 4_000,
    "backslashes in a list": "[{'" + "\\" * 16_000,
    "long city": json.dumps([{"current_city": "from " * 3_000}] * 1),
    "spaces in a route": json.dumps([{"current_city": "from" + " " * 15_000 + "to"}]),
    "letters of a city": json.dumps(
        [{"current_city": "z" * 7_000 + "a", "attraction": "a;" * 4_000, "transportation": "-"}]
    ),
    "parentheses in a city": json.dumps([{"current_city": "(" * 15_000}]),
    "commas in a meal": json.dumps([{"current_city": "A", "breakfast": "," * 15_000}]),
    "many days": json.dumps([{"days": n} for n in range(1_000)]),
    "numbers as texts": json.dumps([{"current_city": 5}]),
    "lists as texts": json.dumps([{"current_city": ["A"], "breakfast": [[]]}]),
    "odd keys": "[{1: 2, (3, 4): 5}]",
    "nested": "[" * 5 + "{}" + "]" * 5,
}


@pytest.fixture(scope="module")
def benchmark(data_dir):
    """The default benchmark."""
    return TravelPlanner(data_dir=data_dir)


@pytest.fixture(scope="module")
def everything(data_dir):
    """All 45 training queries held out."""
    return TravelPlanner(data_dir=data_dir, seed_fraction=0.0)


def test_it_keeps_the_promises(benchmark):
    assert isinstance(benchmark, Benchmark) and isinstance(benchmark, Described)
    assert all(isinstance(v, str) and v for v in benchmark.about().values())
    assert "313 flights" in benchmark.about()["flights"]
    assert "absent" in benchmark.about()["flights"]


def test_counts_per_split_are_the_official_ones(data_dir):
    found = records.splits(records.find_directory(data_dir))
    assert len(found["train"]) == 45
    strata = [task.category for task in found["train"]]
    levels = [f"{level}_{days}_days" for level in ("easy", "medium", "hard") for days in (3, 5, 7)]
    assert {name: strata.count(name) for name in levels} == dict.fromkeys(levels, 5)
    if "validation" in found:
        assert len(found["validation"]) == 180
        strata = [task.category for task in found["validation"]]
        assert {name: strata.count(name) for name in levels} == dict.fromkeys(levels, 20)


def test_seeds_and_held_out_tasks_are_stratified_and_apart(benchmark):
    seeds, held_out = benchmark.tasks("seed"), benchmark.tasks("eval")
    assert len(seeds) == 27 and len(held_out) == 18
    for tasks, share in ((seeds, 3), (held_out, 2)):
        categories = [task.category for task in tasks]
        assert {categories.count(name) for name in set(categories)} == {share}
        assert len(set(categories)) == 9
    assert not {t.id for t in seeds} & {t.id for t in held_out}
    assert not {benchmark.canonical(t) for t in seeds} & {benchmark.canonical(t) for t in held_out}
    assert {t.origin for t in seeds} == {"seed"} and {t.origin for t in held_out} == {"eval"}


def test_most_tasks_do_not_move_the_split(data_dir, benchmark):
    few = TravelPlanner(data_dir=data_dir, max_seeds=4, max_eval=3)
    assert len(few.tasks("seed")) == 4 and len(few.tasks("eval")) == 3
    assert {t.id for t in few.tasks("seed")} < {t.id for t in benchmark.tasks("seed")}
    assert {t.id for t in few.tasks("eval")} < {t.id for t in benchmark.tasks("eval")}


def test_validation_queries_can_be_held_out(data_dir):
    benchmark = TravelPlanner(data_dir=data_dir, eval="validation")
    if records.VALIDATION not in records.splits(records.find_directory(data_dir)):
        with pytest.raises(FileNotFoundError, match="example_evaluation"):
            benchmark.tasks("eval")
        return
    assert len(benchmark.tasks("eval")) == 180 and len(benchmark.tasks("seed")) == 45
    answers = [benchmark.agent_answer(task) for task in benchmark.tasks("eval")]
    solved = sum(
        benchmark.score(task, answer).success
        for task, answer in zip(benchmark.tasks("eval"), answers, strict=True)
    )
    assert solved >= 143
    assert all(answer == "[]" or len(answer) > 500 for answer in answers)
    if "not comparable" in benchmark.about()["reference_information"]:
        assert solved < 180  # without flights


def test_reference_answers_score_full_reward_in_both_formats(everything):
    for task in everything.tasks("eval"):
        answer = everything.agent_answer(task)
        for text in (
            answer,
            repr(json.loads(answer)),
            f"Here is [my] plan:\n```json\n{answer}\n```\nHave a good trip!",
            json.dumps({"plan": [*json.loads(answer), {}, {}]}),
        ):
            score = everything.score(task, text)
            assert score.success and score.valid and score.reward == 1.0 and score.reason == ""


def test_no_annotated_plan_and_no_derived_field_is_shown(everything):
    for task in everything.tasks("eval"):
        shown = json.dumps(everything.agent_messages(task))
        assert task.messages[0]["content"] in everything.agent_messages(task)[-1]["content"]
        for name in ("local_constraint", "people_number", "visiting_city_number", "annotated"):
            assert name not in shown


def test_prompts_fit(everything):
    for task in everything.tasks("eval"):
        agent = sum(len(message["content"]) for message in everything.agent_messages(task))
        messages = everything.simulator_messages(task, SeedStatistics(8, 1))
        assert agent <= everything.prompt_chars
        assert sum(len(message["content"]) for message in messages) <= 10_000


def test_the_simulator_reads_what_it_writes(everything):
    for task in everything.tasks("eval"):
        parsed = everything.parse(everything.simulator_answer(task), task, "g", 3)
        assert isinstance(parsed, Task)
        assert parsed.answer["query"] == task.answer["query"]
        assert (parsed.origin, parsed.generation, parsed.seed_id) == ("generated", 3, task.id)
        assert everything.verify(parsed) is None
        assert everything.canonical(parsed) == everything.canonical(task)
        assert Task.from_json(json.loads(json.dumps(parsed.to_json()))) == parsed


def _variation(benchmark, seed, **changes):
    record = json.loads(benchmark.simulator_answer(seed))
    local = {**record["local_constraint"], **changes.pop("local", {})}
    return benchmark.parse(
        json.dumps({**record, "local_constraint": local, **changes}), seed, "g", 0
    )


def _seed(benchmark, category):
    return next(task for task in benchmark.tasks("seed") if task.category == category)


def test_a_variation_may_change_wishes_party_and_cities(benchmark):
    seed = _seed(benchmark, "easy_7_days")
    query = seed.answer["query"]
    for days, number in ((5, 2), (7, 3)):
        dates = query["date"][:days]
        text = (
            f"Plan a trip from {query['org']} to {number} cities in {query['dest']} from March "
            f"{int(dates[0][-2:])}th to March {int(dates[-1][-2:])}th, 2022, for a group of 3 people "
            "with a budget of $60,000. We like Italian and French food."
        )
        task = _variation(
            benchmark,
            seed,
            query=text,
            days=days,
            visiting_city_number=number,
            date=dates,
            people_number=3,
            budget=60_000,
            local={"cuisine": ["French", "Italian"]},
        )
        assert isinstance(task, Task) and task.category == f"medium_{days}_days"
        assert benchmark.verify(task) is None
        assert benchmark.score(task, benchmark.agent_answer(task)).reward == 1.0
        assert benchmark.canonical(task) != benchmark.canonical(seed)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"budget": 1_234}, "text_differs"),
        ({"people_number": 7}, "text_differs"),
        ({"local": {"house rule": "pets"}}, "text_differs"),
        ({"query": "Plan a trip."}, "text_differs"),
        ({"budget": -5}, "bad_answer"),
        ({"budget": True}, "bad_answer"),
        ({"people_number": "two"}, "bad_answer"),
        ({"days": 4}, "bad_answer"),
        ({"date": ["2022-03-01"]}, "bad_answer"),
        ({"date": None}, "bad_answer"),
        ({"local": {"cuisine": ["Klingon"]}}, "bad_answer"),
        ({"local": {"cuisine": [["French"]]}}, "bad_answer"),
        ({"local": {"house rule": ["pets"]}}, "bad_answer"),
        ({"local": {"more": 1}}, "bad_answer"),
        ({"more": 1}, "bad_answer"),
        ({"query": ""}, "unparsable"),
        ({"query": 7}, "not_text"),
        ({"query": "x" * 5_000}, "too_long"),
    ],
)
def test_bad_variations_are_turned_away(benchmark, changes, reason):
    task = _variation(benchmark, _seed(benchmark, "easy_3_days"), **changes)
    rejection = task if isinstance(task, Rejection) else benchmark.verify(task)
    assert isinstance(rejection, Rejection) and rejection.reason == reason, rejection


def test_a_variation_without_a_plan_or_off_the_map_is_turned_away(benchmark):
    seed = _seed(benchmark, "easy_3_days")
    query = seed.answer["query"]
    text = seed.messages[0]["content"]
    poor = _variation(
        benchmark, seed, query=text.replace(f"${query['budget']:,}", "$20"), budget=20
    )
    assert benchmark.verify(poor).reason == "unsolvable"
    away = _variation(
        benchmark, seed, query=text.replace(query["dest"], "Honolulu"), dest="Honolulu"
    )
    assert benchmark.verify(away).reason == "bad_answer"


def test_success_is_a_final_pass_and_micro_pays_for_parts(data_dir, benchmark):
    micro = TravelPlanner(data_dir=data_dir, reward="micro")
    task = _seed(benchmark, "hard_3_days")
    plan = json.loads(benchmark.agent_answer(task))
    plan[1]["lunch"] = plan[1]["breakfast"]
    score, paid = benchmark.score(task, json.dumps(plan)), micro.score(task, json.dumps(plan))
    assert (score.reward, score.success, score.valid) == (0.0, False, True)
    assert score.reason == "is_valid_restaurants"
    assert not paid.success and 0.5 < paid.reward < 1.0
    asked = [v for v in paid.detail["constraints"].values() if v is not None]
    assert len(asked) == 12 and paid.reward == pytest.approx(sum(asked) / 12)
    assert micro.score(task, "no plan").reward == 0.0


def test_aggregates_are_exact_on_any_multiset(everything):
    results = []
    for index, task in enumerate(everything.tasks("eval")):
        answer = (
            everything.agent_answer(task) if index % 3 else ["", "[]", "[{}]", "hello"][index % 4]
        )
        results.append((task, everything.score(task, answer)))
    twice = everything.aggregate(results + results)
    once = everything.aggregate(results)
    assert twice == pytest.approx(once)
    assert once["accuracy"] == once["final_pass_rate"] == pytest.approx(30 / 45)
    assert once["delivery_rate"] == pytest.approx(30 / 45)
    assert once["commonsense_constraint_micro_pass_rate"] == pytest.approx(8 * 30 / 360)
    assert once["genenv_mean"] == pytest.approx(sum(once[name] for name in PAPER_MEAN) / 4)
    whole = everything.aggregate([(t, everything.score(t, "")) for t, _ in results])
    assert whole["accuracy"] == whole["hard_constraint_micro_pass_rate"] == 0.0
    assert everything.aggregate([])["accuracy"] == 0.0
    # 105 hard constraints are asked for in the training queries, as in the official evaluator.
    details = [score.detail["constraints"] for _, score in results]
    names = ("valid_cost", "valid_room_rule", "valid_cuisine", "valid_room_type")
    hard = [d[name] for d in details for name in (*names, "valid_transportation")]
    assert sum(verdict is not None for verdict in hard) == 105


def test_a_lost_answer_counts_as_undelivered(everything):
    from genenv_jax.benchmarks.base import Score

    task = everything.tasks("eval")[0]
    good = everything.score(task, everything.agent_answer(task))
    metrics = everything.aggregate([(task, good), (task, Score(0.0, False, False, "timeout"))])
    assert metrics["delivery_rate"] == metrics["accuracy"] == 0.5


@pytest.mark.parametrize("name", HOSTILE_PLANS)
def test_hostile_text_is_scored_and_parsed_in_bounded_time(benchmark, name):
    task = benchmark.tasks("seed")[0]
    start = time.process_time()
    score = benchmark.score(task, HOSTILE_PLANS[name])
    parsed = benchmark.parse(HOSTILE_PLANS[name], task, "g", 0)
    assert time.process_time() - start < 1.0
    assert score.reward == 0.0 and not score.success
    assert score.reason.replace("_", "").isalpha() and len(score.reason) < 40
    assert isinstance(parsed, Rejection)


@pytest.mark.parametrize(
    "wording",
    [
        "from " * 390,
        "1 " * 990,
        "March 1st " * 190,
        "$1,000" * 300,
        "Denver " * 280,
        "no fly. " * 240,
        "for two " * 240,
        "(" * 1990,
        "from Denver" + " " * 1900 + "x",
        "%s{0.__class__}",
    ],
)
def test_hostile_wordings_are_verified_in_bounded_time(benchmark, wording):
    task = _variation(benchmark, benchmark.tasks("seed")[0], query=wording)
    assert isinstance(task, Task)
    start = time.process_time()
    assert benchmark.verify(task).reason == "text_differs"
    assert time.process_time() - start < 1.0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("I cannot plan this.", "no_plan"),
        ("[{'days': 1", "no_plan"),
        ("[]", "empty_plan"),
        ("[{}, {}]", "empty_plan"),
        ("[{'days': 1}, 'two']", "bad_plan"),
        ("[{'current_city': 5}]", "bad_plan"),
        ("[{'current_city': 'Denver'}]", "is_reasonable_visiting_city"),
        ("[{'current_city': __import__('os')}]", "no_plan"),
        ("[{}" + " " * 20_000 + "]", "too_long"),
        ("[{'a': '\x00'}]", "not_text"),
    ],
)
def test_reasons_are_counted(benchmark, text, reason):
    assert benchmark.score(benchmark.tasks("seed")[0], text).reason == reason


def test_malformed_tasks_are_no_crash(benchmark):
    task = benchmark.tasks("seed")[0]
    for answer in (None, {}, {"query": None}, {"query": {}, "reference": 5}):
        broken = Task(task.id, task.benchmark, task.category, task.messages, answer=answer)
        assert not benchmark.score(broken, "[]").valid
        assert isinstance(benchmark.verify(broken), Rejection)


def test_it_can_be_pickled(benchmark):
    task = benchmark.tasks("seed")[0]
    data = pickle.dumps(benchmark)
    assert len(data) < 10_000
    copy = pickle.loads(data)
    assert copy.tasks("eval") == benchmark.tasks("eval")
    assert copy.score(task, benchmark.agent_answer(task)).success


@pytest.mark.parametrize(
    "option",
    [
        {"eval": "test"},
        {"reward": "macro"},
        {"seed_fraction": 1.5},
        {"seed_fraction": "half"},
        {"max_seeds": -1},
        {"max_eval": 1.5},
        {"prompt_chars": 100},
        {"answer_chars": 0},
    ],
)
def test_bad_options_are_named(option):
    name, value = next(iter(option.items()))
    with pytest.raises(ValueError, match=f"{name} = {value!r}: expected"):
        TravelPlanner(**option)


def test_published_files_are_verified(data_dir):
    assert len(TravelPlanner(data_dir=data_dir, verify_files=True).tasks("seed")) == 27


def _copy(data_dir, target: pathlib.Path) -> pathlib.Path:
    source = records.find_directory(data_dir)
    for path in records.ALWAYS:
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / path, target / path)
    return target


def test_half_downloaded_and_malformed_files_are_named(data_dir, tmp_path):
    directory = _copy(data_dir, tmp_path)
    prompts = directory / records.ALWAYS[0]
    whole = prompts.read_bytes()
    lines = whole.splitlines(keepends=True)

    prompts.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="expected 1425968"):
        TravelPlanner(data_dir=directory, verify_files=True).tasks("seed")
    with pytest.raises(ValueError, match=r"std_travelplanner.jsonl:\d+: not JSON"):
        records.splits(directory)
    prompts.write_bytes(b"".join(lines[:44]))
    with pytest.raises(ValueError, match="44 queries, but reference information for 45"):
        records.splits(directory)
    prompts.write_bytes(b"".join([*lines[:2], b'{"messages": []}\n', *lines[3:]]))
    with pytest.raises(ValueError, match="std_travelplanner.jsonl:3: expected a system"):
        records.splits(directory)
    prompts.write_bytes(b"".join(lines).replace(b"$1,700", b"not much"))
    with pytest.raises(ValueError, match="std_travelplanner.jsonl:1: query: budget"):
        records.splits(directory)
    prompts.write_bytes(whole)

    table = directory / records.ALWAYS[2]
    text = table.read_text(encoding="utf-8").splitlines(keepends=True)
    table.write_text("".join([*text[:5], "5,half a row\n", *text[6:]]), encoding="utf-8")
    with pytest.raises(ValueError, match=r"clean_restaurant_2022.csv:6: 2 fields, expected 6"):
        records.splits(directory)
    row = text[5].replace(text[5].rstrip("\n").split(",")[-2], "cheap")
    table.write_text("".join([*text[:5], row, *text[6:]]), encoding="utf-8")
    with pytest.raises(ValueError, match=r"clean_restaurant_2022.csv:6: could not convert"):
        records.splits(directory)
    table.unlink()
    with pytest.raises(FileNotFoundError, match="clean_restaurant_2022.csv is missing"):
        records.splits(directory)
    with pytest.raises(FileNotFoundError, match="is missing; it is published at https://"):
        data_files.verify("travelplanner", directory, records.ALWAYS)


def test_missing_data_names_the_remedy(tmp_path):
    with pytest.raises(FileNotFoundError, match="genenv_jax.datasets"):
        TravelPlanner(data_dir=tmp_path).tasks("seed")


def test_a_flight_table_takes_the_place_of_the_reference_flights(data_dir, tmp_path):
    path = tmp_path / "clean_Flights_2022.csv"
    path.write_text(
        "Flight Number,Price,DepTime,ArrTime,ActualElapsedTime,FlightDate,OriginCityName,"
        "DestCityName,Distance\n"
        "F1,100,10:00,11:00,1 hours,2022-03-16,St. Petersburg,Rockford,9.0\n"
        "F2,,10:00,11:00,1 hours,2022-03-16,St. Petersburg,Rockford,9.0\n"
        "F1,300,12:00,13:00,1 hours,2022-03-18,Rockford,St. Petersburg,9.0\n"
    )
    world = records.read_world(records.find_directory(data_dir), path)
    flights = world.database.flights
    assert flights.size == 2  # a row with a missing value is none
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
    about = TravelPlanner(data_dir=data_dir, flights=str(path)).about()
    assert "2 flights, the flight table clean_Flights_2022.csv" in about["flights"]
    path.write_text("Flight Number,Price\nF1,100\n")
    with pytest.raises(ValueError, match="no column 'DepTime'"):
        records.read_world(records.find_directory(data_dir), path)


def test_a_wrong_validation_reference_file_is_named(data_dir, tmp_path):
    directory = _copy(data_dir, tmp_path)
    path = directory / "HEAD/database/validation_ref_info.jsonl"
    path.write_bytes((directory / records.ALWAYS[1]).read_bytes())
    assert "validation_45" in records.read_world(directory).references
    with pytest.raises(ValueError, match="git blob id"):
        records.read_world(directory, verify_files=True)
