"""A policy-gradient update of a player, used by both trainers."""

from collections.abc import Callable

import jax
import numpy as np

from genenv_jax.players import learner
from genenv_jax.players.player import Player
from genenv_jax.rl.losses import LossConfig
from genenv_jax.run.metrics import EpochMeans
from genenv_jax.run.session import Session
from genenv_jax.sampling.sampler import Rollouts
from genenv_jax.typing import WarmUp

# The arrays of a `learner.GRPOBatch` besides its rollouts, for all N prompts.
Arrays = tuple[np.ndarray, np.ndarray | None, np.ndarray, np.ndarray | None]


class GRPO:
    """See the module's docstring.

    The ratio is to the model that wrote the completion; for its log-probs see `players.player.recomputes`.

    others: how many of a prompt's completions, the last ones, the reference wrote.
    """

    def __init__(self, player: Player, loss: LossConfig, session: Session, others: int = 0):
        self._player, self._session, self._others = player, session, others
        self._needs_reference = loss.kl_coef > 0 or others > 0
        config, parts = player.model.config, player.config.micro_batches
        self._step = learner.make_grpo_step(config, loss, player.optimizer, parts, player.widths[-1])

    def update(
        self,
        rollouts: Rollouts,
        advantages: np.ndarray,
        used: np.ndarray,
        shuffled: Callable[[np.ndarray], np.ndarray] = lambda rows: rows,
    ) -> dict[str, float]:
        """`update_epochs` passes over the prompts `used`, in mini-batches.

        Args:
          rollouts: of N prompts, sampled since the player's last update.
          advantages: (N, g) float32.
          shuffled: orders the prompts of a pass.
        Returns:
          metrics averaged over the optimiser steps.  "sampler_trainer_logp_gap" (mean) and, if log-probs are
          recomputed, "sampler_trainer_logp_gap_max" come from the first step, before the parameters have
          moved, so they measure rounding only.
        """
        player, c = self._player, self._player.config
        passes = [shuffled(used) for _ in range(c.update_epochs)]
        steps = [rows for of in passes for rows in learner.minibatches(of, c.minibatch_size)]
        # The first step itself computes the log-probs of its prompts.
        again = used if c.update_epochs > 1 else passes[0][len(steps[0]) :]
        arrays, later = self._arrays(rollouts, advantages, used, again)
        times = self._needs_reference + 3 * c.update_epochs
        self._session.tokens += times * rollouts.take(used).token_count
        if player.recomputes:
            self._session.tokens += rollouts.take(again).token_count
        player.load_for("update")
        means, gaps = EpochMeans(), None
        for rows in steps:
            batch = self._batch(rollouts, rows, arrays)
            player.state, metrics = self._step(player.state, player.frozen, batch)
            if gaps is None:
                gaps = {name: value for name, value in metrics.items() if "logp_gap" in name}
            means.update(metrics)
            arrays = later
        gaps = {name: float(value) for name, value in jax.device_get(gaps).items()}
        return means.compute() | gaps

    def warm_up(self) -> list[WarmUp]:
        """Functions that compile every program of an update, for every planned shape."""

        def empty_batch(blank: Rollouts) -> learner.GRPOBatch:
            nothing, row = np.zeros(blank.lengths.shape, np.float32), np.zeros(1, int)
            return self._batch(blank, row, self._arrays(blank, nothing, row, row)[0])

        return self._player.warm_up_updates(self._step, empty_batch)

    def _arrays(
        self, rollouts: Rollouts, advantages: np.ndarray, used: np.ndarray, again: np.ndarray
    ) -> tuple[Arrays, Arrays]:
        """The arrays of the first step and of later steps, which take the prompts `again`."""
        player, reference = self._player, None
        if self._needs_reference:
            reference = player.reference_logprobs(rollouts, used)
        if not player.recomputes:
            return ((rollouts.logprobs, reference, advantages, None),) * 2
        g = rollouts.lengths.shape[1]
        own = np.broadcast_to(np.arange(g) < g - self._others, rollouts.lengths.shape)
        first, anew = rollouts.logprobs, player.own_logprobs(rollouts, again)
        if self._others:
            first, anew = (np.where(own[..., None], x, reference) for x in (first, anew))
        fresh = own.astype(np.float32)
        return (first, reference, advantages, fresh), (anew, reference, advantages, np.zeros_like(fresh))

    def _batch(self, rollouts: Rollouts, rows: np.ndarray, arrays: Arrays) -> learner.GRPOBatch:
        return self._player.put(learner.GRPOBatch(*self._player.minibatch(rollouts, rows, *arrays)))
