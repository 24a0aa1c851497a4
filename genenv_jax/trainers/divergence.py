"""Ends the run after a diverged update, before anything is saved, and keeps the update's batch.

    rollouts, rewards, _ = divergence.load("runs/quickstart/diverged/agent-7.npz")
    experiment.agent_trainer.update(rollouts, rewards)

The file holds the update's inputs.  Running the same command in the workdir again reproduces the batch.
"""

import math
import os
from collections.abc import Mapping

import numpy as np

from genenv_jax.parallel import processes
from genenv_jax.run.session import Session
from genenv_jax.sampling.sampler import Rollouts

MAX_KL = 1000.0  # nats a token above which an update has diverged; one token gives at most e^20
# Metrics of an update that are a KL divergence, in nats a token.
_DIVERGENCES = ("kl", "kl_to_initial", "update_kl")


def reason(metrics: Mapping[str, float]) -> str:
    """Why an update has diverged: a metric is not finite, or a KL exceeds `MAX_KL`.  "" if it has not."""
    if wrong := [name for name, value in metrics.items() if not math.isfinite(value)]:
        return f"{', '.join(wrong)} not finite; lower its learning rate, or look for NaN in the weights"
    for name in _DIVERGENCES:
        if metrics.get(name, 0.0) > MAX_KL:
            return (
                f"{name} = {metrics[name]:.3g} nats a token, over {MAX_KL:g}; "
                "it has diverged: lower its learning rate"
            )
    return ""


def check(
    session: Session, player: str, metrics: Mapping[str, float], rollouts: Rollouts, values: np.ndarray
) -> None:
    """Raises if an update has diverged, after saving its batch in the workdir.

    player: "agent" or "simulator".
    rollouts, values: inputs of the update: samples, and their (N, g) rewards or weights.
    Raises FloatingPointError, naming epoch, metric, value and file.
    """
    why = reason(metrics)
    if not why:
        return
    epoch = session.finished + 1
    path = session.workdir / "diverged" / f"{player}-{epoch}.npz"
    kept = f"Its batch is kept in {path}"
    if processes.is_writer():
        numbers = {f"metrics/{name}": value for name, value in metrics.items()}
        content = {**rollouts.arrays(), "values": values, **numbers}
        try:
            path.parent.mkdir(exist_ok=True)
            with path.open("wb") as file:
                np.savez_compressed(file, **content)
        except OSError as error:
            path.unlink(missing_ok=True)
            kept = f"Its batch could not be kept: {error}"
    raise FloatingPointError(
        f"epoch {epoch}, the {player}'s update: {why}.  {kept}.  It is not saved; if the model in the "
        "newest checkpoint had already diverged, remove that checkpoint"
    )


def load(path: str | os.PathLike[str]) -> tuple[Rollouts, np.ndarray, dict[str, float]]:
    """Loads the rollouts, values and metrics that `check` saved."""
    with np.load(path) as kept:
        content = dict(kept)
    metrics = {k.partition("/")[2]: float(v) for k, v in content.items() if k[:8] == "metrics/"}
    return Rollouts.of_arrays(content), content["values"], metrics
