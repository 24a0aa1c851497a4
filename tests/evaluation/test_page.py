"""The page of an evaluation."""

import json

import pytest

from genenv_jax.reporting.evaluation import write_evaluation_page


def write(path, metrics, predictions, about=None):
    results = {"about": {"benchmark": "b", "model": "m"} | (about or {}), "metrics": metrics}
    (path / "results.json").write_text(json.dumps(results | {"intervals": "95 %"}))
    lines = "".join(json.dumps(record) + "\n" for record in predictions)
    (path / "predictions.jsonl").write_text(lines)


def prediction(**fields):
    record = {"mode": "greedy", "task_id": "t", "category": "c", "answer": "a", "reward": 0.0}
    return record | {"success": False, "reason": "wrong"} | fields


def test_numbers_reasons_and_answers_are_there(tmp_path):
    metrics = {
        "eval/test/greedy/accuracy": {"value": 0.25, "low": 0.1, "high": 0.4},
        "eval/test/sampled/accuracy": {"value": 0.5},
        "eval/test/greedy/length": {"value": 31.5},
    }
    predictions = [
        prediction(),
        prediction(success=True, reason="", answer="right!", reward=1.0),
        prediction(reason="episode_timeout", answers=["first", "second"]),
    ]
    write(tmp_path, metrics, predictions, {"grammar": "put in/on"})
    page = write_evaluation_page(tmp_path).read_text()
    for text in (
        "0.250 [0.100, 0.400]",
        "0.500<",
        "31.500",
        "put in/on",
        "right!",
        "first\n---\nsecond",
    ):
        assert text in page
    assert page.index("accuracy") < page.index("length")
    assert 'style="width:25.0%"' in page and page.count("class=bar") == 1
    assert "<td class=n>0.333</td>" in page  # each verdict is a third


def test_what_a_model_wrote_is_shown_and_not_run(tmp_path):
    hostile = "<script>alert(1)</script>\u202e\x00" + "x" * 10**6
    predictions = [prediction(answer=hostile, category=hostile, reason=hostile, task_id=hostile)]
    write(tmp_path, {}, predictions, {"<b>": hostile})
    page = write_evaluation_page(tmp_path).read_text()
    assert "<script" not in page and "<b>" not in page and "default-src 'none'" in page
    assert "&lt;script&gt;" in page and "\\u202e" in page
    assert len(page) < 50_000


@pytest.mark.parametrize("content", ["{", "[]", '{"about": {}}', '{"about": 1, "metrics": {}}'])
def test_damaged_results_are_named(tmp_path, content):
    write(tmp_path, {}, [])
    (tmp_path / "results.json").write_text(content)
    with pytest.raises(ValueError, match=r"results\.json: damaged"):
        write_evaluation_page(tmp_path)
