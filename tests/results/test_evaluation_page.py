import json

import pytest

from genenv_jax.results import pages
from genenv_jax.results.pages import write_evaluation_page
from tests.results.synthetic import ATTACK, Page, append, hostile

ABOUT = {"benchmark": "b", "model": "m"}


@pytest.fixture
def page_of(tmp_path, monkeypatch):
    """The page of an evaluation with these results."""

    def make(metrics, *predictions, about=ABOUT, intervals="95 %", budget=None):
        if budget:
            monkeypatch.setattr(pages, "_ANSWERS_BYTES", budget)
        results = {"about": about, "metrics": metrics, "intervals": intervals}
        (tmp_path / "results.json").write_text(json.dumps(results))
        append(tmp_path, "predictions", *predictions)
        return Page(write_evaluation_page(tmp_path).read_text("utf-8"))

    return make


def prediction(**fields):
    record = {"mode": "greedy", "task_id": "t", "category": "c", "answer": "a", "reward": 0.0}
    return record | {"success": False, "reason": "wrong"} | fields


def cells_of(page):
    return [data.strip() for tag, data in page.text if tag in ("td", "b") and data.strip()]


def test_numbers_are_there_and_bars_are_shares(page_of):
    metrics = {
        "eval/test/greedy/accuracy": {"value": 0.25, "low": 0.1, "high": 0.4, "tasks": 1200},
        "eval/test/sampled/accuracy": {"value": 0.5},
        "eval/test/greedy/again/accuracy": {"value": 0.0},
        "eval/test/greedy/a_length": {"value": 31.5},
        "eval/test/greedy/episode_timeout": {"value": 1},
        "eval/test/greedy/errors": {"value": 1.0, "low": 0.0, "high": 3.0},
        "eval/test/sampled/z_tokens": {"value": 12345},
    }
    page = page_of(metrics, about=ABOUT | {"grammar": "put in/on"})
    assert cells_of(page) == [
        *("benchmark", "b", "model", "m", "grammar", "put in/on"),
        # An interval is not broken between its ends.
        *("accuracy", "1,200", "0.250 [0.100,\xa00.400]", "0.500", "again/accuracy", "0.000"),
        *("a_length", "31.500", "episode_timeout", "1", "errors", "1.000 [0.000,\xa03.000]"),
        *("z_tokens", "12,345", "all"),
    ]
    assert [attrs["style"] for _, attrs in page.tags if "style" in attrs] == ["width:25.0%"]


def test_what_it_was_made_with_is_at_the_top(page_of):
    page = page_of({}, about=ABOUT | {"command": "genenv evaluate", "settings": "config.a = 1\nconfig.b = 2"})
    assert "commandgenenv evaluate" in page.within("td") and "config.a" not in page.within("td")
    assert page.within("summary").startswith("2 settings differ from the defaults")


def test_verdicts_say_why(page_of):
    page = page_of(
        {},
        prediction(success=True, reason=""),
        prediction(mode="sampled"),
        prediction(reason="unparsable", valid=False, ended=False),
        prediction(reason="unparsable", valid=False, ended=True, task_id="u"),
        prediction(reason="new_reason", valid=False),
        prediction(reason="step_limit"),
        prediction(reason="episode_timeout", valid=False),
    )
    table = cells_of(page)[4:]
    rows = {table[i]: table[i + 1 : i + 3] for i in range(0, len(table), 3)}
    assert rows["correct"] == ["1", "0"] and rows["wrong answer"] == ["0", "1"] == rows["wrong"]
    assert rows["form"] == ["3", "0"] and rows["unparsable, cut off"] == ["1", "0"]
    assert rows["unfinished"] == rows["step_limit"] == ["1", "0"]
    assert rows["not scored"] == rows["episode_timeout"] == ["1", "0"]
    assert "success" not in rows and "16.7\xa0%" in page.within("span")


def test_beside_answers_stand_request_reference_and_prompt(page_of):
    beside = {
        "request": "Where is it?",
        "reference": '{"place": "Oslo"}',
        "prompt": [{"role": "system", "content": "Answer."}, {"role": "user", "content": "Where?"}],
        "prompt_tokens": 1234,
    }
    answers = prediction(**beside, answers=["go", "look", "take"], replies=["a door", "a key"])
    page = page_of(
        {}, answers, *[prediction(mode="sampled", detail={"f1": 0.5, "deep": [1]})] * 3, prediction()
    )
    texts = [data for tag, data in page.text if tag == "pre"]
    episode = "go\n→ a door\nlook\n→ a key\ntake"
    assert texts == ["Where is it?", '{\n  "place": "Oslo"\n}', "Answer.", "Where?", episode, "a", "a"]
    assert "1,234 tokens · 13 characters" in page.within("span")
    assert "sampled × 3" in page.within("td") and "f1 0.5" in page.within("span")
    (item,) = [attrs for tag, attrs in page.tags if tag == "article"]
    assert item["data-category"] == "c"
    rows = [attrs["data-mode"] for tag, attrs in page.tags if "data-row" in attrs]
    assert rows == ["greedy", "sampled", "greedy"]


def test_thousands_of_long_answers_give_a_bounded_page(page_of):
    long = {"prompt": [{"role": "user", "content": ATTACK * 20}], "request": ATTACK * 20}
    answers = [prediction(task_id=f"{i}", category=f"{i % 7}", answer=f"{i} {ATTACK * 20}", **long)
               for i in range(600)]  # fmt: skip
    page = page_of({}, *answers, budget=2**20)
    assert 0.9 * 2**20 < len(page.source.encode()) < 1.1 * 2**20
    assert "of 600 tasks are on this page" in page.within("p")


def test_each_split_has_a_table_the_main_one_first(page_of):
    splits = {f"eval/{split}/greedy/accuracy": {"value": 0.5} for split in ("b", "a")}
    assert page_of(splits).within("h3") == "ba"


def test_text_of_a_model_is_shown_and_does_nothing(page_of):
    record = prediction(answers=["a", "b"], request="q", reference="r", detail={"d": "e"})
    record |= {"prompt": [{"role": "user", "content": "p"}]}
    metric = {f"eval/{hostile('', 'split')}/<script>/<i>": {"value": 0.5}}
    about = {"<b>": "", **ABOUT}
    page = page_of(
        metric, hostile(record, "answer"), about=hostile(about, "about"), intervals=hostile("", "i")
    )
    page.check_harmless(images=0, scripts=1)
    for place in (
        *("about.benchmark", "about.model", "about.<b>", "i", "answer.mode", "answer.task_id"),
        *("answer.category", "answer.answers", "answer.reason", "answer.request", "answer.reference"),
        *("answer.prompt.role", "answer.prompt.content", "answer.detail.d"),
    ):
        assert f"[{place}]" in page.within(), place
    assert "<b>" in page.within("td")
    assert "about.benchmark" in page.within("title") and "about.model" in page.within("h1")


@pytest.mark.parametrize("value", ["x" * 10**6, 10**400, ["x" * 10**4] * 99, {"a": [None]}, None])
def test_values_of_any_shape_give_a_bounded_page(page_of, value):
    beside = ("answers", "request", "reference", "prompt", "prompt_tokens", "detail", "replies")
    record = dict.fromkeys([*prediction(), *beside], value)
    metrics = {"eval/a/b/c": value, "eval/a/b/d": {"value": value, "low": value}, "e": value}
    page = page_of(metrics, record, record, about={"model": value, "other": value}, intervals=value)
    assert len(page.within()) < 60_000


@pytest.mark.parametrize("content", ["{", "[]", '{"about": {}}', '{"about": 1, "metrics": {}}'])
def test_damaged_results_are_named(tmp_path, content):
    (tmp_path / "results.json").write_text(content)
    with pytest.raises(ValueError, match=r"results\.json is damaged"):
        write_evaluation_page(tmp_path)
