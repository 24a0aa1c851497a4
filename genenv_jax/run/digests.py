"""Digests of files, by which damage is noticed that a file's own format does not show.

Needs no JAX.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import os
import pathlib
from collections.abc import Collection

from genenv_jax.run.jsonl import read_json, write_json

NAME = "digests.json"
_PIECE = 1 << 22  # bytes read at a time


def of_file(path: str | os.PathLike[str], size: int | None = None) -> str:
    """Digest (hex) of a file's first `size` bytes, or of all."""
    return Growing(path)(size)


class Growing:
    """The digest of a file that is only appended to: what has been read once is not read again."""

    def __init__(self, path: str | os.PathLike[str]):
        self._path, self._digest, self._done = path, hashlib.blake2b(digest_size=32), 0

    def __call__(self, size: int | None = None) -> str:
        """Digest (hex) of the file's first `size` bytes, at least as many as the last time; or of all."""
        with open(self._path, "rb") as file:
            file.seek(self._done)
            while size is None or self._done < size:
                piece = file.read(_PIECE if size is None else min(_PIECE, size - self._done))
                if not piece:
                    break
                self._digest.update(piece)
                self._done += len(piece)
        return self._digest.hexdigest()


def _digests(directory: pathlib.Path, names: list[str]) -> dict[str, str]:
    # hashlib lets go of the interpreter, so threads are worth it.
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        return dict(zip(names, pool.map(lambda n: of_file(directory / n), names), strict=True))


def seal(directory: str | os.PathLike[str], without: Collection[str] = ()) -> None:
    """Writes the digests of all files of a complete directory into it.

    without: names of files that may still change.
    """
    directory = pathlib.Path(directory)
    files = (path for path in directory.rglob("*") if path.is_file())
    names = [f.relative_to(directory).as_posix() for f in files if f.name not in (NAME, *without)]
    write_json(directory / NAME, _digests(directory, sorted(names)))


def is_sealed(directory: str | os.PathLike[str]) -> bool:
    """Whether the directory has digests."""
    return (pathlib.Path(directory) / NAME).is_file()


def check(directory: str | os.PathLike[str], part: int = 0, parts: int = 1) -> None:
    """Compares a sealed directory with its digests.

    part, parts: of several processes, each reads every `parts`-th file, from number `part`.
    Raises ValueError, naming the file, where one is damaged or missing, and OSError where one cannot be read.
    """
    directory = pathlib.Path(directory)
    sealed = read_json(directory / NAME, "digests of the files beside it")
    names = sorted(sealed)[part::parts]
    if missing := [name for name in names if not (directory / name).is_file()]:
        raise ValueError(f"{directory / missing[0]} is missing")
    found = _digests(directory, names)
    if damaged := [name for name in names if found[name] != sealed[name]]:
        raise ValueError(
            f"{directory / damaged[0]} is damaged: its bytes are not those that were written"
        )
