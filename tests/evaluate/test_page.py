"""The page of an evaluation."""

import json

import pytest

from genenv_jax.evaluate.page import write_evaluation_page
from tests.report.synthetic import Page, append, hostile

ABOUT = {"benchmark": "b", "model": "m"}


@pytest.fixture
def page_of(tmp_path):
    """The page of an evaluation with these results."""

    def make(metrics, *predictions, about=ABOUT, intervals="95 %"):
        results = {"about": about, "metrics": metrics, "intervals": intervals}
        (tmp_path / "results.json").write_text(json.dumps(results))
        append(tmp_path, "predictions", *predictions)
        return Page(write_evaluation_page(tmp_path).read_text("utf-8"))

    return make


def prediction(**fields):
    record = {"mode": "greedy", "task_id": "t", "category": "c", "answer": "a", "reward": 0.0}
    return record | {"success": False, "reason": "wrong"} | fields


def test_numbers_reasons_and_answers_are_there(page_of):
    metrics = {
        "eval/test/greedy/accuracy": {"value": 0.25, "low": 0.1, "high": 0.4},
        "eval/test/sampled/accuracy": {"value": 0.5},
        "eval/test/greedy/again/accuracy": {"value": 0.0},
        "eval/test/greedy/a_length": {"value": 31.5},
        "eval/test/sampled/z_tokens": {"value": 12345},
    }
    page = page_of(
        metrics,
        prediction(),
        prediction(success=True, reason="", answer="right!", reward=1.0),
        prediction(reason="episode_timeout", answers=["first", "second"]),
        prediction(
            reason="step_limit", answers=["go", "look", "take"], replies=["a door", "a key"]
        ),
        about=ABOUT | {"grammar": "put in/on"},
    )
    cells = [data for tag, data in page.text if tag == "td" and data.strip()]
    assert cells == [
        *("benchmark", "b", "model", "m", "grammar", "put in/on"),
        *("accuracy", "0.250 [0.100, 0.400]", "0.500", "again/accuracy", "0.000"),
        *("a_length", "31.500", "z_tokens", "12,345"),
        *("wrong", "1", "0.250", "success", "1", "0.250", "episode_timeout", "1", "0.250"),
        *("step_limit", "1", "0.250"),
    ]
    widths = [attrs["style"] for _, attrs in page.tags if "style" in attrs]
    assert widths == ["width:25.0%"]
    answers = [data for tag, data in page.text if tag == "pre"]
    episode = "go\n→ a door\nlook\n→ a key\ntake"
    assert answers == ["a", "right!", "first\n---\nsecond", episode]
    assert "c · wrong · t · greedy · 0.0" in page.within("summary")


def test_each_split_has_a_table(page_of):
    splits = {f"eval/{split}/greedy/accuracy": {"value": 0.5} for split in ("b", "a")}
    assert page_of(splits).within("h3") == "ab"


def test_text_of_a_model_is_shown_and_does_nothing(page_of):
    record = prediction(answers=["a", "b"])
    metric = {f"eval/{hostile('', 'split')}/<script>/<i>": {"value": 0.5}}
    about = {"<b>": "", **ABOUT}
    page = page_of(
        metric, hostile(record, "answer"), about=hostile(about, "about"), intervals=hostile("", "i")
    )
    page.check_harmless(images=0)
    for place in (
        *("about.benchmark", "about.model", "about.<b>", "i", "answer.mode", "answer.task_id"),
        *("answer.category", "answer.answers", "answer.reason"),
    ):
        assert f"[{place}]" in page.within(), place
    assert "<b>" in page.within("td")
    assert "about.benchmark" in page.within("title") and "about.model" in page.within("h1")


@pytest.mark.parametrize("value", ["x" * 10**6, 10**400, ["x" * 10**4] * 99, {"a": [None]}, None])
def test_values_of_any_shape_give_a_bounded_page(page_of, value):
    record = dict.fromkeys([*prediction(), "answers"], value)
    metrics = {"eval/a/b/c": value, "eval/a/b/d": {"value": value, "low": value}, "e": value}
    about = {"model": value, "other": value}
    page = page_of(metrics, record, record, about=about, intervals=value)
    assert len(page.within()) < 15_000


@pytest.mark.parametrize("content", ["{", "[]", '{"about": {}}', '{"about": 1, "metrics": {}}'])
def test_damaged_results_are_named(tmp_path, content):
    (tmp_path / "results.json").write_text(content)
    with pytest.raises(ValueError, match=r"results\.json is damaged"):
        write_evaluation_page(tmp_path)
