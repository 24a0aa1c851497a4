"""A policy trained by GRPO on the rewards does not learn an exploit, but would if it were rewarded.

The policy is a small decoder; each token stands for a whole answer: the right one, an exploit, or a wrong
one.  It is sampled, scored and updated as in a run.
"""

import contextlib
import dataclasses
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from genenv_jax.benchmarks.base import Benchmark
from genenv_jax.models.transformer import Transformer
from genenv_jax.players.agent import Agent, AgentConfig
from genenv_jax.players.learner import init_state
from genenv_jax.players.offload import Offloader
from genenv_jax.players.optimizer import make_optimizer
from genenv_jax.players.player import Reference
from genenv_jax.sampling.draw import SamplingParams
from genenv_jax.sampling.engine import Engine
from genenv_jax.scoring.scorer import Scorer, ScoringConfig
from genenv_jax.tasks.mixture import Item
from genenv_jax.trainers.agent import AgentTrainer
from tests.redteam.scenes import scene
from tests.redteam.table import exploits_of
from tests.runs import shared_steps
from tests.sampling import small_model

RIGHT, EXPLOIT = 0, 1
WRONG = ("", "x", "no", "0", "yes or no", "-")
CONFIG = dataclasses.replace(
    small_model.CONFIG, vocab_size=2 + len(WRONG), num_layers=1, window=None, unroll_layers=True
)
EPOCHS = 15
SETTINGS = AgentConfig(learning_rate=2e-2, batch_size=8, minibatch_size=8, group_size=16)
OPTIMIZER = make_optimizer(SETTINGS.learning_rate)


def _named(scene, name):
    return next(e for e in exploits_of(scene) if e.name == name)


# Exploits that the official rules, which score held-out tasks, accept.
CASES = {
    "bfcl_turn_static": _named("bfcl_turn_static", "texts in capitals"),
    "api_bank": _named("api_bank", "records that are made up"),
    "travelplanner": _named("travelplanner", "teleports"),
}


class _Actions(Benchmark):
    """A scene's benchmark whose answers are action numbers.

    strict: pays the reward; otherwise what the official rules accept.
    """

    name = "actions"

    def __init__(self, opened, exploit, strict):
        self._opened, self._exploit, self._strict = opened, exploit, strict
        self.tried = [t for t in opened.tasks if exploit.text(opened, t) is not None]
        self._verdicts = {}

    def agent_messages(self, task):
        return [{"role": "user", "content": str(self.tried.index(task))}]

    def load(self, split):
        return self.tried

    def verdict(self, task, answer):
        if (task.id, answer) not in self._verdicts:
            self._verdicts[task.id, answer] = self._score_of(task, int(answer))
        return self._verdicts[task.id, answer]

    def _score_of(self, task, action):
        benchmark = self._opened.benchmark
        if action == RIGHT:
            text = benchmark.agent_answer(task)
        elif action == EXPLOIT:
            text = self._exploit.text(self._opened, task)
        else:
            text = WRONG[action - 2]
        if self._strict:
            return benchmark.score(task, text)
        rule = {"rule": "ast"} if task.answer.get("rule") == "static_match" else {}
        held_out = dataclasses.replace(task, origin="eval", answer={**task.answer, **rule})
        score = benchmark.score(held_out, text)
        return dataclasses.replace(score, reward=float(score.success))


class _Model:
    """Reads a task's number, writes an action's number."""

    config, eos_ids = CONFIG, (CONFIG.vocab_size - 1,)

    def encode_messages(self, messages):
        return [int(messages[0]["content"]) % CONFIG.vocab_size]

    def decode(self, ids):
        return str(next(iter(ids)))


def _session():
    """What the trainer needs from a run."""
    return types.SimpleNamespace(
        phase=lambda *_: contextlib.nullcontext(types.SimpleNamespace(advance=lambda: None)),
        measure=lambda _: contextlib.nullcontext(),
        key=lambda _, *numbers: jax.random.key(hash(numbers) % 2**31),
        batch=lambda _: contextlib.nullcontext(),
        tokens=0, rollouts=0, finished=0, begun={}, within={},
        files=types.SimpleNamespace(d_train=[]),
    )  # fmt: skip


def _trained(opened, exploit, strict):
    """(Mean probability of each action before, after); tasks weigh equally."""
    actions = _Actions(opened, exploit, strict)
    params = small_model.make_params(CONFIG, scale=0.2)
    group = SETTINGS.group_size
    agent = Agent(
        _Model(), Reference(params, CONFIG), SETTINGS,
        Engine(CONFIG, SamplingParams(1, group, _Model.eos_ids), 8, (1,)),
        OPTIMIZER, init_state(params, OPTIMIZER), (1,), (group,), jax.device_put, Offloader(),
    )  # fmt: skip
    tasks = (8 * actions.tried)[:8]

    def probabilities():
        places = np.array([actions.tried.index(task) % CONFIG.vocab_size for task in tasks], np.int32)
        logits = np.asarray(_logits(agent.params, places), float)
        return np.exp(small_model.log_softmax(logits)).mean(axis=0)

    before = probabilities()
    with shared_steps(), Scorer(actions, _Model().decode, ScoringConfig()) as scorer:
        trainer = AgentTrainer(agent, actions, scorer, _session())
        for epoch in range(EPOCHS):
            trainer.step(epoch, [Item(task) for task in tasks])
    return before, probabilities()


@jax.jit
def _logits(params, tokens):
    """(n,) prompts of one token -> (n, v)."""
    model, tokens = Transformer(CONFIG), tokens[:, None, None]
    hidden, _ = model.apply({"params": params}, tokens, jnp.zeros_like(tokens))
    return model.apply({"params": params}, hidden, method="logits")[:, 0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_training_does_not_learn_the_exploit(name):
    with scene(name) as opened:
        before, after = _trained(opened, CASES[name], strict=True)
        assert after[EXPLOIT] < before[EXPLOIT]
        assert after[RIGHT] > 0.8 > before[RIGHT]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_training_learns_it_where_it_is_paid(name):
    """The control: under the official rules the exploit is as good as the right answer."""
    with scene(name) as opened:
        before, after = _trained(opened, CASES[name], strict=False)
        assert after[EXPLOIT] > 1.5 * before[EXPLOIT]
