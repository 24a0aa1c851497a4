"""The GRPO loss, its metrics and its gradients against loops in float64."""

import collections
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from genenv_jax.rl import grpo, kl, replay

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
        ["token-mean", "sequence-mean", "sequence-sum"],
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


def reference(logp, entropy, old, ref, advantages, mask, total, o, weights=None):
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
        if weights is not None:
            w = weights[i, j, t]
            surrogate, slope, estimate, kl_slope = (
                w * x for x in (surrogate, slope, estimate, kl_slope)
            )
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


def loss_and_gradients(arrays, total, options, weights=None):
    config = grpo.GRPOConfig(**options)
    logp, entropy, *rest = as_float32(arrays)
    run = jax.value_and_grad(
        lambda a, b: grpo.grpo_loss(a, b, *rest, total, config, weights),
        argnums=(0, 1),
        has_aux=True,
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


def test_the_reference_gradient_is_the_slope_of_the_reference_loss():
    """Central differences in float64, away from the kinks."""
    for options in OPTIONS[::7]:
        arrays = [x[1:] for x in inputs(1)]
        *_, d_logp, d_entropy, _ = reference(*arrays, 20.0, options)
        for which, gradient in ((0, d_logp), (1, d_entropy)):
            for index in np.ndindex(*gradient.shape):
                step = np.zeros_like(gradient)
                step[index] = 1e-6
                ends = [
                    reference(
                        *[x + s * step if n == which else x for n, x in enumerate(arrays)],
                        20.0, options,
                    )[0]
                    for s in (1, -1)
                ]  # fmt: skip
                slope = (ends[0] - ends[1]) / 2e-6
                np.testing.assert_allclose(slope, gradient[index], atol=1e-7)


def stale(arrays, cap, seed=3):
    """Importance weights of stale tokens with ratios from e⁻¹ to e; group 0 is fresh."""
    logp, *_, mask = arrays
    rng = np.random.default_rng(seed)
    weights = np.minimum(np.exp(rng.uniform(-1, 1, logp.shape)), cap)
    weights[0] = 1.0
    return weights * mask


@pytest.mark.parametrize("cap", [1.0, 1.5, np.inf])
@pytest.mark.parametrize("options", OPTIONS[::5], ids=lambda o: "-".join(map(str, o.values())))
def test_stale_tokens_are_weighted(options, cap):
    """Loss, metrics and gradients against the loops; central differences of these in float64."""
    arrays = [x[1:] for x in inputs(4)]  # without ratios of e²⁰
    mask, weights = arrays[-1], stale([x[1:] for x in inputs(4)], cap)
    total = count(mask, options["aggregation"])
    loss, metrics, (d_logp, d_entropy) = loss_and_gradients(
        arrays, total, options, jnp.asarray(weights, jnp.float32)
    )
    want, want_metrics, want_logp, want_entropy, _ = reference(*arrays, total, options, weights)
    np.testing.assert_allclose(loss, want, atol=2e-6)
    assert metrics.keys() == want_metrics.keys()
    for name, value in want_metrics.items():
        np.testing.assert_allclose(metrics[name], value, rtol=1e-5, atol=1e-6, err_msg=name)
    np.testing.assert_allclose(d_logp, want_logp, rtol=2e-5, atol=1e-7)
    np.testing.assert_allclose(d_entropy, want_entropy, rtol=1e-6)
    unweighted, *_ = reference(*arrays, total, options)
    assert abs(want - unweighted) > 1e-3
    for index in np.ndindex(*want_logp.shape):
        step = np.zeros_like(want_logp)
        step[index] = 1e-6
        ends = [
            reference(arrays[0] + s * step, *arrays[1:], total, options, weights)[0]
            for s in (1, -1)
        ]
        np.testing.assert_allclose((ends[0] - ends[1]) / 2e-6, want_logp[index], atol=1e-7)


@pytest.mark.parametrize("options", OPTIONS[::7], ids=lambda o: "-".join(map(str, o.values())))
def test_fresh_tokens_without_a_cap_are_plain_grpo(options):
    """To the last bit: the weight of what the policy itself has sampled is 1."""
    arrays = inputs(5)
    total = count(arrays[-1], options["aggregation"])
    own, *_, mask = as_float32(arrays)
    weights = replay.truncated_weights(own, own, mask, cap=np.inf)
    plain = loss_and_gradients(arrays, total, options)
    weighted = loss_and_gradients(arrays, total, options, weights)
    for a, b in zip(*map(jax.tree.leaves, (plain, weighted)), strict=True):
        np.testing.assert_array_equal(a, b)


def policy_gradient(theta, mu, values, cap):
    """E over tokens a ~ μ of the loss's gradient at the update's start; advantages are values[a]."""
    config = grpo.GRPOConfig(kl_coef=0.0, entropy_coef=0.0)
    one = jnp.ones((1, 1, 1))

    def loss(theta, a):
        logp = jax.nn.log_softmax(theta)[a] * one
        old = jax.lax.stop_gradient(logp)
        weights = replay.truncated_weights(logp, jnp.log(mu[a]) * one, one, cap=cap)
        return grpo.grpo_loss(
            logp, 0 * one, old, old, values[a] * one[0], one, 1.0, config, weights
        )[0]

    gradients = jax.vmap(jax.grad(loss), in_axes=(None, 0))(theta, jnp.arange(len(mu)))
    return mu @ gradients


def test_the_expected_gradient_of_stale_tokens():
    """Of one token: that of Σ π A where nothing is truncated, else short by what the cap cuts off.

    Weights that follow the policy are constants: differentiated, they would double the gradient.
    """
    rng = np.random.default_rng(6)
    theta, values = as_float32((rng.normal(size=6), rng.normal(size=6)))
    mu = jnp.asarray(rng.dirichlet(np.ones(6)), jnp.float32)
    pi = np.asarray(jax.nn.softmax(theta), float)
    assert (pi / mu).max() > 2 and (pi / mu).min() < 0.5
    exact = -(pi * values - pi * (pi @ values))  # of -Σ π A
    np.testing.assert_allclose(policy_gradient(theta, mu, values, np.inf), exact, atol=1e-6)
    kept = np.minimum(1.0, 1.5 * np.asarray(mu) / pi)
    score = np.eye(6) - pi  # rows: ∇ log π(a)
    want = -(pi * kept * values) @ score
    np.testing.assert_allclose(policy_gradient(theta, mu, values, 1.5), want, atol=1e-6)
    short = np.abs(want - exact)
    bound = np.abs(np.asarray(values)[:, None] * score).max(axis=0) * pi[pi > 1.5 * mu].sum()
    assert (short <= bound).all() and short.max() > 0.01


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


def test_aggregations_by_hand():
    """Rows with the sums 1 + 2 + 3 and 10, and an empty one."""
    values = jnp.array([[[1.0, 2.0, 3.0], [10.0, 5.0, 5.0], [7.0, 7.0, 7.0]]])
    mask = jnp.array([[[1.0, 1.0, 1.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]])
    for aggregation, want in {
        "token-mean": 16 / 4,
        "sequence-mean": (2 + 10) / 2,
        "sequence-sum": (6 + 10) / 2,
    }.items():
        total = grpo.denominator(mask, aggregation)
        assert float(grpo.aggregate(values, mask, total, aggregation)) == pytest.approx(want)


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
