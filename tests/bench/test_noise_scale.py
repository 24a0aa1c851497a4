"""The estimates of the noise scale, by simulation; each group's gradient, against the whole batch's."""

import numpy as np
import pytest
from noise_scale import group_gradients, markdown, moments

from genenv_jax.coevolve import Coevolution
from genenv_jax.config import validate
from tests.runs import toy_config


def test_moments_are_unbiased():
    rng = np.random.default_rng(0)
    mean, deviation = np.array([0.3, -0.1, 0.0]), np.array([1.0, 0.5, 2.0])
    found = [moments(mean + deviation * rng.standard_normal((16, 3))) for _ in range(4000)]
    spread, square = np.mean(found, axis=0)
    assert spread == pytest.approx(5.25, rel=0.02)
    assert square == pytest.approx(0.1, abs=0.02)


def test_the_table_by_hand():
    rows = [(1, 64, 0.5, 8.0, 0.2), (2, 64, 0.5, 4.0, 0.1), (5, 32, 1.0, 3.0, -0.1)]
    assert markdown(rows, 4).split("\n")[2:] == [
        "| 1–4 | 2 | 64 | 0.50 | 40 | 20 |",
        "| 5–8 | 1 | 32 | 1.00 | inf | inf |",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("aggregation", ["token-mean", "sequence-mean"])
def test_the_groups_gradients_add_up_to_the_step_s(cache, tmp_path, aggregation):
    """The norm of their mean is the gradient norm that the update itself reports, at ratio 1."""
    options = {
        "epochs": 1,
        "agent.minibatch_size": 8,
        "agent.kl_coef": 0.0,
        "agent.entropy_coef": 0.0,
        "agent.aggregation": aggregation,
        "agent.replay_share": 0.0,
    }
    run = Coevolution(validate(toy_config(cache, options)), tmp_path)
    trainer, update, norms = run.agent_trainer, run.agent_trainer.update, []

    def measured(rollouts, rewards):
        own = np.linalg.norm(group_gradients(trainer, rollouts, rewards).mean(axis=0))
        norms.append((own, update(rollouts, rewards)["grad_norm"]))
        return {}

    trainer.update = measured
    run.run()
    own, reported = np.array(norms).T
    assert own == pytest.approx(reported, rel=1e-3) and (own > 0).any()
