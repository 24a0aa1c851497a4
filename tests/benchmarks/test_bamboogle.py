"""Bamboogle's data, scoring, prompts, searches and generations."""

import collections
import json
import pickle
import re
import sys
import types

import pytest

from genenv_jax.benchmarks import base, data_files, judge
from genenv_jax.benchmarks.bamboogle import episode as episodes
from genenv_jax.benchmarks.bamboogle import generation, scoring
from genenv_jax.benchmarks.bamboogle import tasks as records
from genenv_jax.benchmarks.bamboogle.benchmark import Bamboogle
from genenv_jax.benchmarks.bamboogle.scoring import NO_ANSWER
from genenv_jax.benchmarks.base import Rejection, SeedStatistics, Task
from tests.benchmarks import bamboogle_references

STEPS = [
    {"question": "Who wrote The Long Walk Home?", "answers": ["ann miller", "a. miller"]},
    {"question": "Where was Ann Miller born?", "answers": ["port albert"]},
]
QUESTION = "Where was the author of The Long Walk Home born?"
TASK = records.make_task("t", QUESTION, ["Port Albert"], STEPS, origin="eval")
ONE_HOP = records.make_task("o", "Where was Ann Miller born?", ["Port Albert", "Albert"], [])


@pytest.fixture(scope="module")
def benchmark():
    """Needs no data: the tasks above are scored."""
    return Bamboogle()


@pytest.fixture(scope="module")
def questions(bamboogle_dir):
    """All made-up or real questions."""
    return records.splits(records.find_directory(bamboogle_dir))[records.TEST]


# --- data ---------------------------------------------------------------------------------------------


def test_questions_have_two_steps_each(questions):
    assert [task.id for task in questions[:2]] == ["bamboogle_1", "bamboogle_2"]
    for task in questions:
        assert (task.origin, task.category) == ("eval", records.TWO_HOPS)
        assert len(task.answer["answers"]) == 1 and len(task.answer["steps"]) == 2
    # One entry has two answers, separated by "|".
    assert any(len(step["answers"]) == 2 for task in questions for step in task.answer["steps"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"Q1": "a", "A1": ["b"]}]', "record 0: 'Q2' is missing or not a str"),
        ('[{"Q1": "a", "A1": "b"}]', "record 0: 'A1' is missing or not a list"),
    ],
)
def test_a_malformed_record_is_named(tmp_path, text, message):
    (tmp_path / records.FILE).write_text(text)
    with pytest.raises(ValueError, match=message):
        records.load(tmp_path)


def test_seeds_do_not_give_held_out_questions_away(bamboogle_dir):
    benchmark = Bamboogle(data_dir=bamboogle_dir, seed_fraction=0.5)
    seeds, held_out = benchmark.tasks("seed"), benchmark.tasks("eval")
    assert {task.category for task in seeds} == {records.ONE_HOP, records.TWO_HOPS}
    asked = {benchmark.canonical(task) for task in held_out}
    asked |= {benchmark.canonical(sub) for task in held_out for sub in records.sub_tasks(task)}
    first = {scoring.normalize(a) for task in held_out for a in task.answer["steps"][0]["answers"]}
    for task in seeds:
        assert benchmark.canonical(task) not in asked
        for step in task.answer["steps"][:1]:
            assert not {scoring.normalize(a) for a in step["answers"]} & (first - {"yes", "no"})
    assert len({benchmark.canonical(task) for task in seeds}) == len(seeds)


def test_shares_of_seeds(bamboogle_dir, questions):
    everything = Bamboogle(data_dir=bamboogle_dir, seed_fraction=0.0)
    assert len(everything.tasks("eval")) == len(questions) and everything.tasks("seed") == ()


# --- measures -----------------------------------------------------------------------------------------


def test_em_and_f1_equal_a_maintained_library():
    equal = partial = 0
    for prediction, golds, em, f1 in json.loads(bamboogle_references.FILE.read_text()):
        found = scoring.measure(prediction, golds)
        assert found["em"] == em, (prediction, golds)
        assert found["f1"] == pytest.approx(f1, abs=1e-4), (prediction, golds)
        equal += em == 1
        partial += 0 < f1 < 1
    assert equal > 16 and partial > 24


@pytest.mark.slow
def test_the_library_gives_the_stored_numbers():
    pytest.importorskip("torchmetrics")
    stored = json.loads(bamboogle_references.FILE.read_text())
    pairs = bamboogle_references.pairs()
    assert [row[:2] for row in stored] == [list(pair) for pair in pairs]
    for (*pair, em, f1), again in zip(stored, pairs, strict=True):
        assert bamboogle_references.squad(*again) == (em, f1), pair


@pytest.mark.parametrize(
    ("prediction", "golds", "em", "sub_em", "f1"),
    [
        ("The Titan IIIE!", ["titan iiie"], 1, 1, 1),
        ("It was Titan IIIE", ["titan iiie"], 0, 1, 2 / 3),
        ("IIIE", ["titan iiie"], 0, 0, 2 / 3),
        ("yes, it is", ["yes"], 0, 1, 0),
        ("Yes.", ["yes"], 1, 1, 1),
        ("no", ["No man"], 0, 0, 0),
        ("two", ["one", "two"], 1, 1, 1),
        ("", ["one"], 0, 0, 0),
        ("anything", ["The"], 0, 0, 0),
        ("anything", [], 0, 0, 0),
    ],
)
def test_measures(prediction, golds, em, sub_em, f1):
    found = scoring.measure(prediction, golds)
    assert (found["em"], found["sub_em"]) == (em, sub_em) and found["f1"] == pytest.approx(f1)
    if found["f1"] not in (0, 1):
        assert {found["precision"], found["recall"]} == {0.5, 1.0}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<answer>Paris</answer>", "Paris"),
        ("<answer>Rome</answer> no: <answer> Paris\n</answer>.", "Paris"),
        ("Paris ", "Paris"),
        ("<answer>Paris", "<answer>Paris"),
        ("</answer>Paris<answer>", "</answer>Paris<answer>"),
        ("<answer>Rome</answer><answer>Paris", "Rome"),
        ("<answer>a<answer>b</answer>", "a<answer>b"),
        ("<answer></answer>", ""),
    ],
)
def test_the_last_answer_counts(text, expected):
    assert scoring.extract(text) == expected
    pairs = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)
    assert expected == (pairs[-1].strip() if pairs else text.strip())


# --- scoring ------------------------------------------------------------------------------------------


def test_the_reward_is_an_option():
    text = "<answer>Port Albert, Victoria</answer>"
    for reward, expected in (("f1", 0.8), ("em", 0.0), ("sub_em", 1.0)):
        score = Bamboogle(reward=reward).score(TASK, text)
        assert score.reward == pytest.approx(expected)
        assert (score.success, score.reason) == (False, "wrong_answer")


def test_no_answer_is_not_valid(benchmark):
    assert benchmark.score(TASK, "").reason == base.EMPTY
    empty = benchmark.score(TASK, "<answer>The.</answer>")
    assert (empty.valid, empty.reason) == (False, "no_answer")


@pytest.mark.parametrize(
    "text",
    ["<answer>" * 1_000, "<answer></answer>" * 480, "<search>" * 1_000, "the " * 2_000, "a" * 8_000],
)  # fmt: skip
def test_repetition_costs_little(bounded, text):
    assert not Bamboogle().score(TASK, text).success
    Bamboogle(mode="search").episode(TASK).step(text)


# --- judge --------------------------------------------------------------------------------------------


def _judged(judge):
    """A benchmark with a function in place of the endpoint."""
    benchmark = Bamboogle(judge_url="http://localhost:1/v1", judge_model="m")
    benchmark.judge = judge
    return benchmark


def test_a_judge_adds_a_metric_and_nothing_else():
    asked = []

    def lenient(question, golds, prediction):
        asked.append((question, tuple(golds), prediction))
        return "port" in prediction.lower()

    benchmark = _judged(lenient)
    right = benchmark.score(TASK, "<answer>the town Port Albert</answer>")
    wrong = benchmark.score(TASK, "Sydney")
    assert not right.success and right.detail["judge"] is True and wrong.detail["judge"] is False
    assert asked[0] == (TASK.messages[0]["content"], ("Port Albert",), "the town Port Albert")
    found = benchmark.aggregate([(TASK, right), (TASK, wrong)])
    assert (found["accuracy"], found["judge"], found["judge_failures"]) == (0.0, 0.5, 0.0)
    # Training uses no judge.
    assert "judge" not in benchmark.score(ONE_HOP, "Sydney").detail and len(asked) == 2


def test_a_judge_that_fails_is_counted(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-s3cret-s3cret")

    def broken(question, golds, prediction):
        raise TimeoutError("no reply to sk-s3cret-s3cret")

    benchmark = _judged(broken)
    score = benchmark.score(TASK, "<answer>Port Albert</answer>")
    assert score.success and score.detail["judge"] is None
    assert score.detail["judge_error"] == "TimeoutError: no reply to ($OPENAI_API_KEY)"
    found = benchmark.aggregate([(TASK, score)])
    assert found["judge_failures"] == 1.0 and "judge" not in found and found["accuracy"] == 1.0


def test_the_judge_reads_the_question_and_says_one_word():
    text = judge.judge_prompt("Who?", ["Ann", "A."], "x" * 5_000)
    assert "Who?" in text and "Ann or A." in text and len(text) < 3_000
    assert judge.read_verdict(" Correct.") and not judge.read_verdict("**incorrect**")
    with pytest.raises(ValueError, match="expected 'correct' or 'incorrect'"):
        judge.read_verdict("maybe")


def test_the_endpoint_is_asked_through_its_client(monkeypatch):
    seen, requests = {}, []

    class Client:
        def __init__(self, **options):
            seen.update(options)
            self.chat = self.completions = self

        def create(self, **request):
            seen.update(request)
            requests.append(request)
            message = type("Message", (), {"content": "correct"})
            return type("Reply", (), {"choices": [type("Choice", (), {"message": message})]})

    monkeypatch.setitem(sys.modules, "openai", types.SimpleNamespace(OpenAI=Client))
    benchmark = Bamboogle(judge_url="http://localhost:1/v1", judge_model="m")
    assert benchmark.isolated and benchmark.about()["judge"] == "m"
    copy = pickle.loads(pickle.dumps(benchmark))
    assert copy.score(TASK, "Sydney").detail["judge"] is True
    assert seen["base_url"] == "http://localhost:1/v1" and seen["model"] == "m"
    assert seen["temperature"] == 0 and "Sydney" in seen["messages"][0]["content"]
    for answer, count in (("Sydney", 1), ("Perth", 2)):  # each verdict is requested once
        assert copy.score(TASK, answer).detail["judge"] is True and len(requests) == count


# --- search -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "found", "step"),
    [
        ("author of The Long Walk Home", (), 0),
        ("the long walk home, who wrote it", (), 0),
        ("Where was Ann Miller born?", (), 1),
        ("birthplace of the author born", (0,), None),
        ("where was she born", (0,), 1),
        # The first sub-question's answer must be known before the second is found.
        ("where was she born", (), None),
        ("capital of France", (), None),
        ("", (), None),
    ],
)
def test_a_search_finds_what_it_asks_for(query, found, step):
    assert episodes.find(query, STEPS, set(found)) == step


def test_sub_questions_find_themselves(questions):
    for task in questions:
        steps = task.answer["steps"]
        assert episodes.find(steps[0]["question"], steps, set()) == 0
        assert episodes.find(steps[1]["question"], steps, {0}) == 1
        direct = episodes.find(task.messages[0]["content"], steps, set())
        assert direct != 1  # two facts need two searches


def test_following_the_sub_questions_answers_most_questions(questions):
    benchmark, solved = Bamboogle(mode="search"), 0
    for task in questions:
        episode = benchmark.episode(task)
        for step in task.answer["steps"]:
            assert episode.step(f"<search>{step['question']}</search>") is None
        found = task.answer["steps"][1]["answers"][0]
        assert found in episode.messages()[-1]["content"]
        solved += episode.step(found).success
    assert solved == {12: 10, 125: 103}[len(questions)]  # made up, real


def test_searches_run_out():
    benchmark = Bamboogle(mode="search")
    episode = benchmark.episode(TASK)
    for _ in range(3):
        assert episode.step("<search>capital of France</search>") is None
        assert episodes.NOTHING in episode.messages()[-1]["content"]
    assert episode.step("<search>more</search>") is None
    assert "no searches are left" in episode.messages()[-1]["content"]
    score = episode.step("<search>more</search>")
    assert score.reason == NO_ANSWER and not score.valid and score.detail["searches"] == 3


# --- prompts and generations --------------------------------------------------------------------------


def test_prompts_state_what_is_needed(questions, benchmark):
    searching = Bamboogle(mode="search")
    for task in questions:
        text = "".join(m["content"] for m in benchmark.agent_messages(task))
        assert task.messages[0]["content"] in text and "<answer>" in text and "<search>" not in text
        assert all(step["question"] not in text for step in task.answer["steps"][:1])
        text = benchmark.simulator_messages(task, SeedStatistics())[-1]["content"]
        assert json.dumps(task.answer["steps"], ensure_ascii=False) in text
    text = searching.agent_messages(TASK)[0]["content"]
    assert "<search>" in text and "3 times" in text
    assert "New Steps" not in benchmark.simulator_messages(ONE_HOP, SeedStatistics())[0]["content"]


def test_questions_whose_steps_lead_elsewhere_are_no_seeds(questions, benchmark):
    verdicts = filter(None, map(benchmark.verify, questions))
    faults = collections.Counter(rejection.reason for rejection in verdicts)
    assert faults == {generation.BAD_STEPS: {12: 1, 125: 11}[len(questions)]}


def _generation(question="Where was the director of Blue Hill born?", steps=None, answer="Lima"):
    if steps is None:
        steps = [
            {"question": "Who directed Blue Hill?", "answers": ["Eva Soto"]},
            {"question": "Where was Eva Soto born?", "answers": ["Lima", "Lima, Peru"]},
        ]
    listed = steps if isinstance(steps, str) else json.dumps(steps)
    return f"New Task: {question}\nNew Steps: {listed}\nNew Answer: {answer}"


def test_a_good_generation_becomes_a_task(benchmark):
    task = benchmark.parse(_generation(answer="Lima | Lima, Peru"), TASK, "g", 1)
    assert isinstance(task, Task) and benchmark.verify(task) is None
    assert benchmark.score(task, "<answer>lima peru</answer>").reward == 1.0
    one = benchmark.parse("New Task: Where is Lima?\nNew Answer: Peru", ONE_HOP, "g", 1)
    assert benchmark.verify(one) is None and one.category == records.ONE_HOP


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("New Task: x\nNew Answer: y", base.UNPARSABLE),
        ("Sure!\n" + _generation(), base.UNPARSABLE),
        (_generation(question=""), base.UNPARSABLE),
        (_generation(question="w " * 300), base.UNPARSABLE),
        (_generation(steps="none"), generation.BAD_STEPS),
        (_generation(steps="[]"), generation.BAD_STEPS),
        (_generation(steps=[{"question": "a", "answers": ["b"]}]), generation.BAD_STEPS),
        (_generation(steps=[{"question": 1, "answers": ["b"]}] * 2), generation.BAD_STEPS),
        (_generation(steps=[{"question": "a", "answers": []}] * 2), base.BAD_ANSWER),
        (_generation(answer="Quito"), generation.BAD_STEPS),
        (_generation(answer="the"), base.BAD_ANSWER),
        (_generation(answer="Lima |"), base.BAD_ANSWER),
        (_generation(answer="Lima</answer>, Peru"), base.WRONG_ANSWER),
        (_generation(answer="| ".join("abcdefghi")), base.BAD_ANSWER),
        (_generation(answer="x" * 300), base.BAD_ANSWER),
        (_generation(question="In which year was Lima, Peru founded?"), generation.LEAKED),
    ],
)
def test_bad_generations_have_a_reason(benchmark, text, reason):
    found = benchmark.parse(text, TASK, "g", 1)
    if isinstance(found, Task):
        found = benchmark.verify(found)
    assert isinstance(found, Rejection) and found.reason == reason


# --- the published files -------------------------------------------------------------------------------


@pytest.mark.data
def test_three_published_copies_agree(data_dir):
    directory = records.find_directory(data_dir)
    tasks = records.load(directory, verify_files=True)
    ours = [(task.messages[0]["content"], task.answer["answers"][0]) for task in tasks]
    rows = map(json.loads, (directory / "agentic-rag__test.jsonl").read_text().splitlines())
    second = [(row["prompt"][0]["content"], row["reward_model"]["ground_truth"]) for row in rows]
    rows = json.loads((directory / "SimpleDeepSearcher__bamboogle.json").read_text())
    third = [(row["Question"], row["answer"][0]) for row in rows]
    second, third = ([tuple(map(str.strip, pair)) for pair in of] for of in (second, third))
    assert ours == second == third and len(ours) == 125
    data_files.verify("bamboogle", directory)


@pytest.mark.data
def test_the_default_split(data_dir):
    benchmark = Bamboogle(data_dir=data_dir)
    assert len(benchmark.tasks("eval")) == 102
    count = collections.Counter(task.category for task in benchmark.tasks("seed"))
    assert 10 <= count[records.TWO_HOPS] <= 23 and count[records.ONE_HOP] > count[records.TWO_HOPS]
