"""Moments in bfloat16: rounded so that averages stay right."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from genenv_jax.players.optimizer import (
    OptimizerConfig,
    make_muon,
    make_optimizer,
    round_stochastically,
    store_rounded,
)
from tests.sampling.small_model import CONFIG, make_params

to_bfloat16 = jax.jit(round_stochastically)


def test_rounding_takes_a_neighbour_and_is_right_in_the_mean():
    x = np.float32(1.0 + 2.0**-7 * 0.3)  # three tenths of the way between two bfloat16 values
    many = np.asarray(to_bfloat16(np.full(20_000, x), jax.random.key(0)), np.float32)
    assert set(many.tolist()) == {1.0, 1.0 + 2.0**-7}
    assert many.mean() == pytest.approx(float(x), abs=5 * 2.0**-7 * 0.46 / 20_000**0.5)
    negative = np.asarray(to_bfloat16(np.full(20_000, -x), jax.random.key(1)), np.float32)
    assert set(negative.tolist()) == {-1.0, -1.0 - 2.0**-7}


def test_what_is_exact_or_not_finite_stays():
    exact = jnp.array([0.0, -0.0, 1.5, -3.0, 2.0**-100, np.inf, -np.inf], jnp.float32)
    for seed in range(20):
        got = to_bfloat16(exact, jax.random.key(seed))
        np.testing.assert_array_equal(np.asarray(got, np.float32), np.asarray(exact))
    nan = np.array([np.nan, -np.nan, np.uint32(0x7FFFFFFF).view(np.float32)], np.float32)
    assert np.isnan(np.asarray(to_bfloat16(nan, jax.random.key(0)), np.float32)).all()


def second_moment(optimizer, steps):
    """The second moment's mean after one large gradient and `steps` zero ones."""
    params = {"w": jnp.zeros(4000)}
    update = jax.jit(optimizer.update)
    _, state = update({"w": jnp.ones(4000)}, optimizer.init(params), params)
    for _ in range(steps):
        _, state = update({"w": jnp.zeros(4000)}, state, params)
    nu = optax.tree_utils.tree_get(state, "nu")["w"]
    return nu.dtype, float(jnp.mean(nu.astype(jnp.float32)))


def test_a_stored_second_moment_decays():
    """Rounded to nearest it would stand still: a step of 0.1 % is less than half a unit."""
    dtype, rounded = second_moment(store_rounded(optax.scale_by_adam()), 300)
    assert dtype == jnp.bfloat16
    _, exact = second_moment(optax.scale_by_adam(), 300)
    assert exact == pytest.approx(0.001 * 0.999**300, rel=1e-4)
    assert rounded == pytest.approx(exact, rel=0.01)


def descend(moments, seed=0):
    """Parameters after 200 noisy steps towards 1, and the optimiser's state."""
    optimizer = make_optimizer(0.02, OptimizerConfig(weight_decay=0.0), moments)
    params = {"w": jnp.zeros((30, 40)), "b": jnp.zeros(7)}
    state = optimizer.init(params)
    rng = np.random.default_rng(seed)

    @jax.jit
    def step(params, state, noise):
        gradient = jax.tree.map(lambda p, e: p - 1.0 + e, params, noise)
        updates, state = optimizer.update(gradient, state, params)
        return optax.apply_updates(params, updates), state

    for _ in range(200):
        noise = jax.tree.map(lambda x: rng.normal(0, 0.3, x.shape).astype("f4"), params)
        params, state = step(params, state, noise)
    return params, state


def test_training_with_rounded_moments_follows_float32():
    exact, _ = descend("float32")
    rounded, state = descend("bfloat16")
    again, _ = descend("bfloat16")
    jax.tree.map(np.testing.assert_array_equal, rounded, again)  # random bits depend on the count
    moments = [x for x in jax.tree.leaves(state) if x.ndim]
    assert len(moments) == 4 and {x.dtype for x in moments} == {jnp.dtype("bfloat16")}
    for name, want in exact.items():
        assert np.abs(want - 1).mean() < 0.2  # it has learnt something
        np.testing.assert_allclose(rounded[name], want, atol=0.03)
        assert not np.array_equal(rounded[name], want)


def test_muon_takes_steps_of_one_size_in_every_direction():
    """Each kernel of a layer as a matrix: similar singular values, an RMS of 0.2 × the learning rate."""
    params = make_params()
    gradient = jax.tree.map(
        lambda x: jnp.asarray(np.random.default_rng(x.size).normal(size=x.shape), x.dtype), params
    )
    options = OptimizerConfig(weight_decay=0.0, b2=0.98)
    updates = {}
    for make in (make_muon, make_optimizer):
        optimizer = make(1e-2, options, grad_clip=0)
        updates[make], _ = jax.jit(optimizer.update)(gradient, optimizer.init(params), params)
    attention, mlp = updates[make_muon]["layers"]["attention"], updates[make_muon]["layers"]["mlp"]
    wide = CONFIG.num_heads * CONFIG.head_dim
    for kernels, shape in (
        (attention["q"]["kernel"], (CONFIG.hidden_size, wide)),
        (attention["o"]["kernel"], (wide, CONFIG.hidden_size)),
        (mlp["down"]["kernel"], (CONFIG.intermediate_size, CONFIG.hidden_size)),
    ):
        for kernel in np.asarray(kernels).reshape(-1, *shape):
            singular = np.linalg.svd(kernel, compute_uv=False)
            assert singular.max() < 4 * singular.min()  # five Newton–Schulz steps
            assert np.sqrt(np.mean(kernel**2)) == pytest.approx(0.2e-2, rel=0.25)
    for path in (("embedding",), ("layers", "mlp_norm", "scale"), ("layers", "attention", "q", "bias")):
        muon, adamw = (functools.reduce(dict.get, path, updates[make]) for make in updates)
        np.testing.assert_allclose(muon, adamw * (0.9 * 0.1 / 0.19 + 1), rtol=1e-5)  # Nesterov's momentum
