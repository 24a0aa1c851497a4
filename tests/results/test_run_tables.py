"""Start, end and change of the headline numbers."""

from genenv_jax.results.run_tables import summary_table
from tests.results.synthetic import run_of


def test_known_numbers():
    sampled, greedy = "eval/test/sampled/accuracy", "eval/test/greedy/accuracy"
    p_hat, valid = "generated/p_hat_mean", "generated/valid_share"
    run = run_of(
        config={"curriculum": {"alpha": 0.5, "k_min": 0.1}},
        metrics={
            0: {sampled: 0.25, greedy: 0.5},
            1: {p_hat: 0.138, valid: 0.5},
            2: {p_hat: 0.6, "rollouts/total": 1024},
            3: {sampled: 0.375, greedy: 0.45, p_hat: 0.4, valid: 0.875}
            | {"rollouts/total": 4096, "tokens/total": 70_000},
        },
        timing=[{"seconds/a": 30, "seconds/b": 60, "seconds/total": 91}],
    )
    assert summary_table(run).splitlines() == [
        "| run | quantity | start | end | change |",
        "|---|---|---:|---:|---:|",
        "| run | accuracy, test, greedy | 0.500 | 0.450 | -0.050 |",
        "| run | accuracy, test, sampled | 0.250 | 0.375 | +0.125 |",
        "| run | p̂ of generated tasks | 0.138 | 0.400 | +0.262 |",
        "| run | epochs with p̂ in [0.4, 0.6] |  | 2 of 3 (first: epoch 2) |  |",
        "| run | valid share of generations | 0.500 | 0.875 | +0.375 |",
        "| run | response length (tokens) | - | - | - |",
        "| run | task length (tokens) | - | - | - |",
        "| run | rollouts |  | 4,096 |  |",
        "| run | tokens processed |  | 70,000 |  |",
        "| run | minutes |  | 1.5 |  |",
    ]


def test_without_a_configuration_there_is_no_band():
    assert "| run | epochs with p̂ in band |  | - |  |" in summary_table(run_of())
