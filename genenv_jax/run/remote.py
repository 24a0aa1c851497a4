"""Workdirs in Cloud Storage, gs://BUCKET/RUN: a local mirror of the files; checkpoints in the bucket itself.

    with opened("gs://bucket/run") as workdir:       # an empty directory of this process
        with Store(workdir).owned():
            Store(workdir).fetch()

Objects can only be replaced as a whole, but a run appends to its records and truncates them.  So every
process has a mirror: a directory in the user's cache that starts empty and is removed when the process ends.
`Store.fetch` downloads what a resume reads.  The first process writes to its mirror as to any workdir, and
`Store.push` replaces the objects whose files have changed.  The rest of the package sees a plain directory.
`shared` is the location that all processes see: Orbax writes checkpoints there, each process its own shards,
so no host needs room for all of them.  For a plain directory, mirror and shared location are the directory.

Why a run that is killed at any point resumes to the same bytes, with an empty mirror:

- An object has its old bytes or its new ones.  A checkpoint counts once it has `commit_success.txt`, which
  Orbax writes last, after the digests.
- `Session.save` pushes the records before Orbax starts.  So when checkpoint N counts, each record in the
  bucket contains the bytes whose length and digest N stores; later pushes only append to them.
- Killed before or during the push of N: every record is as in N - 1 or longer.  Killed after it, or while
  Orbax writes: N does not count and is removed at the next start, and the records are longer than N - 1
  says.  Either way N - 1 is restored, and the mirror's records are truncated to its lengths.
- If a damaged newer checkpoint is skipped, it is removed before the shorter records are pushed.  One whose
  removal was interrupted lacks files, or asks for longer records than there are, so it is skipped again.

The lock is an object too, written only if it is unchanged since it was read (a conditional write).  Its
holder rewrites it every `_BEAT` seconds.  A new process that sees no beat for `_DEAD` seconds takes it over,
so a run resumes on a fresh machine without manual steps.  The guarantee is weaker than a file lock's: a
holder that was offline or suspended for so long may still write until its next beat finds the lock taken.

Needs no JAX.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pathlib
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Any

import fsspec
from absl import logging
from etils import epath

from genenv_jax.system import ownership
from genenv_jax.system.user_cache import user_cache

_BEAT, _DEAD = 30.0, 180.0  # seconds
_MARK = ".store"  # file in a mirror with the URL that it mirrors
_FETCHED = ("", "held_out/")  # folders whose files a resume or a report reads
CHECKPOINTS = "checkpoints", "within_epoch"  # at the ends of epochs, and the newest within one
_OWN = (
    *CHECKPOINTS,
    "xla_cache",
    "run.lock",
)  # not pushed: already in the bucket, or local to this machine


def is_remote(path: str, setting: str = "--workdir") -> bool:
    """Whether a path is in Cloud Storage.  Raises ValueError, naming `setting`, for other URLs."""
    scheme, found, rest = path.partition("://")
    if not found:
        return False
    parts = rest.rstrip("/").split("/")
    if scheme != "gs" or any(part in ("", ".", "..") for part in parts):
        raise ValueError(
            f"{setting}={path}: expected a directory of this machine, or gs://BUCKET/PATH"
        )
    return True


@contextlib.contextmanager
def opened(workdir: str, setting: str = "--workdir") -> Iterator[pathlib.Path]:
    """Yields the local directory of a workdir: itself, or a new mirror of gs://BUCKET/PATH.

    Raises ValueError, naming `setting`, for other URLs, and if gcsfs or the bucket is missing.
    """
    if not is_remote(workdir, setting):
        yield pathlib.Path(workdir)
        return
    url = workdir.rstrip("/")
    if importlib.util.find_spec("gcsfs") is None:
        raise ValueError(
            f"{setting}={workdir} needs gcsfs: expected `pip install 'genenv_jax[gcs]'` before, or a "
            "directory of this machine (a bucket can be mounted with gcsfuse)"
        )
    # Listings become stale: TensorStore and other processes write too.
    fsspec.config.conf.setdefault("gcs", {})["use_listings_cache"] = False
    with _named(f"{setting}={workdir}", ValueError):
        from google.cloud import storage

        storage.Client().get_bucket(url.split("/")[2])  # Orbax asks for it too
    root = user_cache() / "workdirs"
    root.mkdir(parents=True, exist_ok=True)
    ownership.remove_stale(root)
    scratch = ownership.scratch_name(root / "mirrors")
    scratch.mkdir(exist_ok=True)
    parent = pathlib.Path(tempfile.mkdtemp(dir=scratch))
    try:
        mirror = parent.joinpath(*url.split("/")[2:][-2:])
        mirror.mkdir(parents=True)
        (mirror / _MARK).write_text(url)
        yield mirror
    finally:
        shutil.rmtree(parent, ignore_errors=True)
        with contextlib.suppress(OSError):
            scratch.rmdir()


def shared(workdir: pathlib.Path) -> pathlib.Path | epath.Path:
    """The directory that all processes of a run see: the workdir, absolute, or the URL that it mirrors."""
    url = _url(workdir)
    return epath.Path(url) if url else workdir.absolute()


def _url(workdir: pathlib.Path) -> str:
    mark = workdir / _MARK
    return mark.read_text() if mark.is_file() else ""


@contextlib.contextmanager
def _named(what: str, kind: type[Exception] = OSError) -> Iterator[None]:
    """Turns the storage layers' errors, which are often long and name no object, into one line."""
    try:
        yield
    except Exception as error:
        reason = str(error).strip().partition("\n")[0][:300] or type(error).__name__
        raise kind(
            f"{what}: {reason}; expected a bucket that exists and that this machine may read and write"
        ) from error


class Store:
    """The bucket behind a workdir.  For a plain directory all methods do nothing.

    Raises OSError, naming the object, if the bucket does not answer or refuses.
    """

    def __init__(self, workdir: pathlib.Path):
        self._workdir, self._url = workdir, _url(workdir)
        self._pushed: dict[str, Any] = {}
        if self._url:
            self._files, self._root = fsspec.url_to_fs(self._url)

    def fetch(self) -> None:
        """Downloads what a resume or a report reads into the mirror."""
        for folder in _FETCHED if self._url else ():
            with _named(f"{self._url}/{folder}"):
                (self._workdir / folder).mkdir(exist_ok=True)
                found = self._files.find(f"{self._root}/{folder}", maxdepth=1)
                for path in found:
                    name = path[len(self._root) + 1 :]
                    if name not in _OWN and not name.endswith("/"):
                        self._files.get_file(path, str(self._workdir / name))

    def push(self) -> None:
        """Replaces the objects whose files have changed; only the first process calls it."""
        for path in sorted(self._workdir.rglob("*")) if self._url else ():
            name = path.relative_to(self._workdir).as_posix()
            hidden = any(part.startswith(".") for part in name.split("/"))
            if hidden or name.split("/")[0] in _OWN or not path.is_file():
                continue
            status = path.stat()
            state = status.st_size, status.st_mtime_ns
            if self._pushed.get(name) != state:
                with _named(f"{self._url}/{name}"):
                    self._files.put_file(str(path), f"{self._root}/{name}")
                self._pushed[name] = state

    @contextlib.contextmanager
    def owned(self) -> Iterator[None]:
        """Holds the object run.lock within the block.

        Raises ValueError, naming the holder, if another process has it; to be sure takes a few beats.
        """
        if not self._url:
            yield
            return
        with _named(f"{self._url}/run.lock"):
            lock = _Lock(self._url)
            holder = lock.take()
        if holder:
            raise ValueError(f"--workdir={self._url} is in use by {holder}; expected it to be free")
        beats = threading.Thread(target=lock.beat, daemon=True)
        beats.start()
        try:
            yield
        finally:
            lock.ended.set()
            beats.join()
            with contextlib.suppress(Exception):  # the next run takes it over
                lock.leave()


class _Lock:
    """See the module's docstring.  ended: set to stop the beats."""

    def __init__(self, url: str):
        import tensorstore as ts  # Orbax's; only it has conditional writes

        self._name, self.ended = f"{url}/run.lock", threading.Event()
        self._me, self._generation = ownership.me(), b""
        self._objects = ts.KvStore.open(f"{url}/").result()

    def _read(self) -> bytes:
        found = self._objects.read("run.lock").result()
        self._generation = found.stamp.generation
        return found.value

    def _write(self, content: bytes | None) -> bytes:
        """Writes or removes (None) the lock if unchanged since our last access; else returns b""."""
        done = self._objects.write("run.lock", content, if_equal=self._generation).result()
        return done.generation

    def _keep(self) -> bool:
        """Rewrites the lock; returns whether this process now holds it."""
        if generation := self._write(self._me):
            self._generation = generation
            return True
        return self._read() == self._me  # the answer to an earlier attempt was lost

    def take(self) -> str:
        """Takes the lock; returns "" or a description of its holder."""
        content = self._read()
        holder = ownership.parse(content)
        if content and not (holder and ownership.has_ended(holder)):
            who = ownership.describe(holder, self._name)
            if (holder and ownership.is_here(holder)) or self._beats(who):
                return who
        return "" if self._keep() else self.take()  # another process was faster

    def leave(self) -> None:
        """Removes the lock if this process still holds it."""
        self._write(None)

    def _beats(self, who: str) -> bool:
        """Whether its holder rewrites the lock within `_DEAD` seconds."""
        logging.warning(
            "%s: held by %s; looking for %.0f s whether it lives", self._name, who, _DEAD
        )
        deadline, seen = time.monotonic() + _DEAD, self._generation
        while time.monotonic() < deadline:
            time.sleep(_DEAD / 36)
            self._read()
            if self._generation != seen:
                return True
        return False

    def beat(self) -> None:
        """Rewrites the lock until `ended`; exits the process if another one has taken it."""
        while not self.ended.wait(_BEAT):
            try:
                kept = self._keep()
            except Exception as error:  # the bucket may recover before another run takes the lock
                logging.warning("%s could not be written: %s", self._name, error)
                continue
            if not kept:
                print(f"error: another run has taken {self._name}", file=sys.stderr, flush=True)
                os._exit(2)  # at once, so that nothing more is written there
