"""How a simulator narrows by chance alone: reward-weighted regression without any difference in reward.

    python bench/drift.py

The simulator is a table: a softmax over kinds of tasks that are all solved equally often, uniform at first.
An epoch draws its records, with the package's weights and loss, and takes one gradient-descent step per pass.
All narrowing is sampling noise, from which the next epoch samples (genetic drift).
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from tables import markdown

from genenv_jax.rl import rewards, rwr

_KINDS, _RECORDS, _RATE = 12, 64, 1.0  # the learning rate is that of the logits
_SETTINGS = {
    "one pass": {"passes": 1},
    "four passes": {"passes": 4},
    "four passes, KL .2": {"passes": 4, "kl_coef": 0.2},
    "four passes, half of the tasks initial": {"passes": 4, "mixture": 0.5},
}


def loss(logits: jax.Array, weights: jax.Array, kl_coef: float) -> jax.Array:
    """`rl.rwr.rwr_loss` of one table.  logits, weights: (kinds,), a weight summed over its records."""
    logp, uniform = jax.nn.log_softmax(logits), -jnp.log(logits.size)
    texts = logp[None, :, None]  # each kind is one text of one token
    mask, weights = jnp.ones_like(texts), weights[None]
    total = rwr.weighted_total(weights, mask)
    return rwr.rwr_loss(texts, jnp.full_like(texts, uniform), weights, mask, total, kl_coef)[0]


_gradients = jax.jit(jax.vmap(jax.grad(loss), in_axes=(0, 0, None)))


def kinds_left(
    epochs: int, runs: int, passes: int, kl_coef: float = 0.0, mixture: float = 0.0, seed: int = 0
) -> np.ndarray:
    """exp(entropy) of the simulators after each epoch.

    Args:
      runs: independent simulators.
      passes: gradient steps on an epoch's records.
      kl_coef: coefficient of the KL penalty to the initial simulator.
      mixture: share of the records that the initial simulator writes.
    Returns:
      (epochs, runs).
    """
    rng, logits = np.random.default_rng(seed), np.zeros((runs, _KINDS))
    initial, left = round(mixture * _RECORDS), []
    each = rewards.rwr_weights(rewards.curriculum_reward(np.full(_RECORDS, 0.5), 0.5, 2.0), 1.0)[0]
    for _ in range(epochs):
        own = rng.multinomial(_RECORDS - initial, _probabilities(logits))
        others = rng.multinomial(initial, np.full(_KINDS, 1 / _KINDS), size=runs)
        weights = each * (own + others)
        for _ in range(passes):
            logits = logits - _RATE * np.asarray(_gradients(logits, weights, kl_coef), float)
        p = _probabilities(logits)
        left.append(np.exp(-np.sum(p * np.log(p), axis=1)))
    return np.array(left)


def _probabilities(logits: np.ndarray) -> np.ndarray:
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def main() -> None:
    """Simulates and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--epochs", type=int, nargs="+", default=[16, 60])
    parser.add_argument("--runs", type=int, default=400)
    flags = parser.parse_args()
    rows = []
    for name, settings in _SETTINGS.items():
        left = kinds_left(max(flags.epochs), flags.runs, **settings)
        means = [f"{left[n - 1].mean():.1f}±{left[n - 1].std():.1f}" for n in flags.epochs]
        rows.append([name, *means])
    print(markdown(["", *(f"{n} epochs" for n in flags.epochs)], rows))


if __name__ == "__main__":
    main()
