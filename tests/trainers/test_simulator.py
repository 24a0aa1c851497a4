"""What generations count in the simulator's update by policy gradient."""

from types import SimpleNamespace

import numpy as np
import pytest

from genenv_jax.benchmarks.base import Rejection, SeedStatistics
from genenv_jax.tasks.generation import Generation, TaskBatch
from genenv_jax.trainers.simulator import PolicyGradient
from tests.toy import Toy

SEED = Toy().tasks("seed")[0]


def advantages(*generations):
    """Of one seed's, each R_env, None for a rejection, or "" for a task without attempts that count."""
    batch = TaskBatch(
        [
            Generation(
                0,
                i,
                SEED,
                SeedStatistics(),
                "",
                **(
                    {"rejection": Rejection("unparsable", "")}
                    if r_env is None
                    else {"task": SEED, "attempts": int(r_env != ""), "r_env": r_env or 0.0}
                ),
            )
            for i, r_env in enumerate(generations)
        ],
        SimpleNamespace(lengths=np.zeros((1, len(generations)), int)),
    )
    return PolicyGradient._weights(None, batch)[0]


def test_a_task_whose_attempts_do_not_count_has_no_part():
    assert advantages(0.9, "", None) == pytest.approx([0.45, 0.0, -0.45])
    assert advantages(0.9, "", 0.5) == pytest.approx([0.2, 0.0, -0.2])
