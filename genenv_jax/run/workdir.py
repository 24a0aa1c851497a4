"""The files of a run: its settings, its append-only records, and how a resumed run reopens both.

In a multi-process run the workdir lies on storage that all processes see.  The first process writes and all
read.  They all read the same, so they make the same decisions.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from absl import logging

from genenv_jax.benchmarks.base import Benchmark, Task
from genenv_jax.models import huggingface
from genenv_jax.parallel import processes
from genenv_jax.run.checkpoint import newest_host
from genenv_jax.run.digests import Growing
from genenv_jax.run.jsonl import JsonLines, read_json, write_json
from genenv_jax.run.metrics import MetricWriter, step_of
from genenv_jax.settings import flatten
from genenv_jax.system.ownership import RUN, owned, refuse_other, remove_stale

# Settings that may change when a run is resumed, since they do not change its results; `mesh` to
# `micro_batches` change rounding only (a preempted run may get another slice).
_FREE = {
    *("epochs", "tracking", "export", "checkpoint", "scoring"),
    *("compilation_cache", "compile_ahead", "model.make.cache_dir"),
    *("mesh", "memory.offload", "model.remat", "model.attention", "sampling"),
    *("agent.micro_batches", "simulator.micro_batches"),
    "tasks.teacher.budget",
}


def settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration by dotted keys, sorted, with values as in JSON."""
    return json.loads(json.dumps(flatten(config), sort_keys=True))


def compare_settings(config: Mapping[str, Any]) -> None:
    """Raises ValueError if the processes of this run have different settings."""
    lines = (f"config.{key} = {json.dumps(value)}" for key, value in settings(config).items())
    processes.same_everywhere("the configuration", "\n".join(lines))


def compare_data(benchmark: Benchmark) -> str:
    """A digest of the benchmark's tasks.  Raises ValueError if the run's processes read different ones."""
    lines = []
    for split in ("seed", "eval"):
        digest = hashlib.sha256()
        for task in benchmark.tasks(split):
            digest.update(json.dumps(task.to_json(), sort_keys=True).encode() + b"\n")
        lines.append(f"{split}: {len(benchmark.tasks(split))} tasks {digest.hexdigest()[:16]}")
    processes.same_everywhere("the benchmark's data", "\n".join(lines))
    return "; ".join(lines)


def make_shared(workdir: pathlib.Path, patience: float = 10.0, setting: str = "--workdir") -> None:
    """Makes the workdir, or another directory, and checks that every process sees it.

    Args:
      patience: seconds that a new file may take to appear on other hosts of a network file system.
      setting: the setting or flag that names the directory, for the message.
    Raises:
      ValueError: on every process, naming those that do not see what process 0 writes there.
    """
    if processes.is_writer():
        if workdir.exists() and not workdir.is_dir():
            raise NotADirectoryError(f"{setting}={workdir} is a file: expected a directory")
        workdir.mkdir(parents=True, exist_ok=True)
    if processes.process_count() == 1:
        return
    mark = workdir / f".shared-{processes.agree('workdir', secrets.token_hex(8))}"
    if processes.is_writer():
        mark.touch()
    processes.barrier("workdir is marked")
    deadline = time.monotonic() + patience
    while not (seen := mark.exists()) and time.monotonic() < deadline:
        time.sleep(0.1)
        with contextlib.suppress(OSError):
            os.listdir(workdir)  # makes a network file system look again
    sights = processes.gather("workdir is seen", str(workdir) if not seen else "")
    if processes.is_writer():
        mark.unlink()
    if blind := [f"process {i} ({path})" for i, path in enumerate(sights) if path]:
        raise ValueError(
            f"{setting}={workdir}: {', '.join(blind)} cannot see what process 0 writes there; expected "
            "a directory on storage that all processes share, under the same path"
        )


@contextlib.contextmanager
def lock(workdir: pathlib.Path) -> Iterator[None]:
    """Locks the workdir for this run within the block, and removes leftovers of a killed run.

    In a run with several processes, the first one holds the lock.

    Raises ValueError if another run holds it, saying which and since when, or if it is not a run's.
    """
    refuse_other(workdir, RUN, "--workdir")
    make_shared(workdir)
    with contextlib.ExitStack() as stack:
        if processes.is_writer():
            stack.enter_context(owned(workdir / "run.lock", f"--workdir={workdir}"))
            for directory in (workdir, workdir / "held_out"):
                remove_stale(directory)
        processes.barrier("workdir is held")
        yield


class RunSettings:
    """config.json of a workdir, which is made if missing.  Every checkpoint has a copy.

    If the file is missing or damaged, the newest checkpoint's copy replaces it.

    Raises ValueError if the workdir's run, or a process of this run, has other settings; the file is damaged
    and there is no copy; its checkpoints are gone; or not all processes see the workdir.
    """

    def __init__(self, workdir: pathlib.Path, config: Mapping[str, Any]):
        self._workdir, self._path = workdir, workdir / "config.json"
        self._content = dict(config)
        make_shared(workdir)
        _check_checkpoints(workdir)
        stored = self._read()
        compare_settings(config)
        self._compare(stored)
        self._fingerprint, self._tasks = stored.get("fingerprint"), stored.get("tasks_digest")

    def _read(self) -> dict[str, Any]:
        """The settings that the workdir's run was started with; {} if it has not been started."""
        error = None
        try:
            return read_json(self._path, "settings")
        except FileNotFoundError:
            pass
        except ValueError as damage:
            error = damage
        host = newest_host(self._workdir / "checkpoints")
        copy = host["parts"].get("settings") if host else None
        if copy is None and error:
            raise error
        if copy is not None and processes.is_writer():
            logging.warning(
                "%s: using the copy in the newest checkpoint", error or f"{self._path} is missing"
            )
        return copy or {}

    def _compare(self, stored: Mapping[str, Any]) -> None:
        """Raises ValueError if the run was started with other settings or from another model."""
        given, before = settings(self._content), settings(stored)
        for key in ("fingerprint", "tasks_digest"):
            if key not in given or key not in before:  # not known yet
                given.pop(key, None), before.pop(key, None)
        for key in sorted(before.keys() | given.keys() if before else ()):
            group = key.split(".")[0]
            if key not in _FREE and group not in _FREE and before.get(key) != given.get(key):
                now = f"now it is {given[key]!r}" if key in given else "now there is no such setting"
                raise ValueError(
                    f"{self._path} belongs to a run with config.{key} = {before.get(key)!r}, but {now}: "
                    "expected the same settings, or another --workdir"
                )

    def add_tasks(self, digest: str) -> None:
        """Adds the digest of the run's tasks, before `write`; see `compare_data`.

        Raises ValueError if the run was started with other tasks.
        """
        if self._tasks not in (None, digest):
            raise ValueError(
                f"{self._workdir} holds a run whose tasks were {self._tasks}, but now they are {digest}: "
                "expected the same data and code of the benchmark, or another --workdir"
            )
        self._content["tasks_digest"] = digest

    def write(self, *models: str | os.PathLike) -> None:
        """Writes the settings and the fingerprint of the model directories that the players start from.

        Raises ValueError if the run was started from another model, or if the processes have different
        models.
        """
        fingerprint = " ".join(map(huggingface.fingerprint, dict.fromkeys(models)))
        processes.same_everywhere("the model that the players start from", fingerprint)
        if self._fingerprint not in (None, fingerprint):
            raise ValueError(
                f"{self._workdir} holds a run that started from a model with fingerprint "
                f"{self._fingerprint}, but {models[0]} has {fingerprint}: expected the same model, or "
                "another --workdir"
            )
        self._content["fingerprint"] = fingerprint
        if processes.is_writer():
            write_json(self._path, self._content, sort_keys=True)

    def state(self) -> dict[str, Any]:
        """The copy for a checkpoint; call it after `write`."""
        return json.loads(json.dumps(self._content))

    def restore(self, state: Mapping[str, Any], tasks: Iterable[Task]) -> None:
        """Raises ValueError if the checkpoint's run had other settings or another model."""
        self._compare(state)


_RECORDS = ("tasks", "d_train", "d_env", "metrics", "timing")
_FOLDERS = ("held_out", "agent", "simulator", "agent_adapter", "simulator_adapter")


def _written(workdir: pathlib.Path) -> list[pathlib.Path]:
    """What a run has written besides its checkpoints: records that are not empty, and folders."""
    records = (workdir / f"{name}.jsonl" for name in _RECORDS)
    folders = (workdir / name for name in _FOLDERS)
    return [p for p in records if p.exists() and p.stat().st_size] + [p for p in folders if p.exists()]


def _check_checkpoints(workdir: pathlib.Path) -> None:
    """Raises ValueError if a run's files are here, but not its checkpoints: a new run would replace them.

    The checkpoints' folder is made before anything is written.
    """
    if (workdir / "checkpoints").exists():
        return
    if written := _written(workdir):
        raise ValueError(
            f"{workdir / 'checkpoints'} is missing, but a run has written {written[0].name}: expected its "
            "checkpoints there too (is a disk not mounted?), or another --workdir"
        )


def set_aside(workdir: pathlib.Path) -> None:
    """Moves away what a run without a checkpoint has written, if there are whole epochs, and says so.

    A run that was killed before its first checkpoint begins anew; one whose checkpoints were removed must not
    lose its records.
    """
    written = _written(workdir)
    if not {path.stem for path in written} & {"tasks", "d_env"}:
        return
    aside = workdir / f"before-{secrets.token_hex(4)}"
    aside.mkdir()
    for path in written:
        path.rename(aside / path.name)
    logging.warning("%s has no checkpoint; its files were moved to %s", workdir, aside)


def check_files(workdir: pathlib.Path, host: Mapping[str, Any]) -> dict[str, Growing]:
    """Compares a run's append-only files with the lengths and digests in a checkpoint's host values.

    timing.jsonl is not compared, since nothing depends on it.

    Returns:
      the digests of the compared files, by name, which can be extended from there.
    Raises:
      ValueError: a file is shorter than it was, or its bytes up to there differ; names the file.
      FileNotFoundError: a file is missing.
    """
    digests = {}
    for name in _RECORDS[:-1]:
        path, length = workdir / f"{name}.jsonl", host["offsets"][name]
        size = path.stat().st_size if length else 0
        if size < length:
            raise ValueError(f"{path} has {size} bytes, but had {length} when it was written")
        digests[name] = Growing(path)
        if digests[name](length) != host["digests"][name]:
            raise ValueError(f"{path} is damaged: its first {length} bytes are not those that were written")
    return digests


class RunFiles:
    """The files that a run appends to.

    tasks: every generation.  d_train, d_env: the two pools.  metrics: values that a repeated run reproduces.
    timing: values that it does not.  On all processes but the first the files are read-only.

    Every file is truncated to its length in the checkpoint that the run resumes from.  Missing or damaged
    lines of timing.jsonl are dropped.

    Args:
      lengths: in bytes, by name; 0 for files without an entry.
      digests: of files up to there, by name, from `check_files`; files without an entry get new ones.
    Raises:
      ValueError: a file is shorter than that.
    """

    def __init__(self, workdir: pathlib.Path, lengths: Mapping[str, int], digests: Mapping[str, Growing]):
        other = not processes.is_writer()
        if not other:
            for name in _RECORDS:
                _cut(workdir / f"{name}.jsonl", lengths.get(name, 0), needed=name != "timing")
        processes.barrier("files are cut back")
        self.tasks = JsonLines(workdir / "tasks.jsonl", read_only=other)
        self.d_train = JsonLines(workdir / "d_train.jsonl", read_only=other)
        self.d_env = JsonLines(workdir / "d_env.jsonl", read_only=other)
        self.metrics = MetricWriter(workdir / "metrics.jsonl", read_only=other)
        self.timing = MetricWriter(workdir / "timing.jsonl", read_only=other)
        self._files = {name: getattr(self, name) for name in _RECORDS}
        self._digests = {name: Growing(file.path) for name, file in self._files.items()} | dict(digests)

    def offsets(self) -> dict[str, int]:
        """Lengths in bytes, for a checkpoint; {} on processes that do not write."""
        if not processes.is_writer():
            return {}
        return {name: file.offset() for name, file in self._files.items()}

    def digests(self) -> dict[str, str]:
        """Digests of their bytes, for a checkpoint; {} on processes that do not write."""
        if not processes.is_writer():
            return {}
        return {name: digest() for name, digest in self._digests.items()}

    def close(self) -> None:
        """Closes the files."""
        for file in self._files.values():
            file.close()


def _cut(path: pathlib.Path, length: int, needed: bool) -> None:
    """Truncates a JSON lines file before it is opened, since the rest may be damaged."""
    if not needed and (readable := _readable(path)) < length:
        logging.warning("%s: lines are missing or damaged, and left out", path)
        length = readable
    if path.exists() or length:
        with path.open("rb+") as file:
            if file.seek(0, os.SEEK_END) < length:
                raise ValueError(f"{path} is shorter than the {length} bytes that it had")
            file.truncate(length)


def _readable(path: pathlib.Path) -> int:
    """Number of bytes before the first damaged line."""
    length = 0
    with contextlib.suppress(OSError, ValueError), path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            step_of(json.loads(line), path, number)
            length += len(line)
    return length
