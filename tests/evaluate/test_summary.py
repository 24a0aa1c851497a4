"""What an evaluation prints."""

from genenv_jax.benchmarks.base import Score
from genenv_jax.evaluate.summary import cut_off, summary
from genenv_jax.scoring.attempts import Attempt


def share(value, low, high, tasks):
    return {"value": value, "low": low, "high": high, "tasks": tasks}


def test_the_accuracies_come_first():
    results = {
        "eval/main/sampled/depth_1": share(0.5, 0.4, 0.6, 24),
        "eval/main/sampled/accuracy": share(0.427, 0.377, 0.482, 144),
        "eval/deeper/sampled/accuracy": share(0.1, 0.0, 0.2, 48),
        "eval/all/sampled/valid_share": share(0.9, 0.8, 1.0, 192),
        "eval/all/sampled/invalid_empty": {"value": 0.1},
        "eval/all/sampled/worker_lost": {"value": 1200},
        "eval/main/greedy/accuracy": share(0.493, 0.431, 0.563, 144),
        "eval/all/greedy/pass@2": share(0.6, 0.5, 0.7, 192),
    }
    lines = summary(results)
    assert lines[:4] == [
        "main    sampled  accuracy  0.427 [0.377, 0.482]  n = 144",
        "main    greedy   accuracy  0.493 [0.431, 0.563]  n = 144",
        "deeper  sampled  accuracy  0.100 [0.000, 0.200]  n = 48",
        "all  sampled  valid_share    0.900 [0.800, 1.000]",
    ]
    assert "all  sampled  invalid_empty  0.100" in lines
    assert any(line.split() == ["all", "sampled", "worker_lost", "1,200"] for line in lines)
    assert any("pass@2" in line for line in lines)
    assert lines[-1] == "1 more metrics: results.json, and the page"


def test_answers_that_a_limit_cut_off_are_said_where_they_are_many():
    limit = "config.limits.agent_response = 64 tokens"
    made = lambda cut, n: {  # noqa: E731
        "greedy": [[Attempt(None, 0, ("",), i >= cut, Score(0.0, False, True))] for i in range(n)]
    }
    assert cut_off(made(8, 8), limit) == f"8 of 8 answers were cut off at {limit}"
    assert cut_off(made(1, 10), limit) and not cut_off(made(1, 11), limit)
    assert not cut_off({}, limit)
