"""The GRPO loss, its metrics and its gradients against loops in float64."""

import collections
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from genenv_jax.rl import grpo, kl

B, G, C = 4, 3, 7
OPTIONS = [
    {
        "aggregation": aggregation,
        "kl_estimator": estimator,
        "dual_clip": dual_clip,
        "clip_low": low,
        "clip_high": high,
        "kl_coef": 0.3,
        "entropy_coef": 0.05,
    }
    for aggregation, estimator, dual_clip, (low, high) in itertools.product(
        ["token-mean", "sequence-mean"],
        ["k1", "k2", "k3"],
        [0.0, 3.0],
        [(0.2, 0.2), (0.1, 0.3)],
    )
]


def inputs(seed=0):
    """logp, entropy, old_logp, ref_logp, advantages, mask; one row is empty, one group is."""
    rng = np.random.default_rng(seed)
    shape = (B, G, C)
    logp = -rng.exponential(1.0, shape) - 0.05
    old = logp + rng.choice([0.0, 0.1, 0.6, 1.5], shape) * rng.choice([-1, 1], shape)
    ref = logp + rng.normal(0.0, 0.7, shape)
    old[0, 0, 0], old[0, 1, 1] = logp[0, 0, 0] + 30, logp[0, 1, 1] - 30  # beyond the guards
    ref[0, 0, 1], ref[0, 1, 0] = logp[0, 0, 1] - 30, logp[0, 1, 0] - 25
    advantages = rng.normal(0.0, 1.0, (B, G))
    advantages[1, 1] = 0.0
    lengths = rng.integers(3, C + 1, (B, G))
    lengths[1, 2] = 0
    lengths[3] = 0
    mask = (np.arange(C) < lengths[..., None]).astype(float)
    return logp, rng.uniform(0, 3, shape) * mask, old, ref, advantages, mask


def reference(logp, entropy, old, ref, advantages, mask, total, o):
    """Loss, metrics and d loss / d (logp, entropy), token by token; and which branches were met."""
    sums, branches = collections.Counter(), collections.Counter()
    d_logp, d_entropy = np.zeros_like(logp), np.zeros_like(logp)
    for i, j, t in np.ndindex(*logp.shape):
        if not mask[i, j, t]:
            continue
        length = mask[i, j].sum() if o["aggregation"] == "sequence-mean" else 1.0
        share = 1.0 / (total * length)
        a, x = advantages[i, j], logp[i, j, t]
        gap = x - old[i, j, t]
        guarded = abs(gap) > 20
        ratio = math.exp(min(max(gap, -20.0), 20.0))
        low, high = 1 - o["clip_low"], 1 + o["clip_high"]
        bound = min(max(ratio, low), high)
        if ratio * a <= bound * a:
            surrogate, slope = ratio * a, 0.0 if guarded else ratio * a
            branches["ratio"] += 1
        else:
            surrogate, slope = bound * a, 0.0
            branches["clipped"] += 1
        if o["dual_clip"] and a < 0 and surrogate < o["dual_clip"] * a:
            surrogate, slope = o["dual_clip"] * a, 0.0
            branches["dual"] += 1
        d = ref[i, j, t] - x
        d_clipped = min(max(d, -20.0), 20.0)
        estimate, kl_slope = {
            "k1": (-d_clipped, 1.0),
            "k2": (d_clipped**2 / 2, -d_clipped),
            "k3": (math.exp(d_clipped) - 1 - d_clipped, 1 - math.exp(d_clipped)),
        }[o["kl_estimator"]]
        if abs(d) > 20:
            kl_slope = 0.0
            branches["kl guard"] += 1
        sums["policy_loss"] -= share * surrogate
        sums["kl"] += share * estimate
        sums["entropy"] += share * entropy[i, j, t]
        sums["clip_share"] += share * (bound * a < ratio * a)
        sums["sampler_trainer_logp_gap"] += share * abs(gap)
        d_logp[i, j, t] = share * (-slope + o["kl_coef"] * kl_slope)
        d_entropy[i, j, t] = -share * o["entropy_coef"]
    loss = sums["policy_loss"] + o["kl_coef"] * sums["kl"] - o["entropy_coef"] * sums["entropy"]
    return loss, dict(sums) | {"loss": loss}, d_logp, d_entropy, branches


def count(mask, aggregation):
    return mask.sum() if aggregation == "token-mean" else (mask.sum(axis=-1) > 0).sum()


def as_float32(arrays):
    return [jnp.asarray(x, jnp.float32) for x in arrays]


def loss_and_gradients(arrays, total, options):
    config = grpo.GRPOConfig(**options)
    logp, entropy, *rest = as_float32(arrays)
    run = jax.value_and_grad(
        lambda a, b: grpo.grpo_loss(a, b, *rest, total, config), argnums=(0, 1), has_aux=True
    )
    (loss, metrics), gradients = run(logp, entropy)
    return loss, metrics, gradients


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "-".join(map(str, o.values())))
def test_loss_metrics_and_gradients(options):
    arrays = inputs()
    mask, aggregation = arrays[-1], options["aggregation"]
    total = grpo.denominator(jnp.asarray(mask, jnp.float32), aggregation)
    assert float(total) == count(mask, aggregation)
    loss, metrics, (d_logp, d_entropy) = loss_and_gradients(arrays, total, options)
    want, want_metrics, want_logp, want_entropy, branches = reference(
        *arrays, count(mask, aggregation), options
    )
    assert branches["ratio"] > 5 and branches["clipped"] > 5 and branches["kl guard"] == 2
    assert branches["dual"] > 0 or not options["dual_clip"]
    assert metrics.keys() == want_metrics.keys()
    # A ratio of e²⁰ enters the loss; beside it the others would drown, hence also the rows below.
    np.testing.assert_allclose(loss, want, rtol=2e-6)
    for name, value in want_metrics.items():
        np.testing.assert_allclose(metrics[name], value, rtol=2e-6, err_msg=name)
    np.testing.assert_allclose(d_logp, want_logp, rtol=2e-5, atol=1e-7)
    np.testing.assert_allclose(d_entropy, want_entropy, rtol=1e-6)
    assert (np.asarray(d_logp)[mask == 0] == 0).all()
    tame = [x[1:] for x in arrays]
    loss, *_ = loss_and_gradients(tame, total, options)
    want, *_ = reference(*tame, count(mask, aggregation), options)
    assert abs(want) < 10
    np.testing.assert_allclose(loss, want, atol=2e-6)


@pytest.mark.parametrize(
    ("ratio", "advantage", "dual_clip", "want"),
    [
        (1.1, 1.0, 3.0, -1.1),
        (1.5, 1.0, 3.0, -1.2),  # clipped above
        (0.5, 1.0, 3.0, -0.5),  # a loss of probability is not clipped
        (1.5, -1.0, 3.0, 1.5),
        (0.5, -1.0, 3.0, 0.8),  # clipped below
        (9.0, -1.0, 3.0, 3.0),  # dual clip
        (9.0, -1.0, 0.0, 9.0),  # off
        (9.0, 1.0, 3.0, -1.2),  # never where the advantage is positive
    ],
)
def test_worked_numbers(ratio, advantage, dual_clip, want):
    one = jnp.ones((1, 1, 1))
    config = grpo.GRPOConfig(dual_clip=dual_clip, kl_coef=0.0, entropy_coef=0.0)
    loss, _ = grpo.grpo_loss(
        jnp.log(ratio) * one, 0 * one, 0 * one, 0 * one, advantage * one[..., 0], one,
        grpo.denominator(one, "token-mean"), config,
    )  # fmt: skip
    assert float(loss) == pytest.approx(want, rel=1e-6)


def test_without_a_penalty_there_is_no_divergence_to_tell_of():
    """What stands for the reference's log-probs may be anything then."""
    arrays = inputs()
    *given, _, advantages, mask = arrays[:6]
    anything = [*given, np.full_like(given[0], np.nan), advantages, mask]
    total, options = grpo.denominator(mask, "token-mean"), OPTIONS[0] | {"kl_coef": 0.0}
    loss, metrics, gradients = loss_and_gradients(anything, total, options)
    want, want_metrics, want_gradients = loss_and_gradients(
        arrays, total, options | {"kl_coef": 1e-30}
    )
    assert "kl" not in metrics and want_metrics.keys() == metrics.keys() | {"kl"}
    for got, wanted in zip((loss, *gradients), (want, *want_gradients), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-29)


def test_the_papers_defaults():
    config = grpo.GRPOConfig()
    assert (config.clip_low, config.clip_high, config.kl_coef) == (0.2, 0.2, 0.001)
    assert (config.kl_estimator, config.entropy_coef) == ("k3", 0.001)
    assert config.aggregation == "token-mean"


@pytest.mark.parametrize("aggregation", grpo.AGGREGATIONS)
def test_micro_batches_add_up(aggregation):
    """With the denominator of the whole; with denominators of their own they do not."""
    options = OPTIONS[0] | {"aggregation": aggregation}
    arrays = [x[1:] for x in inputs(2)]  # lengths differ between the parts
    mask = jnp.asarray(arrays[-1], jnp.float32)
    total = grpo.denominator(mask, aggregation)
    loss, metrics, (gradient, _) = loss_and_gradients(arrays, total, options)

    def parts(denominator):
        return [
            loss_and_gradients(
                [x[i : i + 1] for x in arrays], denominator(mask[i : i + 1]), options
            )
            for i in range(B - 1)
        ]

    split = parts(lambda _: total)
    np.testing.assert_allclose(sum(part[0] for part in split), loss, rtol=1e-5)
    for name in metrics:
        np.testing.assert_allclose(sum(p[1][name] for p in split), metrics[name], rtol=1e-5)
    joined = np.concatenate([part[2][0] for part in split])
    np.testing.assert_allclose(joined, gradient, rtol=1e-5, atol=1e-8)
    own = parts(lambda part: grpo.denominator(part, aggregation))
    wrong = np.concatenate([part[2][0] for part in own]) / (B - 1)
    assert np.abs(wrong - gradient).max() > 1e-3


def test_a_batch_without_tokens_is_no_error():
    arrays = [x[3:] for x in inputs()]
    for aggregation in grpo.AGGREGATIONS:
        total = grpo.denominator(jnp.asarray(arrays[-1], jnp.float32), aggregation)
        options = OPTIONS[0] | {"aggregation": aggregation}
        loss, metrics, gradients = loss_and_gradients(arrays, total, options)
        assert float(loss) == 0 and all(float(x) == 0 for x in metrics.values())
        assert all((np.asarray(x) == 0).all() for x in gradients)


def test_kl_estimates_are_those_of_two_distributions():
    """E_π of k1 and k3 is KL(π || π_ref); k3 is never negative, k1 is somewhere."""
    rng = np.random.default_rng(0)
    p, q = (rng.dirichlet(np.ones(20)) for _ in range(2))
    exact = (p * np.log(p / q)).sum()
    logp, ref = as_float32((np.log(p), np.log(q)))
    for name in ("k1", "k3"):
        estimate = np.asarray(kl.kl_estimate(logp, ref, name))
        assert (p * estimate).sum() == pytest.approx(exact, rel=1e-4)
        assert (estimate >= 0).all() == (name == "k3")
    near = 1e-4  # where exp(d) - 1 - d would lose all its digits
    d = jnp.float32(near)
    assert float(kl.kl_estimate(jnp.float32(0), d, "k3")) == pytest.approx(near**2 / 2, rel=0.02)


def test_unknown_names():
    one = jnp.ones((1, 1, 1))
    with pytest.raises(ValueError, match=r"kl_estimator = 'k4'.*k1.*k2.*k3"):
        kl.kl_estimate(one, one, "k4")
    with pytest.raises(ValueError, match=r"agent\.aggregation = 'mean'.*token-mean"):
        grpo.aggregate(one, one, one.sum(), "mean")


def test_where_the_policy_is_the_one_that_sampled_the_ratio_is_one():
    """Whatever rounding lies between sampler and trainer, which is what the gap then measures."""
    logp, entropy, old, ref, advantages, mask = inputs()
    fresh = np.ones((B, G))
    fresh[1] = 0.0
    options = {"clip_low": 0.1, "clip_high": 0.3, "kl_coef": 0.3, "dual_clip": 3.0}
    config, total = grpo.GRPOConfig(**options), mask.sum()
    options |= {"aggregation": "token-mean", "kl_estimator": "k3", "entropy_coef": 0.001}
    taken = np.where(fresh[..., None] > 0, logp, old)
    want, metrics, d_logp, *_ = reference(
        logp, entropy, taken, ref, advantages, mask, total, options
    )
    arrays = as_float32((logp, entropy, old, ref, advantages, mask))
    run = jax.value_and_grad(
        lambda x: grpo.grpo_loss(x, *arrays[1:], total, config, jnp.asarray(fresh)), has_aux=True
    )
    (loss, got), gradient = run(arrays[0])
    np.testing.assert_allclose(loss, want, rtol=2e-6)
    np.testing.assert_allclose(gradient, d_logp, rtol=2e-5, atol=1e-7)
    gap = np.abs(logp - old) * mask
    metrics |= {
        "sampler_trainer_logp_gap": gap.sum() / total,
        "sampler_trainer_logp_gap_max": gap.max(),
    }
    assert got.keys() == metrics.keys()
    for name, value in metrics.items():
        np.testing.assert_allclose(got[name], value, rtol=2e-6, err_msg=name)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_that_ratio_is_exactly_one(sign):
    """A clip of 0 would count the least deviation, upwards or, with the other sign, downwards."""
    logp, entropy, _, ref, advantages, mask = as_float32(inputs())
    config = grpo.GRPOConfig(clip_low=0.0, clip_high=0.0)
    old = logp + 1e-7
    for fresh, clipped in ((None, sign < 0), (jnp.ones((B, G)), False)):
        _, metrics = grpo.grpo_loss(
            logp,
            entropy,
            old,
            ref,
            sign * jnp.abs(advantages) + sign,
            mask,
            mask.sum(),
            config,
            fresh,
        )
        assert (float(metrics["clip_share"]) > 0) is clipped
