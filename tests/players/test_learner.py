"""The jitted training steps: gradients, accumulation, the KL cap, donation and sharding."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from genenv_jax.models.scoring import score_completions
from genenv_jax.models.transformer import Transformer
from genenv_jax.players import learner
from genenv_jax.players.optimizer import OptimizerConfig, make_optimizer
from genenv_jax.rl.losses import LossConfig
from tests.sampling import small_model

CONFIG = dataclasses.replace(small_model.CONFIG, num_layers=1, window=None, unroll_layers=True)
B, G, P, C = 4, 2, 4, 3
PROMPTS = np.array([4, 1, 3, 2], np.int32)
LENGTHS = np.array([[3, 1], [2, 3], [0, 2], [1, 0]], np.int32)  # ragged, two rows empty
MASK = (np.arange(C) < LENGTHS[..., None]).astype(np.float32)
WEIGHTS = np.array([[1.5, 0.0], [0.7, 0.4], [0.9, 1.1], [0.0, 2.0]], np.float32)


@pytest.fixture(scope="module")
def params():
    return small_model.make_params(CONFIG)


@pytest.fixture(scope="module")
def batch():
    return small_model.make_batch(PROMPTS, LENGTHS)


@pytest.fixture(scope="module")
def start(params, batch):
    return np.asarray(score_completions(params, batch, CONFIG))


def noise(start, size, seed):
    return start + (np.random.default_rng(seed).normal(0, size, start.shape) * MASK).astype("f4")


@pytest.fixture(scope="module")
def grpo_batch(batch, start):
    advantages = np.random.default_rng(1).normal(size=(B, G)).astype(np.float32)
    return learner.GRPOBatch(batch, noise(start, 0.3, 2), noise(start, 0.5, 3), advantages)


@pytest.fixture(scope="module")
def rwr_batch(batch, start):
    return learner.RWRBatch(batch, start, noise(start, 0.5, 3), WEIGHTS, WEIGHTS > 0)


@jax.jit
def _plain_pass(params, tokens, targets, places, d_logp, d_entropy):
    """Log-probs and entropies of whole rows in one pass, and the gradient of their weighted sum."""

    def run(params):
        model = Transformer(CONFIG)
        positions = jnp.broadcast_to(jnp.arange(tokens.shape[-1]), tokens.shape)
        hidden, _ = model.apply({"params": params}, tokens[:, None], positions[:, None])
        logits = model.apply({"params": params}, hidden[:, 0], method="logits")
        at = jnp.take_along_axis(jax.nn.log_softmax(logits), places[..., None], axis=1)
        logp = jnp.take_along_axis(at, targets[..., None], axis=-1)[..., 0]
        return logp, -jnp.sum(jnp.exp(at) * at, axis=-1)

    (logp, entropy), back = jax.vjp(run, params)
    return logp, entropy, back((d_logp, d_entropy))[0]


def plain_pass(params, batch, d_logp=None, d_entropy=None):
    """Log-probs and entropies (B, G, C), and the gradient of a loss with these derivatives."""
    tokens = np.zeros((B * G, P + C), np.int32)
    for n, (i, j) in enumerate(np.ndindex(B, G)):
        tokens[n, : PROMPTS[i]] = batch.prompts[i, : PROMPTS[i]]
        tokens[n, PROMPTS[i] : PROMPTS[i] + C] = batch.completions[i, j]
    places = np.repeat(PROMPTS, G)[:, None] - 1 + np.arange(C)
    slopes = [
        np.zeros((B * G, C), np.float32) if x is None else (x * MASK).astype("f4").reshape(-1, C)
        for x in (d_logp, d_entropy)
    ]
    logp, entropy, gradient = _plain_pass(params, tokens, batch.completions.reshape(-1, C), places, *slopes)
    return *(np.asarray(x, float).reshape(B, G, C) for x in (logp, entropy)), gradient


def close(got, want, atol=2e-5):
    def check(path, a, b):
        np.testing.assert_allclose(a, b, atol=atol, err_msg=jax.tree_util.keystr(path))

    jax.tree_util.tree_map_with_path(check, got, want)
    assert max(float(np.abs(x).max()) for x in jax.tree.leaves(want)) > 100 * atol


def gradient_of(state):
    """The gradient of a first step: Adam's first moment is a tenth of it."""
    return jax.tree.map(lambda x: 10.0 * x, optax.tree_utils.tree_get(state.opt_state, "mu"))


LOSS = LossConfig(kl_coef=0.3, entropy_coef=0.2)


@pytest.fixture(scope="module")
def grpo_steps():
    """The same step over the mini-batch as a whole, and over two parts of it."""
    optimizer = make_optimizer(1e-2, grad_clip=0)
    return optimizer, *(learner.make_grpo_step(CONFIG, LOSS, optimizer, n) for n in (1, 2))


def test_grpo_gradient(params, start, grpo_batch, grpo_steps):
    """Of the whole mini-batch, however it is divided, against derivatives by hand."""
    logp, entropy, _ = plain_pass(params, grpo_batch.rollouts)
    np.testing.assert_allclose(logp * MASK, start, atol=1e-5)
    ratio = np.exp(logp - grpo_batch.old_logp)
    advantage = grpo_batch.advantages[..., None]
    inside = ratio * advantage <= np.clip(ratio, 0.8, 1.2) * advantage
    assert 0 < (inside * MASK).sum() < MASK.sum()
    surrogate = np.minimum(ratio * advantage, np.clip(ratio, 0.8, 1.2) * advantage)
    d = grpo_batch.ref_logp - logp
    loss = ((-surrogate + 0.3 * (np.exp(d) - 1 - d) - 0.2 * entropy) * MASK).sum() / MASK.sum()
    slope = -(inside * ratio * advantage) + 0.3 * (1 - np.exp(d))
    slopes = slope / MASK.sum(), np.full(MASK.shape, -0.2 / MASK.sum())
    want = plain_pass(params, grpo_batch.rollouts, *slopes)[2]
    optimizer, *steps = grpo_steps
    for step in steps:
        state, metrics = step(learner.init_state(params, optimizer), {}, grpo_batch)
        close(gradient_of(state), want)
        assert float(metrics["loss"]) == pytest.approx(loss, abs=1e-5)
        norm = np.sqrt(sum(np.square(x).sum() for x in jax.tree.leaves(want)))
        assert float(metrics["grad_norm"]) == pytest.approx(float(norm), rel=1e-4)


def test_supervised_gradient(params, batch, start):
    """Two parts of unequal length give the token mean over both."""
    optimizer = make_optimizer(1e-2, grad_clip=0)
    step = learner.make_supervised_step(CONFIG, optimizer, 2)
    state, metrics = step(learner.init_state(params, optimizer), {}, batch)
    close(gradient_of(state), plain_pass(params, batch, np.full(MASK.shape, -1 / MASK.sum()))[2])
    assert float(metrics["loss"]) == pytest.approx(-start.sum() / MASK.sum(), abs=1e-5)
    assert MASK[:2].sum() != MASK[2:].sum()


@pytest.mark.parametrize("count", [1, 4, 5, 7, 8, 9])
def test_mini_batches_are_as_few_and_as_even_as_possible(count):
    parts = learner.minibatches(np.arange(count), 4)
    assert np.concatenate(parts).tolist() == list(range(count)) and len(parts) == -(-count // 4)
    sizes = [len(part) for part in parts]
    assert max(sizes) <= 4 and max(sizes) - min(sizes) <= 1


def test_half_the_groups_move_the_parameters_half_as_far(params, batch, start, grpo_steps):
    """Also with Adam, whose first step depends only on the gradient's sign."""
    advantages = np.linspace(-1, 1, MASK[..., 0].size).reshape(MASK.shape[:2]).astype("f4")
    whole = learner.GRPOBatch(batch, start, start, advantages)
    lengths = batch.completion_lengths.copy()
    lengths[2:] = 0
    half = whole._replace(rollouts=batch._replace(completion_lengths=lengths))
    taken = jax.tree.map(lambda x: x[:2], half)
    optimizer, step, _ = grpo_steps
    alone, padded = (
        step(learner.init_state(params, optimizer), {}, part)[0].params for part in (taken, half)
    )
    close(padded, jax.tree.map(lambda start, new: start + 0.5 * (new - start), params, alone), atol=1e-6)


CAP = 0.1


@pytest.fixture(scope="module")
def rwr_steps():
    """Steps with far too high a learning rate: one capped; one uncapped, in two parts."""
    optimizer = make_optimizer(0.02, grad_clip=0)
    return (
        optimizer,
        learner.make_rwr_step(CONFIG, optimizer, 0.3, CAP),
        learner.make_rwr_step(CONFIG, optimizer, 0.3, float("inf"), 2),
    )


def test_rwr_gradient(params, rwr_batch, rwr_steps):
    logp, _, _ = plain_pass(params, rwr_batch.generations)
    d = rwr_batch.ref_logp - logp
    weight = WEIGHTS[..., None] * MASK / (WEIGHTS[..., None] * MASK).sum()
    nll, kl = (-logp * weight).sum(), ((np.exp(d) - 1 - d) * weight).sum()
    want = plain_pass(params, rwr_batch.generations, (-1 + 0.3 * (1 - np.exp(d))) * weight)[2]
    optimizer, *steps = rwr_steps
    for step in steps:
        state, metrics = step(learner.init_state(params, optimizer), {}, rwr_batch)
        assert float(metrics["step_scale"]) > 0
        close(gradient_of(state), want)
        wanted = {"loss": nll + 0.3 * kl, "nll": nll, "kl_to_initial": kl}
        assert {name: float(metrics[name]) for name in wanted} == pytest.approx(wanted, abs=1e-5)


def measured_kl(params, batch):
    """From the returned parameters, by the definition: mean of exp(d) - 1 - d, d = new - start."""
    d = np.asarray(score_completions(params, batch.generations, CONFIG), float) - batch.start_logp
    counted = (WEIGHTS > 0)[..., None] * MASK
    return float(((np.exp(d) - 1 - d) * counted).sum() / counted.sum())


def test_the_kl_cap_holds_and_the_largest_step_within_it_is_taken(params, rwr_batch, rwr_steps):
    optimizer, capped, free = rwr_steps
    state, metrics = capped(learner.init_state(params, optimizer), {}, rwr_batch)
    kl, scale = measured_kl(state.params, rwr_batch), float(metrics["step_scale"])
    assert 0 < kl <= CAP * (1 + 1e-4)
    assert float(metrics["update_kl"]) == pytest.approx(kl, rel=1e-3)
    assert scale in [2.0**-n for n in range(1, 7)]
    loose, metrics = free(learner.init_state(params, optimizer), {}, rwr_batch)
    kl = measured_kl(loose.params, rwr_batch)
    assert kl > 5 * CAP
    assert float(metrics["update_kl"]) == pytest.approx(kl, rel=1e-3)
    assert float(metrics["step_scale"]) == 1

    def shortened(s):  # the free step, shortened by hand
        return jax.tree.map(lambda a, b: a + s * (b - a), params, loose.params)

    close(state.params, shortened(scale), atol=1e-4)
    assert measured_kl(shortened(2 * scale), rwr_batch) > CAP


def test_a_later_step_is_measured_from_the_start(params, rwr_batch, rwr_steps):
    """Steps that are each within the cap add up, and the sum may not exceed it."""
    optimizer, capped, _ = rwr_steps
    state = learner.init_state(params, optimizer)
    scales = []
    for _ in range(6):
        state, metrics = capped(state, {}, rwr_batch)
        scales.append(float(metrics["step_scale"]))
        assert measured_kl(state.params, rwr_batch) <= CAP * (1 + 1e-4)
    assert scales[0] > 0 and min(scales) < scales[0]


def test_a_step_that_is_not_finite_is_not_taken(params, rwr_batch, rwr_steps):
    """Neither the parameters nor the moments are touched; only the step is counted."""
    optimizer, *steps = rwr_steps
    broken = rwr_batch._replace(ref_logp=np.full_like(rwr_batch.ref_logp, np.nan))
    for step in steps:
        state = learner.init_state(params, optimizer)
        before = jax.device_get(state)
        state, metrics = step(state, {}, broken)
        assert float(metrics["step_scale"]) == 0 and float(metrics["update_kl"]) < 1e-6
        jax.tree.map(np.testing.assert_array_equal, state.params, before.params)
        jax.tree.map(np.testing.assert_array_equal, state.opt_state, before.opt_state)
        assert int(state.step) == 1
        state, metrics = step(state, {}, rwr_batch)  # and the next one is taken as usual
        assert float(metrics["step_scale"]) > 0
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(jax.device_get(state)))


def test_the_state_is_donated_and_nothing_is_compiled_again(params, rwr_batch, rwr_steps):
    optimizer, capped, _ = rwr_steps
    state = learner.init_state(params, optimizer)
    leaves = jax.tree.leaves((state.params, state.opt_state))
    new, _ = capped(state, {}, rwr_batch)
    assert all(x.is_deleted() for x in leaves if x.ndim)
    assert not any(x.is_deleted() for x in jax.tree.leaves(params))  # the caller's stay
    size = capped._cache_size()
    for _ in range(2):
        new, _ = capped(new, {}, rwr_batch)
    assert capped._cache_size() == size == 1
    assert int(new.step) == 3


def test_grpo_steps_improve_the_objective(params, batch, start, grpo_steps):
    """With the optimiser of a run: rewarded completions become likelier, others less likely."""
    optimizer, step, _ = grpo_steps
    advantages = np.array([[1.0, -1.0]] * B, np.float32)
    state = learner.init_state(params, optimizer)
    old = jax.tree.leaves(state.params)
    state, metrics = step(state, {}, learner.GRPOBatch(batch, start, start, advantages))
    assert all(x.is_deleted() for x in old)
    assert float(metrics["sampler_trainer_logp_gap"]) < 1e-6 and float(metrics["kl"]) < 1e-6
    assert float(metrics["clip_share"]) == 0
    compiled = step._cache_size()  # by other tests, too
    for _ in range(2):
        state, metrics = step(state, {}, learner.GRPOBatch(batch, start, start, advantages))
    assert step._cache_size() == compiled and int(state.step) == 3
    change = np.asarray(score_completions(state.params, batch, CONFIG)) - start
    assert change[:, 0].sum() > 0.1 > -0.1 > change[:, 1].sum()


def test_a_fresh_batch_is_taken_to_the_steps_own_log_probs(params, batch, start, grpo_batch):
    """In bfloat16: the step uses the trainer's log-probs as the old ones, and reports the gap."""
    config = dataclasses.replace(CONFIG, dtype="bfloat16")
    loss = LossConfig(kl_coef=0.0, entropy_coef=0.0)
    optimizer = make_optimizer(1e-2, grad_clip=0)
    step = learner.make_grpo_step(config, loss, optimizer, 2)
    fresh = grpo_batch._replace(on_policy=np.ones((B, G), np.float32))
    state, metrics = step(learner.init_state(params, optimizer), {}, fresh)
    assert float(metrics["clip_share"]) == 0
    trainer = np.asarray(score_completions(params, batch, config))
    assert 1e-4 < np.abs(trainer - start).max() < 0.1  # bfloat16's rounding
    gap = np.abs(trainer - grpo_batch.old_logp) * MASK
    names = "sampler_trainer_logp_gap", "sampler_trainer_logp_gap_max"
    want = gap.sum() / MASK.sum(), gap.max()
    np.testing.assert_allclose([metrics[name] for name in names], want, atol=1e-2)
    # The gradient is that of -mean(A log π), which a plain pass also gives.
    _, _, gradient = plain_pass(params, batch, -grpo_batch.advantages[..., None] * MASK / MASK.sum())
    got, want = (
        np.concatenate([np.ravel(x) for x in jax.tree.leaves(jax.device_get(tree))])
        for tree in (gradient_of(state), gradient)
    )
    assert np.linalg.norm(got - want) < 0.05 * np.linalg.norm(want)


@pytest.mark.parametrize(("grad_clip", "norm"), [(1.0, 1.0), (0, 50.0)])
def test_optimizer(grad_clip, norm):
    """AdamW by hand: the first step is -lr * (sign of the clipped gradient + decay * parameter)."""
    params = {"w": jnp.array([2.0, -4.0]), "b": jnp.array([1.0])}
    gradient = {"w": jnp.array([30.0, 0.0]), "b": jnp.array([-40.0])}
    optimizer = make_optimizer(0.1, OptimizerConfig(weight_decay=0.5), grad_clip=grad_clip)
    state = learner.init_state(params, optimizer)
    updates, opt_state = jax.jit(optimizer.update)(gradient, state.opt_state, params)
    np.testing.assert_allclose(updates["w"], [-0.1 - 0.1, 0.2], atol=1e-5)
    np.testing.assert_allclose(updates["b"], [0.1 - 0.05], atol=1e-5)
    mu = optax.tree_utils.tree_get(opt_state, "mu")
    np.testing.assert_allclose(mu["w"], [0.06 * norm, 0.0], atol=1e-6)  # 0.1 * 30 / 50
    np.testing.assert_allclose(mu["b"], [-0.08 * norm], atol=1e-6)


NINTHS, QUARTERS = ([(1 + np.cos(np.pi * n / of)) / 2 for n in range(1, of)] for of in (9, 4))


@pytest.mark.parametrize(
    ("settings", "rates"),
    [
        ((4, 12), [0.25, 0.5, 0.75, 1.0, *NINTHS, 0.0, 0.0]),
        ((0, 4), [1.0, *QUARTERS, 0.0, 0.0]),
        ((1, 4), [1.0, *QUARTERS, 0.0, 0.0]),
        ((4, 4), [0.25, 0.5, 0.75, 1.0, 0.0]),
        ((4, 0), [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]),
    ],
)
@pytest.mark.parametrize("moments", ["float32", "bfloat16"])
def test_schedule(settings, rates, moments):
    """Under a constant gradient AdamW's step is the learning rate."""
    optimizer = make_optimizer(1.0, OptimizerConfig(*settings, weight_decay=0.0), moments)
    params = {"w": jnp.zeros(1000)}
    state, update, got = optimizer.init(params), jax.jit(optimizer.update), []
    for _ in rates:
        updates, state = update({"w": np.ones(1000, np.float32)}, state, params)
        got.append(-float(updates["w"].mean()))
    np.testing.assert_allclose(got, rates, atol=1e-4 if moments == "float32" else 2e-3)
