"""A simulator that hardly writes valid tasks any more: noticed, said, and by setting taken back.

The weights that it is taken back to are part of every checkpoint, so a run that is killed goes on to the
same numbers, whichever checkpoints it keeps.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from genenv_jax.benchmarks.base import Task
from genenv_jax.players import learner
from genenv_jax.players.offload import place
from genenv_jax.players.simulator import Simulator
from genenv_jax.run.session import Session
from genenv_jax.tasks.generation import TaskBatch
from genenv_jax.typing import Params, WarmUp


class GoodState(NamedTuple):
    """params: what was trained of the simulator that wrote the newest epoch of enough valid tasks."""

    params: Params


class Trainer(Protocol):
    """A simulator's trainer, see `trainers.simulator`."""

    def step(self, epoch: int, batch: TaskBatch) -> dict[str, float]:
        """One update; its metrics."""

    def warm_up(self) -> list[WarmUp]:
        """What compiles all that a step may run."""


class Good:
    """The last good simulator, in host memory; before any epoch has been good, the initial one.

    Args:
      simulator: as it is when the run begins.
    """

    def __init__(self, simulator: Simulator):
        self._copy = jax.jit(lambda params: jax.tree.map(jnp.copy, params))
        self.keep(simulator)

    def keep(self, simulator: Simulator) -> None:
        """Takes the simulator as it is."""
        simulator.load_for("sample")
        # A copy, since updates donate the parameters, and moving them need not make one.
        self.state = GoodState(place(self._copy(simulator.state.params), False))

    def restore(self, simulator: Simulator) -> None:
        """Makes the simulator what was kept, with fresh moments."""
        simulator.load_for("update")
        params = self._copy(place(self.state.params, True))
        fresh = learner.init_state(params, simulator.optimizer, copy=False)
        # Where the old ones lie, so that the next step finds what it was compiled for.
        simulator.state = jax.tree.map(
            lambda new, old: jax.device_put(new, old.sharding), fresh, simulator.state
        )


class Guarded:
    """A simulator's trainer that watches the share of valid tasks.

    Args:
      trainer: of the simulator.
      simulator: with `min_valid_share`, `collapse_epochs` and `on_collapse` in its settings.
      session: of the run, of which this becomes a part.
    """

    def __init__(self, trainer: Trainer, simulator: Simulator, session: Session):
        self._trainer, self._simulator, self._session = trainer, simulator, session
        self._low = 0
        self._good = Good(simulator) if simulator.config.on_collapse == "reset" else None
        session.register("validity", self)
        if self._good:
            session.register_trained("good_simulator", self._good)

    def step(self, epoch: int, batch: TaskBatch) -> dict[str, float]:
        """See `Trainer`.  A simulator that is taken back is not updated on what it wrote before."""
        c = self._simulator.config
        share = valid_share(batch, c.variations - c.num_from_initial or c.variations)
        self._low = self._low + 1 if share < c.min_valid_share else 0
        metrics = {"simulator/low_validity_epochs": self._low}
        if self._good:
            metrics["simulator/reset"] = 0
            if not self._low:
                self._good.keep(self._simulator)
        if self._low == c.collapse_epochs:
            text = (
                f"the simulator has collapsed: under {c.min_valid_share:.0%} of its tasks were valid in "
                f"{self._low} epochs running, now {share:.0%}"
            )
            if self._good:
                text += "; it is taken back to its last good weights"
            self._session.say(text)
            if self._good:
                self._good.restore(self._simulator)
                self._low = 0
                return metrics | {"simulator/reset": 1}
        return self._trainer.step(epoch, batch) | metrics

    def warm_up(self) -> list[WarmUp]:
        """See `Trainer`."""
        return self._trainer.warm_up()

    def state(self) -> Any:
        """See `Stateful`."""
        return self._low

    def restore(self, state: Any, tasks: Iterable[Task]) -> None:
        """See `Stateful`."""
        del tasks
        self._low = state


def valid_share(batch: TaskBatch, own: int) -> float:
    """Share of valid tasks among the first `own` variations of each seed, those of the simulator itself."""
    return float(np.mean([g.task is not None for g in batch.generations if g.column < own]))
