"""Experiment trackers: TensorBoard, Weights & Biases and Trackio behind one interface.

`metrics.jsonl` is the authoritative record.  Trackers receive a step after its line is written.  One that
fails (no network, a full disk) is dropped with a single warning, so that it cannot stop the run.  Only the
first process tracks.  A tracker's package is imported when the tracker is opened.
"""

import contextlib
import dataclasses
import importlib.util
import os
import pathlib
import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from absl import logging

from genenv_jax.parallel import processes
from genenv_jax.run.jsonl import read_json, write_json
from genenv_jax.settings import Settings
from genenv_jax.system.keys import as_line
from genenv_jax.system.signals import held

# Rows with the same columns, by table name; a cell is text, a number or None.
Tables = Mapping[str, Sequence[Mapping[str, Any]]]

# Packages that each tracker imports.  clu's writer needs both; TensorFlow may come without tensorboard.
_PACKAGES = {"tensorboard": ("tensorflow", "tensorboard"), "wandb": ("wandb",), "trackio": ("trackio",)}
SAMPLES = 8  # rows in each table of generations, answers and held-out answers
_PATIENCE = 60.0  # seconds that W&B may take at the end to send the rest


@dataclasses.dataclass(frozen=True)
class TrackingConfig(Settings):
    """`config.tracking`.

    Attributes:
      trackers: any of "tensorboard", "wandb" and "trackio"; "auto" is TensorBoard if it is installed.
      project: the runs' project in W&B and Trackio.

    Everything else is set in the services' own environment variables: WANDB_API_KEY, WANDB_ENTITY,
    WANDB_MODE=offline, WANDB_DIR (default: the workdir) and so on; TRACKIO_DIR (where Trackio keeps runs on
    this machine), or TRACKIO_SPACE_ID or TRACKIO_SERVER_URL (where it sends them).
    """

    trackers: tuple[str, ...] = ("auto",)
    project: str = "genenv"

    def __post_init__(self):
        super().__post_init__()
        known = ["auto", *_PACKAGES]
        if not set(self.trackers) <= set(known):
            raise ValueError(f"trackers = {self.trackers!r}: expected a tuple of any of {known}")
        if not self.project:
            raise ValueError("project is empty: expected the name of a project")

    def check(self) -> None:
        """Raises ValueError if a named tracker is not installed; call it before a run begins."""
        for name in self.trackers if processes.is_writer() else ():
            if name != "auto" and (missing := _missing(name)):
                raise ValueError(
                    f"config.tracking.trackers names {name!r}, but {' and '.join(missing)} cannot be found: "
                    f"run `pip install -e '.[{name}]'`, or choose another tracker"
                )


class Tracker(Protocol):
    """Shows a run elsewhere.  Any method may raise anything."""

    def log(self, step: int, scalars: Mapping[str, float], tables: Tables) -> None:
        """Receives everything of a step, which is one row for the services; steps ascend."""

    def close(self) -> None:
        """Sends what is left.  If called while an exception is handled, the run failed or was stopped."""


class TensorBoard:
    """Event files in the workdir's directory "tensorboard", for scalars only.

    They cannot be truncated; a repeated step has the same values, so the curves do not change.
    """

    def __init__(self, workdir: pathlib.Path):
        import tensorflow as tf
        from clu import metric_writers

        # Otherwise TensorFlow would claim the memory of the GPUs that JAX computes on.
        tf.config.set_visible_devices([], "GPU")
        self._writer = metric_writers.SummaryWriter(os.fspath(workdir / "tensorboard"))

    def log(self, step: int, scalars: Mapping[str, float], tables: Tables) -> None:
        self._writer.write_scalars(step, scalars)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class WandB:
    """A run in Weights & Biases; with WANDB_MODE=offline, a directory in the workdir for `wandb sync`."""

    def __init__(self, project: str, run_id: str, workdir: pathlib.Path, config: Mapping[str, Any]):
        import wandb

        # At a terminal `init` would prompt, and the run would wait for an answer.
        asks = wandb.run is None and wandb.setup().settings.mode == "online"
        if asks and not wandb.login(prompt=False):
            raise PermissionError(
                "not logged in: run `wandb login`, or set WANDB_API_KEY or WANDB_MODE=offline"
            )
        names = ("disable_code", "disable_git")  # off, unless its environment says otherwise
        off = {name: True for name in names if f"WANDB_{name.upper()}" not in os.environ}
        self._table = wandb.Table
        self._run = wandb.init(
            project=project,
            id=run_id,
            name=run_id,
            resume="allow",
            config=dict(config),
            dir=os.environ.get("WANDB_DIR", os.fspath(workdir)),
            # Do not touch a run that a notebook has open.
            settings=wandb.Settings(reinit="create_new", finish_timeout=_PATIENCE, **off),
        )

    def log(self, step: int, scalars: Mapping[str, float], tables: Tables) -> None:
        shown = {
            name: self._table(columns=list(rows[0]), data=[list(row.values()) for row in rows])
            for name, rows in tables.items()
        }
        # Without `commit` W&B would send it with the next step.
        self._run.log({**scalars, **shown}, step=step, commit=True)

    def close(self) -> None:
        self._run.finish(exit_code=int(sys.exc_info()[0] is not None))


class Trackio:
    """A run in Trackio, which finds runs by name and warns about failed writes instead of raising."""

    def __init__(self, project: str, run_id: str, workdir: pathlib.Path, config: Mapping[str, Any]):
        import trackio

        self._trackio = trackio
        self._run = trackio.init(
            project=project, name=run_id, resume="allow", config=dict(config), embed=False
        )

    def log(self, step: int, scalars: Mapping[str, float], tables: Tables) -> None:
        shown = {name: self._trackio.Table(data=list(rows)) for name, rows in tables.items()}
        self._run.log({**scalars, **shown}, step=step)

    def close(self) -> None:
        self._trackio.finish()


_SERVICES = {"wandb": WandB, "trackio": Trackio}


class RunId:
    """tracking.json of a workdir: the run's id in W&B and Trackio, and the last step sent to them.

    A step is noted before it is sent.  So no step is sent twice, whatever a resumed run repeats; a step whose
    sending was cut off by SIGKILL is missing there.

    Attributes:
      id: made once from the workdir's name and eight random hexadecimal digits.
    Raises ValueError if the file is damaged.
    """

    def __init__(self, workdir: pathlib.Path):
        self._path = workdir / "tracking.json"
        try:
            content = read_json(self._path, "the run's id")
        except FileNotFoundError:
            name = "-".join(workdir.absolute().parts[-2:])
            name = "".join(c if c.isascii() and c.isalnum() else "-" for c in name).strip("-")
            content = {"id": f"{name[-48:]}-{secrets.token_hex(4)}", "step": -1}
            write_json(self._path, content)
        self.id, self._step = content.get("id"), content.get("step")
        if not isinstance(self.id, str) or type(self._step) is not int:
            raise ValueError(f"{self._path} is damaged: expected the run's id and its last step")

    def takes(self, step: int) -> bool:
        """Whether a step has not been sent yet; marks it as sent."""
        if step <= self._step:
            return False
        self._step = step
        write_json(self._path, {"id": self.id, "step": step})
        return True


class Trackers:
    """A run's trackers, as one `Tracker` that raises nothing.

    run: what W&B and Trackio show as its configuration.
    samples: rows that a table should have; 0 if no tracker shows tables.
    """

    def __init__(self, config: TrackingConfig, workdir: pathlib.Path, run: Mapping[str, Any]):
        self._open: dict[str, Tracker] = {}
        self._id: RunId | None = None
        for name in config.trackers if processes.is_writer() else ():
            if name == "auto":
                if _missing("tensorboard"):
                    continue
                name = "tensorboard"
            if name in self._open:
                continue
            with self._or_left_out(name):
                if name == "tensorboard":
                    self._open[name] = TensorBoard(workdir)
                else:
                    self._id = self._id or RunId(workdir)
                    self._open[name] = _SERVICES[name](config.project, self._id.id, workdir, run)
        self.samples = SAMPLES if self._services else 0

    @property
    def _services(self) -> list[str]:
        return [name for name in self._open if name in _SERVICES]

    @held()
    def log(self, step: int, scalars: Mapping[str, float], tables: Tables) -> None:
        """See `Tracker`; only TensorBoard receives a repeated step.  Signals are held until it returns."""
        names = list(self._open)
        if self._id and (services := self._services):
            with self._or_left_out(*services):
                if not self._id.takes(step):
                    names = [name for name in names if name not in services]
        for name in names:
            if name in self._open:
                with self._or_left_out(name):
                    self._open[name].log(step, scalars, tables)

    def close(self) -> None:
        """See `Tracker`; calling it again does nothing."""
        for name in list(self._open):
            with self._or_left_out(name):
                self._open.pop(name).close()

    @contextlib.contextmanager
    def _or_left_out(self, *names: str) -> Iterator[None]:
        """Drops the named trackers if the block fails."""
        try:
            yield
        except Exception as error:
            for name in names:
                self._open.pop(name, None)
            what = as_line(f"{type(error).__name__}: {error}")
            logging.warning("nothing more is sent to %s: %s", " and ".join(names), what[:500])


def _missing(tracker: str) -> list[str]:
    """The packages that a tracker needs and that are missing."""
    found = {name: importlib.util.find_spec(name) for name in _PACKAGES[tracker]}
    # A directory of that name, as W&B and TensorBoard leave behind, is found as a package without a file.
    return [name for name, spec in found.items() if spec is None or spec.origin is None]
