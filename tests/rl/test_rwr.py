"""What takes part in the simulator's loss, and the search for a step within the KL cap.

The loss and its gradient are in tests/players/test_learner.py.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from genenv_jax.rl import rwr

B, G, C = 3, 2, 5
LENGTHS = np.array([[5, 2], [0, 4], [3, 5]])
WEIGHTS = np.array([[1.5, 0.0], [0.7, 0.4], [0.0, 1.1]])


def inputs():
    rng = np.random.default_rng(0)
    logp = -rng.exponential(1.0, (B, G, C))
    ref = logp + rng.normal(0.0, 0.8, (B, G, C))
    ref[0, 0, 0] = logp[0, 0, 0] - 30  # beyond the guard
    return logp, ref, (np.arange(C) < LENGTHS[..., None]).astype(float)


def loss_and_gradient(logp, ref, weights, mask, kl_coef):
    logp, ref, weights, mask = (jnp.asarray(x, jnp.float32) for x in (logp, ref, weights, mask))
    total = rwr.weighted_total(weights, mask)
    run = jax.value_and_grad(rwr.rwr_loss, has_aux=True)
    (loss, metrics), gradient = run(logp, ref, weights, mask, total, kl_coef)
    return float(loss), metrics, np.asarray(gradient)


def test_rows_of_weight_zero_take_no_part():
    """Neither in the likelihood nor in the KL nor in the measured KL of the update."""
    logp, ref, mask = inputs()
    loss, _, gradient = loss_and_gradient(logp, ref, WEIGHTS, mask, 0.5)
    assert (gradient[WEIGHTS == 0] == 0).all()
    assert (gradient[WEIGHTS > 0].any(axis=-1) == (LENGTHS[WEIGHTS > 0] > 0)).all()
    other, other_ref = logp.copy(), ref.copy()
    other[WEIGHTS == 0] -= 3.0
    other_ref[WEIGHTS == 0] += 2.0
    again, _, other_gradient = loss_and_gradient(other, other_ref, WEIGHTS, mask, 0.5)
    assert again == loss
    np.testing.assert_array_equal(other_gradient, gradient)
    measure = [float(rwr.update_kl(x, jnp.asarray(ref), WEIGHTS, mask)) for x in (logp, other)]
    assert measure[0] == measure[1] > 0


def test_weights_that_are_all_zero_give_zero():
    logp, ref, mask = inputs()
    loss, _, gradient = loss_and_gradient(logp, ref, 0 * WEIGHTS, mask, 0.5)
    assert loss == 0 and (gradient == 0).all()
    assert float(rwr.update_kl(jnp.asarray(logp), jnp.asarray(ref), 0 * WEIGHTS, mask)) == 0


def search(kl_at, cap):
    """Scale, KL, and the scales at which the KL was measured."""
    calls = []

    def counted(scale):
        jax.debug.callback(lambda s: calls.append(float(s)), scale)
        return jnp.float32(kl_at(scale))

    scale, kl = jax.jit(lambda: rwr.capped_scale(counted, cap))()
    jax.effects_barrier()
    return float(scale), float(kl), calls


@pytest.mark.parametrize(
    ("kl_at", "cap", "scale", "kl", "measured"),
    [
        (lambda s: 0.3 * s**2, 0.3, 1.0, 0.3, 1),  # within the cap: whole
        (lambda s: s**2, 0.1, 0.25, 0.0625, 3),
        (lambda s: jnp.where(s > 1 / 64, 9.0, s), 0.1, 1 / 64, 1 / 64, 7),  # the last halving counts
        (lambda s: jnp.where(s > 0, 5.0, 0.02), 0.1, 0.0, 0.02, 8),  # none fits: the KL of staying
        (lambda s: 1e6 * s, float("inf"), 1.0, 1e6, 1),  # without a cap
        # What is not finite is too far.
        (lambda s: jnp.where(s > 0, jnp.nan, 0.0), float("inf"), 0.0, 0.0, 8),
        (lambda s: jnp.where(s > 0, jnp.inf, 0.0), 0.26, 0.0, 0.0, 8),
        (lambda s: jnp.where(s > 0.3, jnp.nan, s), 0.26, 0.25, 0.25, 3),
        (lambda s: jnp.where(s > 0.3, jnp.inf, s), 0.26, 0.25, 0.25, 3),
    ],
)
def test_a_step_is_halved_until_it_fits(kl_at, cap, scale, kl, measured):
    found, at, calls = search(kl_at, cap)
    assert (found, at) == (scale, pytest.approx(kl))
    assert calls == [*(0.5**i for i in range(7)), 0.0][:measured]
    assert rwr.measurements(found) == measured
