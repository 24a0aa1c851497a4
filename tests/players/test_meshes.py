"""One update, whatever the mesh: full and LoRA, GRPO and RWR."""

import dataclasses
import functools
import itertools

import jax
import numpy as np
import pytest

from genenv_jax.models.lora import LoraConfig, join, split
from genenv_jax.models.scoring import score_completions
from genenv_jax.parallel import rules
from genenv_jax.parallel.mesh import make_mesh
from genenv_jax.players import learner
from genenv_jax.players.optimizer import make_optimizer
from genenv_jax.rl.losses import LossConfig
from genenv_jax.run.timing import Compilations
from tests.sampling import small_model

CONFIG = small_model.CONFIG
# With fewer key/value heads than devices on "tensor".
SHAPE = dataclasses.replace(CONFIG, num_kv_heads=1, vocab_size=128, remat="full")
B, G, P, C = 16, 2, 4, 3


@functools.cache
def make_case(trained, method):
    """(configuration, frozen, trained, batch, log-probs, method), all on the host."""
    config = SHAPE
    params, frozen = jax.device_get(small_model.make_params(config, 1, 0.3)), {}
    if trained == "lora":
        config = dataclasses.replace(config, lora=LoraConfig(2, 4.0))
        frozen = params
        adapters = split(rules.param_shapes(config))[1]
        rng = np.random.default_rng(2)
        params = jax.tree.map(lambda x: rng.normal(0, 0.2, x.shape).astype("f4"), adapters)
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, P + 1, B), rng.integers(0, C + 1, (B, G))
    batch = small_model.make_batch(*lengths, config.vocab_size)
    logp = np.asarray(score_completions(join(frozen, params), batch, config))
    return config, frozen, params, batch, logp, method


def make_step(config, batch, logp, method):
    """(jitted step, its batch, optimiser) with two micro-batches."""
    rng = np.random.default_rng(3)
    noise = (rng.normal(0, 0.2, logp.shape) * np.asarray(batch.mask)).astype("f4")
    optimizer = make_optimizer(1e-2)
    if method == "grpo":
        loss = LossConfig(kl_coef=0.1, entropy_coef=0.01)
        advantages = rng.normal(size=(B, G)).astype("f4")
        step = learner.make_grpo_step(config, loss, optimizer, 2)
        return step, learner.GRPOBatch(batch, logp + noise, logp - noise, advantages), optimizer
    weights = rng.uniform(0, 1, (B, G)).astype("f4")
    step = learner.make_rwr_step(config, optimizer, 0.1, 0.05, 2)
    return step, learner.RWRBatch(batch, logp, logp + noise, weights, weights), optimizer


def updated(case, sizes):
    """Metrics and parameters after one step on a mesh, as host arrays."""
    config, frozen, params, batch, logp, method = case
    mesh = make_mesh(*sizes, devices=jax.devices()[: int(np.prod(sizes))])
    shardings = rules.param_shardings(config, mesh)
    base, adapters = split(shardings)
    compilations = Compilations()
    with rules.activate(mesh, config):
        frozen = jax.device_put(frozen, base) if frozen else {}
        step, step_batch, optimizer = make_step(config, batch, logp, method)
        there = jax.device_put(params, adapters if frozen else shardings)
        state = learner.init_state(there, optimizer, copy=False)
        placed = jax.device_put(step_batch, rules.batch_sharding(mesh))
        state, metrics = step(state, frozen, placed)
        result = jax.device_get((metrics, state.params))
        assert sum(compilations.lap()) > 0
        step(state, frozen, placed)
        assert compilations.lap() == (0, 0)  # the state keeps its shardings
    compilations.close()
    return result


@functools.cache
def alone(trained, method):
    """Metrics and parameters after one step on one device; the step moves every leaf."""
    case = make_case(trained, method)
    metrics, params = updated(case, (1, 1, 1))
    assert all(np.isfinite(x) for x in metrics.values())
    both = zip(*map(jax.tree.leaves, (params, case[2])), strict=True)
    assert min(np.abs(a - b).max() for a, b in both) > 1e-4
    return metrics, params


@pytest.mark.parametrize(
    ("trained", "method", "sizes"),
    [("full", "grpo", (2, 2, 2))]
    + [
        pytest.param(*case, marks=pytest.mark.slow)
        for case in itertools.product(("full", "lora"), ("grpo", "rwr"), ((2, 2, 2), (8, 1, 1), (1, 8, 1)))
        if case != ("full", "grpo", (2, 2, 2))
    ],
)
def test_loss_and_update_do_not_depend_on_the_mesh(trained, method, sizes):
    case = make_case(trained, method)
    (metrics, params), (want_metrics, want) = updated(case, sizes), alone(trained, method)
    for name, value in want_metrics.items():
        np.testing.assert_allclose(metrics[name], value, atol=1e-5, rtol=1e-5, err_msg=name)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5, rtol=0), params, want)
