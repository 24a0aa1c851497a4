"""An update that has destroyed the model ends the run before anything of it is saved, and its batch is kept.

    batch = divergence.load("runs/quickstart/diverged/agent-7.json")
    experiment.agent_trainer.update(batch.rollouts, batch.values)

The file holds what the update was given.  The same command in the workdir comes to the same batch once more.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import pathlib
from collections.abc import Mapping

import numpy as np

from genenv_jax.parallel import processes
from genenv_jax.run.jsonl import read_json, write_text
from genenv_jax.run.session import Session
from genenv_jax.sampling.engine import Rollouts

MAX_KL = 1000.0  # nats a token, over which an update has diverged; a single token's estimate ends at e^20
# Metrics of an update that are a KL divergence, in nats a token.
_DIVERGENCES = ("kl", "kl_to_initial", "update_kl")
_ARRAYS = {"tokens": np.int32, "lengths": np.int32, "logprobs": np.float32, "done": bool}
_MASK = "loss_mask"  # of episodes only


def reason(metrics: Mapping[str, float]) -> str:
    """Why an update has diverged, or "": a metric is not finite, or a KL divergence over `MAX_KL`."""
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
    session: Session,
    player: str,
    metrics: Mapping[str, float],
    rollouts: Rollouts,
    values: np.ndarray,
) -> None:
    """Refuses an update that has diverged, and keeps its batch in the workdir.

    Args:
      session: of the run.
      player: "agent" or "simulator".
      metrics: of the update, by name.
      rollouts, values: what the update was given: samples, and (N, g) rewards or weights of them.
    Raises:
      FloatingPointError: it has; the message names epoch, metric, value and file.
    """
    why = reason(metrics)
    if not why:
        return
    epoch = session.finished + 1
    path = session.workdir / "diverged" / f"{player}-{epoch}.json"
    kept = f"Its batch is kept in {path}"
    if processes.is_writer():
        content = {
            "metrics": {name: float(value) for name, value in metrics.items()},
            "prompts": [list(map(int, prompt)) for prompt in rollouts.prompts],
            **{name: getattr(rollouts, name).tolist() for name in _ARRAYS},
            _MASK: None if rollouts.loss_mask is None else rollouts.loss_mask.tolist(),
            "values": np.asarray(values, float).tolist(),
        }
        try:
            path.parent.mkdir(exist_ok=True)
            write_text(path, json.dumps(content) + "\n")
        except OSError as error:
            kept = f"Its batch could not be kept: {error}"
    raise FloatingPointError(
        f"epoch {epoch}, the {player}'s update: {why}.  {kept}.  Nothing of this epoch is saved; if the last "
        "step of the epoch before did it, remove the newest checkpoint"
    )


@dataclasses.dataclass(frozen=True)
class KeptBatch:
    """rollouts, values: see `check`.  metrics: of the update that diverged."""

    rollouts: Rollouts
    values: np.ndarray
    metrics: dict[str, float]


def load(path: str | os.PathLike[str]) -> KeptBatch:
    """A batch that `check` has kept.  Raises FileNotFoundError, or ValueError where the file is damaged."""
    content = read_json(pathlib.Path(path), "the batch of an update that diverged")
    arrays = {name: np.array(content[name], dtype) for name, dtype in _ARRAYS.items()}
    if content.get(_MASK):
        arrays[_MASK] = np.array(content[_MASK], bool)
    rollouts = Rollouts(content["prompts"], **arrays)
    return KeptBatch(rollouts, np.array(content["values"]), content["metrics"])
