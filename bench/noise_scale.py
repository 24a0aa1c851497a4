"""The critical batch of the agent's updates: the noise scale of GRPO's gradient, while a run trains.

    python bench/noise_scale.py --config=configs/quickstart.py --arm=random --epochs=12

Trains in a temporary workdir and prints, for each stretch of epochs, how many groups of rollouts an update
needs for its gradient to be as large as its noise: B = tr Σ / |G|² (McCandlish et al., 2018, arXiv
1812.06162), G being the mean gradient of a group and Σ its covariance.  Batches far below B lose little by
being small; far above it they waste rollouts.  Groups whose rewards are all equal have a gradient of 0 (but
for KL and entropy terms, which are left out here); "informative" is B without them.  Each group's gradient
is computed by itself, so this is for small models.
"""

from __future__ import annotations

import pathlib
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import flags

_ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(_ROOT))

from genenv_jax import cli  # noqa: E402


def moments(gradients: np.ndarray) -> tuple[float, float]:
    """Unbiased estimates of tr Σ and |G|² from (n, d) gradients of single groups, n > 1."""
    n = len(gradients)
    mean = gradients.mean(axis=0)
    spread = float(np.square(gradients - mean).sum() / (n - 1))
    return spread, float(np.square(mean).sum()) - spread / n


def group_gradients(trainer: Any, rollouts: Any, rewards: np.ndarray) -> np.ndarray:
    """(T, d) gradients of the policy loss, times T, of each group of a batch; their mean is the batch's.

    trainer: an `AgentTrainer`.  rewards: (T, g).
    """
    import jax
    import jax.numpy as jnp

    from genenv_jax.models.lora import join
    from genenv_jax.models.scoring import completion_logprobs
    from genenv_jax.rl import grpo
    from genenv_jax.rl.advantages import group_advantages

    agent, c = trainer._agent, trainer._agent.config
    advantages = group_advantages(rewards, scale=c.advantage_scale, ddof=c.advantage_ddof)

    @jax.jit
    def gradients(params, frozen, batch):
        total = grpo.denominator(batch.rollouts.mask, c.aggregation)

        def loss(params, one):
            logp, _ = completion_logprobs(join(frozen, params), one.rollouts, agent.model.config)
            # The policy's gradient at ratio 1: that of -A log π.
            values = one.advantages[..., None] * logp
            return -grpo.aggregate(values, one.rollouts.mask, total, c.aggregation)

        ones = jax.tree.map(lambda x: x[:, None], batch)
        tree = jax.lax.map(lambda one: jax.grad(loss)(params, one), ones)
        return jnp.concatenate([x.reshape(len(x), -1) for x in jax.tree.leaves(tree)], axis=1)

    found = []
    for start in range(0, len(rollouts), c.minibatch_size):
        rows = range(start, min(start + c.minibatch_size, len(rollouts)))
        batch = trainer._batch(rollouts, advantages, rows)
        part = np.asarray(gradients(agent.state.params, agent.frozen, batch), np.float64)
        found.append(part[: len(rows)] * len(rows))
    return np.concatenate(found)


def markdown(rows: Sequence[tuple[int, int, float, float, float]], stretch: int) -> str:
    """A Markdown table, one line for every `stretch` epochs.

    rows: (epoch, groups, informative share, tr Σ, |G|²) of each update.
    """
    lines = ["| epochs | updates | groups | informative | B, groups | B, informative groups |"]
    lines.append("|---|" + "---:|" * 5)
    for first in range(1, max(row[0] for row in rows) + 1, stretch):
        part = np.array([row for row in rows if first <= row[0] < first + stretch], float)
        if not len(part):
            continue
        groups, share, spread, square = part[:, 1].mean(), *part[:, 2:].mean(axis=0)
        scale = spread / square if square > 0 else float("inf")
        lines.append(
            f"| {first}–{first + stretch - 1} | {len(part)} | {groups:.0f} | {share:.2f} | {scale:.0f} | "
            f"{scale * share:.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Runs and prints."""
    from genenv_jax.coevolve import Coevolution
    from genenv_jax.config import validate
    from genenv_jax.experiment.arms import apply_arm
    from genenv_jax.rl.advantages import zero_variance

    options = flags.FLAGS
    config = options.config
    config.epochs, config.export, config.tracking.trackers = options.epochs, False, ()
    rows: list[tuple[int, int, float, float, float]] = []
    with tempfile.TemporaryDirectory() as folder, cli.one_line_errors():
        apply_arm(config, options.arm)
        run = Coevolution(validate(config), pathlib.Path(folder))
        trainer, update = run.agent_trainer, run.agent_trainer.update

        def measured(rollouts, rewards):
            if len(rollouts) > 1:
                spread, square = moments(group_gradients(trainer, rollouts, rewards))
                share = 1 - float(zero_variance(rewards).mean())
                rows.append((run.session.finished + 1, len(rollouts), share, spread, square))
            return update(rollouts, rewards)

        trainer.update = measured
        run.run()
        if not rows:
            raise ValueError("no update was of two groups or more: expected more epochs or tasks")
    print(markdown(rows, options.stretch))


if __name__ == "__main__":
    cli.define_config("Configuration file.")
    flags.DEFINE_integer("epochs", 12, "Epochs to train.")
    flags.DEFINE_string("arm", "random", "An arm of genenv_jax.experiment.arms.")
    flags.DEFINE_integer("stretch", 4, "Epochs of a line of the table.")
    cli.run(main)
