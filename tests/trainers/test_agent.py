"""The agent's updates: the old log-probs of their ratios; what is recorded of attempts."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from genenv_jax.benchmarks import base
from genenv_jax.players import learner
from genenv_jax.players.player import Player
from genenv_jax.sampling.sampler import Rollouts
from genenv_jax.scoring.attempts import Attempt
from genenv_jax.tasks.generation import Generation
from genenv_jax.tasks.mixture import Item
from genenv_jax.trainers.agent import AgentTrainer, Interaction, _Groups, _record
from tests.toy import Toy

G, C = 2, 3


class FakeAgent:
    """An agent whose log-probs are its number of steps."""

    sampler, widths, frozen, optimizer = SimpleNamespace(prompt_buckets=(4,)), (C,), {}, None
    model, minibatch = SimpleNamespace(config=None), Player.minibatch
    own_logprobs, _scored = Player.own_logprobs, Player._scored

    def __init__(self, recomputes, epochs):
        self.recomputes, self.state, self.phases = recomputes, 0, []
        self.config = SimpleNamespace(
            group_size=G, minibatch_size=2, micro_batches=1, update_epochs=epochs, kl_coef=0.0,
            advantages="centred",
        )  # fmt: skip

    def put(self, tree):
        return tree

    def load_for(self, phase):
        self.phases.append(phase)

    def logprobs(self, batch):
        assert self.phases[-1] == "sample"
        return np.full(batch.completions.shape, 100.0 + self.state, np.float32)


@pytest.fixture
def steps(monkeypatch):
    """What each step is given."""
    given = []

    def step(state, frozen, batch):
        given.append(batch)
        return state + 1, {"loss": np.float32(1), "sampler_trainer_logp_gap": np.float32(len(given))}

    monkeypatch.setattr(learner, "make_grpo_step", lambda *_: step)
    return given


@pytest.mark.parametrize("epochs", [1, 2])
@pytest.mark.parametrize("recomputes", [False, True])
def test_old_log_probs_are_those_before_the_first_step(steps, recomputes, epochs):
    agent = FakeAgent(recomputes, epochs)
    session = SimpleNamespace(finished=0, tokens=0)
    trainer = AgentTrainer(agent, None, None, session)
    n = 5
    rollouts = Rollouts(
        [[1, 2]] * n, np.ones((n, G, C), np.int32), np.full((n, G), C), np.full((n, G, C), -0.5, "f4"),
        np.ones((n, G), bool),
    )  # fmt: skip
    metrics = trainer.update(rollouts, np.arange(n * G, dtype=float).reshape(n, G))
    assert len(steps) == 3 * epochs and agent.phases[-1] == "update"
    assert metrics["sampler_trainer_logp_gap"] == 1.0  # the first step's
    again = rollouts if epochs > 1 else rollouts.take(range(2, 5))
    assert session.tokens - 3 * epochs * rollouts.token_count == (again.token_count if recomputes else 0)
    for number, batch in enumerate(steps):
        if not recomputes:
            assert batch.on_policy is None and batch.old_logp.min() == -0.5
        elif number == 0:  # the step computes them itself
            assert (batch.on_policy == 1).all() and batch.old_logp.max() == -0.5
        else:
            there = batch.rollouts.completion_lengths > 0
            assert (batch.on_policy == 0).all() and (batch.old_logp[there] == 100.0).all()


def test_lengths_are_of_what_the_agent_wrote():
    """Not of an episode's observations; a task's mean leaves out attempts that its environment broke."""
    toy = Toy()
    task, right, broken = toy.tasks("seed")[0], base.Score(1.0, True, True), base.ENVIRONMENT_ERROR
    scores = [right, base.Score(0.0, False, False, broken)]
    said = ("<think>so</think>ok",), ("ok", "ok")
    attempts = [Attempt(task, i, said[i], True, score) for i, score in enumerate(scores)]
    actions = np.zeros((1, G, 40), bool)
    actions[0, 0, :4], actions[0, 1, 10:13] = True, True
    rollouts = Rollouts(
        [[1, 2]], np.ones((1, G, 40), np.int32), np.array([[40, 30]]), np.zeros((1, G, 40), "f4"),
        np.ones((1, G), bool), actions,
    )  # fmt: skip
    assert rollouts.num_generated.tolist() == [[4, 3]]
    assert dataclasses.replace(rollouts, loss_mask=None).num_generated.tolist() == [[40, 30]]
    groups = _Groups()
    groups.add([attempts], rollouts)
    metrics = groups.metrics()
    assert (metrics["response_length_mean"], metrics["turns_mean"]) == (3.5, 1.5)
    assert (metrics["thought_chars_mean"], metrics["answer_chars_mean"]) == (17 / 3, 2)
    generation = Generation(0, 0, task, base.SeedStatistics(), "", task=task)
    result, item = Interaction(), Item(task, generation)
    _record(result, 0, item, 2, rollouts.num_generated[0], attempts)
    assert (item.attempts, item.successes) == (1, 1)
    assert generation.attempts == 1 and generation.record(1, toy)["response_length_mean"] == 4
