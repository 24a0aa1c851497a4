from genenv_jax.benchmarks.base import Score
from genenv_jax.evaluate.agent import cut_off
from genenv_jax.scoring.attempts import Attempt


def test_answers_that_a_limit_cut_off_are_said_where_they_are_many():
    limit = "config.limits.agent_response = 64 tokens"
    made = lambda cut, n: {  # noqa: E731
        "greedy": [[Attempt(None, 0, ("",), i >= cut, Score(0.0, False, True))] for i in range(n)]
    }
    assert cut_off(made(8, 8), limit) == f"8 of 8 answers were cut off at {limit}"
    assert cut_off(made(1, 10), limit) and not cut_off(made(1, 11), limit)
    assert not cut_off({}, limit)
