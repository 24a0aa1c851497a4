import contextlib
import functools
from types import SimpleNamespace

import numpy as np

from genenv_jax.benchmarks.base import ENVIRONMENT_ERROR, Score, SeedStatistics
from genenv_jax.evaluate import held_out
from genenv_jax.players.agent import Agent
from genenv_jax.sampling.draw import SamplingParams
from genenv_jax.sampling.engine import Engine
from genenv_jax.scoring.attempts import Attempt
from genenv_jax.tasks.generation import Generation
from tests.toy import Toy

RIGHT, WRONG = Score(1.0, True, True), Score(0.0, False, True, "odd")
BROKEN = Score(0.0, False, False, ENVIRONMENT_ERROR)


def test_episodes_that_their_environment_broke_do_not_count(monkeypatch):
    task = Toy().tasks("seed")[0]
    scores = [[RIGHT, WRONG, BROKEN, BROKEN], [BROKEN] * 4]
    found = [[Attempt(task, i, ("a",), True, s) for i, s in enumerate(of)] for of in scores]
    monkeypatch.setattr(held_out, "attempt", lambda *_, **__: found)
    rng, measure = (lambda *_: np.random.default_rng(0)), (lambda *_: contextlib.nullcontext())
    evaluation = SimpleNamespace(
        _config=SimpleNamespace(reroll=2), _agent=SimpleNamespace(policy=lambda key: None), _benchmark=None,
        _session=SimpleNamespace(rng=rng, key=lambda *_: None, measure=measure), _scorer=None,
    )  # fmt: skip
    fresh = [Generation(0, i, task, SeedStatistics(), "", task=task) for i in range(2)]
    held_out.HeldOut.reroll(evaluation, 0, fresh)
    assert [g.rerolled for g in fresh] == [0.5, None]


def test_evaluations_have_their_own_number_of_tasks_at_a_time():
    sampler = Engine(None, SamplingParams(8, 4, (0,)), batch_size=2, prompt_buckets=(8,), lanes=2)
    config = held_out.EvaluationConfig(batch_size=16, sampled=3)
    agent = SimpleNamespace(sampler=sampler)
    agent.evaluating = functools.partial(Agent.evaluating, agent)
    found = held_out.HeldOut(config, agent, [], None, None, None)._samplers
    options = {mode: (s.batch_size, s.options.group_size, s.options.temperature) for mode, s in found.items()}
    assert options == {"sampled": (16, 3, 1.0), "greedy": (16, 1, 0.0)}
