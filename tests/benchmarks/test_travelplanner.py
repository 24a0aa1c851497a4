"""TravelPlanner as a benchmark: splits, prompts, answers, the simulator's side, aggregates."""

import collections
import datetime
import json
import random

import pytest

from genenv_jax.benchmarks.base import Rejection, Score, Task
from genenv_jax.benchmarks.travelplanner.benchmark import TravelPlanner
from genenv_jax.benchmarks.travelplanner.scoring import PAPER_MEAN
from genenv_jax.benchmarks.travelplanner.tasks import query_of

HOSTILE_PLANS = {
    "many lists": "[{}] " * 5_000,
    "unfinished lists": "[{" * 5_000,
    "unfinished strings": "[{'" * 4_000,
    "backslashes in a list": "[{'" + "\\" * 16_000,
    "long city": json.dumps([{"current_city": "from " * 3_000}]),
    "spaces in a route": json.dumps([{"current_city": "from" + " " * 15_000 + "to"}]),
    "letters of a city": json.dumps(
        [{"current_city": "z" * 7_000 + "a", "attraction": "a;" * 4_000, "transportation": "-"}]
    ),
    "parentheses in a city": json.dumps([{"current_city": "(" * 15_000}]),
    "commas in a meal": json.dumps([{"current_city": "A", "breakfast": "," * 15_000}]),
    "many days": json.dumps([{"days": n} for n in range(1_000)]),
    "lists as texts": json.dumps([{"current_city": ["A"], "breakfast": [[]]}]),
    "odd keys": "[{1: 2, (3, 4): 5}]",
    "nested": "[" * 5 + "{}" + "]" * 5,
}
LEVELS = [f"{level}_{days}_days" for level in ("easy", "medium", "hard") for days in (3, 5, 7)]


@pytest.fixture(scope="module")
def benchmark(travelplanner_dir):
    """The default benchmark."""
    return TravelPlanner(data_dir=travelplanner_dir)


@pytest.fixture(scope="module")
def everything(travelplanner_dir):
    """All training queries held out."""
    return TravelPlanner(data_dir=travelplanner_dir, seed_fraction=0.0)


def test_seeds_and_held_out_tasks_are_stratified(benchmark):
    for split in ("seed", "eval"):
        categories = [task.category for task in benchmark.tasks(split)]
        assert set(categories) == set(LEVELS)
        assert len({categories.count(name) for name in LEVELS}) == 1


def test_plans_are_read_in_both_formats(everything):
    task = everything.tasks("eval")[0]
    answer = everything.agent_answer(task)
    for text in (
        repr(json.loads(answer)),
        f"Here is [my] plan:\n```json\n{answer}\n```\nHave a good trip!",
        json.dumps({"plan": [*json.loads(answer), {}, {}]}),
    ):
        assert everything.score(task, text).success


def test_prompts_show_the_query_and_no_derived_field(everything):
    for task in everything.tasks("eval"):
        messages = everything.agent_messages(task)
        assert task.messages[0]["content"] in messages[-1]["content"]
        for name in ("local_constraint", "people_number", "visiting_city_number", "annotated"):
            assert name not in json.dumps(messages)
        assert sum(len(message["content"]) for message in messages) <= everything.prompt_chars


def _variation(benchmark, seed, **changes):
    record = json.loads(benchmark.simulator_answer(seed))
    local = {**record["local_constraint"], **changes.pop("local", {})}
    text = json.dumps({**record, "local_constraint": local, **changes})
    return benchmark.parse(text, seed, "g", 0)


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
        asked = {"days": days, "visiting_city_number": number, "date": dates, "people_number": 3}
        wish = {"cuisine": ["French", "Italian"]}
        task = _variation(benchmark, seed, query=text, budget=60_000, local=wish, **asked)
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
        *((changes, "bad_answer") for changes in (
            {"budget": -5}, {"budget": True}, {"people_number": "two"}, {"org": ""}, {"days": 4},
            {"date": ["2022-03-01"]}, {"date": None}, {"local_constraint": None},
            {"local": {"cuisine": ["Klingon"]}}, {"local": {"cuisine": [["French"]]}},
            {"local": {"house rule": ["pets"]}}, {"local": {"more": 1}}, {"more": 1},
        )),
        ({"query": ""}, "unparsable"),
        ({"query": 7}, "not_text"),
        ({"query": "x" * 5_000}, "too_long"),
    ],
)  # fmt: skip
def test_bad_variations_are_rejected(benchmark, changes, reason):
    task = _variation(benchmark, _seed(benchmark, "easy_3_days"), **changes)
    rejection = task if isinstance(task, Rejection) else benchmark.verify(task)
    assert isinstance(rejection, Rejection) and rejection.reason == reason, rejection


def test_a_variation_without_a_plan_is_rejected(benchmark):
    seed = _seed(benchmark, "easy_3_days")
    text, budget = seed.messages[0]["content"], seed.answer["query"]["budget"]
    poor = _variation(benchmark, seed, query=text.replace(f"${budget:,}", "$20"), budget=20)
    assert benchmark.verify(poor).reason == "unsolvable"


@pytest.mark.parametrize("place", ["org", "dest"])
def test_another_route_is_rejected_and_can_be_shown(benchmark, place):
    """No seed's information describes it, so the prompt is made from the database."""
    seed = _seed(benchmark, "easy_3_days")
    query, text = seed.answer["query"], seed.messages[0]["content"]
    database = benchmark.world.database
    known = [city for city in database.restaurants if city in database.states]
    for away in (known[0], known[-1]):
        if away in (query["org"], query["dest"]):
            continue
        task = _variation(benchmark, seed, query=text.replace(query[place], away), **{place: away})
        rejection = benchmark.verify(task)
        assert rejection.reason == "bad_answer" and rejection.detail.startswith(f"{place}: ")
        shown = benchmark.agent_messages(task)[-1]["content"]
        ends = {**query, place: away}
        assert f"## {ends['org']} to {ends['dest']}" in shown and f"## {ends['dest']}\n" in shown


def _odd_fields(rng, seed, places):
    """Readable fields of a trip to any place at any time; the text may agree with them."""
    query = seed.answer["query"]
    org, dest = (rng.choice([query[name], rng.choice(places)]) for name in ("org", "dest"))
    days = rng.choice([query["days"], query["days"], 3, 5, 7])
    first = datetime.date.fromisoformat(query["date"][0])
    if rng.random() < 0.5:
        first = datetime.date(rng.choice([1, 2022, 9998]), 12, 24)
    people, budget = rng.choice([1, 20]), rng.choice([1, 10**6])
    last = first + datetime.timedelta(days=days - 1)
    text = (
        f"From {org} to {'' if days == 3 else f'{days // 2} cities in '}{dest}, {first:%B} {first.day}th to "
        f"{last:%B} {last.day}th, {first.year}, for {people} people, with a budget of ${budget:,}."
    )
    wishes = {
        "house rule": "pets", "cuisine": ["French", "Indian"], "room type": "not shared room",
        "transportation": "no flight",
    }  # fmt: skip
    odd = "{0.__class__} %s\n## " * 90
    return {
        "query": rng.choice([text, text, seed.messages[0]["content"], odd]),
        "org": org, "dest": dest, "days": days, "visiting_city_number": days // 2,
        "date": [str(first + datetime.timedelta(days=n)) for n in range(days)],
        "people_number": people, "budget": budget,
        "local": {k: v if rng.random() < 0.15 else None for k, v in wishes.items()},
    }  # fmt: skip


def test_whatever_can_be_read_can_be_shown_answered_and_scored(benchmark):
    """Including what `verify` rejects, for a counted reason and without an error."""
    rng = random.Random("variations")
    database = benchmark.world.database
    places = ["Atlantis", "x" * 64, "{0}", "## a\nb", "\u202e", *list(database.states)[:40]]
    places += sorted(set(database.states.values()))
    reasons = collections.Counter()
    for number in range(300):
        seed = benchmark.tasks("seed")[number % len(benchmark.tasks("seed"))]
        fields = _odd_fields(rng, seed, places)
        task = _variation(benchmark, seed, **fields)
        assert isinstance(task, Task), task
        messages = benchmark.agent_messages(task)
        assert f"# Request\n{fields['query'].strip()}\n\n" in messages[-1]["content"]
        answer = benchmark.agent_answer(task)
        assert 0.0 <= benchmark.score(task, answer).reward <= 1.0
        rejection = benchmark.verify(task)
        reasons[rejection.reason if rejection else ""] += 1
    assert set(reasons) == {"", "text_differs", "bad_answer", "unsolvable"}


def test_success_is_a_final_pass_and_micro_pays_for_parts(travelplanner_dir, benchmark):
    micro = TravelPlanner(data_dir=travelplanner_dir, reward="micro")
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
    tasks = everything.tasks("eval")
    results = []
    for index, task in enumerate(tasks):
        wrong = ["", "[]", "[{}]", "hello"][index % 4]
        answer = everything.agent_answer(task) if index % 3 else wrong
        results.append((task, everything.score(task, answer)))
    once = everything.aggregate(results)
    for name in ("accuracy", "final_pass_rate", "delivery_rate"):
        assert once[name] == pytest.approx(2 / 3)
    assert once["commonsense_constraint_micro_pass_rate"] == pytest.approx(2 / 3)
    assert once["genenv_mean"] == pytest.approx(sum(once[name] for name in PAPER_MEAN) / 4)
    whole = everything.aggregate([(t, everything.score(t, "")) for t, _ in results])
    assert whole["accuracy"] == whole["hard_constraint_micro_pass_rate"] == 0.0
    assert everything.aggregate([])["accuracy"] == 0.0
    # The budget, and the other requests.
    details = [score.detail["constraints"] for _, score in results]
    names = ("valid_cost", "valid_room_rule", "valid_cuisine", "valid_room_type")
    hard = [d[name] for d in details for name in (*names, "valid_transportation")]
    asked = sum(len(query_of(task).asked) for task in tasks)
    assert sum(verdict is not None for verdict in hard) == len(tasks) + asked


def test_a_lost_answer_counts_as_undelivered(everything):
    task = everything.tasks("eval")[0]
    good = everything.score(task, everything.agent_answer(task))
    metrics = everything.aggregate([(task, good), (task, Score(0.0, False, False, "timeout"))])
    assert metrics["delivery_rate"] == metrics["accuracy"] == 0.5


@pytest.mark.parametrize("name", HOSTILE_PLANS)
def test_hostile_text_is_scored_and_parsed_in_bounded_time(bounded, benchmark, name):
    task = benchmark.tasks("seed")[0]
    score = benchmark.score(task, HOSTILE_PLANS[name])
    parsed = benchmark.parse(HOSTILE_PLANS[name], task, "g", 0)
    assert score.reward == 0.0 and not score.success
    assert score.reason.replace("_", "").isalpha() and len(score.reason) < 40
    assert isinstance(parsed, Rejection)


@pytest.mark.parametrize(
    "wording",
    [
        "from " * 390, "1 " * 990, "March 1st " * 190, "$1,000" * 300, "Portfield " * 190,
        "no fly. " * 240, "for two " * 240, "(" * 1990, "from Portfield" + " " * 1900 + "x",
        "%s{0.__class__}",
    ],
)  # fmt: skip
def test_hostile_wordings_are_verified_in_bounded_time(bounded, benchmark, wording):
    task = _variation(benchmark, benchmark.tasks("seed")[0], query=wording)
    assert isinstance(task, Task)
    assert benchmark.verify(task).reason == "text_differs"


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
        (r"[{'current_city': 'O\'Hare'}]", "is_reasonable_visiting_city"),
        ("[{'current_city': __import__('os')}]", "no_plan"),
        ("[{}" + " " * 20_000 + "]", "too_long"),
        ("[{'a': '\x00'}]", "not_text"),
    ],
)
def test_reasons_are_counted(benchmark, text, reason):
    assert benchmark.score(benchmark.tasks("seed")[0], text).reason == reason
