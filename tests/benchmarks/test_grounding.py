"""Whether a reference follows from its request: admitted, rejected, undecided; made-up and real tasks."""

import dataclasses

import pytest

from genenv_jax.benchmarks import base, registry
from genenv_jax.benchmarks.api_bank.benchmark import APIBank
from genenv_jax.benchmarks.base import GIVEN_AWAY, GROUNDED, NOT_ASKED, UNDECIDED, Rejection, Task
from genenv_jax.benchmarks.bfcl import schemas
from genenv_jax.benchmarks.bfcl.benchmark import BFCL
from genenv_jax.benchmarks.grounding import judge
from genenv_jax.scoring.verification import PARSED, PROVEN, grounding, inspect
from genenv_jax.tasks.generation import Generation
from genenv_jax.tasks.metrics import generation_metrics
from tests.benchmarks.bfcl_tasks import function, generation, seed_task
from tests.benchmarks.small import WRITERS

_TOOL = {
    "name": "AddReminder",
    "description": "Adds a reminder.",
    "input_parameters": {"content": {"type": "str"}, "count": {"type": "int"}},
}
_ASKED = {"role": "user", "content": "User: Remind me."}
_CALL = {"kind": "call", "level": 3, "sample": "0"}
CALL = Task("c", "api_bank", "lv3-api-train", (_ASKED,), (_TOOL,), _CALL)


_ROME = {"city": "Rome", "days": 2}


def _verdict(request, arguments, described=""):
    found = judge([("weather.get", arguments)], [arguments], request, request, described)
    return found.reason if isinstance(found, Rejection) else found


@pytest.mark.parametrize(
    ("request_text", "arguments", "verdict"),
    [
        ("Weather in ROME, please.", {"x": "Rome"}, GROUNDED),
        ("Two tables.", {"x": 2}, GROUNDED),
        ("1,500 euros", {"x": 1500}, GROUNDED),
        ("at 5 %", {"x": 0.05}, GROUNDED),
        ("an inductance of 50mH", {"x": 0.05}, GROUNDED),
        ("on the 5th of March, 2023", {"x": "2023-03-05"}, GROUNDED),
        ("tomorrow at 3 pm", {"x": "15:00"}, GROUNDED),
        ("from John Smith", {"x": "john_smith"}, GROUNDED),
        ("two hundred or 200", {"x": ["200", 200]}, GROUNDED),
        ("for ann@example.com", {"x": {"to": ["ann@example.com"]}}, GROUNDED),
        ("❶ Do something useful ٣a.", {"city": "Rome"}, NOT_ASKED),
        ("Rome में ३७ दिन", {"city": "Rome", "days": 37}, GROUNDED),
        ("Weather.get of Rome, days: 20 or days > 2.", {"days": 2}, GROUNDED),
        ("Twenty-four tables, not forty two.", {"x": 24, "y": 42}, GROUNDED),
        ("Do something useful.", {"city": "Rome"}, NOT_ASKED),
        ("Do something useful.", {"city": "Rome", "days": 2, "unit": "celsius"}, NOT_ASKED),
        ("Flip a coin for me.", {"side": "heads"}, NOT_ASKED),
        ("Rome, please.", {"city": "Rome", "days": 2}, NOT_ASKED),
        ("A loan of $ at 5 %", {"amount": 5000, "rate": 0.05}, NOT_ASKED),
        ("A loan of $5,000", {"amount": 50_000}, NOT_ASKED),
        ("Sides of 3 and .", {"a": 3, "b": 4}, NOT_ASKED),
        ("Sides of 3 and 3.", {"a": 3, "b": 3}, GROUNDED),
        ("A side of 3.", {"a": 3, "b": 3}, NOT_ASKED),
        ("A molar mass of 23 at 300 Kelvin.", {"quantity": 23.0, "molar_mass": 23.0}, NOT_ASKED),
        ("Write to Ann, please.", {"name": "Ann Miller"}, NOT_ASKED),
        ("From Rome to Oslo.", {"start": "Rome", "end": "Oslo"}, GROUNDED),
        ("From Rome to Oslo.", {"start": "Oslo", "end": "Rome"}, UNDECIDED),
        ("A base of 10 and a height of 5.", {"base": 5, "height": 10, "unit": "m"}, NOT_ASKED),
        ("Remind me of the bread.", {"text": "reminder: bread"}, UNDECIDED),
        ("Is it 15?", {"x": 5}, NOT_ASKED),
        ("From 2000 on.", {"x": "2001-01-01"}, NOT_ASKED),
        ("From 2000 on.", {"x": "2000-05-17"}, NOT_ASKED),
        ("From 2000 on.", {"x": "17 May 2000"}, NOT_ASKED),
        ("On the 19th of March.", {"x": "2024-08-20 23:59:59"}, NOT_ASKED),
        ("Do it.", {"fast": True, "count": 0, "note": None, "title": ""}, UNDECIDED),
        ("Do it.", {}, UNDECIDED),
        # The function or its parameters may be named, but not the whole call.
        ("With weather.get, for Rome and 2 days.", _ROME, GROUNDED),
        ("city: Rome, days: 2", _ROME, GROUNDED),
        ("Please call weather.get(city='Rome', days=2).", _ROME, GIVEN_AWAY),
        ("weather.get('Rome', 2)", _ROME, GIVEN_AWAY),
        ("WEATHER.GET( rome", _ROME, GIVEN_AWAY),
        ("Use weather.get with days = 2 and city: 'Rome'", _ROME, GIVEN_AWAY),
        ('It is {"name": "weather.get", "arguments": {"city": "Rome", "days": 2}}.', _ROME, GIVEN_AWAY),
        ("Answer: w\u0435ather.get(", _ROME, GIVEN_AWAY),
        ('{\n "name": "weather.get",\n "arguments": {\n"city": "Rome",\n"days": 2}}', _ROME, GIVEN_AWAY),
        ("<function=weather.get>\n<parameter=city>\nRome\n<parameter=days>\n2", _ROME, GIVEN_AWAY),
    ],
)
def test_values_that_a_request_says_or_not(request_text, arguments, verdict):
    assert _verdict(request_text, arguments) == verdict


def test_calls_may_share_a_number_and_a_default_needs_none():
    calls = [("f", {"a": side, "b": 7, "digits": 7}) for side in (3, 4)]
    said = "Sides of 3 or 4, by 7."
    assert judge(calls, [(3, 7), (4, 7)], said, said, "") == GROUNDED
    assert judge(calls, [(3, 7, 7), (4, 7)], said, said, "").reason == NOT_ASKED


@pytest.mark.parametrize(
    ("request_text", "value"),
    [
        ("Weather in SF?", "San Francisco, CA"),
        ("get the weather of nyc", "New York, NY"),
        ("Paris, please.", "Paris, France"),
        ("Flights from Los Angeles", "LAX"),
        ("Japanese yen", "JPY"),
        ("British pounds", "GBP"),
        ("a week in Rome", 7),
        ("for 3 minutes", 180),
        ("compounded quarterly", 4),
        ("drawn from a deck of cards", 52),
        ("ninety dollars", 90),
        ("one place", 1),
        ("a table in Berkley", "Berkeley, CA"),
        ("the cash flows are [200,300,400]", [200, 300, 400]),
        ("on 2023.10.2", "2023-10-02"),
        ("tomorrow", "2023-10-02"),
        ("from the year 2000", "2000-01-01"),
        ("until 2015", "2015-12-31"),
        ("until 2015", "31 December 2015"),
        ("from 2000 on", "01/01/2000 00:00"),
        ("until 2015", "2015-12-31T23:59:59Z"),
        ("on the 19th of March, 2024", "2024-03-19 23:59:59"),
        ("\u5317\u4eac\u5929\u6c14", "Beijing, China"),
    ],
)
def test_values_that_are_told_in_short_or_by_a_unit(request_text, value):
    assert _verdict(request_text, {"x": value}, "Forecasts.") in (GROUNDED, UNDECIDED)
    if request_text.isascii():
        expected = NOT_ASKED if value != 1 else UNDECIDED
        assert _verdict("Do something useful.", {"x": value}, "Forecasts.") == expected


def test_where_no_value_is_needed_the_function_must_be_spoken_of():
    assert _verdict("Do something useful.", {}, "Lists all alarms.") == NOT_ASKED
    assert _verdict("Which alarms are set?", {}, "Lists all alarms.") == UNDECIDED


def test_long_texts_cost_little(bounded):
    _verdict("weather.get " * 1_000 + "\n" * 4_000, {f"a{i}": "x y " * 50 for i in range(64)})
    _verdict("adds ab", {f"a{i}": ["ab"] * 1_000 for i in range(60)})
    judge([("f", {"a": "1"})] * 300, ["z" * 10_000] * 300, "\u0435 a=1\n" * 2_000, "", "")


# -- BFCL ---------------------------------------------------------------------------------------------


def _inspected(benchmark, seed, text, admit=PROVEN):
    found = inspect(benchmark, text, done=True, seed=seed, task_id="g", generation=0, admit=admit)
    return found.reason if isinstance(found, Rejection) else found


def test_generated_tasks_are_held_to_it_and_tasks_of_the_data_set_are_not():
    benchmark, seed = BFCL(data_dir="nowhere"), seed_task()
    vague = generation(request="Do something useful.")
    assert _inspected(benchmark, seed, vague) == NOT_ASKED
    told = generation(request="[weather.get(city='Rome')]")
    assert _inspected(benchmark, seed, told) == GIVEN_AWAY
    task = _inspected(benchmark, seed, generation())
    assert isinstance(task, Task) and benchmark.grounding(task) == GROUNDED
    loose = benchmark.parse(vague, seed, "g", 0)
    assert benchmark.verify(loose) is None and isinstance(benchmark.grounding(loose), Rejection)
    assert isinstance(_inspected(benchmark, seed, vague, PARSED), Task)


def test_what_a_schema_lists_or_defaults_to_need_not_be_said():
    properties = {
        "wall": {"type": "string"},
        "colour": {"type": "string", "enum": ["FFF", "000"]},
        "coats": {"type": "integer", "default": 7},
        "finish": {"type": "string", "enum": ["matt", "gloss"]},
        "room": {"type": "string", "description": "Default: 'cellar', else the attic."},
    }
    tool = function("paint", properties, ["wall", "colour"], "Paints a wall.")
    benchmark = BFCL(data_dir="nowhere")
    seed = dataclasses.replace(seed_task(), tools=(tool,))
    answer = "[paint(wall='north', colour='FFF', coats=7)]"
    task = _inspected(benchmark, seed, generation(request="The north one.", answer=answer))
    assert benchmark.grounding(task) == GROUNDED
    others = answer.replace("7", "9").replace("FFF", "EEE")
    assert _inspected(benchmark, seed, generation(request="Go on.", answer=others)) == NOT_ASKED
    for optional, fits in (("room='cellar'", True), ("room='attic'", False), ("finish='matt'", False)):
        made = answer.replace("coats=7", optional)
        found = _inspected(benchmark, seed, generation(request="The north one.", answer=made))
        assert isinstance(found, Task) == fits


def test_defaults_inside_a_value_need_not_be_said():
    fan = {"type": "string", "enum": ["low", "high"], "default": "low"}
    fixed = {"type": "string", "enum": ["True", "False"]}
    mode = {"type": "dict", "properties": {"fan": fan, "degrees": {"type": "integer"}, "fixed": fixed}}
    tool = {"name": "heat", "parameters": {"required": [], "properties": {"modes": {"items": mode}}}}
    rate = {"type": "number", "description": "Default is 0.05."}  # as in JSON schema
    tool["parameters"]["properties"] |= {"rate": rate, "many": {"default": 1 << 20_000}}
    for arguments, said in (
        ({"modes": [{"fan": "low", "degrees": 21, "fixed": "True"}], "rate": 0.05}, [21]),
        ({"modes": [{"fan": "high", "degrees": 21}], "rate": 0.06}, ["high", 21, 0.06]),
        ({"other": [["a"], 0]}, ["a", 0]),
        ({"many": 3}, [3]),
    ):
        assert schemas.values_to_state([("heat", arguments)], [tool]) == said


def test_a_listed_value_is_not_all_that_there_is_to_guess():
    side = {"type": "string", "enum": ["heads", "tails"], "description": "The side."}
    tool = function("set_coin", {"side": side}, ["side"], "Sets a coin to a side.")
    benchmark = BFCL(data_dir="nowhere")
    seed = dataclasses.replace(seed_task(), tools=(tool,))
    for request, fits in (("Set the coin to heads.", True), ("Set the coin to a side.", False)):
        made = generation(request=request, answer="[set_coin(side='heads')]")
        assert isinstance(_inspected(benchmark, seed, made), Task) == fits


def test_undecided_tasks_are_counted():
    benchmark, seed, untried = BFCL(data_dir="nowhere"), seed_task(), base.SeedStatistics()
    answers = [f"[weather.get(city={city!r}, days=3)]" for city in ("Rome", "Rome, Italy")]
    texts = [generation("same", "Rome, for three days.", answer) for answer in answers]
    tasks = [_inspected(benchmark, seed, text) for text in texts]
    batch = [Generation(0, i, seed, untried, "", task) for i, task in enumerate(tasks)]
    batch.append(Generation(0, 2, seed, untried, "", None, Rejection(NOT_ASKED)))
    metrics = generation_metrics(batch, benchmark, 0.5, 0.1)
    assert metrics["generated/undecided_share"] == 0.5
    assert metrics["generated/rejected/not_asked"] == 1


@pytest.mark.parametrize("name", ["api_bank", "bfcl"])
def test_a_task_that_is_malformed_is_not_asked(name, tmp_path):
    benchmark = registry.make_benchmark(name, data_dir=str(WRITERS[name](tmp_path)))
    seed = benchmark.tasks("seed")[0]
    for answer in (None, {}, [], {"kind": "call"}, {"ground_truth": 3, "rule": "ast"}):
        broken = dataclasses.replace(seed, answer=answer)
        assert grounding(benchmark, broken).reason == NOT_ASKED


@pytest.mark.parametrize(
    ("conversation", "verdict"),
    [
        ("User: Remind me to run, once.", UNDECIDED),
        ("User: Remind me to run, one time.", GROUNDED),
        ("User: Remind me.\nAI: Of what?\nUser: Of running.", UNDECIDED),
        ("User: Do something useful.", NOT_ASKED),
        ("User: The answer is [AddReminder(count='1', content='run')]", GIVEN_AWAY),
        ("User: AddReminder with content: run and count: 1", GIVEN_AWAY),
        ("User: Run, 1.\nAPI-Request: [AddReminder(content='Run', count='01')]->done", GIVEN_AWAY),
        ("User: Run, 1.\nAPI-Request: [AddReminder(content='swim', count='1')]->done", GROUNDED),
    ],
)
def test_conversations(conversation, verdict):
    benchmark = APIBank()
    answer = "[AddReminder(content='run', count='1')]"
    text = f"New Tools: same\nNew Task: {conversation}\nNew Answer: {answer}"
    found = benchmark.grounding(benchmark.parse(text, CALL, "g", 0))
    assert (found.reason if isinstance(found, Rejection) else found) == verdict


@pytest.mark.parametrize(
    ("keywords", "verdict"),
    [
        ("book restaurant", GROUNDED),
        ("RestaurantBooking", GROUNDED),
        ("restaurant finder", UNDECIDED),
        ("weather", NOT_ASKED),
    ],
)
def test_a_tool_search_shares_a_word_with_the_request(keywords, verdict):
    spec = {"kind": "call", "level": 3, "sample": "0", "name": "ToolSearcher", "types": {}}
    spec |= {"parameters": {"keywords": keywords}, "target": ""}
    messages = ({"role": "user", "content": "User: Book a restaurant, by any booking service."},)
    found = APIBank().grounding(dataclasses.replace(CALL, messages=messages, answer=spec))
    assert (found.reason if isinstance(found, Rejection) else found) == verdict


# -- real tasks ---------------------------------------------------------------------------------------

_SINGLE_TURNS = ("simple_python", "multiple", "parallel", "parallel_multiple")
_LIVE = ("live_simple", "live_multiple", "live_parallel", "live_parallel_multiple")
_REAL = {  # the benchmark, and how many of its 842, 539, 708 and 861 seeds are refused
    "api_bank": ("api_bank", {}, 23),
    "bfcl_turns": ("bfcl", {}, 3),
    "bfcl_single": ("bfcl", {"seed_categories": _SINGLE_TURNS, "eval_categories": _SINGLE_TURNS}, 27),
    "bfcl_live": ("bfcl", {"seed_categories": _LIVE, "eval_categories": _LIVE}, 48),
}


@pytest.mark.data
@pytest.mark.parametrize("name", _REAL)
def test_seeds_of_the_data_sets_follow_from_their_requests(name, data_dir):
    """Up to six in a hundred are refused; the rest are grounded or undecided."""
    kind, options, most = _REAL[name]
    benchmark = registry.make_benchmark(kind, data_dir=str(data_dir), **options)
    seeds = benchmark.tasks("seed")
    refused = [seed for seed in seeds if isinstance(benchmark.grounding(seed), Rejection)]
    assert len(refused) <= most
    grounded = sum(benchmark.grounding(seed) == GROUNDED for seed in seeds)
    # All turns are undecided; half of API-Bank's seeds are tool searches.
    assert grounded >= (0.0 if name == "bfcl_turns" else 0.5) * len(seeds)
