"""Every loss, its metrics and its gradient against float64 and finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from genenv_jax.rl import losses
from genenv_jax.rl.losses import LOSSES, Inputs, LossConfig, kl_estimate, policy_loss

B, G, C, LONGEST = 4, 3, 7, 9


def inputs(seed=0):
    """Float64 inputs; one completion and one group are empty."""
    rng = np.random.default_rng(seed)
    shape = (B, G, C)
    logp = -rng.exponential(1.0, shape) - 0.05
    old = logp + rng.choice([0.0, 0.1, 0.6, 1.5, 2.5], shape) * rng.choice([-1, 1], shape)
    ref = logp + rng.normal(0.0, 0.7, shape)
    ref[0, 0, 1], ref[0, 1, 0] = logp[0, 0, 1] - 30, logp[0, 1, 0] + 25  # beyond the bound
    advantages = rng.normal(0.0, 1.0, (B, G))
    advantages[1, 1] = 0.0
    lengths = rng.integers(3, C + 1, (B, G))
    lengths[1, 2] = lengths[3] = 0
    mask = (np.arange(C) < lengths[..., None]).astype(float)
    return Inputs(logp, rng.uniform(0, 3, shape) * mask, old, ref, advantages, mask)


def per_token(name, x, held):
    """(-surrogate, clipped, KL) of each token in float64; no gradient flows through `held` log-probs."""
    a, length = x.advantages[..., None], np.maximum(x.mask.sum(-1, keepdims=True), 1)
    ratio, low, high = np.exp(x.logp - x.old), 0.8, 1.2
    if name == "gspo":
        ratio = np.exp(((x.logp - x.old) * x.mask).sum(-1, keepdims=True) / length)
        ratio, low, high = np.broadcast_to(ratio, x.logp.shape), 1 - 3e-4, 1 + 4e-4
    upper = np.where(a > 0, high, np.inf)
    if name == "grpo":
        upper = np.where(a < 0, 3.0, upper)
    used = np.clip(ratio, np.where(a < 0, low, 0.0), upper)
    surrogate, clipped = used * a, (used != ratio) & (a != 0)
    if name == "cispo":
        weight = np.exp(held - x.old)
        surrogate, clipped = np.minimum(weight, 5) * a * x.logp, weight > 5
    d = np.clip(x.ref - x.logp, -10, 10)
    return -surrogate, clipped, np.exp(d) - 1 - d


def reference(name, x, kl_coef, entropy_coef, held=None):
    """The loss of each completion (b, g), the metrics, and the weight of each token."""
    loss, clipped, kl = per_token(name, x, x.logp if held is None else held)
    counts = dict.fromkeys(("grpo", "cispo"), x.mask.sum()) | {"dr_grpo": B * G * LONGEST}
    counts["gspo"] = np.maximum(x.mask.sum(-1, keepdims=True), 1) * x.mask.any(-1).sum()
    weight = x.mask / counts[name]
    total = (loss + kl_coef * kl - entropy_coef * x.entropy) * weight
    values = {"entropy": x.entropy, "clip_share": clipped, "kl": kl}
    values["sampler_trainer_logp_gap"] = abs(x.logp - x.old)
    metrics = {k: (v * x.mask).sum() / x.mask.sum() for k, v in values.items()}
    metrics |= {"loss": total.sum(), "policy_loss": (loss * weight).sum()}
    return total.sum(-1), metrics, weight


def computed(x, config, fresh=None, of=None):
    """Loss, metrics and gradients by log-probs and entropies; `of` is the mask of the whole mini-batch."""
    x = Inputs(*(jnp.asarray(part, jnp.float32) for part in x))
    c = losses.constants(x.mask if of is None else jnp.asarray(of, jnp.float32), LONGEST, config)
    run = jax.value_and_grad(
        lambda logp, entropy: policy_loss(x._replace(logp=logp, entropy=entropy), c, fresh),
        argnums=(0, 1),
        has_aux=True,
    )
    (loss, metrics), gradients = run(x.logp, x.entropy)
    return loss, metrics, gradients


@pytest.mark.parametrize("name", LOSSES)
def test_loss_metrics_and_gradient(name):
    x, coefficients = inputs(), (0.3, 0.05)
    loss, metrics, (gradient, by_entropy) = computed(x, LossConfig(name, *coefficients))
    of_each, want, weight = reference(name, x, *coefficients)
    assert 0 < want["clip_share"] < 1
    np.testing.assert_allclose(loss, of_each.sum(), rtol=2e-6)
    assert metrics.keys() == want.keys()
    for key, value in want.items():
        np.testing.assert_allclose(metrics[key], value, rtol=2e-6, err_msg=key)
    slopes, step = np.zeros_like(x.logp), 1e-6
    for i, j, t in np.argwhere(x.mask):
        sides = []
        for moved in (step, -step):
            logp = x.logp.copy()
            logp[i, j, t] += moved
            sides.append(reference(name, x._replace(logp=logp), *coefficients, held=x.logp)[0][i, j])
        slopes[i, j, t] = (sides[0] - sides[1]) / (2 * step)
    np.testing.assert_allclose(gradient, slopes, rtol=2e-5, atol=2e-7)
    np.testing.assert_allclose(by_entropy, -0.05 * weight, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "ratio", "advantage", "want", "clipped"),
    [
        ("grpo", 1.1, 1.0, -1.1, 0),
        ("grpo", 1.5, 1.0, -1.2, 1),
        ("grpo", 0.5, 1.0, -0.5, 0),  # a loss of probability is not clipped
        ("grpo", 1.5, -1.0, 1.5, 0),
        ("grpo", 0.5, -1.0, 0.8, 1),
        ("grpo", 9.0, -1.0, 3.0, 1),  # dual clip
        ("grpo", 9.0, 1.0, -1.2, 1),  # never where the advantage is positive
        ("dr_grpo", 9.0, -1.0, 9.0 / LONGEST, 0),
        ("dr_grpo", 1.5, 1.0, -1.2 / LONGEST, 1),
        ("gspo", 1.001, 1.0, -1.0004, 1),
        ("gspo", 1.001, -1.0, 1.001, 0),
        ("gspo", 0.999, -1.0, 0.9997, 1),
        ("cispo", 2.0, 1.0, -2 * np.log(2.0), 0),
        ("cispo", 9.0, -1.0, 5 * np.log(9.0), 1),
    ],
)
def test_worked_numbers(name, ratio, advantage, want, clipped):
    one = np.ones((1, 1, 1))
    x = Inputs(np.log(ratio) * one, 0 * one, 0 * one, 0 * one, advantage * one[..., 0], one)
    loss, metrics, _ = computed(x, LossConfig(name, kl_coef=0.0, entropy_coef=0.0))
    assert float(loss) == pytest.approx(want, rel=1e-6)
    assert float(metrics["clip_share"]) == clipped


@pytest.mark.parametrize("name", LOSSES)
def test_a_ratio_beyond_all_bounds(name):
    x = inputs()
    x.old[0, 0, 0], x.old[0, 1, 1] = x.logp[0, 0, 0] + 90, x.logp[0, 1, 1] - 90
    loss, metrics, gradients = computed(x, LossConfig(name))
    assert np.isfinite([loss, *metrics.values()]).all()
    assert all(np.isfinite(part).all() for part in gradients)


def test_without_a_penalty_there_is_no_divergence_to_tell_of():
    """Then the reference's log-probs may be anything."""
    x = inputs()
    loss, metrics, gradients = computed(x._replace(ref=np.full_like(x.ref, np.nan)), LossConfig(kl_coef=0.0))
    want, wanted, slopes = computed(x, LossConfig(kl_coef=1e-30))
    assert "kl" not in metrics and wanted.keys() == metrics.keys() | {"kl"}
    for got, right in zip((loss, *gradients), (want, *slopes), strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-6, atol=1e-29)


@pytest.mark.parametrize("name", LOSSES)
def test_micro_batches_add_up(name):
    """With the constants of the whole; a mini-batch without tokens is no error."""
    x, config = inputs(2), LossConfig(name, kl_coef=0.3)
    loss, metrics, (gradient, _) = computed(x, config)
    parts = [computed(Inputs(*(part[i : i + 1] for part in x)), config, of=x.mask) for i in range(B)]
    np.testing.assert_allclose(sum(part[0] for part in parts), loss, rtol=1e-5)
    for key in metrics:
        np.testing.assert_allclose(sum(p[1][key] for p in parts), metrics[key], rtol=1e-5)
    np.testing.assert_allclose(np.concatenate([part[2][0] for part in parts]), gradient, rtol=1e-5, atol=1e-8)
    loss, metrics, gradients = computed(Inputs(*(part[3:] for part in x)), config)
    assert not any(np.any(value) for value in (loss, *metrics.values(), *gradients))


def test_where_the_policy_is_the_one_that_sampled_the_ratio_is_one():
    """Whatever the rounding between sampler and trainer, which the gap then measures."""
    x, config = inputs(), LossConfig(kl_coef=0.3)
    fresh = np.ones((B, G))
    fresh[1] = 0.0
    loss, metrics, (gradient, _) = computed(x, config, jnp.asarray(fresh))
    taken = x._replace(old=np.where(fresh[..., None] > 0, x.logp, x.old))
    want, wanted, (slopes, _) = computed(taken, config)
    np.testing.assert_allclose(gradient, slopes, rtol=1e-6, atol=1e-8)
    gap = np.abs(x.logp - x.old) * x.mask
    measured = {"": gap.sum() / x.mask.sum(), "_max": gap.max()}
    wanted |= {f"sampler_trainer_logp_gap{end}": value for end, value in measured.items()}
    assert metrics.keys() == wanted.keys() and float(loss) == pytest.approx(float(want), rel=1e-6)
    for key, value in wanted.items():
        np.testing.assert_allclose(metrics[key], value, rtol=2e-6, err_msg=key)


def expected_gradient(logits, ref):
    """The estimate's gradient by the logits, in expectation over the policy's own tokens."""

    def mean(logits):
        logp = jax.nn.log_softmax(logits)
        return jnp.sum(jax.lax.stop_gradient(jnp.exp(logp)) * kl_estimate(logp, ref))

    return jax.grad(mean)(logits)


def test_the_estimator_and_its_gradient_in_expectation():
    """Its mean is KL(p || q), its gradient that of KL(q || p)."""
    rng = np.random.default_rng(0)
    logits, ref = rng.normal(0, 1.5, 20), jax.nn.log_softmax(jnp.asarray(rng.normal(0, 1.5, 20)))
    p, q = np.asarray(jax.nn.softmax(logits), float), np.exp(np.asarray(ref, float))
    divergence = (p * np.log(p / q)).sum()
    backward = p * (np.log(p / q) - divergence)  # d KL(p || q) / d logits
    forward = p - q  # d KL(q || p) / d logits
    estimate = np.asarray(kl_estimate(jnp.log(p), ref), float)
    assert (p * estimate).sum() == pytest.approx(divergence, rel=1e-4) and (estimate >= 0).all()
    np.testing.assert_allclose(expected_gradient(logits, ref), forward, atol=1e-6)
    assert np.abs(forward - backward).max() > 0.01


def test_an_unlikely_token_does_not_drown_a_batch():
    far = jnp.float32(-19.0)
    value, slope = jax.value_and_grad(kl_estimate)(far, 0 * far)
    assert float(value) == pytest.approx(np.expm1(10.0) - 10) and float(slope) == 0
    near = jnp.float32(1e-4)  # where exp(d) - 1 - d would lose all its digits
    assert float(kl_estimate(0 * near, near)) == pytest.approx(5e-9, rel=0.02)
