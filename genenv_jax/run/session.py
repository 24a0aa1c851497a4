"""A run in a workdir: its settings, records, checkpoints, clock and signals, and how far it is."""

from __future__ import annotations

import contextlib
import pathlib
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import jax
import numpy as np
from absl import logging

from genenv_jax.benchmarks.base import Task
from genenv_jax.parallel import processes
from genenv_jax.run import streams
from genenv_jax.run.checkpoint import CheckpointConfig, Checkpoints
from genenv_jax.run.digests import Growing
from genenv_jax.run.jsonl import iter_jsonl
from genenv_jax.run.metrics import cells
from genenv_jax.run.progress import Phase, Progress
from genenv_jax.run.remote import Store, shared
from genenv_jax.run.samples import spread
from genenv_jax.run.streams import Stream
from genenv_jax.run.timing import RunClock
from genenv_jax.run.tracking import Trackers
from genenv_jax.run.workdir import RunFiles, check_files
from genenv_jax.sampling.engine import Engine
from genenv_jax.signals import ending, held
from genenv_jax.typing import PRNGKey

T = TypeVar("T")


class Stateful(Protocol):
    """A part of a run whose state is in every checkpoint, as plain JSON."""

    def state(self) -> Any:
        """What a checkpoint keeps."""

    def restore(self, state: Any, tasks: Iterable[Task]) -> None:
        """Inverse of `state`; `tasks` are the accepted ones of the run's records, in their order.

        They are read from the file each time that they are iterated over: a run may have more than fit.
        """


class Trained(Protocol):
    """A part of a run whose state is a pytree of arrays."""

    state: Any


class _AcceptedTasks:
    """The tasks in the first bytes of tasks.jsonl, read anew by every loop over them."""

    def __init__(self, path: pathlib.Path, size: int):
        self._path, self._size = path, size

    def __iter__(self) -> Iterator[Task]:
        records = (record["task"] for record in iter_jsonl(self._path, self._size))
        return (Task.from_json(task) for task in records if task is not None)


class Session:
    """See the module's docstring.

    Every stateful part is registered once; `open` brings all of them to where the last checkpoint stands.

    Args:
      workdir: of the run; nothing is written there before `open`.
      seed: of the run.
      epochs, rollouts, tokens: where it ends: after so many epochs, rollouts of the agent or tokens of both
        players (0: no such limit).
      checkpoint: settings.
    Attributes:
      finished: epochs done.
      rollouts: of the agent, so far.
      tokens: that passed through the players and their reference, so far; in an update three times, forward
        and backward.  Those of held-out tasks, of what is made before the first epoch and of the padding do
        not count.
      files: the run's records, after `open`.
    """

    files: RunFiles

    def __init__(
        self,
        workdir: pathlib.Path,
        seed: int,
        epochs: int,
        rollouts: int,
        tokens: int,
        checkpoint: CheckpointConfig,
    ):
        self.workdir, self._store, self.seed = workdir, Store(workdir), seed
        self.finished = self.rollouts = self.tokens = 0
        self._last, self._most, self._checkpoint = epochs, (rollouts, tokens), checkpoint
        self._root_key = jax.random.key(seed)
        self._parts: dict[str, Stateful] = {}
        self._trained: dict[str, Trained] = {}
        self._engines: Sequence[Engine] = ()
        self._tables: dict[str, list[dict[str, Any]]] = {}
        self._progress = Progress(0, silent=not processes.is_writer())
        self._stack = contextlib.ExitStack()
        self._clock = self._stack.enter_context(RunClock())

    # -- state --------------------------------------------------------------------------------------

    def register(self, name: str, part: Stateful) -> None:
        """Makes a part's state part of every checkpoint."""
        self._parts[name] = part

    def register_trained(self, name: str, part: Trained) -> None:
        """Makes a part's arrays part of every checkpoint."""
        self._trained[name] = part

    def register_engines(self, engines: Sequence[Engine]) -> None:
        """The samplers whose share of the time is recorded."""
        self._engines = engines

    def open(self, trackers: Trackers) -> None:
        """Opens the records; takes an interrupted run up where its last checkpoint stands.

        What came after that is cut back.

        trackers: are given what metrics.jsonl is; closed with the run.
        Raises ValueError where there are checkpoints and none is whole and fits the records.
        """
        self._trackers = trackers
        self._stack.callback(self._push_what_is_left)
        self._stack.callback(trackers.close)  # after all but that: it may wait for a network
        directory = shared(self.workdir) / "checkpoints"
        self._checkpoints = Checkpoints(directory, self._checkpoint.keep)
        self._stack.callback(self._checkpoints.close)
        for part in self._trained.values():
            # Bound to where they lie, as restored ones are: so the same programs serve both.
            part.state = jax.tree.map(lambda x: jax.device_put(x, x.sharding), part.state)
        digests: dict[str, Growing] = {}

        def fits(host: Mapping[str, Any]) -> None:
            digests.clear()  # of the checkpoint that was tried before
            digests.update(check_files(self.workdir, host))

        found = self._checkpoints.restore(
            {name: part.state for name, part in self._trained.items()}, fits
        )
        offsets = found[1]["offsets"] if found else {}
        self.files = RunFiles(self.workdir, trackers, offsets, digests)
        self._stack.callback(self.files.close)
        self._push()
        if not found:
            return
        arrays, host = found
        for name, part in self._trained.items():
            part.state = type(part.state)(*arrays[name])
        self.reached(host)
        tasks = _AcceptedTasks(self.files.tasks.path, host["offsets"]["tasks"])
        for name, part in self._parts.items():
            part.restore(host["parts"][name], tasks)
        logging.info("continuing after epoch %d", self.finished)

    def reached(self, host: Mapping[str, Any]) -> None:
        """Sets how far the run is, by a checkpoint's host values."""
        self.finished, self.rollouts = host["finished_epochs"], host["total_rollouts"]
        self.tokens = host["total_tokens"]

    # -- the run ------------------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        """Whether all epochs, rollouts or tokens are done."""
        return self.is_last(self.finished - 1)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """The context of a run: its display, its clock, its end.

        SIGTERM ends the run at once with exit code 143, after pending checkpoints are on disk: the
        interrupted epoch is repeated when the run is continued.
        """
        self._clock = clock = self._stack.enter_context(RunClock(self._engines, self.rollouts))
        silent = not processes.is_writer()
        self._progress = Progress(self._last, self.finished, silent, compiling=clock.compiling)
        with ending(signal.SIGTERM), self._stack:
            yield
            self._push()
            processes.barrier("the run is finished")

    def epochs(self) -> Iterator[int]:
        """The epochs that are left, from 0; `finish` ends each."""
        while not self.ended:
            epoch = self.finished
            self._progress.epoch_began()
            yield epoch
            if self.finished != epoch + 1:
                raise RuntimeError(f"epoch {epoch} has not been finished")

    def is_last(self, epoch: int) -> bool:
        """Whether the run ends with an epoch that has made its rollouts and processed its tokens."""
        spent = zip((self.rollouts, self.tokens), self._most, strict=True)
        return any(most and so_far >= most for so_far, most in spent) or epoch + 1 >= self._last

    def finish(self, epoch: int, metrics: Mapping[str, float]) -> None:
        """Ends an epoch: writes its lines, and a checkpoint where one is due."""
        self.finished = epoch + 1
        self.log(metrics)
        if self.ended or self.finished % self._checkpoint.every == 0:
            with self.measure("checkpoint"), held():
                self.save()

    def log(self, metrics: Mapping[str, float]) -> None:
        """Writes and shows the lines of the epochs that are done: metrics.jsonl and timing.jsonl."""
        self.files.metrics.write(self.finished, metrics, self._tables)
        self._tables = {}
        timing = self._clock.lap(self.rollouts)
        self.files.timing.write(self.finished, timing)
        rate = timing.get("rollouts_per_second")
        shown = cells(metrics) | {
            "roll/s": "" if rate is None else f"{rate:,.{0 if rate >= 10 else 1}f}"
        }
        self._progress.epoch_done(self.finished, shown)

    def sample(self, table: str, records: Sequence[T], row: Callable[[T], dict[str, Any]]) -> None:
        """Gives the trackers the rows of a few records, beside the line that `log` writes next."""
        if rows := [row(record) for record in spread(records, self._trackers.samples)]:
            self._tables[f"samples/{table}"] = rows

    def save(self) -> None:
        """Saves a checkpoint, asynchronously; the records that it refers to are in the store before."""
        self._push()
        self._checkpoints.save(
            self.finished,
            {name: part.state for name, part in self._trained.items()},
            {
                "finished_epochs": self.finished,
                "total_rollouts": self.rollouts,
                "total_tokens": self.tokens,
                "parts": {name: part.state() for name, part in self._parts.items()},
                "offsets": self.files.offsets(),
                "digests": self.files.digests(),
            },
        )

    def _push(self) -> None:
        if processes.is_writer():
            self._store.push()

    def _push_what_is_left(self) -> None:
        """What a run that fails leaves to look at; nothing depends on it."""
        try:
            self._push()
        except OSError as error:
            logging.warning("%s", error)

    # -- randomness, display and clock ---------------------------------------------------------------

    def rng(self, stream: Stream, *ids: int) -> np.random.Generator:
        """The host's generator of a stream."""
        return streams.rng(self.seed, stream, *ids)

    def key(self, stream: Stream, *ids: int) -> PRNGKey:
        """The devices' key of a stream."""
        return streams.key(self._root_key, stream, *ids)

    def phase(
        self, name: str, total: int | None = None, unit: str = "items", epoch: int | None = None
    ) -> contextlib.AbstractContextManager[Phase]:
        """A phase of the display, see `Progress.phase`."""
        return self._progress.phase(name, total, unit, epoch)

    def measure(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Adds the seconds of a block to `name`, see `RunClock.measure`."""
        return self._clock.measure(name)
