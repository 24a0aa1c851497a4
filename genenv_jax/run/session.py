"""A run in a workdir: its settings, records, checkpoints, clock, signals and progress."""

import contextlib
import pathlib
import signal
import time
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
from genenv_jax.run.samples import spread
from genenv_jax.run.streams import Stream
from genenv_jax.run.timing import RunClock
from genenv_jax.run.tracking import Trackers
from genenv_jax.run.workdir import RunFiles, check_files, set_aside
from genenv_jax.sampling.sampler import Sampler
from genenv_jax.system.signals import end, ending, held
from genenv_jax.typing import PRNGKey

T = TypeVar("T")

_MOST = 10**6  # maximum tasks of an epoch


class Stateful(Protocol):
    """A part of a run whose state every checkpoint stores as plain JSON."""

    def state(self) -> Any:
        """The state to store in a checkpoint."""

    def restore(self, state: Any, tasks: Iterable[Task]) -> None:
        """Inverse of `state`; `tasks` are the accepted tasks in the run's records, in order.

        Each iteration reads them from the file again, since a run may have more than fit in memory.
        """


class Trainable(Protocol):
    """A player: its state is a pytree of arrays."""

    state: Any
    trained: bool
    sampler: Sampler


def _committed(x: jax.Array) -> jax.Array:
    """The array, committed to its devices; one without values, of a dry run, is unchanged."""
    return x if isinstance(x, jax.ShapeDtypeStruct) else jax.device_put(x, x.sharding)


class _AcceptedTasks:
    """The accepted tasks in the first `size` bytes of tasks.jsonl; every iteration reads the file again."""

    def __init__(self, path: pathlib.Path, size: int):
        self._path, self._size = path, size

    def __iter__(self) -> Iterator[Task]:
        records = (record["task"] for record in iter_jsonl(self._path, self._size))
        return (Task.from_json(task) for task in records if task is not None)


class Session:
    """A run in progress; see the module's docstring.

    Every stateful part is registered once; `open` restores all of them from the last checkpoint.

    Args:
      workdir: the run's; nothing is written there before `open`.
      epochs, rollouts, tokens: limits after which the run ends: epochs, rollouts of the agent, tokens of
        both players (0: no such limit).
    Attributes:
      finished: epochs done.
      rollouts: rollouts of the agent so far.
      tokens: tokens processed so far by the players and their reference; an update counts them three times,
        for forward and backward.  Held-out tasks, what is made before the first epoch, and padding do not
        count.
      files: the run's records, after `open`.
      begun: what the epoch's parts stored in the mid-epoch checkpoint from which the run continues, by name;
        else empty.
      within: functions by which the parts of the current epoch store their state in such a checkpoint.
      about: what pages say about the run besides its numbers; written in the next line of timing.jsonl.
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
        self.workdir, self.seed = workdir, seed
        self.finished = self.rollouts = self.tokens = 0
        self._last, self._most, self._checkpoint = epochs, (rollouts, tokens), checkpoint
        self._root_key = jax.random.key(seed)
        self._parts: dict[str, Stateful] = {}
        self._trained: dict[str, Trainable] = {}
        self._samplers: Sequence[Sampler] = ()
        self._tables: dict[str, list[dict[str, Any]]] = {}
        self.begun: Mapping[str, Any] = {}
        self.within: dict[str, Callable[[], Any]] = {}
        self.about: dict[str, Any] = {}
        self._saved = time.monotonic()
        self._progress = Progress(0, silent=not processes.is_writer())
        self._stack = contextlib.ExitStack()
        self._clock = self._stack.enter_context(RunClock())

    # -- state --------------------------------------------------------------------------------------

    def register(self, **parts: Stateful) -> None:
        """Adds the parts' states to every checkpoint."""
        self._parts |= parts

    def register_players(self, **players: Trainable) -> None:
        """Adds the arrays of players that are trained to every checkpoint; samplers' times are recorded."""
        self._trained |= {name: player for name, player in players.items() if player.trained}
        self._samplers = [player.sampler for player in players.values()]

    def open(self, trackers: Trackers) -> None:
        """Opens the records; resumes an interrupted run from its last checkpoint.

        Records written after that checkpoint are removed.

        trackers: receive the same metrics as metrics.jsonl; closed with the run.
        Raises ValueError if there are checkpoints, but none is intact and fits the records.
        """
        self._trackers = trackers
        self._stack.callback(trackers.close)  # runs last, as it may wait for a network
        # Those at epoch ends, and the newest mid-epoch one.
        whole, parts = (self.workdir.absolute() / name for name in ("checkpoints", "within_epoch"))
        self._checkpoints = Checkpoints(whole, self._checkpoint.keep)
        self._stack.callback(self._checkpoints.close)
        self._partial: Checkpoints | None = None
        there = processes.agree("a checkpoint within an epoch", str(parts.exists()))
        if self._checkpoint.minutes or there == "True":
            self._partial = Checkpoints(parts, 1, _MOST)
            self._stack.callback(self._partial.close)
        for part in self._trained.values():
            # Committed to their devices like restored arrays, so that both use the same programs.
            part.state = jax.tree.map(_committed, part.state)
        digests: dict[str, Growing] = {}

        def fits(host: Mapping[str, Any]) -> None:
            digests.clear()  # those of the checkpoint tried before
            digests.update(check_files(self.workdir, host))

        states, found = {name: part.state for name, part in self._trained.items()}, None
        # A mid-epoch checkpoint of a finished epoch is useless.
        if self._partial and self._partial.newest() >= self._checkpoints.newest():
            found = self._partial.restore(states, fits)
        if not found:
            found = self._checkpoints.restore(states, fits)
            if self._partial:
                self._partial.clear()
        if not found and processes.is_writer():
            set_aside(self.workdir)
        self.files = RunFiles(self.workdir, found[1]["offsets"] if found else {}, digests)
        self._stack.callback(self.files.close)
        if not found:
            return
        arrays, host = found
        for name, part in self._trained.items():
            part.state = type(part.state)(*arrays[name])
        self.reached(host)
        tasks = _AcceptedTasks(self.files.tasks.path, host["offsets"]["tasks"])
        for name, part in self._parts.items():
            part.restore(host["parts"][name], tasks)
        self.begun = host.get("within", {})
        where = ", within the next one" if self.begun else ""
        logging.info("continuing after epoch %d%s", self.finished, where)

    def reached(self, host: Mapping[str, Any]) -> None:
        """Sets the run's progress from a checkpoint's host values."""
        self.finished, self.rollouts = host["finished_epochs"], host["total_rollouts"]
        self.tokens = host["total_tokens"]

    # -- the run ------------------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        """Whether all epochs, rollouts or tokens are done; an epoch that has begun is finished first."""
        return not self.begun and self.is_last(self.finished - 1)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """The context of a run: its display, its clock and its cleanup.

        SIGTERM ends the run with exit code 143 as soon as pending checkpoints are on disk; a resumed run
        repeats the interrupted epoch from its last checkpoint on.
        """
        self._clock = clock = self._stack.enter_context(RunClock(self._samplers, self.rollouts))
        silent = not processes.is_writer()
        self._progress = Progress(self._last, self.finished, silent, compiling=clock.compiling)
        with ending(signal.SIGTERM), self._stack:
            yield
            if self._partial:
                self._checkpoints.wait()
                self._partial.clear()
            processes.barrier("the run is finished")

    def epochs(self) -> Iterator[int]:
        """The remaining epochs, counted from 0; `finish` ends each."""
        while not self.ended:
            epoch = self.finished
            self._progress.epoch_began()
            yield epoch

    def is_last(self, epoch: int) -> bool:
        """Whether the run ends with this epoch, whose rollouts and tokens are already counted."""
        spent = zip((self.rollouts, self.tokens), self._most, strict=True)
        return any(most and so_far >= most for so_far, most in spent) or epoch + 1 >= self._last

    def finish(self, epoch: int, metrics: Mapping[str, float]) -> None:
        """Ends an epoch: writes its lines, and a checkpoint if one is due."""
        self.finished = epoch + 1
        self.begun, self.within = {}, {}
        self.log(metrics)
        if self.ended or self.finished % self._checkpoint.every == 0:
            with self.measure("checkpoint"), held():
                self.save()

    @contextlib.contextmanager
    def batch(self, done: int) -> Iterator[None]:
        """The context of one of the agent's batches, after which a checkpoint is written if one is due.

        It is also written if SIGTERM comes within the block; the run ends then.  Time and signals decide only
        when one is written.  Without `checkpoint.minutes` this does nothing.

        done: tasks of the epoch that have been attempted at the block's end.
        """
        if not self._checkpoint.minutes:
            yield
            return
        with held(signal.SIGTERM) as came:
            yield
            due = time.monotonic() - self._saved >= 60 * self._checkpoint.minutes
            said = processes.gather("within the epoch", "ends" if came else "due" if due else "")
            if said[0] == "due" or "ends" in said:
                with self.measure("checkpoint"), held():
                    self.save(done)
            if "ends" in said:  # together, since all write the checkpoint
                self._partial.wait()
                end(signal.SIGTERM)

    def log(self, metrics: Mapping[str, float]) -> None:
        """Writes the finished epoch's lines to metrics.jsonl and timing.jsonl, and shows them."""
        numbers = self.files.metrics.write(self.finished, metrics)
        self._trackers.log(self.finished, numbers, self._tables)
        self._tables = {}
        timing = self._clock.lap(self.rollouts)
        self.files.timing.write(self.finished, timing, more={"about": self.about} if self.about else {})
        self.about = {}
        rate = timing.get("rollouts_per_second")
        shown = cells(metrics) | {"roll/s": "" if rate is None else f"{rate:,.{0 if rate >= 10 else 1}f}"}
        self._progress.epoch_done(self.finished, shown)

    def sample(self, table: str, records: Sequence[T], row: Callable[[T], dict[str, Any]]) -> None:
        """Gives the trackers rows of a few records, together with the next line that `log` writes."""
        if rows := [row(record) for record in spread(records, self._trackers.samples)]:
            self._tables[f"samples/{table}"] = rows

    def save(self, done: int = 0) -> None:
        """Saves a checkpoint asynchronously.

        done: for a mid-epoch checkpoint, tasks of the epoch that have been attempted.
        """
        within = {"within": {name: state() for name, state in self.within.items()}} if done else {}
        if self._partial:  # one at a time
            (self._checkpoints if done else self._partial).wait()
        (self._partial if done else self._checkpoints).save(
            self.finished,
            {name: part.state for name, part in self._trained.items()},
            {
                "finished_epochs": self.finished,
                "total_rollouts": self.rollouts,
                "total_tokens": self.tokens,
                "parts": {name: part.state() for name, part in self._parts.items()},
                "offsets": self.files.offsets(),
                "digests": self.files.digests(),
                **within,
            },
            done,
        )
        self._saved = time.monotonic()

    # -- randomness, display and clock ---------------------------------------------------------------

    def rng(self, stream: Stream, *ids: int) -> np.random.Generator:
        """A stream's generator on the host."""
        return streams.rng(self.seed, stream, *ids)

    def key(self, stream: Stream, *ids: int) -> PRNGKey:
        """A stream's key for the devices."""
        return streams.key(self._root_key, stream, *ids)

    def phase(
        self, name: str, total: int | None = None, unit: str = "items", epoch: int | None = None
    ) -> contextlib.AbstractContextManager[Phase]:
        """A phase of the display; see `Progress.phase`."""
        return self._progress.phase(name, total, unit, epoch)

    def measure(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Adds the seconds of a block to `name`; see `RunClock.measure`."""
        return self._clock.measure(name)
