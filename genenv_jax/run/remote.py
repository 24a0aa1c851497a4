"""Workdirs in Cloud Storage, gs://BUCKET/RUN: a local mirror of the files; checkpoints in the bucket itself.

    with opened("gs://bucket/run") as workdir:       # a directory of this process, empty
        with Store(workdir).owned():
            Store(workdir).fetch()

Objects are replaced as a whole and never appended to, and a run appends to its records and cuts them back.
So every process has a mirror, a directory in the user's cache that begins empty and is removed with it.  What
a resume reads is fetched into it; the first process writes there as in any workdir, and `Store.push` replaces
the objects whose files have changed.  The rest of the package knows a plain directory.  `shared` is what all
processes see: there Orbax writes the checkpoints, every process its own shards, so that no host needs room
for all of them.  Of a plain directory all of this is the directory itself.

Why a run that is killed anywhere goes on to the same bytes, with an empty mirror:

- An object has its old bytes or the new ones.  A checkpoint counts when its `commit_success.txt` is there,
  which Orbax writes last, after the digests.
- `Session.save` pushes the records before Orbax begins.  So when checkpoint N counts, each record in the
  bucket has the bytes of which N has length and digest; a later push only adds to them.
- Killed before or within the push of N: every record is that of N - 1 or has grown.  Killed after it, or
  while Orbax writes: N does not count and is cleared away at the next start, and the records are longer than
  N - 1 says.  Either way N - 1 is restored, and the mirror's records are cut back to its lengths.
- Where a damaged newer checkpoint is passed over, it is removed before the shorter records are pushed.  One
  whose removal was cut short lacks files, or asks for longer records than there are: it is passed over again.

The lock is an object too, written only where it still is as it was read (a conditional write).  Its holder
writes it anew every `_BEAT` seconds, so a newcomer that sees no beat for `_DEAD` seconds takes it over, on a
fresh machine without anyone's help.  The guarantee is weaker than that of a file: a holder that was cut off
or suspended for so long writes what it has under way, until its next beat finds the lock taken and ends it.

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

from genenv_jax import ownership
from genenv_jax.user_cache import user_cache

_BEAT, _DEAD = 30.0, 180.0  # seconds
_MARK = ".store"  # of a mirror: what it mirrors
_FETCHED = ("", "held_out/")  # folders of which all files are read by a resume or a report
_OWN = (
    "checkpoints",
    "xla_cache",
    "run.lock",
)  # not pushed: in the bucket already, or of this machine


def is_remote(path: str, setting: str = "--workdir") -> bool:
    """Whether a path is in Cloud Storage; raises ValueError, naming `setting`, for other URLs."""
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
    """The directory that stands for a workdir within the block: itself, or a new mirror of gs://BUCKET/PATH.

    Raises ValueError, naming `setting`, for other URLs, and where gcsfs or the bucket is missing.
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
    # Others write: TensorStore, and the other processes.
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
    """The directory that all processes of a run see: a workdir, absolute, or what it mirrors."""
    url = _url(workdir)
    return epath.Path(url) if url else workdir.absolute()


def _url(workdir: pathlib.Path) -> str:
    mark = workdir / _MARK
    return mark.read_text() if mark.is_file() else ""


@contextlib.contextmanager
def _named(what: str, kind: type[Exception] = OSError) -> Iterator[None]:
    """Turns what the storage layers raise, which often is long and names nothing, into one line."""
    try:
        yield
    except Exception as error:
        reason = str(error).strip().partition("\n")[0][:300] or type(error).__name__
        raise kind(
            f"{what}: {reason}; expected a bucket that exists and that this machine may read and write"
        ) from error


class Store:
    """The bucket behind a workdir.  Where it is a plain directory, nothing here does anything.

    Raises OSError, naming what was asked for, where the bucket does not answer or refuses.
    """

    def __init__(self, workdir: pathlib.Path):
        self._workdir, self._url = workdir, _url(workdir)
        self._pushed: dict[str, Any] = {}
        if self._url:
            self._files, self._root = fsspec.url_to_fs(self._url)

    def fetch(self) -> None:
        """Brings what a resume or a report reads into the mirror."""
        for folder in _FETCHED if self._url else ():
            with _named(f"{self._url}/{folder}"):
                (self._workdir / folder).mkdir(exist_ok=True)
                found = self._files.find(f"{self._root}/{folder}", maxdepth=1)
                for path in found:
                    name = path[len(self._root) + 1 :]
                    if name not in _OWN and not name.endswith("/"):
                        self._files.get_file(path, str(self._workdir / name))

    def push(self) -> None:
        """Replaces the objects whose files have changed; of several processes the first one calls it."""
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

        Raises ValueError where another process does, saying who; it takes a few beats to be sure.
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
            with contextlib.suppress(Exception):  # it will be taken over
                lock.leave()


class _Lock:
    """See the module's docstring.  ended: set when the beats shall end."""

    def __init__(self, url: str):
        import tensorstore as ts  # Orbax's; it alone writes on conditions

        self._name, self.ended = f"{url}/run.lock", threading.Event()
        self._me, self._generation = ownership.me(), b""
        self._objects = ts.KvStore.open(f"{url}/").result()

    def _read(self) -> bytes:
        found = self._objects.read("run.lock").result()
        self._generation = found.stamp.generation
        return found.value

    def _write(self, content: bytes | None) -> bytes:
        """Writes it, or removes it (None), where it is as it was last read or written; else returns b""."""
        done = self._objects.write("run.lock", content, if_equal=self._generation).result()
        return done.generation

    def _keep(self) -> bool:
        """Writes it anew; whether it is this process's now."""
        if generation := self._write(self._me):
            self._generation = generation
            return True
        return self._read() == self._me  # the answer to an earlier attempt was lost

    def take(self) -> str:
        """Takes it, or says who holds it."""
        content = self._read()
        holder = ownership.parse(content)
        if content and not (holder and ownership.has_ended(holder)):
            who = ownership.describe(holder, self._name)
            if (holder and ownership.is_here(holder)) or self._beats(who):
                return who
        return "" if self._keep() else self.take()  # another was faster

    def leave(self) -> None:
        """Removes it where it is still this process's."""
        self._write(None)

    def _beats(self, who: str) -> bool:
        """Whether it is written anew within `_DEAD` seconds."""
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
        """Writes it anew until `ended`; ends the process where another has taken it."""
        while not self.ended.wait(_BEAT):
            try:
                kept = self._keep()
            except Exception as error:  # the bucket may answer again, before another takes the lock
                logging.warning("%s could not be written: %s", self._name, error)
                continue
            if not kept:
                print(f"error: another run has taken {self._name}", file=sys.stderr, flush=True)
                os._exit(2)  # at once: nothing more may be written there
