"""Products whose operands are bfloat16 under float32 activations."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from genenv_jax.models.matmul import matmul
from genenv_jax.models.scoring import score_completions
from genenv_jax.sampling.draw import SamplingParams
from genenv_jax.sampling.engine import Engine
from tests.sampling.small_model import CONFIG, make_params

MIXED = dataclasses.replace(CONFIG, matmul_dtype="bfloat16")


def rounded(x):
    return np.asarray(x).astype(ml_dtypes.bfloat16).astype(np.float64)


@pytest.mark.parametrize("rows", [1, 7, 64])
@pytest.mark.parametrize(("dtype", "rounding"), [("float32", 0), ("bfloat16", 2**-8)])
def test_operands_are_rounded_and_sums_are_not(rows, dtype, rounding):
    """rounding: of results, relative."""
    rng = np.random.default_rng(rows)
    x, kernel, gradient = (
        rng.normal(size=shape).astype(np.float32) for shape in ((rows, 96), (96, 80), (rows, 80))
    )
    product, back = jax.vjp(matmul, jnp.asarray(x, dtype), jnp.asarray(kernel).astype(jnp.bfloat16))
    of_x, of_kernel = back(jnp.asarray(gradient, dtype))
    assert (product.dtype, of_x.dtype, of_kernel.dtype) == (dtype, dtype, jnp.bfloat16)
    product, of_x, of_kernel = (np.asarray(x.astype(jnp.float32)) for x in (product, of_x, of_kernel))
    np.testing.assert_allclose(product, rounded(x) @ rounded(kernel), rtol=rounding, atol=2e-5)
    np.testing.assert_allclose(of_x, rounded(gradient) @ rounded(kernel).T, rtol=rounding, atol=2e-5)
    np.testing.assert_allclose(of_kernel, rounded(x).T @ rounded(gradient), rtol=2**-8, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_narrow_products_on_cpus_have_wide_results(dtype):
    """XLA's CPU backend is several times slower if the result is narrow too."""

    def both(x, kernel):
        return jax.vjp(matmul, x, kernel)[1](jnp.zeros((8, 4), dtype))

    text = jax.jit(both).lower(jnp.zeros((8, 16), dtype), jnp.zeros((16, 4), jnp.bfloat16)).as_text()
    products = re.findall(r"dot_general.*: (.*)", text)
    assert len(products) >= 2
    for product in products:
        assert re.sub(r"\d+x", "", product) == "(tensor<bf16>, tensor<bf16>) -> tensor<f32>"


def test_operands_of_one_type_are_multiplied_as_they_are():
    rng = np.random.default_rng(0)
    x, kernel = (jnp.asarray(rng.normal(size=(8, 8)), jnp.float32) for _ in range(2))
    assert np.array_equal(matmul(x, kernel), x @ kernel)


def test_the_sampler_and_the_trainer_round_alike():
    """And unlike float32: the option reaches both."""
    params = make_params()
    prompts = [[3, 5, 7], [2, 9]]
    rollouts = Engine(MIXED, SamplingParams(6, 4, ()), 2, (4,))(params, prompts, jax.random.key(0))
    batch = rollouts.batch((4,), 2)
    mask = np.asarray(batch.mask) > 0
    own, exact = (np.asarray(score_completions(params, batch, c))[mask] for c in (MIXED, CONFIG))
    assert np.abs(np.asarray(rollouts.logprobs)[mask] - own).max() < 2e-3
    assert 1e-5 < np.abs(exact - own).max() < 5e-2


def test_narrow_operands_need_wide_activations():
    with pytest.raises(ValueError, match="matmul_dtype = 'bfloat16' with dtype = 'float16'"):
        dataclasses.replace(CONFIG, dtype="float16", matmul_dtype="bfloat16")
